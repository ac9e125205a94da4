"""The reports of the vector engine have the same format and distribution as the devices' reports.

Both engines use the same fleet. Every cell of every question's counts is compared with its exact
binomial window (bits and values) or with the mean and spread of exact noise (integers). With fresh seeds
a right engine fails with probability below ALPHA per parameter set; the seed is fixed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.binomial import window
from support.mechanisms import as_answers, inputs_of, kinds, made
from support.publisher import NOW, Publisher

from aggregator.estimates.debias import debias, noise_variance
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from aggregator.publishing.mechanisms.draws import draw
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.tally import count
from protocol import mechanisms
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import decode_answer, layout_for
from protocol.documents.campaign import parse_campaign
from protocol.mechanisms import BITS, INTEGERS, SINGLE, ValueMechanism
from simulation import fleet as vector
from simulation.fleet import vector_reports

ALPHA = Fraction(1, 10**9)
PEOPLE = 60_000
MECHANISMS = kinds(ValueMechanism)


def fleet():
    """Codes and labels of a fleet with unequal frequencies. With equal frequencies, wrong answers would cancel out."""
    rng = np.random.default_rng(5)
    labels = (rng.random(PEOPLE) < 0.2).astype(np.int64)
    odors = rng.choice(4, PEOPLE, p=[0.7, 0.2, 0.07, 0.03])
    codes = np.column_stack([(odors + labels) % 4, rng.choice(2, PEOPLE, p=[0.9, 0.1])])
    return EncodedFrame(codes, np.full_like(codes, NO_NUMBER)), labels


def counted(campaign, rows):
    data = write_batch(Header(campaign.id, campaign.layout.kind, campaign.layout.record_length), map(bytes, rows))
    decoded = decode_batches(data, campaign, now=NOW)
    assert decoded.rejected == {}
    return count(campaign, decoded.records)


def truth(campaign, rows, codes, labels):
    """Per question the number of asked people with each value."""
    start = len(campaign.layout.prefix) + 12
    numbers = rows[:, start].astype(int) * 256 + rows[:, start + 1]
    people = np.arange(len(rows)) // campaign.answers
    held = []
    for number, question in enumerate(campaign.questions):
        asked = people[numbers == number]
        inputs = labels[asked] if question.feature is None else codes[asked, question.feature] * 2 + labels[asked]
        held.append(np.bincount(inputs, minlength=question.size))
    return held


@pytest.mark.slow
@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_counts_are_as_likely_as_a_fleet_of_devices_would_make_them(mechanism, answers):
    campaign = parse_campaign(Publisher().campaign_payload(mechanism=mechanism, answers=answers))
    encoded, labels = fleet()
    rows = vector_reports(campaign, encoded, labels, campaign.period_at(NOW), np.random.default_rng(6))
    assert rows.shape == (PEOPLE * answers, campaign.layout.record_length)
    tally = counted(campaign, rows)
    assert sum(tally.n) == len(rows)
    cells = sum(question.size for question in campaign.questions)
    for question, counts, held in zip(
        campaign.questions, tally.counts, truth(campaign, rows, encoded.codes, labels), strict=True
    ):
        check_question(question, counts, held, ALPHA / (2 * cells))


def check_question(question, counts, held, alpha):
    """A cell's count is a sum of two binomials (or of exact noise); each is within its window."""
    mechanism, n = question.mechanism, int(held.sum())
    for cell, found in enumerate(counts):
        if mechanism.layout == INTEGERS:
            spread = 7 * (n * noise_variance(mechanism)) ** 0.5  # seven deviations: below 3e-12
            assert abs(debias(mechanism, n, [found]).estimate[0] - held[cell]) < spread
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
    encoded, labels = fleet()
    rows = vector_reports(campaign, encoded, labels, campaign.period_at(NOW), np.random.default_rng(7))
    for n in counted(campaign, rows).n:
        low, high = window(PEOPLE, Fraction(1, 3), ALPHA)
        assert low <= n <= high


@pytest.mark.parametrize("fault", ["keeps the truth too often", "never lies with the last value"])
def test_the_comparison_sees_a_wrong_engine(fault, monkeypatch):
    def wrong(mechanism, inputs, rng):
        answers = draw(mechanism, inputs, rng)
        if fault == "keeps the truth too often":
            return np.where(rng.random(len(inputs)) < 0.1, inputs, answers)
        return np.where((answers == mechanism.size - 1) & (inputs != mechanism.size - 1), 0, answers)

    monkeypatch.setattr(vector, "draw", wrong)
    with pytest.raises(AssertionError):
        test_the_counts_are_as_likely_as_a_fleet_of_devices_would_make_them("direct", 1)


@pytest.mark.parametrize("name", mechanisms.names())
@pytest.mark.parametrize("beside", ["direct", "oue", "she"])
def test_drawn_answers_are_written_as_a_device_writes_them(name, beside):
    """Drawn answers, encoded and read again. That ``draw`` follows the devices' law: test_mechanism_contract.py."""
    mechanism, other = made(name), made(beside)
    if {mechanism.layout, other.layout} == {BITS, INTEGERS}:
        return  # no campaign has both
    inputs, layout = np.array(inputs_of(mechanism) * 50), layout_for([mechanism, other])
    answers = draw(mechanism, inputs, np.random.default_rng(1))
    fields = vector._answer_bytes(mechanism, answers, layout)
    padded = [bytes(field).ljust(layout.answer_bytes, b"\0") for field in fields]
    drawn = as_answers(mechanism, answers)
    assert [decode_answer(mechanism, field, layout) for field in padded] == drawn
