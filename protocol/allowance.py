"""What an owner allows who says nothing, and how long that lasts. Devices keep to it, campaigns are planned by it."""

from __future__ import annotations

from protocol.document import DAY_SECONDS
from protocol.epsilon import MICRO

PERIOD_MICRO = 4 * MICRO
"""Largest ε of one campaign in one of its periods, in millionths."""
DAY_MICRO = 4 * MICRO
"""Largest ε in any 24 hours, over all campaigns."""
LIFETIME_MICRO = 100 * MICRO
"""Largest ε in a device's life, over all campaigns."""


def answers_in_a_day(epsilon_micro: int, time_precision: int, day_micro: int | None) -> int:
    """How many periods a device answers in 24 hours: all that begin in them, or as many as the owner pays for.

    Args:
        epsilon_micro: cost of one period, in millionths of ε, at least 1.
        time_precision: seconds in a period.
        day_micro: what the owner allows in 24 hours; None: no limit.

    >>> answers_in_a_day(1_000_000, 3_600, DAY_MICRO), answers_in_a_day(1_000_000, 86_400, DAY_MICRO)
    (4, 1)
    """
    begun = max(1, DAY_SECONDS // time_precision)
    return begun if day_micro is None else min(begun, day_micro // epsilon_micro)


def days_paid(answers: int, time_precision: int, in_a_day: int) -> int:
    """Whole days that a number of answers lasts, at most ``in_a_day`` in each; what is begun counts.

    >>> days_paid(100, 3_600, 4), days_paid(100, 86_400, 1), days_paid(100, 7 * 86_400, 1)
    (25, 100, 700)
    """
    return -(-answers * max(time_precision, DAY_SECONDS // in_a_day) // DAY_SECONDS)
