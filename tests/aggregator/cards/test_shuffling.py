"""The privacy of shuffled reports, and the binomial distribution, beside exact sums and published figures."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import comb, exp, log

import numpy as np
import pytest
from support.failures import reason_of

from aggregator.cards import shuffling
from aggregator.cards.binomial import least_likely, log_probability, most_likely, upper_tail
from aggregator.cards.shuffling import Clones, amplified, closed_forms, numeric
from protocol.errors import InputError


def test_the_figures_of_a_hundred_thousand_reports():
    """The authors' program brackets the numeric bound by 0.1676 and 0.1728."""
    found = amplified(4.0, 100_000, 1e-6)
    assert 0.1676 <= found.numeric <= 0.1728
    assert f"{found.printed:.4f} {found.closed_form:.4f}" == "0.5346 0.5378"


def whole_divergence(local, reports, epsilon):
    """Σ (P − e^ε Q)⁺ over all outcomes of the pair of clones, without any grouping."""
    share, p, total = exp(-local), exp(local) / (1 + exp(local)), 0.0
    for clones in range(reports):
        chance = comb(reports - 1, clones) * share**clones * (1 - share) ** (reports - 1 - clones)
        half = [0.0, *(comb(clones, k) / 2**clones for k in range(clones + 1)), 0.0]
        for x in range(clones + 2):
            own, other = half[x], half[x + 1]  # A = x − 1 and A = x
            total += chance * max(0.0, p * own + (1 - p) * other - exp(epsilon) * ((1 - p) * own + p * other))
    return total


@pytest.mark.parametrize(("local", "reports"), [(0.5, 2), (1.0, 30), (2.0, 100), (4.0, 120), (3.0, 1)])
def test_delta_is_an_upper_bound_of_the_exact_sum_and_near_it(local, reports):
    clones = Clones(local, reports)
    for part in (0, 0.05, 0.3, 0.9):
        exact = whole_divergence(local, reports, part * local)
        assert exact * (1 - 1e-9) <= clones.delta(part * local) <= exact * 1.02 + 1e-12
    assert clones.delta(local) == 0


def test_more_reports_and_a_larger_delta_give_a_smaller_epsilon_and_coarse_groups_a_larger_one(monkeypatch):
    found = [numeric(1.0, n, 1e-6) for n in (10, 1000, 5000)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= 1.0
    assert numeric(1.0, 1000, 1e-3) < found[1]
    fine = numeric(2.0, 5000, 1e-6)
    monkeypatch.setattr(shuffling, "_GROUPS", 12)
    assert fine < numeric(2.0, 5000, 1e-6) < 2.0


def test_a_closed_form_is_given_only_under_its_condition():
    least = 16 * log(4 / 1e-6) * exp(1.0)
    assert closed_forms(1.0, int(least) - 1, 1e-6) == (None, None)
    found, printed = closed_forms(1.0, int(least) + 2, 1e-6)
    assert printed < found
    assert amplified(1.0, int(least) + 2, 1e-6).numeric < printed


@pytest.mark.parametrize("wrong", [(0.0, 9, 0.1), (float("inf"), 9, 0.1), (1.0, 0, 0.1), (1.0, 9, 0.0), (1.0, 9, 1.0)])
def test_arguments_out_of_range_are_refused(wrong):
    assert reason_of(InputError, amplified, *wrong) == "argument_invalid"


# The binomial distribution ----------------------------------------------------------------------------


def exact(k, n, p):
    return comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize(("n", "p"), [(0, 0.5), (1, 0.25), (7, 0.5), (40, 0.125), (300, 0.75)])
def test_probabilities_are_those_of_integers(n, p):
    expected = [log(exact(k, n, Fraction(p))) for k in range(n + 1)]
    assert log_probability(np.arange(n + 1), n, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "p"), [(1, 0.25), (7, 0.5), (40, 0.125), (2000, 0.25)])
def test_tails_are_below_the_exact_ones_and_near(n, p):
    chances = [exact(k, n, Fraction(p)) for k in range(n + 1)]
    expected = np.array([float(tail) for tail in accumulate(reversed(chances))][::-1])
    found = upper_tail(np.arange(n + 1), n, p)
    above = np.arange(n + 1) > n * p
    assert (found <= expected * (1 + 1e-9) + 1e-300).all()
    assert found[above] == pytest.approx(expected[above], rel=4e-3)


def test_a_billion_trials_sum_to_one_and_ends_are_certain():
    around = np.arange(500_000_000 - 200_000, 500_000_000 + 200_001)
    assert np.exp(log_probability(around, 10**9, 0.5)).sum() == pytest.approx(1, abs=1e-8)
    assert upper_tail([0, -3, 11], 10, 0.5).tolist() == [1, 1, 0]
    found = upper_tail([1, 100, 500_000, 900_000], 10**6, 0.9)  # neither of both tails is lost to an overflow
    assert np.isfinite(found).all()
    assert (found[:3] > 0.98).all()
    assert found[3] == pytest.approx(0.5, abs=0.01)
    assert upper_tail(900_000, 10**6, 0.1) == 0


def test_numbers_by_chance_are_bounded():
    for n, p in ((50, 0.1), (1000, 0.3), (7, 1.0), (0, 0.5)):
        chances = np.exp(log_probability(np.arange(n + 1), n, p)) if 0 < p < 1 else np.eye(n + 1)[n if p else 0]
        most, least = most_likely(n, p, 1e-6), least_likely(n, p, 1e-6)
        assert chances[most + 1 :].sum() <= 1e-6
        assert chances[:least].sum() <= 1e-6
        assert least <= n * p <= most
    assert most_likely(1000, 0.3, 1e-6) < 400
