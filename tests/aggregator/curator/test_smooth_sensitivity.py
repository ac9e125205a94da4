"""Smooth sensitivity equals exhaustive search and its definition, and it is smooth; docs/smooth.md says what is so."""

from __future__ import annotations

import doctest
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.smooth_definition import changes_of_variance, smooth

from aggregator.curator.noise import NAMES, calibrate, calibrate_to_rho, published
from aggregator.curator.smooth_sensitivity import (
    FLOOR_BITS,
    BoundedValues,
    global_sensitivity_of_mean,
    global_sensitivity_of_variance,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
    trimmed_mean,
    variance,
)
from protocol.errors import InputError
from protocol.noise.rational_bounds import exp_below

BETAS = (Fraction(1, 60), Fraction(3, 10), Fraction(2))
CLOSE = 1e-9
"""S is above S* by the reserve for rounding: a factor 1 + 3η·t + 2η, η = 2^−36. This is its limit for t ≤ 20."""


def exact_mean(values, trim):
    kept = sorted(values)[trim : len(values) - trim]
    return Fraction(sum(kept), len(kept))


def exact_variance(values):
    n = len(values)
    return Fraction(n * sum(v * v for v in values) - sum(values) ** 2, n * n)


def largest_changes(statistic, n, width, grid):
    """A(t) of every multiset of n values of ``grid``, by search over all data sets: {sorted values: [A(0), …, A(n)]}.

    Local changes are searched over a finer grid than the values, since the extreme replacement may lie between them.
    """
    multisets = list(itertools.combinations_with_replacement(grid, n))
    local = {
        x: max(abs(statistic((*x[:i], z, *x[i + 1 :])) - statistic(x)) for i in range(n) for z in range(width + 1))
        for x in multisets
    }

    def distance(x, y):
        left = list(y)
        kept = 0
        for v in x:
            if v in left:
                left.remove(v)
                kept += 1
        return n - kept

    found = {}
    for x in multisets:
        best = [Fraction(0)] * (n + 1)
        for y in multisets:
            t = distance(x, y)
            best[t] = max(best[t], local[y])
        found[x] = list(itertools.accumulate(best, max))
    return found


def smooth_of(changes, beta):
    return max(math.exp(-float(beta) * t) * float(a) for t, a in enumerate(changes))


@pytest.mark.parametrize(
    ("n", "width", "trim"),
    [(1, 3, 0), (2, 4, 0), (3, 4, 0), (3, 4, 1), (4, 3, 1), (5, 3, 1), (5, 2, 2), (6, 2, 0), (6, 2, 2)],
)
def test_the_mean_equals_exhaustive_search(n, width, trim):
    changes = largest_changes(lambda x: exact_mean(x, trim), n, width, range(width + 1))
    for beta in BETAS:
        for values, found in changes.items():
            got = smooth_sensitivity_of_mean(BoundedValues(values, 0, width), beta, trim).value
            assert 0 <= float(got) / smooth_of(found, beta) - 1 < CLOSE, (values, beta)


@pytest.mark.parametrize(("n", "width", "step"), [(2, 12, 1), (3, 12, 2), (4, 12, 3), (5, 12, 4), (6, 30, 15)])
def test_the_variance_is_never_below_exhaustive_search_and_close_to_it(n, width, step):
    """S may be a little larger: the mean of the other values, from which a value may move, need not be on the grid."""
    changes = largest_changes(exact_variance, n, width, range(0, width + 1, step))
    for beta in BETAS:
        for values, found in changes.items():
            got = float(smooth_sensitivity_of_variance(BoundedValues(values, 0, width), beta).value)
            searched = smooth_of(found, beta)
            assert got >= searched
            # The search misses at most the square of half a step, where r lies between two numbers of its grid.
            assert got - searched <= searched * CLOSE + (n - 1) / n**2 * 0.25, (values, beta)


@st.composite
def value_lists(draw, least=1):
    """Up to 200 integers with bounds: spread, of few different values, or at the bounds."""
    width = draw(st.sampled_from([1, 2, 7, 100, 2048, 1 << 31]))
    n = draw(st.integers(least, 200))
    few = draw(st.lists(st.integers(0, width), min_size=1, max_size=4))
    each = draw(st.sampled_from([st.integers(0, width), st.sampled_from(few), st.sampled_from([0, width])]))
    return draw(st.lists(each, min_size=n, max_size=n)), width


BETA = st.fractions(Fraction(1, 200), Fraction(4, 5), max_denominator=1000)
"""Up to 0.8: with n ≤ 200 the weights stay above the floor 2^−256."""


def close(found, defined, beta, n):
    assert 0 <= float(found) / defined - 1 + 1e-12 < 1e-10 * n


@given(value_lists(2), BETA)
@examples(80)
def test_the_variance_equals_its_definition(values_and_width, beta):
    values, width = values_and_width
    bounded = BoundedValues(np.array(values) - 5, -5, width - 5)
    changes = changes_of_variance(np.sort(np.array(values, dtype=float)), width)
    defined = smooth(changes, float(beta))
    close(smooth_sensitivity_of_variance(bounded, beta).value, defined, beta, len(values))
    assert variance(bounded) == exact_variance(values)


def broken_rules(values, other, width, beta, trim, sensitivities):
    """What neighbours show of a wrong smooth sensitivity: a list of texts, empty for a right one.

    Args:
        sensitivities: the functions of a data set and β that are tested: of the trimmed mean, and of the variance.
    """
    both = [BoundedValues(each, 0, width) for each in (values, other)]
    found = []
    of_mean, of_variance = sensitivities
    for name, of, statistic in (
        ("mean", lambda d: of_mean(d, beta, trim), lambda d: trimmed_mean(d, trim)),
        ("variance", lambda d: of_variance(d, beta), variance),
    ):
        one, two = (of(each).value for each in both)
        if max(one, two) > exp_below(beta) * min(one, two):
            found.append(f"{name}: not smooth")
        if abs(statistic(both[0]) - statistic(both[1])) > min(one, two):
            found.append(f"{name}: below the local sensitivity")
    return found


RIGHT = (smooth_sensitivity_of_mean, smooth_sensitivity_of_variance)


@given(value_lists(2), st.fractions(Fraction(1, 1000), 3, max_denominator=1000), st.data())
@examples(100)
def test_neighbours_break_no_rule(values_and_width, beta, data):
    """Exactly, in fractions: S(x) ≤ e^β·S(y) and |f(x) − f(y)| ≤ min(S(x), S(y))."""
    values, width = values_and_width
    other = list(values)
    other[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.integers(0, width))
    trim = data.draw(st.integers(0, (len(values) - 1) // 2))
    assert broken_rules(values, other, width, beta, trim, RIGHT) == []


def test_too_small_a_sensitivity_breaks_a_rule():
    """Local sensitivity alone, and the smooth sensitivity for twice the β, are found out."""

    def with_beta(factor):
        return tuple(lambda d, beta, *trim, of=of: of(d, factor * beta, *trim) for of in RIGHT)

    def halved(of):
        def call(*arguments):
            found = of(*arguments)
            return found._replace(value=found.value / 2)

        return call

    pairs = [
        ([0, 5, 5, 5, 10], [0, 5, 5, 10, 10], 10, 1),
        ([0, 0, 0, 0], [0, 0, 0, 10], 10, 0),
        ([0] * 9, [0] * 8 + [9], 9, 4),
    ]
    beta = Fraction(1, 10)
    for sensitivities in (with_beta(30), tuple(halved(of) for of in RIGHT)):
        found = {
            rule
            for values, other, width, trim in pairs
            for rule in broken_rules(values, other, width, beta, trim, sensitivities)
        }
        assert found
    assert all(broken_rules(v, o, w, beta, t, RIGHT) == [] for v, o, w, t in pairs)


@pytest.mark.parametrize("trim", [0, 1, 800, 1499])
def test_the_bests_of_all_rows_are_those_of_all_pairs(trim):
    """The search of monotone partners against all pairs (a, b), where nothing can be left out early."""
    rng = np.random.default_rng(7)
    for values in (np.full(2999, 500), rng.integers(0, 1001, 2999), np.sort(rng.integers(0, 3, 2999)) * 500):
        bounded = BoundedValues(values, 0, 1000)
        beta = Fraction(1, 500)
        found = smooth_sensitivity_of_mean(bounded, beta, trim).value
        n, x = 2999, bounded.ordered
        upper = np.append(x[n - trim - 1 :], 1000).astype(float)
        lower = np.append(x[trim::-1], 0).astype(float)
        weights = np.exp(-0.002 * np.arange(trim + 2))
        every = [(weights[a] * weights * (upper[a] - lower)) for a in range(trim + 2)]
        every[0][0] = 0
        defined = max(map(np.max, every)) * math.exp(0.002) / (n - 2 * trim)
        assert float(found) == pytest.approx(defined, rel=1e-6)


def test_the_sensitivity_has_a_floor():
    """Equal values, trimmed by so many that S* would be e^−20000: S is 2^−256 of the global sensitivity."""
    found = smooth_sensitivity_of_mean(BoundedValues(np.full(100_001, 5), 0, 10), Fraction(1), 20_000)
    assert found.value == pytest.approx(Fraction(10, 60_001) / 2**FLOOR_BITS, rel=1e-9)
    assert (global_sensitivity_of_mean(50, 100), global_sensitivity_of_variance(50, 100)) == (2, Fraction(49 * 4))


def test_large_numbers_stay_exact():
    values = [0, 1, (1 << 58) - 1, 1 << 58]
    data = BoundedValues(values, 0, 1 << 58)
    assert trimmed_mean(data) == Fraction(sum(values), 4)
    assert variance(data) == exact_variance(values)
    assert smooth_sensitivity_of_variance(data, Fraction(1)).value > 0


@pytest.mark.parametrize(
    ("expected", "make"),
    [
        ("values_invalid", lambda: BoundedValues([0.5], 0, 1)),
        ("values_invalid", lambda: BoundedValues([[1]], 0, 1)),
        ("values_invalid", lambda: BoundedValues([True], 0, 1)),
        ("outside_bounds", lambda: BoundedValues([2], 0, 1)),
        ("outside_bounds", lambda: BoundedValues([-1, 1], 0, 1)),
        ("range_invalid", lambda: BoundedValues([1], 1, 1)),
        ("range_invalid", lambda: BoundedValues([1, 1, 1], 0, 1 << 60)),
        ("range_invalid", lambda: BoundedValues([1 << 62], 1 << 62, (1 << 62) + 1)),
        ("range_invalid", lambda: BoundedValues([], 0.2, 0.9)),
        ("trim_invalid", lambda: trimmed_mean(BoundedValues([1, 1, 1], 0, 1), 0.5)),
        ("trim_invalid", lambda: trimmed_mean(BoundedValues([1, 1], 0, 1), 1)),
        ("trim_invalid", lambda: trimmed_mean(BoundedValues([1, 1], 0, 1), -1)),
        ("trim_invalid", lambda: smooth_sensitivity_of_mean(BoundedValues([], 0, 1), Fraction(1))),
        ("class_too_small", lambda: variance(BoundedValues([1], 0, 1))),
        ("class_too_small", lambda: smooth_sensitivity_of_variance(BoundedValues([], 0, 1), Fraction(1))),
        ("beta_invalid", lambda: smooth_sensitivity_of_variance(BoundedValues([0, 1], 0, 1), Fraction(65))),
        ("beta_invalid", lambda: smooth_sensitivity_of_mean(BoundedValues([0, 1], 0, 1), Fraction(1, 1 << 31))),
        (None, lambda: smooth_sensitivity_of_mean(BoundedValues([0, 1], 0, 1), Fraction(1, 1 << 30))),
    ],
)
def test_what_can_not_be_computed_is_refused(expected, make):
    assert reason(make) == expected


PAGE = (Path(__file__).parents[3] / "docs" / "smooth.md").read_text("utf-8")
EPSILON, DELTA = Fraction(1, 10), Fraction(1, 10**6)


def rows_of(first_heading):
    """The cells of the rows of a table, by the text of its first heading."""
    lines = re.search(rf"^\| {first_heading} \|.*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)[0].splitlines()[2:]
    return [[cell.strip().replace("`", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def numbers_in(text):
    return [float(Fraction(each)) for each in re.findall(r"\d+/\d+|\d+\.?\d*", text.split("(")[0])]


def test_the_example_prints_what_the_page_says():
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    example = doctest.DocTestParser().get_doctest(code, {}, "smooth.md", None, None)
    assert len(example.examples) > 10
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_table_of_noises_holds():
    rows = {row[0]: row for row in rows_of("noise")}
    assert set(NAMES) == set(rows)
    for name in NAMES:
        found = calibrate(name, EPSILON, DELTA)
        _, _, _, default, deviation, paper = rows[name]
        assert numbers_in(default) == pytest.approx(
            [float(found.multiplier * EPSILON), float(found.beta / EPSILON)], rel=6e-3
        )
        if deviation == "infinite":
            assert found.law.variance == np.inf
        else:
            assert numbers_in(deviation) == pytest.approx([found.variance(Fraction(1)) ** 0.5 / 10], rel=6e-3)
        try:
            constants = published(name, EPSILON, DELTA)
        except InputError:
            assert paper == ""
        else:
            assert numbers_in(paper) == pytest.approx(
                [float(constants.multiplier * EPSILON), float(constants.beta / EPSILON)], rel=6e-3
            )


def test_what_is_said_of_laplace_log_normal_noise_holds():
    found = calibrate_to_rho("laplace-log-normal", EPSILON**2 / 2, DELTA)
    said = re.search(r"its kc is ([\d.]+) and the sd of its noise ([\d.]+)·S/c", " ".join(PAGE.split()))
    assert float(said[1]) == pytest.approx(float(found.multiplier * EPSILON), abs=0.05)
    assert float(said[2]) == pytest.approx(found.variance(Fraction(1)) ** 0.5 / 10, abs=0.05)


def test_the_table_of_scales_holds():
    n, half = 10_000, 1024
    shares = (np.arange(n) + 0.5) / n
    near = [round(NormalDist(0, half / 10).inv_cdf(share)) for share in shares]
    even = np.round((2 * shares - 1) * half).astype(np.int64)
    rows = [row for row in rows_of("values, ε = 0.1") if row]
    data = [BoundedValues(values, -half, half) for values in (near, even) for _ in range(3)]
    noises = 2 * [calibrate("cauchy", EPSILON), published("cauchy", EPSILON), calibrate("student-t", EPSILON)]
    assert len(rows) == len(data)
    for row, each, noise in zip(rows, data, noises, strict=True):
        whole = global_sensitivity_of_mean(n, 2 * half)
        found = [
            smooth_sensitivity_of_variance(each, noise.beta).value / global_sensitivity_of_variance(n, 2 * half),
            smooth_sensitivity_of_mean(each, noise.beta).value / whole,
            smooth_sensitivity_of_mean(each, noise.beta, n // 20).value / whole,
        ]
        scales = [float(noise.multiplier * EPSILON * one) for one in found]
        assert [float(cell) for cell in row[2:]] == pytest.approx(scales, abs=0.006), row
