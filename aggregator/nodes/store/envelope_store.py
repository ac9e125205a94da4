"""What both kinds of stores of nodes' envelopes share: a folder with one campaign's envelopes in one SQLite file.

An envelope is one signed summary or masked message. Files in another order, or twice, give the same store. Of each node
and period at most two different envelopes are kept; two contradict each other, and neither counts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import ClassVar, NamedTuple

from aggregator.common.files import open_output
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.statistics.federation import Federation
from aggregator.nodes.statistics.robust import Rule
from aggregator.nodes.store.database import ACCEPTED, CONFLICT_REASON, REPLAYED_REASON, Database, RefusedPiece, Row
from aggregator.nodes.store.node_list import needed, newer_list, read_list
from aggregator.reports.intake.sources import Unreadable, expand, read_source
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError
from protocol.nodes.summary import NodeList, Piece, Placed, read_summaries

MAX_FILE_BYTES = 1 << 30
"""Largest content of a file, after decompression. A larger file can be cut anywhere between two envelopes."""
_MOST_GROWTH = 64
"""How many times its length a compressed file may hold: counts with little noise shrink further than reports."""
_TRANSACTION_BYTES, _TRANSACTION_ROWS = 16 << 20, 1000
"""A transaction ends when it has so many bytes, or so many envelopes or files."""
_MOST_OF_FILE = 1000
"""Most refused pieces of one file whose places are kept; all are counted."""
NOT_LISTED_REASON = "node_not_listed"


class Arrival(NamedTuple):
    """What is known of a kept envelope without its numbers: period, node id of 8 bytes, and its ε in millionths."""

    period: int
    node: bytes
    epsilon_micro: int


class EnvelopeIngest(NamedTuple):
    """The result of one ingest of nodes' envelopes.

    ``files`` is the number of given files; a pattern counts as the files that match it. ``accepted`` is the number of
    new envelopes that are the only ones of their node and period, ``replayed`` of those that the store or an earlier
    file had already, ``conflicting`` of those that contradict another envelope of the same node and period.
    ``rejected`` counts refused pieces (parts of files) by reason.
    """

    files: int
    unreadable: tuple[Unreadable, ...]
    accepted: int
    replayed: int
    conflicting: int
    rejected: Mapping[str, int]


class EnvelopeStore(ABC):
    """One campaign's envelopes of nodes in a folder, made and opened by :mod:`aggregator.nodes.store.opening`."""

    what: ClassVar[str]
    """Plural noun for the envelopes, in texts."""
    suffix: ClassVar[str]
    """End of the names of files of such envelopes."""
    role: ClassVar[str]
    """Role of the envelopes, one of :data:`protocol.documents.envelope.PAYLOAD_TYPES`."""

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    @classmethod
    def suffixes(cls) -> tuple[str, ...]:
        """Return how names of files must end to be read from a folder. Other and hidden files are not read."""
        return cls.suffix, f"{cls.suffix}.gz", f"{cls.suffix}.zst"

    @staticmethod
    @abstractmethod
    def check(campaign: Campaign) -> None:
        """Refuse a campaign of another kind: ``campaign_masked``, ``campaign_not_masked`` (``InputError``)."""

    @abstractmethod
    def judge(self, documents: Mapping[str, bytes], now: int) -> Callable[[bytes], Placed]:
        """Return a function that checks one envelope completely, and returns its content or raises ``DocumentError``.

        The signature is checked before any number is read. ``documents`` are those of the store; ``now`` is in seconds
        since 1970. Raises InputError ``nodes_unknown`` or ``keys_unknown`` if one of the documents is missing.
        """

    @staticmethod
    @abstractmethod
    def content(envelope: bytes) -> Placed:
        """Return the content of an envelope without a check of its signature. Raises DocumentError for other bytes."""

    @abstractmethod
    def arrivals(self) -> Iterator[tuple[Arrival, str | None]]:
        """Return all kept envelopes by period, node and identity, each with the reason why it does not count, or None.

        Raises InputError ``nodes_unknown``: the store has no list of nodes. Raises StorageError ``store_damaged``: an
        envelope is not the one that was taken in.
        """

    @abstractmethod
    def sums(self, periods: range, rule: Rule | None, *, rejected: Mapping[str, int], words: str) -> Statistics:
        """Return the result of :meth:`statistics` without the list of nodes. ``words``: the periods in words."""

    def statistics(self, scope: Scope = EVERYTHING, rule: Rule | None = None) -> Statistics:
        """Return the statistics of the store's envelopes of some periods, by plain addition or a robust rule.

        Raises InputError: ``nodes_unknown``; ``robust_unequal``; ``robust_invalid``: of masked messages only the sum is
        known. Raises PolicyError ``batch_too_small``: nothing counts; ``nodes_too_few``.
        """
        chosen = range(scope.first, scope.last + 1)
        found = self.sums(chosen, rule, rejected=self.rejected(), words=scope.periods)
        source = found.source
        assert isinstance(source, Federation)
        return replace(found, sources=(replace(source, list_bytes=self.list_bytes()),))

    def documents(self) -> dict[str, bytes]:
        """Return name → bytes of the store's documents: ``campaign``, ``list``, and others of a kind of store."""
        with closing(Database(self.path)) as database:
            return database.documents()

    def list_bytes(self) -> bytes | None:
        """Return the file of the newest list of nodes that the store was given, or None if it was given none."""
        return self.documents().get("list")

    def node_list(self) -> NodeList:
        """Return the newest list of nodes that the store was given, or raise InputError ``nodes_unknown``."""
        return read_list(needed(self.list_bytes()), self.campaign)

    def give_list(self, raw: bytes) -> NodeList:
        """Keep the newer one of the store's list of nodes and ``raw``, whose signatures the caller has checked."""
        with closing(Database(self.path)) as database, database.transaction():
            newest = newer_list(database.document("list"), raw, self.campaign)
            database.put_document("list", newest)
        return read_list(newest, self.campaign)

    def ingest(
        self, files: Sequence[str | os.PathLike[str]], *, now: int, progress: Callable[[int, int], None] | None = None
    ) -> EnvelopeIngest:
        """Take in the envelopes of files: paths, URLs and patterns of URLs. The same files again change nothing.

        After a crash or an error the store has the envelopes of some of the files; give all files again. Every given
        file is judged again, so an envelope that was too early, or whose node was not listed, may count then. ``now``
        is in seconds since 1970. ``progress`` is called with the numbers of finished and of given files. Raises
        InputError: ``nodes_unknown``: the store has no list of nodes; ``keys_unknown``: no key book. Raises
        StorageError ``store_busy``, ``store_damaged``.
        """
        given = expand(files)
        unreadable = []
        with closing(Database(self.path)) as database:
            writer = _Writer(database, self, self.judge(database.documents(), now))
            for number, file in enumerate(given, 1):
                raw = content_of(file)
                if isinstance(raw, Unreadable):
                    unreadable.append(raw)
                else:
                    writer.take(raw, os.fspath(file))
                if progress is not None:
                    progress(number, len(given))
            writer.flush()
        rejected = dict(sorted(writer.rejected.items()))
        accepted, replayed, conflicting = writer.outcomes.values()
        return EnvelopeIngest(len(given), tuple(unreadable), accepted, replayed, conflicting, rejected)

    def judged(self) -> Iterator[tuple[Row, str | None]]:
        """Yield all kept envelopes by period, node and identity, each with why it does not count, or None."""
        listed = self.node_list().nodes
        for (_, node), same in groupby(self.rows(), key=lambda row: (row.period, row.node)):
            rows = list(same)
            fault = NOT_LISTED_REASON if node not in listed else CONFLICT_REASON if len(rows) > 1 else None
            for row in rows:
                yield row, fault

    def rows(self) -> Iterator[Row]:
        """Yield all kept envelopes by period, node and identity. May raise ``store_damaged``."""
        with closing(Database(self.path)) as database, closing(database.rows()) as found:
            yield from found

    def rejected(self) -> dict[str, int]:
        """Return how many parts of files, and kept envelopes, do not count, by reason in alphabetical order."""
        listed = self.node_list().nodes
        with closing(Database(self.path)) as database:
            found = Counter(database.rejected())
            for node, number in database.numbers():
                if node not in listed:
                    found[NOT_LISTED_REASON] += number
                elif number > 1:
                    found[CONFLICT_REASON] += number
        return dict(sorted(found.items()))

    def export(self, output: Path, *, scope: Scope = EVERYTHING, everything: bool = False, force: bool = False) -> int:
        """Write envelopes to one file, sorted, so that equal stores give equal files. Return their number.

        ``everything`` writes also those that do not count; ``force`` replaces an existing file. Raises InputError
        ``output_exists``, ``output_invalid``, ``nodes_unknown``; StorageError ``store_damaged``.
        """
        number = 0
        with open_output(output, force=force) as file:
            for row, fault in self.judged():
                if scope.first <= row.period <= scope.last and (everything or fault is None):
                    file.write(row.envelope)
                    number += 1
        return number

    def quarantined(self) -> list[tuple[str, bytes, RefusedPiece]]:
        """Return the name of the input file, SHA-256 of its content, and place of every refused piece that is kept."""
        with closing(Database(self.path)) as database:
            return database.quarantined()


def content_of(file: str | os.PathLike[str]) -> bytes | Unreadable:
    """Return the decompressed content of a file or URL, or why it can not be read (over :data:`MAX_FILE_BYTES`)."""
    found = read_source(file, MAX_FILE_BYTES, _MOST_GROWTH)
    if isinstance(found, Unreadable):
        return found
    if not isinstance(found.data, bytes) and len(found.data) > MAX_FILE_BYTES:
        return Unreadable(os.fspath(file), "too_large")
    return bytes(found.data[:])


class _Writer:
    """Judges the pieces (envelopes and unreadable parts) of files, and writes the results into a store."""

    def __init__(self, database: Database, store: EnvelopeStore, judge: Callable[[bytes], Placed]) -> None:
        self.outcomes = dict.fromkeys((ACCEPTED, REPLAYED_REASON, CONFLICT_REASON), 0)
        self.rejected: Counter[str] = Counter()
        self._database = database
        self._store = store
        self._judge = judge
        self._rows: list[Row] = []
        self._refused: list[tuple[bytes, str, Counter[str], list[RefusedPiece]]] = []
        self._waiting = 0

    def take(self, raw: bytes, name: str) -> None:
        """Judge the decompressed content of a file. What was found is written at once or at a later :meth:`flush`."""
        counts: Counter[str] = Counter()
        kept: list[RefusedPiece] = []
        for piece in read_summaries(raw, self._store.role):
            found = self._judged(piece)
            if isinstance(found, Row):
                self._rows.append(found)
                self._waiting += len(found.envelope)
                if self._waiting >= _TRANSACTION_BYTES or len(self._rows) >= _TRANSACTION_ROWS:
                    self.flush()
            elif found == NOT_LISTED_REASON and self._holds(piece.envelope):
                self.outcomes[REPLAYED_REASON] += 1  # it was taken in before a list left its node out
            else:
                counts[found] += 1
                kept += [RefusedPiece(piece.offset, piece.length, found)] if len(kept) < _MOST_OF_FILE else []
        self.rejected.update(counts)
        printable = name.encode("utf-8", "backslashreplace").decode()  # a file's name may be no UTF-8
        self._refused.append((sha256(raw).digest(), printable, counts, kept))
        if len(self._refused) >= _TRANSACTION_ROWS:
            self.flush()

    def flush(self) -> None:
        with self._database.transaction():
            for row in self._rows:
                self.outcomes[self._database.put(row)] += 1
            for file in self._refused:
                self._database.note_refused(*file)
        self._rows, self._refused, self._waiting = [], [], 0

    def _judged(self, piece: Piece) -> Row | str:
        """Return the row of an envelope to keep, or the reason why a piece is refused."""
        if piece.reason is not None:
            return piece.reason
        try:
            found = self._judge(piece.envelope)
        except DocumentError as error:
            return error.reason
        _, period, node = found.place
        return Row(period, node, found.identity, piece.envelope)

    def _holds(self, envelope: bytes) -> bool:
        found = self._store.content(envelope)
        _, period, node = found.place
        return self._database.holds((period, node, found.identity))
