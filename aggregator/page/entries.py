"""Reading the card of a model. Whoever signs models can write any map there, so no entry is taken as it is.

Every function gives bounded text or numbers in range. An entry of another type is as if it were missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aggregator.cards.card_words import in_words, sections
from aggregator.models.foresight import MOST_CLASSES, Foresight, Recall
from aggregator.page.blocks import MOST_CELL, clipped

_RANGE = re.compile(r"(-?[01](?:\.[0-9]{1,9})?) to (-?[01](?:\.[0-9]{1,9})?)")
_NUMBER = re.compile(r"-?[0-9]{1,6}(?:\.[0-9]{1,9})?")


def text_of(card: Mapping[str, object], key: str) -> str:
    """Return an entry of the card in words, or an empty text if there is none."""
    return in_words(card[key]) if key in card else ""


def rows_of(card: Mapping[str, object], title: str, leave: Iterable[str] = ()) -> dict[str, str]:
    """Return the entries of one section of the card's words: name → text.

    ``title`` is a key of ``SECTIONS`` in ``aggregator.cards.card_words``, or ``REST``; ``leave`` are keys of the card
    that the page shows elsewhere.
    """
    left = set(leave)
    found = dict(sections({key: value for key, value in card.items() if key not in left}))
    return dict(found.get(title, ()))


def mapping(card: Mapping[str, object], key: str) -> dict[str, object]:
    """Return an entry of the card that is a map with texts as keys, or an empty map."""
    found = card.get(key)
    return {name: value for name, value in found.items() if isinstance(name, str)} if isinstance(found, dict) else {}


def interval(text: object) -> tuple[float, float] | None:
    """Return the ends of an interval such as ``0.509 to 0.539``, in [−1, 1]; None for any other value."""
    match = _RANGE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    low, high = float(match[1]), float(match[2])
    return (low, high) if -1 <= low <= high <= 1 else None


def number(value: object) -> float | None:
    """Return a number written in decimal digits, or a small integer; None for any other value."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    return float(value) if type(value) is int and abs(value) < 1_000_000 else None


def foresight(card: Mapping[str, object]) -> Foresight | None:
    """Return how often the model is expected to be right; None if the card does not say so in the known form."""
    try:
        found = Foresight.of_card(card)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    shares = [found.accuracy, found.largest_class, found.low, found.high, found.least, found.most]
    if not all(share is None or 0 <= share <= 1 for share in shares) or not isinstance(found.assumes, str):
        return None
    recall = tuple(
        one._replace(name=clipped(one.name, MOST_CELL)) for one in found.recall[:MOST_CLASSES] if _is_fair(one)
    )
    return found._replace(assumes=clipped(found.assumes), recall=recall)


def _is_fair(found: Recall) -> bool:
    """Return whether a class's recall can be shown: it has a name, and shares in [0, 1] and in order, or None."""
    if not isinstance(found.name, str):
        return False
    if found.expected is None or found.least is None or found.most is None:
        return True
    return 0 <= found.least <= found.expected <= max(found.most, found.expected) <= 1


def influence_of(card: Mapping[str, object]) -> dict[str, tuple[float, float | None]]:
    """Return for each feature the bits that it tells about the class, and the most that noise alone shows, or None."""
    noise = mapping(card, "influence_noise")
    found: dict[str, tuple[float, float | None]] = {}
    for name, value in mapping(card, "influence").items():
        bits = number(value)
        if bits is not None and bits >= 0:
            found[name] = (bits, number(noise.get(name)))
    return found
