"""Rows of the independent reference on numeric features. All rows: benchmarks/models/accuracy.py --form numeric."""

from __future__ import annotations

import pytest
from support.reference import need_reference

from benchmarks.models.accuracy import measure
from benchmarks.shared.reference import numeric_cases

QUICK = "australian-none---gaussian-pca6-fit-pilot"
ROWS = (
    "pima-oue-one-3-discrete-pca6-fit-pilot",
    "australian-direct-all-3-discrete-dca-fit-train",
    "australian-bit-one-3-gaussian-approach2-pca1-fit-train",
    "pima-laplace-one-3-gaussian-approach1-dca-fit-pilot",
    "pima-laplace-one-3-gaussian-approach3-none-fit-train",
)


@pytest.mark.parametrize("name", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in ROWS)])
def test_the_independent_reference_is_met(name):
    """15 repeats of the vector engine within 2 points and three standard errors of the difference."""
    need_reference()
    case = next(case for case in numeric_cases() if case.name == name)
    result = measure(case, "vector", repeats=15, seed=21)
    assert result.agrees, f"{result.accuracy:.3f} instead of {case.accuracy:.3f} ± {result.allowed:.3f}"
