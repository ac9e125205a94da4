"""Access to the reference data sets outside the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from reference import available


def need_reference() -> None:
    """Skip the test if the data sets are absent; in CI fail the test."""
    if available():
        return
    if os.environ.get("CI"):
        pytest.fail("the reference data sets are missing in CI")
    pytest.skip("the reference data sets are not here; set HEARSAY_REFERENCE to their folder")
