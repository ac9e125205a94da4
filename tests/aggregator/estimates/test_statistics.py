"""Estimates are exactly unbiased, variances are right, and intervals have their stated coverage."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import cache
from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from support.estimated import answered, nobody, tallied
from support.mechanisms import kinds
from support.reports import Row, made

from aggregator.estimates.cells import rows
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.debias import debias, lower_mean, marginal, noise_variance
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import Sample, Vote
from aggregator.estimates.reports import estimate
from aggregator.reports.tally.tally import Tally, TallyBuilder
from protocol import mechanisms
from protocol.errors import InputError, PolicyError
from protocol.mechanisms import FrequencyMechanism
from protocol.mechanisms.noise import GRID

# --- debiasing ---


@pytest.mark.parametrize("name", kinds(FrequencyMechanism))
@pytest.mark.parametrize("epsilon", ["0.1", "4"])
def test_the_planned_variance_is_the_variance_at_equal_shares(name, epsilon):
    """That estimates are unbiased and vary by their law: tests/aggregator/test_mechanism_contract.py."""
    n, mechanism = 1 << 20, mechanisms.from_epsilon(name, epsilon, 4)
    found = marginal(mechanism, n, [n // 5] * mechanism.size, 2)
    vote = Vote(Sample(0, 0, n, 1 / n), n, found.estimate / n, found.law)
    assert vote.planned_variance == pytest.approx((found.law.at(0.5) + 0.5 * 0.5) / n, rel=1e-9)


@pytest.mark.parametrize("name", ["direct", "oue"])
def test_variances_stay_positive_and_finite_where_counts_are_extreme(name):
    mechanism = mechanisms.from_epsilon(name, "1", 4)
    for counts in ([0, 0, 0, 0], [9, 0, 0, 0], [9, 9, 9, 9]):
        found = debias(mechanism, 9, counts)
        assert np.isfinite(found.estimate).all()
        assert (found.noise_variance > 0).all()


def test_a_mechanism_without_an_estimator_is_refused():
    with pytest.raises(InputError, match=r"^mechanism_unknown"):
        debias(Row(3), 1, [0, 0, 0])
    assert marginal(Row(3), 1, [0, 0, 0], 1) is None


# --- statistics ---

CAMPAIGN = made()


@pytest.mark.parametrize("mechanism", ["direct", "she"])
def test_a_question_that_nobody_was_asked_has_zeros_and_no_finite_variance(mechanism):
    statistics = nobody(made(mechanism=mechanism))
    for found in statistics.questions:
        assert not found.estimate.any()
        assert np.isposinf(found.variance).all()
    frame = statistics.frame()
    assert frame[["sd", "low", "high", "devices_sd", "devices_low", "devices_high"]].isna().all(axis=None)
    body = json.loads(json.dumps(statistics.to_json(), allow_nan=False))
    assert body["questions"][0]["variances"] == [None, None]
    assert body["questions"][0]["estimates"] == [0, 0]
    shares = class_shares(statistics)
    assert shares.share.tolist() == [0, 0]
    assert shares.variance.tolist() == [inf, inf]


def test_the_table_names_every_cell():
    frame = nobody(CAMPAIGN).frame()
    assert list(frame.columns) == [
        *("question", "cell", "kind", "feature", "power", "value", "class"),
        *("n", "estimate", "sd", "low", "high", "devices_sd", "devices_low", "devices_high"),
        *("parameter", "published", "parameter_low", "parameter_high"),
        *("devices_parameter_low", "devices_parameter_high"),
    ]
    named = frame[["kind", "feature", "value", "class"]].astype(object).where(frame.notna(), None)
    rows = list(named.itertuples(index=False, name=None))
    assert rows[:3] == [("class", None, None, "e"), ("class", None, None, "p"), ("cell", "odor", "a", "e")]
    assert rows[9:11] == [("cell", "odor", "(missing)", "p"), ("cell", "width", "[0, 5)", "e")]
    cells = [f"odor={value}" for value in ("a", "n", "f", "(missing)")] + ["width=[0, 5)", "width=[5, 10]"]
    wanted = [(f"cell {cell.split('=')[0]}", f"{cell}, label={name}") for cell in cells for name in "ep"]
    ends = [[(kind, f"label={name}") for name in "ep"] for kind in ("class", "prior")]
    assert list(zip(frame["question"], frame["cell"], strict=True)) == [*ends[0], *wanted, *ends[1]]


def test_variance_is_noise_plus_sampling_and_the_estimate_lies_in_its_interval():
    counts = ((60, 40), (30, 5, 5, 5, 5, 5, 5, 40), (20, 20, 20, 40))
    statistics = tallied(CAMPAIGN, counts, rejected={"truncated": 2}, unproven=7)
    for found, question, mine in zip(statistics.questions, CAMPAIGN.questions, counts, strict=True):
        assert found.subject == question.subject
        p, q = float(question.mechanism.p), float(question.mechanism.q)
        raw = (np.array(mine) - 100 * q) / (p - q)
        share = np.clip(raw / 100, 0, 1)
        noise = 100 * (q * (1 - q) + share * (p * (1 - p) - q * (1 - q))) / (p - q) ** 2
        np.testing.assert_allclose(found.estimate, raw, rtol=1e-12)
        np.testing.assert_allclose(found.noise_variance, noise, rtol=1e-12)
        np.testing.assert_allclose(found.sampling_variance, 100 * share * (1 - share), rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(found.variance, found.noise_variance + found.sampling_variance)
        assert (found.low < found.estimate).all()
        assert (found.estimate < found.high).all()
    body = json.loads(json.dumps(statistics.to_json(), allow_nan=False))
    assert body["reports"] == statistics.reports == 300
    assert (body["rejected"], body["unproven"]) == ({"truncated": 2}, 7)
    assert body["statistics_id"] == Tally(CAMPAIGN.id, (100,) * 3, counts).statistics_id.hex()
    asked = [(q["kind"], q["feature"], q["n"]) for q in body["questions"]]
    assert asked == [("class", None, 100), ("cell", "odor", 100), ("cell", "width", 100)]
    for question, found, mine in zip(body["questions"], statistics.questions, counts, strict=True):
        assert question["counts"] == list(mine)
        assert question["estimates"] == found.estimate.tolist()
        assert question["variances"] == found.variance.tolist()
        assert len(question["cells"]) == len(question["counts"])


def test_no_number_is_shown_as_minus_zero():
    campaign = made(min_batch_size=1)
    found = tallied(campaign, ((4, 5), (0,) * 8, (0,) * 4))
    first = replace(
        found.questions[0], estimate=np.array([-0.0, -0.04]), interval=Interval(*np.array([[-0.04] * 2] * 2))
    )
    found = replace(found, questions=(first, *found.questions[1:]))
    shown = [str(cell) for row in rows(found.questions, found.schema) for cell in row]
    assert not [cell for cell in shown if cell.startswith(("-0.0", "-0 "))]
    assert "-0.0" not in json.dumps(found.to_json()["questions"][0]["estimates"][:1])
    assert "-0.0," not in found.frame().to_csv()


def test_too_few_reports_and_the_tally_of_another_campaign_are_refused():
    campaign = made(min_batch_size=10)
    with pytest.raises(PolicyError, match=r"^batch_too_small"):
        tallied(campaign, ((4, 5), (0,) * 8, (0,) * 4)).check_publishable()
    tallied(campaign, ((4, 5), (1, *(0,) * 7), (0,) * 4)).check_publishable()
    with pytest.raises(InputError, match=r"^other_campaign"):
        estimate(CAMPAIGN, Tally.zero(made(version=2)))


# --- class shares ---


TABLE = np.array([[3.0, 1], [2, 4], [1, 0], [1, 2]]) / 14
"""True shares of odor and class; width tells nothing."""
CLASSES = TABLE.sum(axis=0)


def shares_of(question):
    """True shares of the values of one question."""
    return CLASSES if question.feature is None else TABLE if question.feature == 0 else np.outer([0.5, 0.5], CLASSES)


@pytest.mark.parametrize("mechanism", ["direct", "oue"])
@pytest.mark.parametrize("answers", [1, 3])
def test_class_shares_are_unbiased_and_better_than_the_class_question_alone(mechanism, answers):
    campaign = made(mechanism=mechanism, answers=answers, epsilon_micro=1_000_000 * answers)
    statistics = answered(campaign, 10**12, shares_of)
    found = class_shares(statistics)
    assert found.share.tolist() == pytest.approx(CLASSES.tolist(), abs=1e-9)
    own = statistics.questions[0].variance / statistics.questions[0].n ** 2
    assert (found.variance < own).all()


def test_class_shares_weigh_by_what_was_planned_so_they_are_linear_in_the_counts():
    n = (90, 100, 110)
    one = ((80, 10), (50, 50, 0, 0, 0, 0, 0, 0), (110, 0, 0, 0))
    two = ((10, 80), (0, 0, 20, 30, 10, 20, 10, 10), (0, 30, 40, 40))
    mean = tuple(tuple((a + b) // 2 for a, b in zip(x, y, strict=True)) for x, y in zip(one, two, strict=True))
    shares = [class_shares(tallied(CAMPAIGN, counts, n)).share for counts in (one, two, mean)]
    np.testing.assert_allclose((shares[0] + shares[1]) / 2, shares[2], atol=1e-12)
    # If every device answers every question almost without noise, there is one sample of people, not three.
    statistics = answered(made(answers=3, epsilon_micro=48_000_000), 10_000, shares_of)
    np.testing.assert_allclose(class_shares(statistics).variance, CLASSES.prod() / 10_000, rtol=0.01)


@pytest.mark.parametrize(("mechanism", "share"), [("direct", 0.1), ("oue", 0.5)])
def test_the_variance_of_class_shares_is_not_too_small_where_a_few_dozen_answers_are_alike(mechanism, share):
    """With ε = 16 and 12 answers to three questions, the variance at the estimate itself would be half of the true one.

    Over 400 fleets the sample variance has a relative deviation of 7 %; the accepted limit is six deviations below 1.
    """
    generator = np.random.default_rng(11)
    campaign = made(mechanism=mechanism, epsilon_micro=16_000_000)
    joint = [np.outer(np.ones(size // 2) * 2 / size, [share, 1 - share]) for size in (2, 8, 4)]
    fleets = [answered(campaign, 4, lambda q: joint[campaign.questions.index(q)], generator) for _ in range(400)]
    shares = [class_shares(fleet) for fleet in fleets]
    claimed = [one.variance[0] for one in shares]
    variance = np.var([one.share[0] for one in shares])
    assert np.mean(claimed) > 0.75 * variance
    assert min(claimed) > 0.25 * variance, "answers that are all alike are not taken for certainty"


# --- histograms (``she``) ---
# The aggregator clips components to [0, M] before it adds them, so that one dishonest report moves a count little.

EPSILONS = ("0.1", "1", "4", "16")


class Component(NamedTuple):
    """Exact mean and variance of one component clipped to [0, M]."""

    mean: Decimal
    variance: Decimal


@cache
def component(s: int, t: int, held: int) -> Component:
    """Sums over all integers from 0 to M; 0 and M also have the probability of the clipped tails."""
    with localcontext(prec=60):
        q = (-Decimal(s) / Decimal(t)).exp()
        centre = GRID * held
        chances = {step: q ** abs(step - centre) * (1 - q) / (1 + q) for step in range(1, GRID)}
        chances |= {0: q**centre / (1 + q), GRID: q ** (GRID - centre) / (1 + q)}
        assert abs(sum(chances.values()) - 1) < Decimal("1e-55")
        mean = sum(step * chance for step, chance in chances.items())
        return Component(mean, sum(chance * (step - mean) ** 2 for step, chance in chances.items()))


def exact_variance(mechanism) -> float:
    """Exact variance of one component, in units of the value."""
    absent, held = (component(mechanism.s, mechanism.t, value) for value in (0, 1))
    return float(absent.variance / (held.mean - absent.mean) ** 2)


@pytest.mark.parametrize("epsilon", ["0.001", *EPSILONS])
def test_mean_and_variance_of_a_component_are_those_that_the_estimator_takes(epsilon):
    """The mean is the estimator's, and that of a held value is its mirror image; the noise of both varies alike."""
    mechanism = mechanisms.from_epsilon("she", epsilon, 2)
    absent, held = (component(mechanism.s, mechanism.t, value) for value in (0, 1))
    found = lower_mean(mechanism.s, mechanism.t)
    with localcontext(prec=60):
        assert abs(Decimal(found.numerator) / found.denominator - absent.mean) < Decimal("1e-40")
        assert abs(GRID - held.mean - absent.mean) < Decimal("1e-50")
    assert abs(held.variance - absent.variance) < Decimal("1e-48")


def test_sums_stay_integers_until_the_last_step():
    """Sums too large for an exact float are divided as integers."""
    mechanism = mechanisms.from_epsilon("she", 1, 2)
    odd, n = (1 << 60) + 1, 1 << 50
    mean = lower_mean(mechanism.s, mechanism.t)
    exact = [float((total - n * mean) / (GRID - 2 * mean)) for total in (odd, 7)]
    assert debias(mechanism, n, [odd, 7]).estimate.tolist() == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize(("epsilon", "most"), [("0.1", 41), ("1", 4.7), ("4", 1.8), ("16", 1.15)])
def test_one_report_moves_a_count_by_hardly_more_than_one_of_oue_could(epsilon, most):
    """The change from the smallest to the largest possible answer, for all contents of its 32 bits."""
    campaign = made(mechanism="she")
    question = campaign.questions[0]
    mechanism = mechanisms.from_epsilon("she", epsilon, question.size)
    question = question._replace(mechanism=mechanism)
    campaign = campaign._replace(questions=(question, *campaign.questions[1:]))
    moved = []
    for number in (*mechanism.bounds, -(1 << 31), (1 << 31) - 1):
        answer = np.full((1, mechanism.size), number, ">i4").view(np.uint8)
        pad = np.zeros((1, campaign.layout.answer_bytes - answer.shape[1]), np.uint8)
        sums = TallyBuilder(campaign)
        assert sums.count(np.zeros(1, np.int64), np.concatenate([answer, pad], axis=1))
        moved.append(debias(mechanism, 1, sums.tally().counts[0]).estimate[0])
    assert moved[0] == moved[2] < 0 < moved[1] == moved[3]
    assert moved[1] - moved[0] < most
    oue = mechanisms.from_epsilon("oue", epsilon, question.size)
    assert moved[1] - moved[0] < 1.1 / float(oue.p - oue.q)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_noise_of_histograms_has_the_exact_variance(epsilon):
    mechanism = mechanisms.from_epsilon("she", epsilon, 4)
    exact = exact_variance(mechanism)
    assert noise_variance(mechanism) == pytest.approx(exact, rel=1e-12)
    for counts in ([0, 0, 0, 0], [GRID, 5, 70 * GRID, 3]):
        assert debias(mechanism, 70, counts).noise_variance.tolist() == pytest.approx([70 * exact] * 4, rel=1e-12)
    assert exact < 0.64 * 8 / float(epsilon) ** 2  # the variance of a sum of noises that are not clipped
