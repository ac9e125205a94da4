"""The number u of every party (node with a key): its estimate of n, the number of parties, by which it sizes its noise.

If u were n itself, every join and leave would change the noise and key of all parties. n/2 < u ≤ n is enough: u ≤ n
makes the noise large enough, u > n/2 at most twice as large as needed. At most two parties have one number, so a join
or a leave changes at most two others. Source: Huai et al. (2015), Algorithm 1, corrected: docs/math.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ROOM = 2
"""Most parties that may have the same number."""


class Numbering:
    """The parties' numbers u, which fulfil the invariant n/2 < u ≤ n after every change, and depend on ids alone.

    ``numbers`` (node id → u of the parties so far) fulfils it too, and no number has more than two parties.
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
        """Return a valid u, n/2 < u ≤ n = ``parties``, that fewer than two parties have; if possible ``freed``."""
        for number in (freed, parties, parties // 2 + 1):
            if parties < 2 * number <= 2 * parties and len(self._holders.get(number, ())) < ROOM:
                return number
        return next(
            number for number in range(parties // 2 + 1, parties + 1) if len(self._holders.get(number, ())) < ROOM
        )


def first_numbers(nodes: Iterable[bytes]) -> dict[bytes, int]:
    """Return node id → first number u of n parties, equal for equal sets: two get n, two n − 1, …; for odd n one n."""
    ordered = sorted(set(nodes))
    odd = len(ordered) % 2
    return {node: len(ordered) - (place + odd) // ROOM for place, node in enumerate(ordered)}


def renumbered(numbers: Mapping[bytes, int], nodes: Iterable[bytes]) -> dict[bytes, int]:
    """Return node id → u after joins and leaves, each of which changes at most two other parties' numbers.

    A party that joins takes the number of one that leaves, if there is one. ``numbers`` are those so far, empty for
    none; ``nodes`` are the parties from now on.
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
