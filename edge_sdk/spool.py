"""The spool: reports that have not been acknowledged, and the sealed files they went into.

A report stays until whoever carries it says that it arrived. The spool is bounded by number, bytes and
age; when it is full the oldest go first and are counted by reason. What they cost stays spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.state import checked, damaged
from protocol.digest import sha256
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_sdk.state import State

_LEAST_RECORD_BYTES = 18
_ID_BYTES = 32
_MAX_SEALED = 256
"""So many sealed files are remembered, for acknowledgements that come late or twice."""


_LAST = (1 << 63) - 1
_SIZES = """SELECT coalesce(max(CASE WHEN made_at < ? AND sequence < ? THEN sequence END), 0),
    coalesce(sum(answers), 0), coalesce(sum(length(reports)), 0) FROM spool"""


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
        values = (line, number, len(records), b"".join(records), now)
        self._state.run("INSERT INTO spool VALUES (?, ?, ?, ?, ?)", values)
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
        for row in self._state.run(
            "SELECT sequence, answers, length(reports) FROM spool WHERE sequence < ? ORDER BY sequence", (line,)
        ):
            through, surplus = row[0], surplus - row[column]
            if surplus <= 0:
                break
        return through

    def _drop(self, reason: str, through: int) -> None:
        """Forget the oldest rows, counted."""
        ((lost,),) = self._state.run("SELECT coalesce(sum(answers), 0) FROM spool WHERE sequence <= ?", (through,))
        if lost:
            self._state.run("DELETE FROM spool WHERE sequence <= ?", (through,))
            self._state.run(
                "INSERT INTO drops VALUES (?, ?)"
                " ON CONFLICT (reason) DO UPDATE SET reports = reports + excluded.reports",
                (reason, lost),
            )

    def reports(self) -> dict[bytes, list[bytes]]:
        """Reports that are not acknowledged, by campaign id, in the order they were made."""
        groups: dict[bytes, list[bytes]] = {}
        rows = self._state.run(
            "SELECT id, answers, reports FROM spool LEFT JOIN campaigns ON number = campaign ORDER BY sequence"
        )
        for campaign, answers, raw in rows:
            length, rest = divmod(len(checked(raw, bytes)), max(1, checked(answers, int)))
            if rest or length < _LEAST_RECORD_BYTES or len(checked(campaign, bytes)) != _ID_BYTES:
                raise damaged()
            group = groups.setdefault(campaign, [])
            if group and len(group[0]) != length:
                raise damaged()
            group.extend(raw[start : start + length] for start in range(0, len(raw), length))
        return groups

    def note_sealed(self, path: str, content: bytes, now: int) -> None:
        """Remember that all reports in the spool are in a file."""
        ((through,),) = self._state.run("SELECT coalesce(max(sequence), 0) FROM spool")
        values = (path, sha256(content).digest(), through, now)
        self._state.run("INSERT OR REPLACE INTO sealed VALUES (?, ?, ?, ?, 1)", values)
        self._state.run(
            "DELETE FROM sealed WHERE rowid NOT IN (SELECT rowid FROM sealed ORDER BY rowid DESC LIMIT ?)",
            (_MAX_SEALED,),
        )

    def sealed_through(self, path: str, digest: bytes | None) -> int:
        """Up to which of the ledger's lines a sealed file holds the reports.

        Args:
            path: where it was sealed, absolute.
            digest: SHA-256 of its bytes, if it is there; they decide, since files move.

        Raises:
            InputError: ``batch_unknown``.
        """
        if digest is not None:
            rows = self._state.run("SELECT max(through) FROM sealed WHERE digest = ? HAVING count(*)", (digest,))
        else:
            rows = self._state.run("SELECT through FROM sealed WHERE path = ? ORDER BY rowid DESC LIMIT 1", (path,))
        for (through,) in rows:
            return checked(through, int)
        raise InputError("batch_unknown", "this device has not sealed such a file, or too long ago; drain once more")

    def forget_through(self, through: int) -> int:
        """Release what has arrived; returns the number of reports that were still kept."""
        ((count,),) = self._state.run("SELECT coalesce(sum(answers), 0) FROM spool WHERE sequence <= ?", (through,))
        self._state.run("DELETE FROM spool WHERE sequence <= ?", (through,))
        self._state.run("UPDATE sealed SET open = 0 WHERE through <= ? AND open", (through,))
        return checked(count, int)

    def clear(self, reason: str) -> None:
        """Drop everything, counted."""
        self._drop(reason, _LAST)
        self._state.run("DELETE FROM sealed")

    def count(self) -> int:
        """Number of reports that are not acknowledged."""
        ((count,),) = self._state.run("SELECT coalesce(sum(answers), 0) FROM spool")
        return checked(count, int)

    def held(self) -> Held:
        """What the spool holds and what it has lost."""
        ((count, size, oldest),) = self._state.run(
            "SELECT coalesce(sum(answers), 0), coalesce(sum(length(reports)), 0), min(made_at) FROM spool"
        )
        ((files,),) = self._state.run("SELECT count(*) FROM sealed WHERE open")
        drops = self._state.run("SELECT reason, reports FROM drops")
        return Held(count, size, oldest, files, {checked(reason, str): checked(lost, int) for reason, lost in drops})
