"""Writing the judged pieces of input files into a store of nodes' envelopes, many in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from aggregator.nodes.summaries.database import ACCEPTED, CONFLICT_REASON, REPLAYED_REASON, Database, Refused, Row

if TYPE_CHECKING:
    from aggregator.nodes.summaries.judging import Judge
    from aggregator.reports.intake.sources import Unreadable


_TRANSACTION_BYTES, _TRANSACTION_ROWS = 16 << 20, 1000
"""Numbers of bytes, and of envelopes or files, of which any ends a transaction."""
_MOST_OF_FILE = 1000
"""Most refused pieces of one file whose places are kept; all are counted."""
NOT_LISTED_REASON = "node_not_listed"


class Taken(NamedTuple):
    """The result of one ingest of nodes' envelopes.

    Attributes:
        files: number of files given; a pattern counts as the files that match it.
        unreadable: the files that could not be read, each with its reason.
        accepted: number of envelopes that are new, and the only ones of their node and period.
        replayed: number of envelopes that the store, or an earlier file, held already.
        conflicting: number of envelopes whose node gave another summary of that period.
        rejected: number of pieces that were refused, by reason.
    """

    files: int
    unreadable: tuple[Unreadable, ...]
    accepted: int
    replayed: int
    conflicting: int
    rejected: Mapping[str, int]


class Writer:
    """Writes judged pieces of files into a store, many in one transaction.

    Args:
        database: the store's open file.

    Attributes:
        outcomes: number of envelopes by what became of them (:meth:`aggregator.nodes.summaries.database.Database.put`).
        rejected: number of refused pieces by reason.
    """

    def __init__(self, database: Database) -> None:
        self.outcomes = dict.fromkeys((ACCEPTED, REPLAYED_REASON, CONFLICT_REASON), 0)
        self.rejected: Counter[str] = Counter()
        self._database = database
        self._rows: list[Row] = []
        self._refused: list[tuple[bytes, str, Counter[str], list[Refused]]] = []
        self._waiting = 0

    def take(self, judge: Judge, raw: bytes, name: str) -> None:
        """Judge the content of a file, and write what was found now or later."""
        counts: Counter[str] = Counter()
        kept: list[Refused] = []
        for found in judge.of_file(raw):
            if isinstance(found, Refused):
                if found.reason == NOT_LISTED_REASON and self._database.holds(judge.key_of(found.bytes_of(raw))):
                    self.outcomes[REPLAYED_REASON] += 1  # it was taken in before a list left its node out
                    continue
                counts[found.reason] += 1
                kept += [found] if len(kept) < _MOST_OF_FILE else []
                continue
            self._rows.append(found)
            self._waiting += len(found.envelope)
            if self._waiting >= _TRANSACTION_BYTES or len(self._rows) >= _TRANSACTION_ROWS:
                self.flush()
        self.rejected.update(counts)
        printable = name.encode("utf-8", "backslashreplace").decode()  # a file's name may be no UTF-8
        self._refused.append((sha256(raw).digest(), printable, counts, kept))
        if len(self._refused) >= _TRANSACTION_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits, in one transaction."""
        with self._database.transaction():
            for row in self._rows:
                self.outcomes[self._database.put(row)] += 1
            for file in self._refused:
                self._database.note_refused(*file)
        self._rows, self._refused, self._waiting = [], [], 0
