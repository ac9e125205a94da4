"""Shares of a fleet: which part of the devices each campaign of a series asks.

A share [low, high) is a range of the integers 0 … 2³². Devices are spread evenly over the range, and a device answers
one campaign of a series at most, so shares of one series must not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aggregator.choosing.subsets import Subset

WHOLE = 1 << 32
LEAST_PART = 0.005
"""Shares of a fleet below this size are not asked alone: the campaign would cost more than its answers are worth."""


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
        """The share as the option ``--share`` takes it: ``low:high``."""
        return f"{self.low}:{self.high}"


class Asked(NamedTuple):
    """A campaign of the series: the features that it asks about, each as often, and the share of devices it asks."""

    features: Subset
    share: Share


def after(low: int, part: float) -> Share:
    """The share that begins at ``low`` and has the fraction ``part`` of the fleet, or all that is left."""
    return Share(low, min(WHOLE, low + max(1, round(part * WHOLE))))


def used(shares: Iterable[Share]) -> int:
    """The place after the last of these shares, where the next one begins; 0 without shares."""
    return max((share.high for share in shares), default=0)


def equalise(expected: Mapping[int, float], low: int) -> list[Asked]:
    """Ask the rest of the fleet about some features, so that all have as many answers as possible.

    Features with fewer answers so far are asked in a campaign of their own first, until they have as many answers as
    the next ones. A campaign of less than :data:`LEAST_PART` of the fleet is left out.

    Args:
        expected: for each feature the answers that it is expected to have so far, as a fraction of the fleet.
        low: where the rest of the fleet begins.
    """
    found: list[Asked] = []
    rest = (WHOLE - low) / WHOLE
    for level, following in _levels(expected):
        members = tuple(sorted(index for index, part in expected.items() if part <= level))
        need = rest if following is None else min(rest, (following - level) * len(members))
        if following is not None and need < LEAST_PART:
            continue
        if need > 0:
            share = Share(low, WHOLE) if following is None else after(low, need)
            found.append(Asked(members, share))
            low, rest = share.high, (WHOLE - share.high) / WHOLE
    return found


def _levels(expected: Mapping[int, float]) -> list[tuple[float, float | None]]:
    """Each different number of answers, rising, with the next larger one; the last has None."""
    levels: Sequence[float] = sorted(set(expected.values()))
    return list(zip(levels, [*levels[1:], None], strict=True))
