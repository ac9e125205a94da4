"""A document's id in words that two people can compare over the telephone.

Sixteen bits become one pronounceable five-letter word, consonants and vowels in turn (the proquint
scheme of D. S. Wilkerson, 2009): no word list to ship, and every id has one spelling.
"""

from __future__ import annotations

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"


def to_words(identifier: bytes, count: int = 5) -> str:
    """The first ``count`` sixteen-bit pieces of an id as words: 80 bits by default.

    >>> to_words(bytes([127, 0, 0, 1]), 2)
    'lusab-babad'
    """
    pieces = (int.from_bytes(identifier[2 * i : 2 * i + 2], "big") for i in range(count))
    return "-".join(
        _CONSONANTS[piece >> 12]
        + _VOWELS[piece >> 10 & 3]
        + _CONSONANTS[piece >> 6 & 15]
        + _VOWELS[piece >> 4 & 3]
        + _CONSONANTS[piece & 15]
        for piece in pieces
    )
