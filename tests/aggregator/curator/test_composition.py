"""Two accounts of the same queries, against floating-point formulas and exhaustive privacy losses."""

from __future__ import annotations

from fractions import Fraction
from math import exp, lgamma, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.curator.accounting import Cost, Spending, Total, checked, concentrated_cost, decimal_text, total
from protocol.epsilon import MICRO

DELTA = Fraction(1, 10**6)


def allowed(terms: Total, cost: Cost, most: int = 10_000) -> int:
    """How many queries of one cost fit."""
    spent, count = Spending(), 0
    while count < most and terms.covers(spent.plus(cost)):
        spent, count = spent.plus(cost), count + 1
    return count


@pytest.mark.slow
@given(st.integers(1, 10**8), st.integers(1, 29))
def test_the_largest_rho_is_above_that_of_the_simple_formula_and_costs_the_whole_total(micro, places):
    terms = Total(micro, Fraction(1, 10**places), Fraction(1, 10**places))
    loss, epsilon = places * log(10), micro / MICRO
    simple = (epsilon / (sqrt(loss + epsilon) + sqrt(loss))) ** 2
    assert simple < terms.rho
    assert terms.concentrated_epsilon(Spending(rho=terms.rho)) == pytest.approx(epsilon, rel=1e-12)


def test_the_cheaper_of_two_accounts_is_used_and_delta_is_added_beside_the_reserved_part():
    """ε = 1, δ_c = 10⁻⁶: ρ ≤ 0.02435; so 487 queries of ε = 0.01 instead of 100, and 2 of 0.5 by the basic account."""
    with_delta, pure = total(MICRO, DELTA, DELTA), total(MICRO, Fraction(0))
    assert [allowed(terms, Cost(10_000, Fraction(0), None)) for terms in (pure, with_delta)] == [100, 487]
    assert [allowed(terms, Cost(500_000, Fraction(0), None)) for terms in (pure, with_delta)] == [2, 2]
    terms = total(MICRO, DELTA, DELTA)
    assert allowed(terms, Cost(10_000, Fraction(0), Fraction(1, 10**5))) == 2435
    assert concentrated_cost(Cost(10_000, Fraction(0), Fraction(1))) == Fraction(1, 20_000)
    assert concentrated_cost(Cost(10_000, DELTA, Fraction(1))) == 1
    terms = total(MICRO, 4 * DELTA, DELTA)
    assert terms.spendable_delta == 3 * DELTA
    assert allowed(terms, Cost(1, DELTA, None)) == 3
    assert allowed(total(MICRO, Fraction(0)), Cost(1, Fraction(1, 10**30), None)) == 0
    assert total(MICRO, 4 * DELTA).concentrated_delta == 2 * DELTA


@given(st.lists(st.integers(1, 2 * MICRO), max_size=6), st.booleans())
def test_what_is_left_is_the_largest_query_that_fits(costs, concentrated):
    terms = total(MICRO, DELTA, DELTA if concentrated else Fraction(0))
    spent = Spending()
    for cost in costs:
        if terms.covers(spent.plus(one := Cost(cost, Fraction(0), None))):
            spent = spent.plus(one)
    left = terms.left(spent).epsilon_micro
    assert not terms.covers(spent.plus(Cost(left + 1, Fraction(0), None)))
    assert left == 0 or terms.covers(spent.plus(Cost(left, Fraction(0), None)))


def test_costs_are_rounded_up_and_written_exactly():
    found = checked(Cost(1, Fraction(1, 3), Fraction(1, 7)))
    assert Fraction(1, 3) <= found.delta <= Fraction(1, 3) + Fraction(1, 10**30)
    assert Fraction(1, 7) <= found.rho <= Fraction(1, 7) + Fraction(1, 10**30)
    for number in (found.delta, found.rho, Fraction(0), Fraction(12), DELTA, Fraction(1, 10**30)):
        assert Fraction(decimal_text(number)) == number
    assert decimal_text(DELTA) == "0.000001"


def loss_of(queries: int, epsilon: float, delta: float) -> float:
    """The smallest ε' so that ``queries`` randomised responses of ε are (ε', δ)-differentially private together.

    Every output of the inputs (0, …, 0) and (1, …, 1) is counted, by its number of ones: the exact δ at ε' is
    Σ max(P − e^ε' Q, 0).
    """
    keep = exp(epsilon) / (1 + exp(epsilon))

    def chance(ones: int, of_one: float) -> float:
        ways = lgamma(queries + 1) - lgamma(ones + 1) - lgamma(queries - ones + 1)
        return exp(ways + ones * log(of_one) + (queries - ones) * log(1 - of_one))

    pairs = [(chance(ones, 1 - keep), chance(ones, keep)) for ones in range(queries + 1)]
    low, high = 0.0, queries * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        fits = sum(max(p - exp(middle) * q, 0) for p, q in pairs) <= delta
        low, high = (low, middle) if fits else (middle, high)
    return high


@pytest.mark.parametrize("micro", [20_000, 50_000, 200_000])
def test_queries_that_are_allowed_are_private_together_by_enumeration(micro):
    """The worst mechanisms of ε, randomised responses, as many as the accounts allow with δ_c = 0.01."""
    terms = total(MICRO, Fraction(1, 100), Fraction(1, 100))
    count = allowed(terms, Cost(micro, Fraction(0), None))
    assert count * micro >= MICRO
    assert loss_of(count, micro / MICRO, 0.01) <= 1 + 1e-9
    assert loss_of(3 * count, micro / MICRO, 0.01) > 1
