"""The reference data sets beside the repository, for tests that need them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from reference import available


def need_reference() -> None:
    """Skip a test where the data sets are absent; in CI, where they must be there, fail it."""
    if available():
        return
    if os.environ.get("CI"):
        pytest.fail("the reference data sets are missing in CI")
    pytest.skip("the reference data sets are not here; set HEARSAY_REFERENCE to their folder")
