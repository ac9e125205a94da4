"""The coverage of 95 % intervals is as stated, computed by exact sums over all counts, without sampling."""

from itertools import product
from math import inf

import numpy as np
import pytest
from support.binomial import probabilities as binomial
from support.estimated import tallied
from support.mechanisms import kinds
from support.reports import made

from aggregator.estimates.debias import debias
from aggregator.estimates.intervals import Interval, count_interval, normal_interval
from protocol import mechanisms
from protocol.mechanisms import FrequencyMechanism

SHARES = (0.0, 0.001, 0.005, 0.02, 0.1, 0.3, 0.5, 0.9, 1.0)
SETTINGS = list(product(("0.1", "1", "4", "8", "16"), (2, 8), (20, 60, 400, 3000), SHARES))


def supports(mechanism, share):
    """λ, the probability that an answer supports a value held by this share of the fleet."""
    p, q = float(mechanism.p), float(mechanism.q)
    return q + share * (p - q)


def coverage(mechanism, n, share, interval):
    """P(low ≤ n f ≤ high), summed over every count."""
    low, high = interval(mechanism, n, debias(mechanism, n, list(range(n + 1))).estimate)
    held = (low <= n * share) & (n * share <= high)
    return binomial(n, supports(mechanism, share))[held].sum()


def normal(mechanism, n, found):
    """A worse interval for comparison: estimate ± 1.96 standard deviations of noise and estimated sampling."""
    p, q = float(mechanism.p), float(mechanism.q)
    share = np.clip(found / n, 0, 1)
    noise = n * (q * (1 - q) + share * (p * (1 - p) - q * (1 - q))) / (p - q) ** 2
    return normal_interval(found, np.sqrt(noise + n * share * (1 - share)))


def promised(mechanism, n, share):
    """Smallest and largest coverage in the docstring of ``pure_interval`` for this setting."""
    chance = supports(mechanism, share)
    expected = n * min(chance, 1 - chance)
    if n >= 50 and expected >= 10:
        return 0.93, 0.97
    if n >= 20 and expected >= 1:
        return 0.91, 0.985
    return 0.82, 1.0


@pytest.mark.parametrize("name", kinds(FrequencyMechanism))
def test_coverage_is_what_the_docstring_states(name):
    seen = set()
    for epsilon, size, n, share in SETTINGS:
        mechanism = mechanisms.from_epsilon(name, epsilon, size)
        least, most = promised(mechanism, n, share)
        seen.add(least)
        found = coverage(mechanism, n, share, count_interval)
        assert least <= found <= most + 1e-9, (epsilon, size, n, share)
    assert seen == {0.93, 0.91, 0.82}, "the grid shows every promise"


@pytest.mark.parametrize("n", [2, 3, 5, 10, 19, 20, 50, *(pytest.param(n, marks=pytest.mark.slow) for n in (101, 500))])
def test_the_promises_hold_for_every_chance_of_support_and_not_only_on_the_grid(n):
    mechanism = mechanisms.from_epsilon("oue", "16", 8)
    worst: dict[float, float] = {}
    for chance in [*np.geomspace(0.01 / n, 0.4999, 700), *np.linspace(0.05 / n, 0.4999, 700)]:
        share = (chance - float(mechanism.q)) / (float(mechanism.p) - float(mechanism.q))
        least, most = promised(mechanism, n, share)
        found = coverage(mechanism, n, share, count_interval)
        assert least <= found <= most + 1e-9, (n, chance)
        worst[least] = min(worst.get(least, 1), found)
    assert worst[0.82] < 0.85, "few expected answers are where it is at its worst, as stated"


def test_rare_values_are_covered_where_the_normal_interval_fails():
    """Nobody named the value: that does not mean that nobody holds it."""
    mechanism = mechanisms.from_epsilon("oue", "16", 8)
    assert coverage(mechanism, 400, 0.005, normal) < 0.7
    assert coverage(mechanism, 400, 0.005, count_interval) > 0.91
    low, high = count_interval(mechanism, 400, debias(mechanism, 400, [0]).estimate)
    assert low[0] <= 0
    assert high[0] > 3


def test_many_answers_give_the_normal_interval():
    mechanism = mechanisms.from_epsilon("direct", "2", 4)
    counts = [200_000_000, 300_000_000, 250_000_000, 250_000_000]
    found = debias(mechanism, 10**9, counts).estimate
    for wilson, other in zip(count_interval(mechanism, 10**9, found), normal(mechanism, 10**9, found), strict=True):
        np.testing.assert_allclose(wilson, other, rtol=1e-3)


def test_a_question_uses_the_law_of_its_counts_or_else_the_normal_one():
    for name in ("oue", "she"):
        campaign = made(mechanism=name)
        counts = [(20,) * question.size for question in campaign.questions]
        asked, _, nobody = tallied(campaign, counts, (50, 50, 0)).questions
        low, high = count_interval(campaign.questions[0].mechanism, 50, asked.estimate)
        np.testing.assert_allclose(asked.low, low)
        np.testing.assert_allclose(asked.high, high)
        assert (nobody.low == -inf).all()
        assert (nobody.high == inf).all()


def test_an_interval_of_a_possible_value_contains_the_clipped_one_and_is_never_a_point():
    """Clipped, [-3, -1] became "0 to 0": as if nothing above 0 were compatible with the reports."""
    middle, half = np.meshgrid(np.linspace(-8, 18, 105), np.array([0.01, 0.5, 3.0, 30.0]))
    found = Interval(middle - half, middle + half).between(0, 10)
    assert ((found.low <= np.clip(middle - half, 0, 10)) & (found.high >= np.clip(middle + half, 0, 10))).all()
    assert (found.high > found.low).all()
    inside = (middle >= 0) & (middle <= 10)
    np.testing.assert_array_equal(found.low[inside], np.clip(middle - half, 0, 10)[inside])
    np.testing.assert_array_equal(found.high[inside], np.clip(middle + half, 0, 10)[inside])
    unknown = Interval(np.array([-np.inf]), np.array([np.inf])).between(0, 10)
    assert (unknown.low[0], unknown.high[0]) == (0, 10)
