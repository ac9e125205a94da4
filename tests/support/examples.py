"""Number of examples of a property test: all in the slow tier, a part in ``make test``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")

LEAST = 5
DEEP = 100
"""Examples of the profile ``deep``."""


def examples(count: int, **others: Any) -> settings:
    """Settings with ``count`` examples per hundred of the profile.

    Args:
        count: the examples of the profile ``deep``, whose own number is 100. Other profiles take their share of it.
        others: further settings.
    """
    return settings(max_examples=max(LEAST, count * settings.default.max_examples // 100), **others)


def part(items: Iterable[Item]) -> Iterator[Item]:
    """All items in the slow tier, every third in ``make test``: of the bits of a file, at least two of every byte."""
    return islice(items, 0, None, 1 if settings.default.max_examples >= DEEP // 2 else 3)
