"""The spool: reports that have not been acknowledged, and the sealed files they went into.

A report stays until whoever carries it says that it arrived. The spool is bounded by number, bytes and
age; when it is full the oldest go first and are counted by reason. What they cost stays spent. Each row has the
number of the ledger's line that paid for it, and the spool is all of them after the last that was released.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, SEALED, SPOOL, Rows, damaged
from protocol.digest import sha256
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_sdk.storage.database import State

_LEAST_RECORD_BYTES = 18
_MAX_SEALED = 256
"""So many sealed files are remembered, for acknowledgements that come late or twice."""


_LAST = (1 << 63) - 1
_RELEASED = "released"
_DROPPED = "dropped:"
_SIZES = """SELECT coalesce(max(CASE WHEN made_at < ? AND number < ? THEN number END), 0),
    coalesce(sum(answers), 0), coalesce(sum(length(reports)), 0) FROM spool"""


class Kept(NamedTuple):
    """A row: the ledger's line, the campaign's number in this state, how many reports, when, and their bytes."""

    line: int
    campaign: int
    answers: int
    made_at: int
    reports: bytes


class Limits(NamedTuple):
    """What the spool may hold."""

    reports: int
    size_bytes: int
    age_seconds: int


class Held(NamedTuple):
    """What the spool holds.

    Attributes:
        reports: how many are not acknowledged.
        size_bytes: their length.
        oldest_at: when the oldest was made, in seconds since 1970; None if there is none.
        sealed_files: files that were sealed and not acknowledged.
        dropped: reason → reports that were dropped unacknowledged: ``spool_reports``, ``spool_bytes``,
            ``spool_age``, or ``disabled``.
    """

    reports: int
    size_bytes: int
    oldest_at: int | None
    sealed_files: int
    dropped: dict[str, int]


class Spool:
    """Reads and writes of the spool. Methods that write are called inside a transaction."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rows = Rows(state, SPOOL)
        self._sealed = Rows(state, SEALED)

    def begin_after(self, line: int) -> None:
        """The ledger's lines up to this one have no reports here."""
        self._state.write_meta(_RELEASED, b"%d" % line)

    def _released(self) -> int:
        return _number(self._state.meta(_RELEASED))

    def _kept(self, through: int = _LAST) -> list[Kept]:
        """The rows up to a line, oldest first; none is missing between the first that must be there and the last."""
        released = self._released()
        rows = [Kept(*row) for row in self._rows.some("WHERE number <= ? ORDER BY number", (through,))]
        if [row.line for row in rows] != list(range(released + 1, released + 1 + len(rows))):
            raise damaged()
        if through == _LAST:
            ((last,),) = self._state.run("SELECT coalesce(max(number), 0) FROM ledger")
            if released + len(rows) != last:
                raise damaged()
        return rows

    def add(self, line: int, number: int, records: Sequence[bytes], now: int, sure: int, limits: Limits) -> None:
        """Keep one period's reports; the oldest are dropped as far as the limits demand.

        Args:
            line: the ledger's line that paid for them; it orders the spool.
            number: the campaign's number in this state.
            records: the reports, of one length.
            now: in seconds since 1970.
            sure: the same without any leap of the wall clock; ages are judged by it, so that one wrong clock
                does not cost all that waits.
            limits: the owner's. The newest period stays, however large it is.
        """
        self._rows.add(Kept(line, number, len(records), now, b"".join(records)))
        measure = (sure - limits.age_seconds, line)
        ((through, count, size),) = self._state.run(_SIZES, measure)
        if through:
            self._drop("spool_age", through)
            ((_, count, size),) = self._state.run(_SIZES, measure)
        if count > limits.reports:
            self._drop("spool_reports", self._oldest(line, count - limits.reports, column=1))
            ((_, count, size),) = self._state.run(_SIZES, measure)
        if size > limits.size_bytes:
            self._drop("spool_bytes", self._oldest(line, size - limits.size_bytes, column=2))

    def _oldest(self, line: int, surplus: int, *, column: int) -> int:
        """Up to which line the oldest rows, this one never among them, make up a surplus."""
        through = 0
        statement = "SELECT number, answers, length(reports) FROM spool WHERE number < ? ORDER BY number"
        for row in self._state.run(statement, (line,)):
            through, surplus = row[0], surplus - row[column]
            if surplus <= 0:
                break
        return through

    def _drop(self, reason: str, through: int) -> None:
        """Forget the oldest rows, up to one that is there, counted."""
        lost = self._release(self._kept(through))
        if lost:
            key = _DROPPED + reason
            self._state.write_meta(key, b"%d" % (_number(self._state.meta(key)) + lost))

    def _release(self, rows: Sequence[Kept]) -> int:
        """Delete the oldest rows; how many reports they held."""
        if rows:
            self._state.run("DELETE FROM spool WHERE number <= ?", (rows[-1].line,))
            self.begin_after(rows[-1].line)
        return sum(row.answers for row in rows)

    def reports(self) -> dict[bytes, list[bytes]]:
        """Reports that are not acknowledged, by campaign id, in the order they were made."""
        ids = {row[0]: row[1] for row in Rows(self._state, CAMPAIGNS).all()}
        groups: dict[bytes, list[bytes]] = {}
        for row in self._kept():
            length, rest = divmod(len(row.reports), max(1, row.answers))
            if rest or length < _LEAST_RECORD_BYTES or row.campaign not in ids:
                raise damaged()
            group = groups.setdefault(ids[row.campaign], [])
            if group and len(group[0]) != length:
                raise damaged()
            group.extend(row.reports[start : start + length] for start in range(0, len(row.reports), length))
        return groups

    def note_sealed(self, path: str, content: bytes, now: int) -> None:
        """Remember that all reports in the spool are in a file."""
        through = max((row.line for row in self._kept()), default=0)
        known = self._sealed.all()
        number = 1 + max((row[0] for row in known), default=0)
        name, digest = os.fsencode(path), sha256(content).digest()
        self._sealed.remove(lambda row: row[1:3] == (name, digest) or row[0] <= number - _MAX_SEALED)
        self._sealed.add((number, name, digest, through, now))

    def sealed_through(self, path: str, digest: bytes | None) -> int:
        """Up to which of the ledger's lines a sealed file holds the reports.

        Args:
            path: where it was sealed, absolute.
            digest: SHA-256 of its bytes, if it is there; they decide, since files move.

        Raises:
            InputError: ``batch_unknown``.
        """
        rows = self._sealed.all()
        if digest is not None:
            found = [through for _, _, known, through, _ in rows if known == digest]
        else:
            found = [through for _, name, _, through, _ in rows if name == os.fsencode(path)][-1:]
        if found:
            return int(max(found))
        raise InputError("batch_unknown", "this device has not sealed such a file, or too long ago; drain once more")

    def forget_through(self, through: int) -> int:
        """Release what has arrived; returns the number of reports that were still kept."""
        return self._release([row for row in self._kept() if row.line <= through])

    def clear(self, reason: str) -> None:
        """Drop everything, counted."""
        self._drop(reason, _LAST)
        self._sealed.remove(lambda _: True)

    def count(self) -> int:
        """Number of reports that are not acknowledged."""
        return sum(row.answers for row in self._kept())

    def held(self) -> Held:
        """What the spool holds and what it has lost."""
        rows = self._kept()
        released = self._released()
        files = sum(through > released for _, _, _, through, _ in self._sealed.all())
        drops = {
            key.removeprefix(_DROPPED): _number(value)
            for key, value in self._state.all_meta().items()
            if key.startswith(_DROPPED)
        }
        size = sum(len(row.reports) for row in rows)
        oldest = min((row.made_at for row in rows), default=None)
        return Held(sum(row.answers for row in rows), size, oldest, files, drops)


def _number(text: bytes | None) -> int:
    """A number that is kept as text; 0 where there is none."""
    return 0 if text is None else int(text)
