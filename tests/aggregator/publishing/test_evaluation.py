"""Accuracy from private outcomes is unbiased, and its interval has the stated coverage."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from support.estimated import outcome

from aggregator.models.measured_accuracy import Confusion, Evaluation, accuracy_of, recall_of
from protocol.mechanisms import from_micro


def test_shares_are_shown_within_their_bounds_and_kept_as_they_are():
    """An unbiased share from few noisy answers may lie far outside [0, 1]. People never see 216.4 %."""
    question = outcome(from_micro("direct", 100_000, 4), 2, [40, 0, 0, 0])
    accuracy = accuracy_of(question)
    cells = tuple(
        Confusion(true, predicted, share, 0.0, 1.0, 0.0, 1.0)
        for (true, predicted), share in zip(product("ep", "ep"), (question.estimate / question.n).tolist(), strict=True)
    )
    found = Evaluation(question.n, accuracy, cells, {"assumes": "nothing"})
    assert accuracy.estimate > 2
    assert (cells[0].share > 2, cells[1].share < -2) == (True, True)
    assert [row[2] for row in found.rows()] == ["100.0%", "0.0%", "0.0%", "0.0%"]
    shown = found._repr_html_()
    assert "<td>100.0%</td>" in shown
    assert "-" not in shown.replace("-of", "")
    assert not re.search(r"[0-9]{4}", shown)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_interval_covers_the_true_accuracy(classes):
    """2,000 campaigns at ε = 1, seeded, with 5,000 people each from a population with accuracy 0.8.

    Both the choice of people and the noise are simulated, the noise by the exact law of the answers."""
    mechanism = from_micro("direct", 1_000_000, classes**2)
    joint = np.full((classes, classes), 0.2 / (classes * (classes - 1)))
    np.fill_diagonal(joint, 0.8 / classes)
    p, q = float(mechanism.p), float(mechanism.q)
    law = q + joint.ravel() * (p - q)
    rows = np.random.default_rng(4).multinomial(5000, law / law.sum(), 2000)
    found = [accuracy_of(outcome(mechanism, classes, row.tolist())) for row in rows]
    assert 0.935 <= np.mean([one.low <= 0.8 <= one.high for one in found]) <= 0.965
    assert abs(np.mean([one.estimate for one in found]) - 0.8) < 0.005


def test_recall_is_a_cell_over_its_row_and_its_interval_covers_the_truth():
    """400 campaigns at ε = 2 of 5,000 people, seeded. A class of 10 % has a recall of 30 %.

    95 % hold 371 to 389 times but for a probability of 0.05; fewer than 360 with less than 1e-5.
    """
    joint = np.array([[0.8, 0.1], [0.07, 0.03]])
    mechanism = from_micro("direct", 2_000_000, 4)
    p, q = float(mechanism.p), float(mechanism.q)
    law = q + joint.ravel() * (p - q)
    rows = np.random.default_rng(8).multinomial(5000, law / law.sum(), 400)
    found = [recall_of(outcome(mechanism, 2, row.tolist()), ["often", "rare"]) for row in rows]
    for place, truth in enumerate((8 / 9, 0.3)):
        assert 360 <= sum(one[place].low <= truth <= one[place].high for one in found) <= 395
    assert np.mean([one[1].predicted for one in found]) == pytest.approx(0.13, abs=0.005)


def test_recall_of_a_class_that_noise_hides_is_not_determined():
    """By forty answers the second class has a share below 0, and nothing can be said of its recall."""
    question = outcome(from_micro("direct", 100_000, 4), 2, [11, 10, 10, 9])
    found = Evaluation(question.n, accuracy_of(question), (), {"assumes": "nothing"}, recall_of(question, ["e", "p"]))
    assert found.recall[1].share is None
    assert found.recall_rows()[1][2:] == ("not determined", "not determined", "not determined")
    assert "not determined" in found._repr_html_()


def test_expected_counts_give_the_accuracy_itself():
    mechanism = from_micro("direct", 1_000_000, 4)
    n = 10**9
    counts = [round(n * float(mechanism.q + share * (mechanism.p - mechanism.q))) for share in (0.5, 0.1, 0.1, 0.3)]
    assert accuracy_of(outcome(mechanism, 2, [int(count) for count in counts])).estimate == pytest.approx(0.8, abs=1e-6)
