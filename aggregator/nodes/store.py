"""The store of summaries: a folder with one campaign's summaries of nodes, in one SQLite file.

    nodes.sqlite    campaign, newest list of nodes, summaries, refused pieces (:mod:`aggregator.nodes.database`)

Taking in files is a union of sets: in any order, twice, or damaged, the store ends with the same summaries. Of each
node and period at most two different summaries are kept. Two of them contradict each other, and none of them counts.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.files import open_output, storage_errors, sync_folder
from aggregator.intake.finding import all_unreadable
from aggregator.intake.sources import Unreadable
from aggregator.intake.urls import check_folder, expand
from aggregator.nodes.database import ACCEPTED, CONFLICT_REASON, REPLAYED_REASON, Database, Refused
from aggregator.nodes.federation import Federation, federated
from aggregator.nodes.intake import content_of
from aggregator.nodes.judging import Judge, summary_in
from aggregator.nodes.listing import needed, newer_list, read_list
from aggregator.nodes.robust_estimate import robust_statistics
from aggregator.nodes.totals import Totals
from aggregator.storage.manifest import SUMMARIES_FILE
from aggregator.storage.opening import read_campaign
from aggregator.tally.scope import EVERYTHING, Scope
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from aggregator.estimates.statistics import Statistics
    from aggregator.nodes.database import Row
    from aggregator.nodes.robust import Rule
    from protocol.documents.campaign import Campaign
    from protocol.nodes.node_list import NodeList
    from protocol.nodes.summary import Summary

_TRANSACTION_BYTES, _TRANSACTION_ROWS = 16 << 20, 1000
"""Numbers of bytes, and of summaries or files, of which any ends a transaction."""
_MOST_OF_FILE = 1000
"""Most refused pieces of one file whose places are kept; all are counted."""
NOT_LISTED_REASON = "node_not_listed"


class Taken(NamedTuple):
    """The result of one ingest of summaries.

    Attributes:
        files: number of files given; a pattern counts as the files that match it.
        unreadable: the files that could not be read, each with its reason.
        accepted: number of summaries that are new, and the only ones of their node and period.
        replayed: number of summaries that the store, or an earlier file, held already.
        conflicting: number of summaries whose node gave another summary of that period.
        rejected: number of pieces that were refused, by reason.
    """

    files: int
    unreadable: tuple[Unreadable, ...]
    accepted: int
    replayed: int
    conflicting: int
    rejected: Mapping[str, int]


def create_node_store(path: str | os.PathLike[str], campaign_bytes: bytes) -> NodeStore:
    """Make a store of summaries for a campaign, or open the existing store of the same campaign.

    The caller has verified the campaign's signatures.

    Args:
        path: a folder that is absent, empty, or a store of this campaign. Missing folders above it are made, too.
        campaign_bytes: the signed campaign file. An existing store keeps its own file of the campaign.

    Raises:
        InputError: ``campaign_for_devices``: the campaign is not for nodes; ``store_not_folder``: the path is a URL.
        DocumentError: the campaign is not acceptable.
        StorageError: ``other_campaign``: the store is of another one; ``not_a_store``: the path is a file, or a folder
            with other files; ``store_busy``, ``store_newer``, ``store_damaged``, ``disk_full``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    campaign = read_campaign(campaign_bytes)
    if campaign.nodes is None:
        raise InputError("campaign_for_devices", "the campaign asks devices; its reports go into a store of reports")
    with storage_errors(f"the store at '{folder}' can not be made"):
        if folder.exists() and not folder.is_dir():
            raise StorageError("not_a_store", f"'{folder}' is a file")
        if folder.is_dir() and not {entry.name for entry in folder.iterdir()} <= _names():
            raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    with closing(Database(folder, make=True)) as database, database.transaction():
        if database.document("campaign") is None:
            database.put_document("campaign", campaign_bytes)
    store = open_node_store(folder)
    if store.campaign.id != campaign.id:
        raise StorageError("other_campaign", f"the store at '{folder}' holds the summaries of another campaign")
    return store


class _Writer:
    """Writes judged pieces of files into a store, many in one transaction.

    Args:
        database: the store's open file.

    Attributes:
        outcomes: number of summaries by what became of them (:meth:`aggregator.nodes.database.Database.put`).
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
                if found.reason == NOT_LISTED_REASON and self._database.holds(found.bytes_of(raw)):
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


def new_or_open(
    path: str | os.PathLike[str],
    campaign_bytes: bytes,
    list_bytes: bytes | None,
    files: Sequence[str | os.PathLike[str]],
) -> NodeStore:
    """Open a store of summaries and give it a list of nodes. A new store is made only if files can be read into it.

    Args:
        path: folder of the store.
        campaign_bytes, list_bytes: the campaign and the list of nodes, whose signatures the caller has checked; None
            for the list that the store has.
        files: the files that will be ingested.

    Raises:
        InputError: ``nodes_unknown``: a new store needs a list; ``unreadable``: none of the files can be read.
        InputError, DocumentError, StorageError: the store can not be made (:func:`create_node_store`), or the list is
            refused (:meth:`NodeStore.give_list`).
    """
    if not is_node_store(path):
        newer_list(None, needed(list_bytes), read_campaign(campaign_bytes))
        if not files or all_unreadable(expand(files)):
            why = f"none of the {len(files)} files can be read" if files else "there is no file of summaries"
            raise InputError("unreadable", f"{why}; no store was made")
    store = create_node_store(path, campaign_bytes)
    if list_bytes is not None:
        store.give_list(list_bytes)
    return store


def _fault(node: bytes, number: int, listed: Container[bytes]) -> str | None:
    """Why the kept summaries of a node and period do not count, or None; ``number``: of different ones, 1 or 2."""
    if node not in listed:
        return NOT_LISTED_REASON
    return None if number == 1 else CONFLICT_REASON


def _names() -> set[str]:
    """Names of the files that a store's folder may hold."""
    return {SUMMARIES_FILE, f"{SUMMARIES_FILE}-journal"}


def is_node_store(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store of summaries, and not one of reports."""
    return (Path(path) / SUMMARIES_FILE).exists()


def open_node_store(path: str | os.PathLike[str]) -> NodeStore:
    """Open an existing store of summaries. Nothing is locked, and no file stays open.

    Raises:
        StorageError: ``not_a_store``, ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    with closing(Database(folder)) as database:
        raw = database.document("campaign")
    if raw is None:
        raise StorageError("not_a_store", f"'{folder}' is a store whose making was interrupted; ingest into it again")
    return NodeStore(folder, read_campaign(raw), raw)


class NodeStore:
    """One campaign's summaries on disk. Made by :func:`create_node_store` or :func:`open_node_store`.

    Attributes:
        path: its folder.
        campaign: the campaign that the summaries answer.
        campaign_bytes: the signed campaign file.
    """

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes

    def __repr__(self) -> str:
        return f"NodeStore({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    def list_bytes(self) -> bytes | None:
        """The signed list of nodes that the store goes by; None if it was given none."""
        with closing(Database(self.path)) as database:
            return database.document("list")

    def node_list(self) -> NodeList:
        """The list of nodes that the store goes by.

        Raises:
            InputError: ``nodes_unknown``: the store was given none.
        """
        return read_list(needed(self.list_bytes()), self.campaign)

    def give_list(self, raw: bytes) -> NodeList:
        """Give the store a list of nodes, whose signatures the caller has checked. The newest one is kept.

        Raises:
            DocumentError: ``rollback``, ``equivocation``, ``other_name``, or it is no list of nodes.
        """
        with closing(Database(self.path)) as database, database.transaction():
            newest = newer_list(database.document("list"), raw, self.campaign)
            database.put_document("list", newest)
        return read_list(newest, self.campaign)

    def ingest(
        self,
        files: Sequence[str | os.PathLike[str]],
        *,
        now: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> Taken:
        """Take in the summaries of files. The same files again change nothing.

        After a crash, or an error, the store has the summaries of some files; giving all files again completes it. A
        file that is given again is judged again, so a summary that was too early, or whose node was not listed, may
        count then.

        Args:
            files: paths and URLs; patterns of URLs are expanded.
            now: the present, in seconds since 1970.
            progress: called after each file with (files finished, files given).

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
            StorageError: ``store_busy``, ``store_damaged``, ``disk_full``, ``io_failed``.
        """
        given = expand(files)
        unreadable = []
        with closing(Database(self.path)) as database:
            judge = Judge(self.campaign, read_list(needed(database.document("list")), self.campaign), now)
            writer = _Writer(database)
            for number, file in enumerate(given, 1):
                raw = content_of(file)
                if isinstance(raw, Unreadable):
                    unreadable.append(raw)
                else:
                    writer.take(judge, raw, os.fspath(file))
                if progress is not None:
                    progress(number, len(given))
            writer.flush()
        rejected = dict(sorted(writer.rejected.items()))
        accepted, replayed, conflicting = writer.outcomes.values()
        return Taken(len(given), tuple(unreadable), accepted, replayed, conflicting, rejected)

    def summaries(self) -> Iterator[tuple[Summary, str | None]]:
        """All kept summaries by period, node and identity, each with the reason why it does not count, or None.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
            StorageError: ``store_damaged``: a summary is not the one that was taken in.
        """
        listed = self.node_list().nodes
        for rows in self._by_node():
            fault = _fault(rows[0].node, len(rows), listed)
            for row in rows:
                yield summary_in(row), fault

    def _by_node(self) -> Iterator[list[Row]]:
        """The kept rows of each period and node: one, or two that contradict each other."""
        waiting: list[Row] = []
        with closing(Database(self.path)) as database, closing(database.rows()) as found:
            for row in found:
                if waiting and (row.period, row.node) != (waiting[0].period, waiting[0].node):
                    yield waiting
                    waiting = []
                waiting.append(row)
        if waiting:
            yield waiting

    def counted(self) -> Iterator[Summary]:
        """The summaries that count, by period and node: of listed nodes, and without contradiction."""
        return (summary for summary, reason in self.summaries() if reason is None)

    def totals(self) -> Totals:
        """Exact sums of the summaries that count, by period."""
        return Totals.of(self.campaign, self.counted())

    def rejected(self) -> dict[str, int]:
        """Number of pieces of files, and of kept summaries, that do not count, by reason, in alphabetical order."""
        listed = self.node_list().nodes
        with closing(Database(self.path)) as database:
            found = Counter(database.rejected())
            for node, number in database.numbers():
                fault = _fault(node, number, listed)
                if fault is not None:
                    found[fault] += number
        return dict(sorted(found.items()))

    def statistics(self, scope: Scope = EVERYTHING, rule: Rule | None = None) -> Statistics:
        """Statistics of the summaries of some periods.

        Args:
            scope: the periods. What it says of damaged batches does not matter: every summary is signed by itself.
            rule: a robust rule in place of plain addition; None for plain addition.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes; ``robust_unequal``.
            PolicyError: ``batch_too_small``: no summary counts; ``nodes_too_few``.
            StorageError: ``store_damaged``, ``store_busy``, ``io_failed``.
        """
        chosen = range(scope.first, scope.last + 1)
        about: dict[str, Any] = {"rejected": self.rejected(), "periods": scope.periods}
        if rule is not None:
            found = (summary for summary in self.counted() if summary.period in chosen)
            statistics = robust_statistics(self.campaign, found, rule, **about)
        else:
            statistics = federated(self.campaign, self.totals().total(chosen), **about)
        source = statistics.source
        assert isinstance(source, Federation)
        return replace(statistics, sources=(replace(source, list_bytes=self.list_bytes()),))

    def export(self, output: Path, *, scope: Scope = EVERYTHING, everything: bool = False, force: bool = False) -> int:
        """Write summaries to one file, sorted, so that stores of equal summaries give equal files.

        Args:
            output: the file.
            scope: the periods.
            everything: write all kept summaries, also those that do not count.
            force: replace an existing file.

        Returns:
            The number of summaries.

        Raises:
            InputError: ``output_exists``, ``output_invalid``, ``nodes_unknown``.
            StorageError: ``disk_full``, ``io_failed``, ``store_damaged``.
        """
        listed = self.node_list().nodes
        number = 0
        with open_output(output, force=force) as file:
            for rows in self._by_node():
                if not scope.first <= rows[0].period <= scope.last:
                    continue
                if everything or _fault(rows[0].node, len(rows), listed) is None:
                    for row in rows:
                        file.write(row.envelope)
                    number += len(rows)
        return number

    def quarantined(self) -> list[tuple[str, bytes, Refused]]:
        """Name of the input file, SHA-256 of its content, and place of every refused piece that is kept."""
        with closing(Database(self.path)) as database:
            return database.quarantined()
