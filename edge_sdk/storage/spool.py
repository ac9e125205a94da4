"""Keep the spool: reports that were not acknowledged, and notes on the sealed files that hold them.

The spool is bounded by number, bytes and age. When it is full, the oldest reports are dropped and counted by reason;
their cost stays spent. Each row has the number of the ledger line that paid for it; the rows of all lines after the
last released one are there. Rows store running totals, and dates that never decrease.
"""

from __future__ import annotations

import os
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, SEALED, SPOOL, Rows, damaged, number_in
from protocol.errors import InputError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_sdk.storage.database import State

_LEAST_RECORD_BYTES = 18
_MAX_SEALED = 256
"""Most sealed files that are noted, for acknowledgements that come late or twice."""
_RELEASED = "released"
_DROPPED = "dropped:"


class SpoolRow(NamedTuple):
    """A row of the spool: the reports of one period.

    Attributes:
        line: number of the ledger line that paid for the reports.
        campaign: the campaign's number in this state.
        answers: number of reports.
        made_at: time of the answer, in seconds since 1970; lowered if a later row has an earlier time.
        all_answers, all_bytes: numbers of reports and of bytes up to this row, since the spool was last empty.
    """

    line: int
    campaign: int
    answers: int
    made_at: int
    all_answers: int
    all_bytes: int
    reports: bytes


class Batch(NamedTuple):
    """What one sealed file holds.

    Attributes:
        kind: the kind of all answers in the file, as the ending of its name.
        reports: campaign id → reports of a device, or signed envelopes of a node.
        through: number of the last ledger line whose answer it holds.
    """

    kind: str
    reports: dict[bytes, list[bytes]]
    through: int


class Limits(NamedTuple):
    """Limits of the spool: largest number of reports, largest total length in bytes, and largest age in seconds."""

    reports: int
    size_bytes: int
    age_seconds: int


class SpoolCounts(NamedTuple):
    """Contents of the spool in numbers.

    Attributes:
        reports: number of unacknowledged reports.
        size_bytes: their total length.
        oldest_at: when the oldest report was made, in seconds since 1970; None if the spool is empty.
        sealed_files: number of files that were sealed and not acknowledged.
        dropped: reason → reports that were dropped unacknowledged: ``spool_reports``, ``spool_bytes``,
            ``spool_age``, or ``disabled``.
    """

    reports: int
    size_bytes: int
    oldest_at: int | None
    sealed_files: int
    dropped: dict[str, int]


class Spool:
    """Reads and writes the spool (reports that wait to arrive). To write, the caller must have opened a transaction."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rows = Rows(state, SPOOL)
        self._sealed = Rows(state, SEALED)

    def begin_after(self, line: int) -> None:
        """Note that the spool holds no reports of ledger lines up to ``line``: they were acknowledged or dropped."""
        self._state.write_meta(_RELEASED, b"%d" % line)

    def _released(self) -> int:
        return _number(self._state.meta(_RELEASED))

    def _kept(self) -> list[SpoolRow]:
        """Return all rows, oldest first. Raise ``state_damaged`` if a row is missing."""
        with self._state.reading():
            released = self._released()
            rows = [SpoolRow(*row) for row in self._rows.all()]
            ((last,),) = self._state.run("SELECT coalesce(max(number), 0) FROM ledger")
        if [row.line for row in rows] != list(range(released + 1, last + 1)):
            raise damaged()
        return rows

    def _row(self, line: int) -> SpoolRow:
        for row in self._rows.some("WHERE number = ?", (line,)):
            return SpoolRow(*row)
        raise damaged()

    def add(self, line: int, number: int, records: Sequence[bytes], now: int, sure: int, limits: Limits) -> None:
        """Store the reports of one period, then drop the oldest reports while the spool exceeds ``limits``.

        Args:
            line: number of the ledger line that paid for the reports; it orders the spool.
            number: the campaign's number in this state.
            records: the reports, all of one length; of a node, one summary.
            now: seconds since 1970.
            sure: seconds since 1970 without any leap of the wall clock. Ages are judged by this time, so that a wrong
                clock does not drop all stored reports.
            limits: the owner's limits on the spool. The reports of the newest period stay, however many they are.
        """
        first = self._released() + 1
        before = self._row(line - 1) if first < line else None
        content = b"".join(records)
        answers, size = (0, 0) if before is None else (before.all_answers, before.all_bytes)
        newest = SpoolRow(line, number, len(records), now, answers + len(records), size + len(content), content)
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

    def _date_back(self, row: SpoolRow, first: int, now: int) -> None:
        """Lower the dates of earlier rows to ``now``, after a clock was set back, so that dates never decrease."""
        while row.made_at > now:
            self._rows.replace(row._replace(made_at=now))
            if row.line == first:
                break
            row = self._row(row.line - 1)

    def _drop_while(
        self, reason: str, oldest: SpoolRow, newest: SpoolRow, unwanted: Callable[[SpoolRow], bool]
    ) -> SpoolRow:
        """Drop the oldest rows while they are unwanted, except the newest. Return the oldest row that is left."""
        row, dropped = oldest, 0
        while row.line < newest.line and unwanted(row):
            dropped += row.answers
            row = self._row(row.line + 1)
        if dropped:
            self._forget(reason, row.line - 1, dropped)
        return row

    def _forget(self, reason: str, through: int, dropped: int) -> None:
        """Delete the rows up to the ledger line ``through``; count their ``dropped`` reports under ``reason``."""
        self._release(through)
        key = _DROPPED + reason
        self._state.write_meta(key, b"%d" % (_number(self._state.meta(key)) + dropped))

    def _release(self, through: int) -> None:
        self._state.run("DELETE FROM spool WHERE number <= ?", (through,))
        self.begin_after(through)

    def reports(self) -> dict[bytes, list[bytes]]:
        """Return campaign id → its unacknowledged reports or summaries, in the order in which they were made."""
        return self._grouped(self._kept())

    def oldest(self, kind: Callable[[bytes], str]) -> Batch | None:
        """Return the oldest unacknowledged answers, up to the first of another kind; None if there are none.

        A file holds answers of one kind. ``kind``: the bytes of an answer → its kind.
        """
        with self._state.reading():
            rows = self._kept()
            if not rows:
                return None
            found = kind(rows[0].reports)
            rows = list(takewhile(lambda row: kind(row.reports) == found, rows))
            return Batch(found, self._grouped(rows), rows[-1].line)

    def _grouped(self, rows: Sequence[SpoolRow]) -> dict[bytes, list[bytes]]:
        ids = {row[0]: row[1] for row in Rows(self._state, CAMPAIGNS).all()}
        groups: dict[bytes, list[bytes]] = {}
        for row in rows:
            length, rest = divmod(len(row.reports), max(1, row.answers))
            if rest or length < _LEAST_RECORD_BYTES or row.campaign not in ids:
                raise damaged()
            group = groups.setdefault(ids[row.campaign], [])
            group.extend(row.reports[start : start + length] for start in range(0, len(row.reports), length))
        return groups

    def note_sealed(self, path: str, content: bytes, through: int, now: int) -> None:
        """Note that all reports up to the ledger line ``through`` are in a file sealed at the absolute ``path``.

        Notes on the 256 newest files are kept.
        """
        known = self._sealed.all()
        number = 1 + max((row[0] for row in known), default=0)
        name, digest = os.fsencode(path), sha256(content).digest()
        self._sealed.remove(lambda row: row[1:3] == (name, digest) or row[0] <= number - _MAX_SEALED)
        self._sealed.add((number, name, digest, through, now))

    def sealed_paths(self) -> list[str]:
        """Return the absolute paths where the newest 256 sealed files were written. Some may be gone."""
        return [os.fsdecode(row[1]) for row in self._sealed.all()]

    def sealed_through(self, path: str, digest: bytes | None) -> int:
        """Return the number of the last ledger line whose reports a sealed file holds, or raise ``batch_unknown``.

        The file is found by ``digest``, that of its bytes, since files move; if that is None, by the ``path`` where it
        was sealed.
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
        """Delete the reports of all ledger lines up to ``through``, which have arrived. Return their number."""
        rows = [row for row in self._kept() if row.line <= through]
        if rows:
            self._release(rows[-1].line)
        return sum(row.answers for row in rows)

    def clear(self, reason: str) -> None:
        """Drop all reports, and add their number to the dropped reports of ``reason``. Forget all sealed files."""
        rows = self._kept()
        if rows:
            self._forget(reason, rows[-1].line, sum(row.answers for row in rows))
        self._sealed.remove(lambda _: True)

    def count(self) -> int:
        """Return the number of unacknowledged reports."""
        return sum(row.answers for row in self._kept())

    def held(self) -> SpoolCounts:
        """Return how many reports and sealed files wait for acknowledgement, and how many reports were dropped."""
        with self._state.reading():
            rows, sealed, meta = self._kept(), self._sealed.all(), self._state.all_meta()
        released = _number(meta.get(_RELEASED))
        files = sum(through > released for _, _, _, through, _ in sealed)
        drops = {key.removeprefix(_DROPPED): _number(value) for key, value in meta.items() if key.startswith(_DROPPED)}
        size = sum(len(row.reports) for row in rows)
        oldest = min((row.made_at for row in rows), default=None)
        return SpoolCounts(sum(row.answers for row in rows), size, oldest, files, drops)


def _number(text: bytes | None) -> int:
    return 0 if text is None else number_in(text)
