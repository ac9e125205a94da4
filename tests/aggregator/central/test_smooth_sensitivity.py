"""Smooth sensitivity equals exhaustive search on small grids and the O(n²) definition, and it is smooth."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from aggregator.central.smooth_sensitivity import (
    BoundedValues,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
)

CLOSE = 1e-9
"""S is above S* because of the reserve for rounding, 3η·t with η = 2^−36: less than this for t ≤ 20."""


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
    for beta in (Fraction(1, 60), Fraction(1, 5), Fraction(1), Fraction(3)):
        for values, found in changes.items():
            got = smooth_sensitivity_of_mean(BoundedValues(values, 0, width), beta, trim).value
            assert 0 <= float(got) / smooth_of(found, beta) - 1 < CLOSE, (values, beta)


@pytest.mark.parametrize(("n", "width", "step"), [(2, 12, 1), (3, 12, 2), (4, 12, 3), (5, 12, 4), (6, 30, 15)])
def test_the_variance_is_never_below_exhaustive_search_and_close_to_it(n, width, step):
    """S may be a little larger: the mean of the other values, from which a value may move, need not be on the grid."""
    changes = largest_changes(exact_variance, n, width, range(0, width + 1, step))
    for beta in (Fraction(1, 60), Fraction(1, 5), Fraction(1), Fraction(3)):
        for values, found in changes.items():
            got = float(smooth_sensitivity_of_variance(BoundedValues(values, 0, width), beta).value)
            searched = smooth_of(found, beta)
            assert got >= searched
            # A step of the fine grid changes (z − r)² by at most 2·width in (n − 1)/n²·(…); the nearest is half of it.
            assert got - searched <= searched * CLOSE + (n - 1) / n**2 * 0.25, (values, beta)
