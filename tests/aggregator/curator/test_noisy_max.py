"""Report-noisy-max: its exact law, privacy by enumeration of small counts, and draws that follow the law."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import exp, log, prod

import pytest

from aggregator.curator.sampling import noisy_max
from protocol.stream import Stream


def law(counts, rate):
    """P(index) of the largest sum of a count and exponential noise of rate ``rate``, by inclusion and exclusion."""
    taken = [exp(-rate * (max(counts) - count)) for count in counts]
    found = []
    for index, own in enumerate(taken):
        others = [each for place, each in enumerate(taken) if place != index]
        subsets = (part for size in range(len(taken)) for part in combinations(others, size))
        found.append(own * sum((-1) ** len(part) / (len(part) + 1) * prod(part) for part in subsets))
    assert sum(found) == pytest.approx(1)
    return found


def worst(rate):
    """The largest |ln ratio| over all counts of 0 to 3 of three candidates and one record more."""
    return max(
        abs(log(one / other))
        for counts in product(range(4), repeat=3)
        for added in product((0, 1), repeat=3)
        for one, other in zip(law(counts, rate), law([a + b for a, b in zip(counts, added, strict=True)], rate),
                              strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("rate", [0.1, 1.0, 3.0])
def test_one_record_more_changes_no_probability_by_more_than_the_rate(rate):
    assert 0.9 * rate < worst(rate) <= rate + 1e-9


def test_draws_follow_the_law():
    """Chi-square over 4 candidates, 2,000 draws: 31 is exceeded by chance with probability below 1e-6.

    The same draws reject the law of half the rate.
    """
    counts, stream = (5, 4, 4, 1), Stream(bytes(range(32)), b"t")
    drawn = [noisy_max(counts, Fraction(1, 2), stream) for _ in range(2_000)]
    for rate, fits in ((0.5, True), (0.25, False)):
        expected = [2_000 * share for share in law(counts, rate)]
        chi = sum((drawn.count(index) - mean) ** 2 / mean for index, mean in enumerate(expected))
        assert (chi < 31) == fits


def test_a_clear_best_is_found_among_many_and_one_is_always_found():
    stream = Stream(bytes(32), b"t")
    assert noisy_max([0] * 50 + [10_000] + [0] * 50, Fraction(1, 10), stream) == 50
    assert noisy_max([7], Fraction(1), stream) == 0
