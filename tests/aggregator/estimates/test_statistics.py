"""Estimates are exactly unbiased, variances are right, and intervals have their stated coverage."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import exp, inf, lgamma, log
from typing import Any

import numpy as np
import pytest
from support.mechanisms import kinds
from support.reports import Row, made

from aggregator.estimates.cells import rows
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.debias import Z95, debias, marginal
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import Sample, Vote
from aggregator.estimates.reports import estimate
from aggregator.reports.tally.tally import Tally
from protocol import mechanisms
from protocol.errors import InputError, PolicyError
from protocol.mechanisms import FrequencyMechanism

MECHANISMS = [
    mechanisms.from_epsilon(name, epsilon, size)
    for name in kinds(FrequencyMechanism)
    for epsilon in ("0.1", "1", "4")
    for size in (2, 4, 6)
]


def supports(mechanism, answer) -> list[int]:
    """For each value, 1 if the answer supports it, else 0."""
    return [int(mechanism.supports(answer, value)) for value in range(mechanism.size)]


def support_table(mechanism) -> list[list[Fraction]]:
    """Row v, column i: exact probability that an answer of a device with value v supports i."""
    table = []
    for value in range(mechanism.size):
        row = [Fraction(0)] * mechanism.size
        for answer, probability in mechanism.distribution(value).items():
            for index, one in enumerate(supports(mechanism, answer)):
                row[index] += one * probability
        table.append(row)
    return table


def population(mechanism) -> tuple[list[int], list[int]]:
    """Number of devices with each value, and the expected counts.

    The counts are integers, because the number of devices is a multiple of every probability's denominator.
    """
    table = support_table(mechanism)
    unit = (1 << 32) * (mechanism.size - 1)
    held = [unit * (value * value % 5) for value in range(mechanism.size)]
    expected = [sum(n * row[i] for n, row in zip(held, table, strict=True)) for i in range(mechanism.size)]
    assert all(count.denominator == 1 for count in expected)
    return held, [int(count) for count in expected]


# --- debiasing ---


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_expected_counts_give_back_the_true_counts_exactly(mechanism):
    """The estimator is affine in the counts, so equality for expected counts proves that it is unbiased."""
    held, expected = population(mechanism)
    assert debias(mechanism, sum(held), expected).estimate.tolist() == held


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_noise_variance_is_that_of_the_exact_distribution(mechanism):
    held, expected = population(mechanism)
    table = support_table(mechanism)
    gain = mechanism.p - mechanism.q
    for i, variance in enumerate(debias(mechanism, sum(held), expected).noise_variance):
        exact = sum(n * row[i] * (1 - row[i]) for n, row in zip(held, table, strict=True)) / gain**2
        assert variance == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m.size % 2 == 0], ids=repr)
def test_marginals_are_unbiased_and_their_variance_is_that_of_the_exact_distribution(mechanism):
    held, expected = population(mechanism)
    found = marginal(mechanism, sum(held), expected, 2)
    assert found.estimate.tolist() == pytest.approx([sum(held[0::2]), sum(held[1::2])], rel=1e-14)
    gain = mechanism.p - mechanism.q
    for group in range(2):
        exact = Fraction(0)
        for value, n in enumerate(held):
            mean, square = Fraction(0), Fraction(0)
            for answer, probability in mechanism.distribution(value).items():
                total = sum(supports(mechanism, answer)[group::2])
                mean += probability * total
                square += probability * total * total
            exact += n * (square - mean**2)
        share = np.clip(found.estimate[group] / sum(held), 0, 1)
        assert sum(held) * found.law.at(share) == pytest.approx(float(exact / gain**2), rel=1e-12)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_planned_variance_is_the_variance_at_equal_shares(mechanism):
    n = mechanism.size << 32
    row = support_table(mechanism)
    expected = [sum((n // mechanism.size) * r[i] for r in row) for i in range(mechanism.size)]
    found = marginal(mechanism, n, [round(count) for count in expected], 2)
    vote = Vote(Sample(0, 0, n, 1 / n), n, found.estimate / n, found.law)
    sampling = 1 / 4 / n
    assert found.law.at(vote.share) / n == pytest.approx([vote.planned_variance - sampling] * 2, rel=1e-6)


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


def tally_of(campaign, n, counts) -> Tally:
    return Tally(campaign.id, tuple(n), tuple(map(tuple, counts)))


def test_a_question_that_nobody_was_asked_has_zeros_and_no_finite_variance():
    statistics = estimate(CAMPAIGN, Tally.zero(CAMPAIGN))
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
    frame = estimate(CAMPAIGN, Tally.zero(CAMPAIGN)).frame()
    assert list(frame.columns) == [
        *("question", "cell", "kind", "feature", "power", "value", "class"),
        *("n", "estimate", "sd", "low", "high", "devices_sd", "devices_low", "devices_high"),
        *("parameter", "published", "parameter_low", "parameter_high"),
        *("devices_parameter_low", "devices_parameter_high"),
    ]
    named = frame[["kind", "feature", "value", "class"]].astype(object).where(frame.notna(), None)
    rows = list(named.itertuples(index=False, name=None))
    assert rows[:4] == [
        ("class", None, None, "e"),
        ("class", None, None, "p"),
        ("cell", "odor", "a", "e"),
        ("cell", "odor", "a", "p"),
    ]
    assert rows[9:11] == [("cell", "odor", "(missing)", "p"), ("cell", "width", "[0, 5)", "e")]
    assert list(zip(frame["question"], frame["cell"], strict=True)) == [
        ("class", "label=e"),
        ("class", "label=p"),
        ("cell odor", "odor=a, label=e"),
        ("cell odor", "odor=a, label=p"),
        ("cell odor", "odor=n, label=e"),
        ("cell odor", "odor=n, label=p"),
        ("cell odor", "odor=f, label=e"),
        ("cell odor", "odor=f, label=p"),
        ("cell odor", "odor=(missing), label=e"),
        ("cell odor", "odor=(missing), label=p"),
        ("cell width", "width=[0, 5), label=e"),
        ("cell width", "width=[0, 5), label=p"),
        ("cell width", "width=[5, 10], label=e"),
        ("cell width", "width=[5, 10], label=p"),
        ("prior", "label=e"),
        ("prior", "label=p"),
    ]


def test_variance_is_noise_plus_sampling_and_the_estimate_lies_in_its_interval():
    counts = ((60, 40), (30, 5, 5, 5, 5, 5, 5, 40), (20, 20, 20, 40))
    tally = tally_of(CAMPAIGN, (100, 100, 100), counts)
    statistics = estimate(CAMPAIGN, tally, rejected={"truncated": 2}, unproven=7)
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
    assert body["statistics_id"] == tally.statistics_id.hex()
    assert [(q["kind"], q["feature"], q["n"]) for q in body["questions"]] == [
        ("class", None, 100),
        ("cell", "odor", 100),
        ("cell", "width", 100),
    ]
    for question, found, mine in zip(body["questions"], statistics.questions, counts, strict=True):
        assert question["counts"] == list(mine)
        assert question["estimates"] == found.estimate.tolist()
        assert question["variances"] == found.variance.tolist()
        assert len(question["cells"]) == len(question["counts"])


def test_no_number_is_shown_as_minus_zero():
    campaign = made(min_batch_size=1)
    found = estimate(campaign, tally_of(campaign, (9, 0, 0), ((4, 5), (0,) * 8, (0,) * 4)))
    first = replace(
        found.questions[0], estimate=np.array([-0.0, -0.04]), interval=Interval(*np.array([[-0.04] * 2] * 2))
    )
    found = replace(found, questions=(first, *found.questions[1:]))
    shown = [str(cell) for row in rows(found.questions, found.schema) for cell in row]
    assert not [cell for cell in shown if cell.startswith(("-0.0", "-0 "))]
    assert "-0.0" not in json.dumps(found.to_json()["questions"][0]["estimates"][:1])
    assert "-0.0," not in found.frame().to_csv()


def test_too_few_reports_may_not_be_shown():
    campaign = made(min_batch_size=10)
    few = tally_of(campaign, (9, 0, 0), ((4, 5), (0,) * 8, (0,) * 4))
    with pytest.raises(PolicyError, match=r"^batch_too_small"):
        estimate(campaign, few).check_publishable()
    enough = tally_of(campaign, (9, 1, 0), ((4, 5), (1, *(0,) * 7), (0,) * 4))
    estimate(campaign, enough).check_publishable()


def test_the_tally_of_another_campaign_is_refused():
    with pytest.raises(InputError, match=r"^other_campaign"):
        estimate(CAMPAIGN, Tally.zero(made(version=2)))


# --- class shares ---


def expected_tally(campaign, per_question: int, table: np.ndarray) -> tuple[Tally, list[float]]:
    """Expected counts of fleets with this joint distribution of odor and class."""
    n, counts = [], []
    shares = (table.sum(axis=0) / table.sum()).tolist()
    for question in campaign.questions:
        mechanism = question.mechanism
        if question.feature is None:
            truth = table.sum(axis=0)
        elif question.feature == 0:
            truth = table.reshape(-1)
        else:
            truth = np.outer([0.5, 0.5], table.sum(axis=0)).reshape(-1)
        held = truth / truth.sum() * per_question
        p, q = float(mechanism.p), float(mechanism.q)
        n.append(per_question)
        counts.append([round(per_question * q + h * (p - q)) for h in held])
    return tally_of(campaign, n, counts), shares


TABLE = np.array([[3.0, 1], [2, 4], [1, 0], [1, 2]])


@pytest.mark.parametrize("mechanism", ["direct", "oue"])
@pytest.mark.parametrize("answers", [1, 3])
def test_class_shares_are_unbiased_and_better_than_the_class_question_alone(mechanism, answers):
    campaign = made(mechanism=mechanism, answers=answers, epsilon_micro=1_000_000 * answers)
    tally, shares = expected_tally(campaign, 10**12, TABLE)
    statistics = estimate(campaign, tally)
    found = class_shares(statistics)
    assert found.share.tolist() == pytest.approx(shares, abs=1e-9)
    own = statistics.questions[0].variance / statistics.questions[0].n ** 2
    assert (found.variance < own).all()


def test_class_shares_weigh_by_what_was_planned_so_they_are_linear_in_the_counts():
    n = (90, 100, 110)
    one = ((80, 10), (50, 50, 0, 0, 0, 0, 0, 0), (110, 0, 0, 0))
    two = ((10, 80), (0, 0, 20, 30, 10, 20, 10, 10), (0, 30, 40, 40))
    mean = tuple(tuple((a + b) // 2 for a, b in zip(x, y, strict=True)) for x, y in zip(one, two, strict=True))
    shares = [class_shares(estimate(CAMPAIGN, tally_of(CAMPAIGN, n, counts))).share for counts in (one, two, mean)]
    np.testing.assert_allclose((shares[0] + shares[1]) / 2, shares[2], atol=1e-12)


def test_class_shares_do_not_count_the_same_people_twice():
    """If every device answers every question almost without noise, there is one sample of people, not three."""
    campaign = made(answers=3, epsilon_micro=48_000_000)
    tally, shares = expected_tally(campaign, 10_000, TABLE)
    share = shares[0]
    variance = class_shares(estimate(campaign, tally)).variance
    np.testing.assert_allclose(variance, share * (1 - share) / 10_000, rtol=0.01)


@pytest.mark.parametrize("mechanism", ["direct", "oue"])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_variance_of_class_shares_is_not_too_small_where_a_few_dozen_answers_are_alike(mechanism, share):
    """With ε = 16 and 12 answers to three questions, the variance at the estimate itself would be half of the true one.

    Over 400 fleets the sample variance has a relative deviation of 7 %; the accepted limit is six deviations below 1.
    """
    generator = np.random.default_rng(11)
    campaign = made(mechanism=mechanism, epsilon_micro=16_000_000)
    tables = [np.array([[1.0]]), np.full((4, 1), 0.25), np.full((2, 1), 0.5)]
    found, claimed = [], []
    for _ in range(400):
        counts = []
        for question, table in zip(campaign.questions, tables, strict=True):
            held = generator.multinomial(4, (table * [share, 1 - share]).ravel())
            p, q = float(question.mechanism.p), float(question.mechanism.q)
            answers = generator.binomial(held, p) + generator.binomial(4 - held, q) if mechanism == "oue" else held
            counts.append(tuple(answers.tolist()))
        shares = class_shares(estimate(campaign, tally_of(campaign, (4, 4, 4), counts)))
        found.append(shares.share[0])
        claimed.append(shares.variance[0])
    assert np.mean(claimed) > 0.75 * np.var(found)
    assert min(claimed) > 0.25 * np.var(found), "answers that are all alike are not taken for certainty"


# --- intervals ---

ALPHA = 1e-6
"""The chance that one value's test rejects intervals whose true coverage is 94 to 96 %, over fresh seeds."""
REPEATS = 4000
"""At this many it sees a coverage of 91 % with probability above 0.99."""


def binomial_tail(n: int, p: float, least: int) -> float:
    """P(X ≥ least) for X binomial(n, p), summed term by term."""
    terms = (
        lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log(1 - p)
        for k in range(least, n + 1)
    )
    return sum(map(exp, terms))


def acceptable(covered: int) -> bool:
    """Whether this number of covering intervals, of REPEATS, agrees with the stated coverage."""
    misses = REPEATS - covered
    return binomial_tail(REPEATS, 0.96, covered) > ALPHA / 2 and binomial_tail(REPEATS, 0.06, misses) > ALPHA / 2


def simulate(mechanism, shares, n: int, generator) -> np.ndarray:
    """Counts of one fleet. The asked devices are random too, so intervals must cover the numbers of the whole fleet."""
    held = generator.multinomial(n, shares)
    p, q = float(mechanism.p), float(mechanism.q)
    if mechanism.name == "direct":
        table = np.full((len(shares), len(shares)), q) + np.eye(len(shares)) * (p - q)
        return sum(generator.multinomial(m, row / row.sum()) for m, row in zip(held, table, strict=True))
    return generator.binomial(held, p) + generator.binomial(n - held, q)


@cache
def drawn(name: str, epsilon: str) -> tuple[np.ndarray, list[Any]]:
    """True numbers of the fleet, and REPEATS estimates of them."""
    mechanism = mechanisms.from_epsilon(name, epsilon, 4)
    campaign = made()
    question = campaign.questions[0]
    question = question._replace(mechanism=mechanism, subject=question.subject._replace(size=mechanism.size))
    campaign = campaign._replace(questions=(question,))
    shares = np.arange(1, mechanism.size + 1) / np.arange(1, mechanism.size + 1).sum()
    generator = np.random.default_rng(20240501)
    n, found = 3000, []
    for _ in range(REPEATS):
        counts = simulate(mechanism, shares, n, generator)
        found.append(estimate(campaign, tally_of(campaign, (n,), (counts.tolist(),))).questions[0])
    return n * shares, found


def coverage(name: str, epsilon: str, width: float = 1.0, *, sampling: bool = True) -> list[int]:
    """Per value, the number of REPEATS intervals that cover the fleet's true number."""
    truth, estimates = drawn(name, epsilon)
    covered = np.zeros(len(truth), int)
    for found in estimates:
        low, high = found.low, found.high
        if width != 1.0 or not sampling:
            half = width * Z95 * np.sqrt(found.variance if sampling else found.noise_variance)
            low, high = found.estimate - half, found.estimate + half
        covered += (low <= truth) & (truth <= high)
    return covered.tolist()


@pytest.mark.xdist_group("drawn answers")
@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("direct", "3"),
        pytest.param("oue", "0.5", marks=pytest.mark.slow),
        pytest.param("direct", "0.5", marks=pytest.mark.slow),
        pytest.param("oue", "3", marks=pytest.mark.slow),
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(name, epsilon):
    covered = coverage(name, epsilon)
    assert all(map(acceptable, covered)), f"{covered} of {REPEATS}; false alarm ≤ {4 * ALPHA:.0e}"


@pytest.mark.xdist_group("drawn answers")  # the same draws again
@pytest.mark.parametrize("broken", [{"width": 0.85}, {"width": 1.25}, {"sampling": False}])
def test_the_coverage_test_rejects_wrong_intervals(broken):
    covered = coverage("direct", "3", **broken)
    assert not any(map(acceptable, covered))
