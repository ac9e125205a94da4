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
from support.mechanisms import kinds
from support.publisher import NOW, Publisher

from aggregator.estimates.debias import debias, noise_variance
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from aggregator.publishing.mechanisms.draws import draw
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.tally import count
from protocol import SCALE
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import decode_answer, layout_for
from protocol.documents.campaign import parse_campaign
from protocol.mechanisms import INTEGERS, SINGLE, ValueMechanism, from_epsilon
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


NUMBERS = (-SCALE, -20_000, 0, 777, SCALE)
NUMERIC = [
    *((name, "1", 1) for name in ("bit", "piecewise", "hybrid", "bits", "laplace")),
    ("duchi", "1", 2),
    ("duchi", "3", 3),
]
FURTHER = [
    *((name, epsilon, 1) for name in ("bit", "piecewise", "hybrid") for epsilon in ("0.1", "3")),
    *((name, "1", 3) for name in ("bits", "laplace")),
    ("duchi", "1", 1),
    ("duchi", "1", 4),
]
EACH = 20_000


def columns(table, mechanism):
    """Per coordinate of the estimate its values and their exact probabilities, summed over the answers."""
    sums = {}
    for answer, chance in table.items():
        estimate = mechanism.estimate(answer)
        for place, part in enumerate(estimate if isinstance(estimate, tuple) else (estimate,)):
            column = sums.setdefault(place, {})
            column[part] = column.get(part, 0) + chance
    return [sums[place] for place in range(len(sums))]


def moments(mechanism, value):
    """Per coordinate of the estimate: mean, variance, and fourth central moment.

    Of ``laplace`` from its formulas: noise of variance v has the kurtosis 6 + 1/v in steps, and its
    rounding, of at most a quarter step², is far below what the comparison sees.
    """
    if mechanism.name == "laplace":
        variances = [float(mechanism.variance(x)) for x in value]
        return [(x, v, 6.01 * v**2) for x, v in zip(value, variances, strict=True)]
    found = []
    for column in columns(mechanism.distribution(value), mechanism):
        mean = sum(chance * part for part, chance in column.items())
        central = [sum(float(chance) * float(part - mean) ** k for part, chance in column.items()) for k in (2, 4)]
        found.append((float(mean), *central))
    return found


def estimates(mechanism, value, seed):
    """Decoded estimates, shape (EACH, coordinates), of people who all hold one value."""
    inputs = np.array([value] * EACH, np.int64)
    layout = layout_for([mechanism])
    fields = vector._answer_bytes(mechanism, inputs, layout, np.random.default_rng(seed))
    assert fields.shape == (EACH, layout.answer_bytes)
    cache = {}
    for field in set(map(bytes, fields)):
        answer = decode_answer(mechanism, field, layout)
        assert answer is not None
        estimate = mechanism.estimate(answer)
        cache[field] = [float(part) for part in (estimate if isinstance(estimate, tuple) else (estimate,))]
    return np.array([cache[bytes(field)] for field in fields])


def check_numbers(name, epsilon, size, **options):
    """Means and variances within seven standard deviations: a right engine fails each with P < 1e-11 (normal tail)."""
    mechanism = from_epsilon(name, epsilon, size, **options)
    for seed, x in enumerate(NUMBERS):
        value = x
        if name in ("bits", "laplace"):
            value = (0,) * (size - 1) + (x,)
        elif name == "duchi":
            value = tuple(NUMBERS[(seed + 2 * place) % len(NUMBERS)] for place in range(size))
        found = estimates(mechanism, value, seed)
        for place, (mean, variance, fourth) in enumerate(moments(mechanism, value)):
            column = found[:, place]
            assert abs(column.mean() - mean) <= 7 * (variance / EACH) ** 0.5
            spread = max(fourth - variance**2, 0.0) + variance**2 / EACH * 50
            assert abs(((column - mean) ** 2).mean() - variance) <= 7 * (spread / EACH) ** 0.5


@pytest.mark.parametrize(
    ("name", "epsilon", "size"), [*NUMERIC, *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER)]
)
def test_numbers_are_answered_as_devices_would_answer_them(name, epsilon, size):
    check_numbers(name, epsilon, size, **({"delta": 2} if name == "laplace" else {}))


@pytest.mark.parametrize("name", ["bit", "bits", "piecewise", "laplace", "duchi"])
def test_the_comparison_of_numbers_sees_an_input_that_is_shrunk_by_a_tenth(name, monkeypatch):
    monkeypatch.setattr(vector, "draw", lambda mechanism, inputs, rng: draw(mechanism, inputs * 9 // 10, rng))
    with pytest.raises(AssertionError):
        check_numbers(name, "3", 1)


def test_the_comparison_of_numbers_sees_noise_that_is_too_small(monkeypatch):
    def quieter(_mechanism, inputs, rng):
        return draw(from_epsilon("laplace", "1.2", 1), inputs, rng)

    monkeypatch.setattr(vector, "draw", quieter)
    with pytest.raises(AssertionError):
        check_numbers("laplace", "1", 1)
