"""The spool: reports that have not been acknowledged, and the sealed files they went into.

A report stays until whoever carries it says that it arrived. The spool is bounded by number, bytes and
age; when it is full the oldest go first and are counted by reason. What they cost stays spent. Each row has the
number of the ledger's line that paid for it, and the spool is all of them after the last that was released. Rows
carry running totals, and dates that never fall: a new report reads the oldest row, the one before, and what it drops.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, SEALED, SPOOL, Rows, damaged
from protocol.digest import sha256
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_sdk.storage.database import State

_LEAST_RECORD_BYTES = 18
_MAX_SEALED = 256
"""So many sealed files are remembered, for acknowledgements that come late or twice."""


_RELEASED = "released"
_DROPPED = "dropped:"


class Kept(NamedTuple):
    """A row.

    Attributes:
        line: the ledger's, that paid for it.
        campaign: its number in this state.
        answers: how many reports.
        made_at: when; brought down to the date of a later row, where a clock was set back in between.
        all_answers, all_bytes: of the rows up to this one, counted since the spool was last empty.
        reports: their bytes.
    """

    line: int
    campaign: int
    answers: int
    made_at: int
    all_answers: int
    all_bytes: int
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

    def _kept(self) -> list[Kept]:
        """All rows, oldest first; none is missing."""
        with self._state.reading():
            released = self._released()
            rows = [Kept(*row) for row in self._rows.all()]
            ((last,),) = self._state.run("SELECT coalesce(max(number), 0) FROM ledger")
        if [row.line for row in rows] != list(range(released + 1, last + 1)):
            raise damaged()
        return rows

    def _row(self, line: int) -> Kept:
        """The row of a line that was not released."""
        for row in self._rows.some("WHERE number = ?", (line,)):
            return Kept(*row)
        raise damaged()

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
        first = self._released() + 1
        before = self._row(line - 1) if first < line else None
        content = b"".join(records)
        answers, size = (0, 0) if before is None else (before.all_answers, before.all_bytes)
        newest = Kept(line, number, len(records), now, answers + len(records), size + len(content), content)
        self._rows.add(newest)
        if before is None:
            return
        if before.made_at > now:
            self._date_back(before, first, now)
        oldest = self._row(first)
        too_old = sure - limits.age_seconds
        oldest = self._drop_while("spool_age", oldest, newest, lambda row: row.made_at < too_old)
        many = newest.all_answers - limits.reports
        oldest = self._drop_while("spool_reports", oldest, newest, lambda row: row.all_answers - row.answers < many)
        large = newest.all_bytes - limits.size_bytes
        self._drop_while("spool_bytes", oldest, newest, lambda row: row.all_bytes - len(row.reports) < large)

    def _date_back(self, row: Kept, first: int, now: int) -> None:
        """A clock was set back: no row is younger than a later one, and it is dropped no later."""
        while row.made_at > now:
            self._rows.replace(row._replace(made_at=now))
            if row.line == first:
                break
            row = self._row(row.line - 1)

    def _drop_while(self, reason: str, oldest: Kept, newest: Kept, unwanted: Callable[[Kept], bool]) -> Kept:
        """Forget the oldest rows, never the newest, as long as they are unwanted; the oldest that is left."""
        row, lost = oldest, 0
        while row.line < newest.line and unwanted(row):
            lost += row.answers
            row = self._row(row.line + 1)
        if lost:
            self._forget(reason, row.line - 1, lost)
        return row

    def _forget(self, reason: str, through: int, lost: int) -> None:
        """Delete the oldest rows, and count the reports that they held."""
        self._release(through)
        key = _DROPPED + reason
        self._state.write_meta(key, b"%d" % (_number(self._state.meta(key)) + lost))

    def _release(self, through: int) -> None:
        """Delete the oldest rows."""
        self._state.run("DELETE FROM spool WHERE number <= ?", (through,))
        self.begin_after(through)

    def reports(self) -> dict[bytes, list[bytes]]:
        """Reports that are not acknowledged, by campaign id, in the order they were made."""
        with self._state.reading():
            ids = {row[0]: row[1] for row in Rows(self._state, CAMPAIGNS).all()}
            rows = self._kept()
        groups: dict[bytes, list[bytes]] = {}
        for row in rows:
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
        rows = [row for row in self._kept() if row.line <= through]
        if rows:
            self._release(rows[-1].line)
        return sum(row.answers for row in rows)

    def clear(self, reason: str) -> None:
        """Drop everything, counted."""
        rows = self._kept()
        if rows:
            self._forget(reason, rows[-1].line, sum(row.answers for row in rows))
        self._sealed.remove(lambda _: True)

    def count(self) -> int:
        """Number of reports that are not acknowledged."""
        return sum(row.answers for row in self._kept())

    def held(self) -> Held:
        """What the spool holds and what it has lost."""
        with self._state.reading():
            rows, sealed, meta = self._kept(), self._sealed.all(), self._state.all_meta()
        released = _number(meta.get(_RELEASED))
        files = sum(through > released for _, _, _, through, _ in sealed)
        drops = {key.removeprefix(_DROPPED): _number(value) for key, value in meta.items() if key.startswith(_DROPPED)}
        size = sum(len(row.reports) for row in rows)
        oldest = min((row.made_at for row in rows), default=None)
        return Held(sum(row.answers for row in rows), size, oldest, files, drops)


def _number(text: bytes | None) -> int:
    """A number that is kept as text; 0 where there is none."""
    return 0 if text is None else int(text)
