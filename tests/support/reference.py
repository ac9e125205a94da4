"""Access to the reference data sets outside the repository."""

import os

import pytest

from benchmarks.shared.reference import available


def need_reference():
    """Skip the test if the data sets are absent; in CI fail the test."""
    if available():
        return
    if os.environ.get("CI"):
        pytest.fail("the reference data sets are missing in CI")
    pytest.skip("the reference data sets are not here; set HEARSAY_REFERENCE to their folder")
