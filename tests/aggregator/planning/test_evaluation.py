"""Accuracy from private outcomes: unbiased, and its interval covers the truth as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from support.estimated import outcome

from aggregator.planning.evaluation import accuracy_of
from protocol.mechanisms import from_micro


@pytest.mark.parametrize("classes", [2, 3])
def test_the_interval_covers_the_true_accuracy(classes):
    """2,000 campaigns at ε = 1: 5,000 people drawn from a population with accuracy 0.8, then the exact
    law of the answers to the one question; seeded. Drawn people and noise are both simulated."""
    mechanism = from_micro("direct", 1_000_000, classes**2)
    joint = np.full((classes, classes), 0.2 / (classes * (classes - 1)))
    np.fill_diagonal(joint, 0.8 / classes)
    p, q = float(mechanism.p), float(mechanism.q)
    law = q + joint.ravel() * (p - q)
    rows = np.random.default_rng(4).multinomial(5000, law / law.sum(), 2000)
    found = [accuracy_of(outcome(mechanism, classes, row.tolist())) for row in rows]
    assert 0.935 <= np.mean([one.low <= 0.8 <= one.high for one in found]) <= 0.965
    assert abs(np.mean([one.estimate for one in found]) - 0.8) < 0.005


def test_expected_counts_give_the_accuracy_itself():
    mechanism = from_micro("direct", 1_000_000, 4)
    n = 10**9
    counts = [round(n * float(mechanism.q + share * (mechanism.p - mechanism.q))) for share in (0.5, 0.1, 0.1, 0.3)]
    assert accuracy_of(outcome(mechanism, 2, [int(count) for count in counts])).estimate == pytest.approx(0.8, abs=1e-6)
