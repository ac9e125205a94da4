"""Sums of row digests, which reveal damage to the tables of a store of summaries.

SQLite has no checksums: a changed byte may alter a row, or hide it. So the store keeps for every table the number of
its rows and the sum of their digests modulo 2^256. The sum does not depend on the order of the rows, and adding or
removing a row changes it without reading other rows. It detects accidents, not forgery: a program that can write the
file can compute sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgpack

from aggregator.reports.storage.manifest import damaged
from protocol.errors import StorageError

_BITS = 256


class RowSum(NamedTuple):
    """The rows of a table as two numbers.

    Attributes:
        rows: number of rows.
        digests: sum of the rows' digests (:func:`row_digest`) modulo 2^256.
    """

    rows: int = 0
    digests: int = 0

    def with_row(self, table: str, row: Sequence[object]) -> RowSum:
        """The sum after ``row`` is added to ``table``."""
        return RowSum(self.rows + 1, (self.digests + row_digest(table, row)) % (1 << _BITS))

    def without_row(self, table: str, row: Sequence[object]) -> RowSum:
        """The sum after ``row`` is removed from ``table``."""
        return RowSum(self.rows - 1, (self.digests - row_digest(table, row)) % (1 << _BITS))

    def check(self, number: int, digests: int) -> None:
        """Compare this stored sum with the rows that were read.

        Args:
            number: number of rows that were read.
            digests: sum of their digests, not reduced.

        Raises:
            StorageError: ``store_damaged``: one of the two differs.
        """
        if self != (number, digests % (1 << _BITS)):
            raise changed()

    def to_bytes(self) -> bytes:
        """The sum of the digests as 32 bytes, big-endian."""
        return self.digests.to_bytes(_BITS // 8, "big")


def row_digest(table: str, row: Sequence[object]) -> int:
    """SHA-256(msgpack of [table, *row]) as an integer, most significant byte first."""
    return int.from_bytes(sha256(msgpack.packb((table, *row))).digest(), "big")


def changed() -> StorageError:
    """Make the error ``store_damaged`` for rows that are not as they were written."""
    return damaged("its file of summaries was changed")
