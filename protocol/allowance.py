"""Default limits on ε, and how many answers and days limits allow.

A device applies these limits if its owner sets none. The planning of campaigns assumes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.document import DAY_SECONDS
from protocol.epsilon import MICRO

if TYPE_CHECKING:
    from collections.abc import Iterable

PERIOD_MICRO = 4 * MICRO
"""Largest ε of one campaign in one of its periods, in millionths."""
DAY_MICRO = 4 * MICRO
"""Largest ε in any 24 hours, over all campaigns."""
LIFETIME_MICRO = 100 * MICRO
"""Largest ε in a device's life, over all campaigns."""
PERIOD_DELTA_PICO = 20_000_000
"""Largest δ of one masked campaign in one of its periods, in 10⁻¹²: 2·10⁻⁵, twice the usual 10⁻⁵ of a campaign. A
changed record costs up to twice what a record more or less costs, and nodes count changes unless their owner says else.
"""
LIFETIME_DELTA_PICO = 500_000_000
"""Largest δ in a node's life: 5·10⁻⁴, 25 periods as for ε. So noise fails for a record with a chance of 1 in 2000."""


class Limit(NamedTuple):
    """An owner's limit: at most ``micro`` millionths of ε in any time span of ``seconds`` seconds."""

    micro: int
    seconds: int


class Pace(NamedTuple):
    """A limit on a campaign's answers: at most ``answers`` in any time span of ``seconds`` seconds.

    In such a time span at most ``begun`` periods of the campaign begin.
    """

    answers: int
    seconds: int
    begun: int

    def __str__(self) -> str:
        days = self.seconds // DAY_SECONDS
        return f"{self.answers} of the {self.begun} periods of {'a day' if days == 1 else f'{days} days'}"


def paces(epsilon_micro: int, time_precision: int, limits: Iterable[Limit]) -> list[Pace]:
    """The limits on a campaign's answers that follow from the owner's limits on ε, the shortest time span first.

    Only limits that keep a device from answering in every period are returned; limits that other limits imply are left
    out. The list is empty if a device may answer in every period.

    Args:
        epsilon_micro: cost of one period, in millionths of ε, at least 1.
        time_precision: T, length of a period in seconds.
        limits: the owner's limits; each allows at least one period.

    >>> list(map(str, paces(1_000_000, 3_600, [Limit(DAY_MICRO, DAY_SECONDS)])))
    ['4 of the 24 periods of a day']
    >>> paces(1_000_000, DAY_SECONDS, [Limit(DAY_MICRO, DAY_SECONDS)])
    []
    """
    found: list[Pace] = []
    for limit in sorted(limits, key=lambda limit: limit.seconds):
        most = limit.micro // epsilon_micro
        if _seconds_for(most, time_precision, found) < limit.seconds:
            found = [pace for pace in found if pace.answers < most]
            found.append(Pace(most, limit.seconds, -(-limit.seconds // time_precision)))
    return found


def _seconds_for(answers: int, time_precision: int, limiting: list[Pace]) -> int:
    """Seconds from the first answer to answer number ``answers`` + 1, if each comes as soon as it is allowed."""
    if not limiting:
        return answers * time_precision
    *inner, pace = limiting
    groups, rest = divmod(answers, pace.answers)
    return groups * pace.seconds + _seconds_for(rest, time_precision, inner)


def days_paid(answers: int, time_precision: int, limiting: list[Pace]) -> int:
    """Number of days, rounded up, in which a device gives ``answers`` answers, each as soon as the limits allow it.

    The time begins with the first answer and ends with the period of the last answer.

    Args:
        answers: number of answers; the result is 0 below 1.
        time_precision: length of a period in seconds.
        limiting: the result of :func:`paces`.

    >>> daily = [Limit(DAY_MICRO, DAY_SECONDS)]
    >>> [days_paid(100, T, paces(1_000_000, T, daily)) for T in (3_600, 46_800, 86_400, 7 * 86_400)]
    [25, 55, 100, 700]
    >>> days_paid(5, DAY_SECONDS, paces(1_000_000, DAY_SECONDS, [*daily, Limit(1_000_000, 7 * DAY_SECONDS)]))
    29
    """
    if answers < 1:
        return 0
    return -(-(_seconds_for(answers - 1, time_precision, limiting) + time_precision) // DAY_SECONDS)
