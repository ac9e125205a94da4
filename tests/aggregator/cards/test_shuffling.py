"""The privacy of shuffled reports: published figures, an exact sum for few reports, and order in every argument."""

from __future__ import annotations

from math import comb, exp, log

import pytest
from support.failures import reason_of

from aggregator.cards import shuffling
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
