"""The number u of every party: an estimate of the number n of parties, which a join or leave changes for few parties.

A party shares its noise among ⌈γu⌉ honest parties. If u were n itself, every join and leave would change the noise, and
the key, of all parties. It is enough that

    n/2 < u ≤ n                                                          (the invariant)

for every party: u ≤ n makes the noise large enough, and u > n/2 makes it at most twice as much as needed. The numbers
n/2 < u ≤ n have room for two parties each. If no number has more than two parties, a join or a leave takes at most two
other parties out of the invariant: those with the number that drops out of it. These get free numbers.

This is Algorithm 1 of Huai et al. (2015), with the case that the paper leaves out: n is even, and the leaver had the
largest number n, as one other party has. That party's number becomes ⌊(n − 1)/2⌋ + 1. Without this case u stays above
the number of parties, and the total has too little noise (docs/math.md, section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ROOM = 2
"""Most parties with one number."""


class Numbering:
    """The numbers of the parties, kept in the invariant. Parties are node ids; their order alone decides who moves.

    Args:
        numbers: node id → u of the parties so far. It fulfils the invariant, and no number has more than two parties.
    """

    def __init__(self, numbers: Mapping[bytes, int]) -> None:
        self._numbers = dict(numbers)
        self._holders: dict[int, set[bytes]] = {}
        for node, number in self._numbers.items():
            self._holders.setdefault(number, set()).add(node)

    @property
    def numbers(self) -> dict[bytes, int]:
        """Node id → u of all parties."""
        return dict(self._numbers)

    def join(self, node: bytes) -> None:
        """Add a party that is not there. At most two other parties get another number."""
        parties = len(self._numbers) + 1
        leaving = self._holders.pop(parties // 2, set()) if parties % 2 == 0 else set()
        self._place(node, parties)
        for each in sorted(leaving):
            self._place(each, self._free(parties))

    def leave(self, node: bytes) -> None:
        """Remove a party. At most two other parties get another number."""
        freed = self._numbers.pop(node)
        self._holders[freed].remove(node)
        parties = len(self._numbers)
        moving = sorted(self._holders.pop(parties + 1, set()))
        for each in moving:
            self._place(each, self._free(parties, freed))

    def replace(self, leaver: bytes, node: bytes) -> None:
        """Give the number of a party that leaves to one that joins. No other number changes."""
        number = self._numbers.pop(leaver)
        self._holders[number].remove(leaver)
        self._place(node, number)

    def _place(self, node: bytes, number: int) -> None:
        self._numbers[node] = number
        self._holders.setdefault(number, set()).add(node)

    def _free(self, parties: int, freed: int = 0) -> int:
        """Return a number in the invariant for so many parties that fewer than two parties have.

        One of these has room if it exists: the number that the leaver had, the largest, the smallest, and the number
        with one party, of which there is at most one.
        """
        for number in (freed, parties, parties // 2 + 1):
            if parties < 2 * number <= 2 * parties and len(self._holders.get(number, ())) < ROOM:
                return number
        return next(
            number for number in range(parties // 2 + 1, parties + 1) if len(self._holders.get(number, ())) < ROOM
        )


def first_numbers(nodes: Iterable[bytes]) -> dict[bytes, int]:
    """Return numbers for n parties that have none yet: two parties get n, two get n − 1, and so on.

    Args:
        nodes: node ids; equal sets get equal numbers.

    Returns:
        node id → u. If n is odd, one party has n alone.
    """
    ordered = sorted(set(nodes))
    odd = len(ordered) % 2
    return {node: len(ordered) - (place + odd) // ROOM for place, node in enumerate(ordered)}


def renumbered(numbers: Mapping[bytes, int], nodes: Iterable[bytes]) -> dict[bytes, int]:
    """Return the numbers after joins and leaves. At most two other parties change for each join or leave.

    A party that joins takes the number of one that leaves, as long as there are any, and then nobody else changes.

    Args:
        numbers: node id → u of the parties so far; empty for none.
        nodes: ids of the parties from now on.

    Returns:
        node id → u of exactly these parties.
    """
    if not numbers:
        return first_numbers(nodes)
    after = set(nodes)
    leaving, joining = sorted(numbers.keys() - after), sorted(after - numbers.keys())
    numbering, pairs = Numbering(numbers), min(len(leaving), len(joining))
    for leaver, node in zip(leaving[:pairs], joining[:pairs], strict=True):
        numbering.replace(leaver, node)
    for node in joining[pairs:]:
        numbering.join(node)
    for node in leaving[pairs:]:
        numbering.leave(node)
    return numbering.numbers
