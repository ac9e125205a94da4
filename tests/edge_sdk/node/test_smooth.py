"""Noise for smooth sensitivity: its cost for all small data sets and neighbours, its mean, and its stated variance."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, product
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.nodes import TERMS, node_campaign
from support.noise import log_density
from support.smooth_definition import changes_of_variance

from aggregator.curator.smooth_sensitivity import BoundedValues, smooth_sensitivity_of_variance, variance
from edge_sdk.node.smooth import (
    CELLS,
    GRID_BITS,
    ValueCounts,
    _Changes,
    cell_of,
    global_sensitivity,
    noisy_squares,
    noisy_variance,
    smooth_sensitivity,
    smooth_sums,
)
from protocol import SCALE
from protocol.mechanisms.noise import discrete_laplace
from protocol.nodes.terms import (
    SMOOTH,
    calibration,
    least_records,
    ranges,
    released_vectors,
    sensitivity,
    shares,
    variance_of_squares,
    variance_of_sums,
)
from protocol.noise.rational_bounds import exp_above
from protocol.noise.sums import laplace_variance, rate
from protocol.questions import ADD_REMOVE, CELL, CHANGE_FEATURES, CLASS, MOMENT, SENSITIVITIES, SQUARE
from protocol.stream import Stream

SHARE = 1_000_000
WIDTH = 4
OUTPUTS = np.sinh(np.linspace(-14, 14, 1501))


@lru_cache(maxsize=1)
def campaign():
    return node_campaign(terms=TERMS._replace(sensitivity=SMOOTH), epsilon_micro=8_000_000)


def data_sets(n: int):
    """All data sets of n values in 0 … 4, as counts, each with those that differ in one value."""
    for values in combinations_with_replacement(range(WIDTH + 1), n):
        for position, other in product(range(n), range(WIDTH + 1)):
            yield values, (*values[:position], other, *values[position + 1 :])


def counted(values) -> ValueCounts:
    return ValueCounts([values.count(position) for position in range(WIDTH + 1)])


def largest_loss(n: int, shrink: float = 1.0) -> float:
    """Largest log ratio of the densities of a released variance, over all data sets of n values and neighbours.

    ``shrink`` divides the scale of the noise.
    """
    noise, density, worst = calibration(SHARE), log_density("student-t"), 0.0
    for values, others in data_sets(n):
        pair = [counted(values), counted(others)]
        centres = [float(one.variance()) for one in pair]
        scales = [float(noise.multiplier * smooth_sensitivity(one, noise.beta).value) / shrink for one in pair]
        at = centres[0] + scales[0] * OUTPUTS
        logs = [density((at - centre) / scale) - log(scale) for centre, scale in zip(centres, scales, strict=True)]
        worst = max(worst, float(np.abs(logs[0] - logs[1]).max()))
    return worst


@pytest.mark.parametrize("n", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_no_neighbours_are_told_apart_by_a_variance(n):
    assert largest_loss(n) <= SHARE / 10**6


def test_less_noise_is_found_out():
    assert largest_loss(3, shrink=2.5) > SHARE / 10**6


GRID = (-SCALE, -SCALE // 3, 0, SCALE)


def vectors(records):
    """Class counts of two classes, value × class of two values, Σu and Σ⌊u²/S⌋ by class. Records: class, value, u."""
    classes = [sum(c == k for c, _, _ in records) for k in range(2)]
    cells = [sum((c, v) == (k, a) for c, v, _ in records) for a in range(2) for k in range(2)]
    sums = [sum(u for c, _, u in records if c == k) for k in range(2)]
    squares = [sum(u * u // SCALE for c, _, u in records if c == k) for k in range(2)]
    return {(CLASS, None): classes, (CELL, None): cells, (MOMENT, 1): sums, (MOMENT, SQUARE): squares}


def test_the_noise_of_counts_and_sums_is_for_the_largest_change_of_features():
    """Over all data sets of two records and all changes of one record's features the largest distance is Δ."""
    largest = dict.fromkeys(vectors([]), 0)
    everyone = list(product(range(2), range(2), GRID))
    for first, second in combinations_with_replacement(everyone, 2):
        before = vectors([first, second])
        for value, u in product(range(2), GRID):
            after = vectors([(first[0], value, u), second])
            for key in largest:
                distance = sum(abs(a - b) for a, b in zip(before[key], after[key], strict=True))
                largest[key] = max(largest[key], distance)
    for key, distance in largest.items():
        assert distance == SENSITIVITIES[key][CHANGE_FEATURES], key
    by_kind = {(subject.kind, subject.power): sensitivity(subject, SMOOTH) for subject in released_vectors(campaign())}
    assert all(largest[key] <= delta for key, delta in by_kind.items() if key in largest)
    assert by_kind[CLASS, None] == 1, "class counts have noise, although neighbours never differ in them"
    assert sum(shares(campaign())) <= campaign().epsilon_micro


def test_global_noise_stays_that_for_adding_or_removing_a_record():
    for subject in released_vectors(node_campaign()):
        assert sensitivity(subject) == SENSITIVITIES[subject.kind, subject.power][ADD_REMOVE]


def drawn(values: list[int], share: int, times: int) -> np.ndarray:
    """``times`` noisy sums of squares of one class, without bias by the grid: all values are on it."""
    counts = [0] * CELLS
    for u in values:
        counts[cell_of(u)] += 1
    square, total = sum(u * u // SCALE for u in values), sum(values)
    s, t = rate(share, 2 * SCALE).as_integer_ratio()
    found = []
    for number in range(times):
        stream = Stream(number.to_bytes(32, "big"), b"test")
        noisy = total + discrete_laplace(stream, s, t)
        found.append(noisy_squares(counts, [square], [noisy], share, stream)[0])
    return np.array(found, np.float64)


@pytest.mark.parametrize("kind", ["two ends", "middle", "few"])
def test_sums_of_squares_have_no_bias_and_at_most_the_stated_variance(kind):
    """The mean of 60 draws is within 5 standard errors (stated variance) of the truth: false alarm below 10⁻⁶."""
    values = {
        "two ends": [SCALE, -SCALE] * 20,
        "middle": [SCALE // 2, SCALE // 4] * 20,
        "few": [SCALE, 0],
    }[kind]
    found = drawn(values, SHARE, 60)
    bound = variance_of_squares(SHARE)
    exact = sum(u * u // SCALE for u in values)
    assert abs(found.mean() - exact) < 5 * sqrt(bound / 60)
    assert np.median((found - exact) ** 2) < bound
    if kind == "few":
        assert len(values) < least_records(SHARE)
        assert found.var() < 2 * laplace_variance(rate(SHARE, SCALE))


def test_the_square_of_the_noise_of_the_sum_is_taken_off(monkeypatch):
    """With an exact variance the mean of 500 sums of squares is within 5 standard errors of the truth.

    Without − V/n it would be 10 standard errors away. Fresh seeds would fail with probability below 10⁻⁴ (squares of
    Laplace noise have heavy tails); the seeds are fixed.
    """
    monkeypatch.setattr("edge_sdk.node.smooth.noisy_variance", lambda data, share, stream: data.variance() * 32**2)
    n, spread = least_records(SHARE), variance_of_sums(SHARE)
    found = drawn([0] * n, SHARE, 500)
    error = sqrt(5 * spread**2 / 500) / n / SCALE
    assert abs(found.mean()) < 5 * error
    assert spread / n / SCALE > 9.9 * error


def test_a_variance_is_a_multiple_of_its_public_grid():
    counts = [0] * CELLS
    counts[0], counts[-1] = 3, 4
    data = ValueCounts(counts)
    found = noisy_variance(data, SHARE, Stream(bytes(32), b"test"))
    step = Fraction((data.n - 1) * data.width**2, data.n**2) / (1 << 30) * 32**2
    assert (found / step).denominator == 1


def test_a_summary_is_a_function_of_its_seed_and_within_its_ranges():
    parts = released_vectors(campaign())
    exact = [0] * sum(subject.size for subject in parts)
    classes = parts[0].size
    counts = {subject.feature: [0] * (classes * CELLS) for subject in parts if subject.kind == MOMENT}
    first, again, other = (smooth_sums(campaign(), exact, counts, 8_000_000, bytes([n]) * 32) for n in (1, 1, 2))
    assert first == again != other
    assert len(first) == len(exact)
    place = 0
    for subject, (low, high) in zip(parts, ranges(campaign()), strict=True):
        assert all(low <= number <= high for number in first[place : place + subject.size])
        place += subject.size


def test_ranges_hold_the_noise_and_fit_into_64_bits():
    terms = TERMS._replace(sensitivity=SMOOTH, max_records=1 << 40, least_epsilon_micro=100)
    wide = node_campaign(terms=terms, epsilon_micro=100)
    for subject, (low, high) in zip(released_vectors(wide), ranges(wide), strict=True):
        assert -(1 << 63) <= low < high < 1 << 63
        if subject.power == SQUARE:
            reach = -low
            assert reach > 1000 * sqrt(variance_of_squares(shares(wide)[0]))


BETAS = st.fractions(Fraction(1, 10**4), 2, max_denominator=10**4)
MOST = 12
COUNTS = st.lists(st.integers(0, 6), min_size=MOST + 1, max_size=MOST + 1).filter(lambda counts: sum(counts) >= 2)


def values_of(counts: list[int]) -> list[int]:
    return [position for position, count in enumerate(counts) for _ in range(count)]


@given(COUNTS, BETAS)
@examples(100)
def test_counts_give_what_sorted_values_give(counts: list[int], beta: Fraction) -> None:
    data, sorted_values = ValueCounts(counts), BoundedValues(values_of(counts), 0, MOST)
    assert data.variance() == variance(sorted_values)
    found, expected = smooth_sensitivity(data, beta), smooth_sensitivity_of_variance(sorted_values, beta)
    assert float(found.value / expected.value) == pytest.approx(1, abs=1e-9)


@given(COUNTS)
@examples(50)
def test_the_changes_are_those_of_the_definition_and_grow(counts: list[int]) -> None:
    data, n = ValueCounts(counts), sum(counts)
    changes = _Changes(data)
    found = [changes.at(t) for t in range(n + 1)]
    defined = changes_of_variance(np.array(values_of(counts), np.float64), MOST) * n**2 * (n - 1)
    assert found == pytest.approx(defined.tolist(), rel=1e-9)
    assert found == sorted(found)


@given(COUNTS, BETAS, st.data())
@examples(100)
def test_neighbours_break_no_rule(counts: list[int], beta: Fraction, data: st.DataObject) -> None:
    old = data.draw(st.sampled_from([position for position, count in enumerate(counts) if count]))
    other = list(counts)
    other[old] -= 1
    other[data.draw(st.integers(0, MOST))] += 1
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
