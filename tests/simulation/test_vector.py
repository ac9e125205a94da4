"""The vector engine writes what devices write, and draws it from the same distribution.

Both engines ask the same fleet. Every cell of every question's counts is compared with its exact
binomial window (bits and values) or with the mean and spread of exact noise (integers). With fresh seeds
a right engine fails with probability below ALPHA per parameter set; the seed is fixed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.binomial import window
from support.publisher import NOW, Publisher

from aggregator.debias import noise_variance
from aggregator.intake.decode import decode_batches
from aggregator.intake.tally import count
from protocol.batch import Header, write_batch
from protocol.campaign import parse_campaign
from protocol.mechanisms import INTEGERS, SINGLE
from simulation.vector import vector_reports

ALPHA = Fraction(1, 10**9)
PEOPLE = 60_000
MECHANISMS = ("direct", "oue", "sue", "the", "she")


def fleet():
    """Codes and labels of a lopsided fleet: where all values are equally common, lies cancel out."""
    rng = np.random.default_rng(5)
    labels = (rng.random(PEOPLE) < 0.2).astype(np.int64)
    odors = rng.choice(4, PEOPLE, p=[0.7, 0.2, 0.07, 0.03])
    return np.column_stack([(odors + labels) % 4, rng.choice(2, PEOPLE, p=[0.9, 0.1])]), labels


def counted(campaign, rows):
    data = write_batch(Header(campaign.id, campaign.layout.kind, campaign.layout.record_length), map(bytes, rows))
    decoded = decode_batches(data, campaign, now=NOW)
    assert decoded.rejected == {}
    return count(campaign, decoded.records)


def truth(campaign, rows, codes, labels):
    """Per question, how many of those asked hold each value."""
    start = len(campaign.layout.prefix) + 12
    numbers = rows[:, start].astype(int) * 256 + rows[:, start + 1]
    people = np.arange(len(rows)) // campaign.answers
    held = []
    for number, question in enumerate(campaign.questions):
        asked = people[numbers == number]
        inputs = labels[asked] if question.feature is None else codes[asked, question.feature] * 2 + labels[asked]
        held.append(np.bincount(inputs, minlength=question.size))
    return held


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_counts_are_as_likely_as_a_fleet_of_devices_would_make_them(mechanism, answers):
    campaign = parse_campaign(Publisher().campaign_payload(mechanism=mechanism, answers=answers))
    codes, labels = fleet()
    rows = vector_reports(campaign, codes, labels, campaign.period_at(NOW), np.random.default_rng(6))
    assert rows.shape == (PEOPLE * answers, campaign.layout.record_length)
    tally = counted(campaign, rows)
    assert sum(tally.n) == len(rows)
    cells = sum(question.size for question in campaign.questions)
    for question, counts, held in zip(
        campaign.questions, tally.counts, truth(campaign, rows, codes, labels), strict=True
    ):
        check_question(question, counts, held, ALPHA / (2 * cells))


def check_question(question, counts, held, alpha):
    """A cell's count is a sum of two binomials (or of exact noise); each is within its window."""
    mechanism, n = question.mechanism, int(held.sum())
    for cell, found in enumerate(counts):
        if mechanism.layout == INTEGERS:
            spread = 7 * (n * noise_variance(mechanism)) ** 0.5 * 1024  # seven deviations: below 3e-12
            assert abs(found - 1024 * held[cell]) < spread
            continue
        own, other = int(held[cell]), n - int(held[cell])
        p, q = mechanism.p, mechanism.q
        low = window(own, p, alpha)[0] + window(other, q, alpha)[0]
        high = window(own, p, alpha)[1] + window(other, q, alpha)[1]
        assert low <= found <= high
    if mechanism.layout == SINGLE:
        assert sum(counts) == n


def test_every_question_is_asked_as_often_as_its_interval_is_wide():
    campaign = parse_campaign(Publisher().campaign_payload())
    codes, labels = fleet()
    rows = vector_reports(campaign, codes, labels, campaign.period_at(NOW), np.random.default_rng(7))
    for n in counted(campaign, rows).n:
        low, high = window(PEOPLE, Fraction(1, 3), ALPHA)
        assert low <= n <= high


@pytest.mark.parametrize("fault", ["keeps the truth too often", "never lies with the last value"])
def test_the_comparison_sees_a_wrong_engine(fault, monkeypatch):
    from simulation import vector

    plain = vector._direct

    def wrong(mechanism, inputs, rng):
        answers = plain(mechanism, inputs, rng)
        if fault == "keeps the truth too often":
            return np.where(rng.random(len(inputs)) < 0.1, inputs, answers)
        return np.where((answers == mechanism.size - 1) & (inputs != mechanism.size - 1), 0, answers)

    monkeypatch.setattr(vector, "_direct", wrong)
    with pytest.raises(AssertionError):
        test_the_counts_are_as_likely_as_a_fleet_of_devices_would_make_them("direct", 1)
