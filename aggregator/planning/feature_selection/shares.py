"""Shares of a fleet: which part of the devices each campaign of a series asks.

A share [low, high) is a range of the integers 0 … 2³². Devices are spread evenly over the range, and a device answers
one campaign of a series at most, so shares of one series must not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aggregator.planning.feature_selection.feature_sets import Subset


WHOLE = 1 << 32
GRID = 10_000
WEIGHTS = 1000
"""Sum of the weights of a campaign that asks about some features more often than about others, nearly."""


class Share(NamedTuple):
    """The devices with a place u in a series, low ≤ u < high; 0 ≤ low < high ≤ 2³²."""

    low: int
    high: int

    @property
    def part(self) -> float:
        """The share as a fraction of the fleet."""
        return (self.high - self.low) / WHOLE

    @property
    def shown(self) -> str:
        """The share as the option ``--share`` takes it, for example ``0.25:0.33``."""
        return f"{_shown(self.low)}:{_shown(self.high)}"


class Asked(NamedTuple):
    """A campaign of the series.

    Attributes:
        features: the features that it asks about.
        share: the share of the devices that it asks.
        weights: a whole number per feature, in the proportion of the answers about each; empty for equal numbers.
    """

    features: Subset
    share: Share
    weights: tuple[int, ...] = ()


def after(low: int, part: float) -> Share:
    """The share that begins at ``low`` and has about the fraction ``part`` of the fleet, or all that is left.

    It ends at a multiple of 1/:data:`GRID` of the fleet, so that people can write it down, and is at least one such
    part.
    """
    end = max(round((low / WHOLE + part) * GRID), _nearest(low) + 1)
    return Share(low, min(WHOLE, end * WHOLE // GRID))


def _shown(place: int) -> str:
    """A place as a decimal of the fleet, or as a fraction if no short decimal gives it."""
    nearest = _nearest(place)
    if nearest * WHOLE // GRID == place:
        return f"{nearest / GRID:g}"
    return f"{place}/{WHOLE}"


def _nearest(place: int) -> int:
    """The smallest g with g·2³²/:data:`GRID`, rounded down, at ``place`` or above."""
    return -(-place * GRID // WHOLE)


def used(shares: Iterable[Share]) -> int:
    """The place after the last of these shares, where the next one begins; 0 without shares."""
    return max((share.high for share in shares), default=0)


def equalise(expected: Mapping[int, float], low: int) -> Asked:
    """Ask the rest of the fleet about some features, so that these have equally many answers in the end, if possible.

    A feature that has more answers than the others will have is asked about as little as weights allow.

    Args:
        expected: for each feature its answers so far, as a fraction of the fleet; at least one feature.
        low: where the rest of the fleet begins.
    """
    share = Share(low, WHOLE)
    needs = _needs(expected, share.part)
    total = sum(needs.values())
    features = tuple(sorted(expected))
    weights = tuple(max(1, round(WEIGHTS * needs[index] / total)) for index in features)
    return Asked(features, share, () if len(set(weights)) == 1 else weights)


def _needs(expected: Mapping[int, float], rest: float) -> dict[int, float]:
    """How much of ``rest`` each feature gets, so that the smallest sum of both parts is as large as possible."""
    ordered = sorted(expected.values())
    level = 0.0
    for count, following in enumerate([*ordered[1:], None], start=1):
        level = (sum(ordered[:count]) + rest) / count
        if following is None or level <= following:
            break
    return {index: max(0.0, level - part) for index, part in expected.items()}
