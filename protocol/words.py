"""The id of a document as words that two people can compare over the telephone.

Sixteen bits become one pronounceable word of five letters, consonants and vowels in turn (the proquint
scheme of D. S. Wilkerson, 2009). The scheme needs no word list, and every id has one spelling.
"""

from __future__ import annotations

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"


def to_words(identifier: bytes, count: int = 5) -> str:
    """The first 16·``count`` bits of ``identifier`` as ``count`` words, joined by hyphens.

    ``identifier`` must have at least 2·``count`` bytes; this is not checked.

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
