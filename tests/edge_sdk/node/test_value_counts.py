"""The node's smooth sensitivity of a variance equals the curator's, which is proven against exhaustive search."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.smooth_definition import changes_of_variance, smooth

from aggregator.curator.smooth_sensitivity import BoundedValues, smooth_sensitivity_of_variance, variance
from edge_sdk.node.smooth import (
    CELLS,
    GRID_BITS,
    ValueCounts,
    _Changes,
    cell_of,
    global_sensitivity,
    smooth_sensitivity,
)
from protocol import SCALE
from protocol.noise.rational_bounds import exp_above

BETAS = st.fractions(Fraction(1, 10**4), 2, max_denominator=10**4)
WIDTH = 12
COUNTS = st.lists(st.integers(0, 6), min_size=WIDTH + 1, max_size=WIDTH + 1).filter(lambda counts: sum(counts) >= 2)


def values_of(counts: list[int]) -> list[int]:
    return [position for position, count in enumerate(counts) for _ in range(count)]


@given(COUNTS, BETAS)
@examples(100)
def test_counts_give_what_sorted_values_give(counts: list[int], beta: Fraction) -> None:
    data, sorted_values = ValueCounts(counts), BoundedValues(values_of(counts), 0, WIDTH)
    assert data.variance() == variance(sorted_values)
    found, expected = smooth_sensitivity(data, beta), smooth_sensitivity_of_variance(sorted_values, beta)
    assert float(found.value / expected.value) == pytest.approx(1, abs=1e-9)


@given(COUNTS)
@examples(50)
def test_the_changes_are_those_of_the_definition_and_grow(counts: list[int]) -> None:
    data, n = ValueCounts(counts), sum(counts)
    changes = _Changes(data)
    found = [changes.at(t) for t in range(n + 1)]
    defined = changes_of_variance(np.array(values_of(counts), np.float64), WIDTH) * n**2 * (n - 1)
    assert found == pytest.approx(defined.tolist(), rel=1e-9)
    assert found == sorted(found)


@given(COUNTS, BETAS)
@examples(50)
def test_the_search_misses_no_distance(counts: list[int], beta: Fraction) -> None:
    n = sum(counts)
    found = smooth_sensitivity(ValueCounts(counts), beta).value
    defined = smooth(changes_of_variance(np.array(values_of(counts), np.float64), WIDTH), float(beta))
    assert float(found) >= defined * (1 - 1e-9)
    assert found <= global_sensitivity(n, WIDTH) * (1 + Fraction(1, 10**9))


@given(COUNTS, BETAS, st.data())
@examples(100)
def test_neighbours_break_no_rule(counts: list[int], beta: Fraction, data: st.DataObject) -> None:
    old = data.draw(st.sampled_from([position for position, count in enumerate(counts) if count]))
    other = list(counts)
    other[old] -= 1
    other[data.draw(st.integers(0, WIDTH))] += 1
    first, second = ValueCounts(counts), ValueCounts(other)
    left, right = smooth_sensitivity(first, beta).value, smooth_sensitivity(second, beta).value
    assert abs(first.variance() - second.variance()) <= min(left, right)
    assert max(left, right) <= exp_above(beta) * min(left, right)


def test_a_million_values_and_a_small_beta_take_few_distances() -> None:
    data = ValueCounts([1_000_000 // CELLS] * CELLS)
    found = smooth_sensitivity(data, Fraction(1, 10**5))
    assert 0.25 <= float(found.value / global_sensitivity(data.n, data.width)) <= 1
    changes = _Changes(data)
    assert float(found.value) >= float(Fraction(changes.at(1), data.n**2 * (data.n - 1))) * 0.9999


def test_numbers_are_counted_at_the_nearest_grid_point() -> None:
    assert [cell_of(u) for u in (-SCALE, 0, SCALE)] == [0, CELLS // 2, CELLS - 1]
    for u in range(-SCALE, SCALE + 1, 101):
        assert abs((cell_of(u) << GRID_BITS) - SCALE - u) <= 1 << GRID_BITS - 1


@pytest.mark.parametrize("counts", [[0, 0], [1, 0], [0, 1]])
def test_fewer_than_two_values_have_variance_0(counts: list[int]) -> None:
    assert ValueCounts(counts).variance() == 0
