"""Define the tables of a device's state, with rows that reveal damage (:mod:`protocol.database`).

A changed bit on a memory card alters a row or hides it. Both could make a device answer a period twice. So each row has
a seal, and each table's number of rows is stored. Tables have no second index, which could be damaged alone.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import database
from protocol.database import Reasons, Schema
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Protocol

    from protocol.errors import StorageError

    class Database(Protocol):
        """The part of :class:`edge_sdk.storage.database.State` that rows use."""

        def reading(self) -> AbstractContextManager[None]:
            """Let all statements in the body of ``with`` see one snapshot of the state."""

        def run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
            """Run one SQL ``statement`` with ``values`` for its ``?``, and return all its rows."""


_SHORT = 64
"""Longest byte string that a row's seal covers directly. For a longer one it covers the digest, to avoid a copy."""
_MAX_DIGITS = 20


class Table(NamedTuple):
    """The layout of a table.

    Attributes:
        columns: names of the columns. The first is the key: an integer if it is called ``number``, else a text.
        body: name of a last column of bytes, which is read only when needed; "" if the table has none. The row also
            holds the digest of these bytes.
    """

    name: str
    columns: tuple[str, ...]
    body: str = ""

    def create(self) -> str:
        """Return the SQL statement that creates the table."""
        key, *others = self.columns
        kind = "INTEGER PRIMARY KEY" if key == "number" else "TEXT PRIMARY KEY"
        ends = ["body_digest", "seal", self.body] if self.body else ["seal"]
        return f"CREATE TABLE {self.name} ({', '.join((f'{key} {kind}', *others, *ends))})" + (
            "" if key == "number" else " WITHOUT ROWID"
        )


COUNTS = Table("counts", ("name", "rows"))
META = Table("meta", ("key", "value"))
FLOORS = Table("floors", ("number", "role", "name", "version", "digest"))
DOCUMENTS = Table("documents", ("number", "role", "name", "digest"), "envelope")
EVIDENCE = Table("evidence", ("number", "role", "accepted", "refused"))
CAMPAIGNS = Table("campaigns", ("number", "id", "name", "version", "time_precision", "line", "period"), "reports")
SERIES = Table("series", ("name", "line"))
DELTAS = Table("deltas", ("number", "delta_pico", "total_pico"))
"""Number of each ledger line that has a δ, this δ, and the sum of δ up to that line."""
PARTY_KEYS = Table("party_keys", ("campaign", "version", "digest", "node", "serial", "u"), "sealed")
"""This node's entry in the newest key book of each masked campaign. The key is the campaign's id in hexadecimal
digits."""
SEALED = Table("sealed", ("number", "path", "digest", "through", "sealed_at"))
LEDGER = Table("ledger", ("number", "campaign", "period", "epsilon_micro", "answered_at", "latest", "total_micro"))
SPOOL = Table("spool", ("number", "campaign", "answers", "made_at", "all_answers", "all_bytes", "reports"))
COUNTED = (META, FLOORS, DOCUMENTS, EVIDENCE, CAMPAIGNS, SERIES, DELTAS, PARTY_KEYS, SEALED)
"""Tables whose number of rows is stored. Ledger and spool have consecutive numbers instead, so gaps show."""
TABLES = (COUNTS, *COUNTED, LEDGER, SPOOL)
KEPT = "memory "
"""Beginning of the keys of the answers that campaigns with memory keep; the campaign's id in hexadecimal digits comes
next. An opt-out deletes these answers: under a new secret the device is asked another question, and pays again."""
PROMISED = "promised "
"""Beginning of the keys of what campaigns with memory may still draw; the campaign's id in hexadecimal digits comes
next. The value lists the time of the first answer, ε of a kept answer in millionths, renewals, a stretch in seconds,
and the expiry."""


SCHEMA = Schema(
    what="the state",
    reasons=Reasons("state_busy", "state_damaged", "state_newer", "state_older"),
    application_id=0x48737931,  # Hsy1
    version=6,
    tables={table.name: table.create() for table in TABLES},
    damage="the state file is damaged or not one of this software",
    older="the state was written before the first release; reset this device",
)


def seal(table: str, values: Sequence[object]) -> bytes:
    """Return the seal (digest) of a row, in which a long byte string is replaced by its SHA-256."""
    parts = [sha256(value).digest() if type(value) is bytes and len(value) > _SHORT else value for value in values]
    return database.seal(table, parts)


def damaged() -> StorageError:
    """Return the error ``state_damaged``: the state's contents are not what this software has written."""
    return SCHEMA.damaged()


def number_in(text: bytes) -> int:
    """Return the number that a value of the table of single values holds as decimal digits.

    Raises StorageError ``state_damaged``: the value is not 1 to 20 digits.
    """
    if not text.isdigit() or len(text) > _MAX_DIGITS:
        raise damaged()
    return int(text)


@lru_cache(maxsize=len(TABLES))
def _select(table: Table) -> str:
    """Return the beginning of an SQL statement that reads rows without their bodies. All names are of this module."""
    ends = ("body_digest", "seal") if table.body else ("seal",)
    return f"SELECT {', '.join((*table.columns, *ends))} FROM {table.name}"  # noqa: S608


class Rows:
    """Reads and writes one table. For methods that write, the caller must have opened a transaction.

    Methods that read raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) for a row that was changed.
    """

    def __init__(self, state: Database, table: Table) -> None:
        self._state = state
        self._table = table
        self._key = table.columns[0]

    def all(self) -> list[tuple[Any, ...]]:
        """Return every row, sorted by key, without the bodies.

        In a table of :data:`COUNTED` a missing row raises ``state_damaged``. In ledger and spool it is not noticed: the
        caller must check that the numbers have no gap.
        """
        with self._state.reading():
            rows = self._checked(self._state.run(f"{_select(self._table)} ORDER BY {self._key}"))
            expected = self._count() if self._table in COUNTED else len(rows)
        if len(rows) != expected or any(row[0] >= after[0] for row, after in pairwise(rows)):
            raise damaged()
        return rows

    def some(self, condition: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """Return the rows that match ``condition``, without the bodies. A missing row is not noticed.

        Args:
            condition: SQL text ``WHERE …``, with a ``?`` for each value.
            values: the values for the ``?``, in order.
        """
        return self._checked(self._state.run(f"{_select(self._table)} {condition}", values))

    def _checked(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows without seals and digests. Raise ``state_damaged`` if a seal is wrong."""
        name, width = self._table.name, len(self._table.columns)
        if any(row[-1] != seal(name, row[:-1]) for row in rows):
            raise damaged()
        return [row[:width] for row in rows]

    def body(self, key: object) -> bytes:
        """Return the body of the row with the key ``key``. Raise ``state_damaged`` if there is no such row."""
        statement = f"SELECT {self._table.body}, body_digest FROM {self._table.name} WHERE {self._key} = ?"  # noqa: S608
        for content, digest in self._state.run(statement, (key,)):
            if isinstance(content, bytes) and sha256(content).digest() == digest:
                return content
        raise damaged()

    def add(self, values: Sequence[object], body: bytes | None = None) -> None:
        """Add a row of ``values``, one per column, and its ``body``. A key of None becomes the next free number."""
        key, *others = values
        if key is None:
            ((key,),) = self._state.run(f"SELECT coalesce(max(number), 0) + 1 FROM {self._table.name}")  # noqa: S608
        self._write("INSERT", (key, *others), body)
        self._recount(1)

    def replace(self, values: Sequence[object], body: bytes | None = None) -> None:
        """Replace the row with the same key, which must exist; the arguments are those of :meth:`add`."""
        self._write("REPLACE", values, body)

    def _write(self, verb: str, values: Sequence[object], body: bytes | None) -> None:
        content = tuple(values) if body is None else (*values, sha256(body).digest())
        row = (*content, seal(self._table.name, content), *(() if body is None else (body,)))
        self._state.run(f"{verb} INTO {self._table.name} VALUES ({', '.join('?' * len(row))})", row)

    def remove(self, unwanted: Callable[[tuple[Any, ...]], bool]) -> int:
        """Delete the rows for which ``unwanted(row)`` is true; it gets rows without bodies.

        Return the number of rows.
        """
        keys = [row[0] for row in self.all() if unwanted(row)]
        statement = f"DELETE FROM {self._table.name} WHERE {self._key} = ?"  # noqa: S608
        for key in keys:
            self._state.run(statement, (key,))
        self._recount(-len(keys))
        return len(keys)

    def rewrite(self, rows: Sequence[Sequence[object]]) -> None:
        """Replace all rows of a table of :data:`COUNTED`, which has no bodies, by ``rows``, numbered from 1.

        Each row comes without its number. Nothing is written if the table has these rows already.
        """
        wanted = [(number, *row) for number, row in enumerate(rows, 1)]
        present = self.all()
        if present != wanted:
            self._state.run(f"DELETE FROM {self._table.name}")  # noqa: S608
            for row in wanted:
                self._write("INSERT", row, None)
            self._note_count(len(wanted))

    def _count(self) -> int:
        found = self._state.run("SELECT name, rows, seal FROM counts WHERE name = ?", (self._table.name,))
        if len(found) != 1 or found[0][2] != seal("counts", found[0][:2]):
            raise damaged()
        return int(found[0][1])

    def _recount(self, change: int) -> None:
        if change and self._table in COUNTED:
            self._note_count(self._count() + change)

    def _note_count(self, rows: int) -> None:
        values = (self._table.name, rows)
        self._state.run("REPLACE INTO counts VALUES (?, ?, ?)", (*values, seal("counts", values)))
