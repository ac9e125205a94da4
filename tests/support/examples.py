"""Number of examples of a property test: all in the slow tier, a part in ``make test``."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

LEAST = 5


def examples(count: int, **others: Any) -> settings:
    """Settings with ``count`` examples per hundred of the profile.

    Args:
        count: the examples of the profile ``deep``, whose own number is 100. Other profiles take their share of it.
        others: further settings.
    """
    return settings(max_examples=max(LEAST, count * settings.default.max_examples // 100), **others)
