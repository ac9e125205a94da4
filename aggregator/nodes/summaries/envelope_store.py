"""The store of nodes' envelopes: a folder with one campaign's summaries, or masked messages, in one SQLite file.

    nodes.sqlite    campaign, newest list of nodes, envelopes, refused pieces
    (:mod:`aggregator.nodes.summaries.database`)

Taking in files is a union of sets: in any order, twice, or damaged, the store ends with the same envelopes. Of each
node and period at most two different ones are kept. Two of them contradict each other, and none of them counts.

:class:`EnvelopeStore` holds what all kinds of such stores share. A kind says how envelopes are judged, and what
statistics they give.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from aggregator.common.files import open_output, storage_errors, sync_folder
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.summaries.database import CONFLICT_REASON, Database, Refused, Row
from aggregator.nodes.summaries.intake import content_of
from aggregator.nodes.summaries.judging import Judge
from aggregator.nodes.summaries.listing import needed, newer_list, read_list
from aggregator.nodes.summaries.robust import Rule
from aggregator.nodes.summaries.writing import NOT_LISTED_REASON, Taken, Writer
from aggregator.reports.intake.remote import all_unreadable
from aggregator.reports.intake.sources import Unreadable, check_folder, expand
from aggregator.reports.storage.manifest import SUMMARIES_FILE, read_campaign
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.documents.campaign import Campaign
from protocol.errors import InputError, StorageError
from protocol.nodes.node_list import NodeList


class Heard(NamedTuple):
    """A kept envelope, without its numbers.

    Attributes:
        period: number of its period.
        node: id of its node, 8 bytes.
        epsilon_micro: ε of its noise in millionths; of a masked message that of the campaign.
    """

    period: int
    node: bytes
    epsilon_micro: int


Kind = TypeVar("Kind", bound="EnvelopeStore")


def make_envelope_store(kind: type[Kind], path: str | os.PathLike[str], campaign_bytes: bytes) -> Kind:
    """Make a store for a campaign, or open the existing store of the same campaign.

    The caller has verified the campaign's signatures.

    Args:
        kind: the kind of store that belongs to the campaign.
        path: a folder that is absent, empty, or a store of this campaign. Missing folders above it are made, too.
        campaign_bytes: the signed campaign file. An existing store keeps its own file of the campaign.

    Raises:
        InputError: ``campaign_for_devices``: the campaign is not for nodes; ``store_not_folder``: the path is a URL;
            ``campaign_masked``, ``campaign_not_masked``: the campaign belongs to another kind.
        DocumentError: the campaign is not acceptable.
        StorageError: ``other_campaign``: the store is of another one; ``not_a_store``: the path is a file, or a folder
            with other files; ``store_busy``, ``store_newer``, ``store_damaged``, ``disk_full``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    campaign = read_campaign(campaign_bytes)
    if campaign.nodes is None:
        raise InputError("campaign_for_devices", "the campaign asks devices; its reports go into a store of reports")
    kind.check(campaign)
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
    store = open_envelope_store(kind, folder)
    if store.campaign.id != campaign.id:
        raise StorageError("other_campaign", f"the store at '{folder}' is of another campaign")
    return store


def check_new(
    path: str | os.PathLike[str],
    campaign_bytes: bytes,
    list_bytes: bytes | None,
    files: Sequence[str | os.PathLike[str]],
) -> None:
    """Refuse to make a new store if nothing can be read into it. An existing store is left to its own checks.

    Args:
        path: folder of the store.
        campaign_bytes, list_bytes: the campaign and the list of nodes; None for no list.
        files: the files that will be ingested.

    Raises:
        InputError: ``nodes_unknown``: a new store needs a list; ``unreadable``: none of the files can be read.
        DocumentError: the list is refused.
    """
    if is_node_store(path):
        return
    newer_list(None, needed(list_bytes), read_campaign(campaign_bytes))
    if not files or all_unreadable(expand(files)):
        why = f"none of the {len(files)} files can be read" if files else "there is no file of nodes"
        raise InputError("unreadable", f"{why}; no store was made")


def _fault(node: bytes, number: int, listed: Container[bytes]) -> str | None:
    """Why the kept envelopes of a node and period do not count, or None; ``number``: of different ones, 1 or 2."""
    if node not in listed:
        return NOT_LISTED_REASON
    return None if number == 1 else CONFLICT_REASON


def _names() -> set[str]:
    """Names of the files that a store's folder may hold."""
    return {SUMMARIES_FILE, f"{SUMMARIES_FILE}-journal"}


def is_node_store(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store of nodes' envelopes, and not one of reports."""
    return (Path(path) / SUMMARIES_FILE).exists()


def campaign_in(path: str | os.PathLike[str]) -> bytes:
    """The signed campaign file of an existing store. Nothing is locked, and no file stays open.

    Raises:
        StorageError: ``not_a_store``, ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    with closing(Database(folder)) as database:
        raw = database.document("campaign")
    if raw is None:
        raise StorageError("not_a_store", f"'{folder}' is a store whose making was interrupted; ingest into it again")
    return raw


def open_envelope_store(kind: type[Kind], path: str | os.PathLike[str]) -> Kind:
    """Open an existing store. Nothing is locked, and no file stays open.

    Raises:
        InputError: ``campaign_masked``, ``campaign_not_masked``: the store is of another kind.
        StorageError: ``not_a_store``, ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    raw = campaign_in(path)
    campaign = read_campaign(raw)
    kind.check(campaign)
    return kind(Path(path), campaign, raw)


class EnvelopeStore(ABC):
    """One campaign's envelopes of nodes on disk. Made by :func:`make_envelope_store` or :func:`open_envelope_store`.

    Attributes:
        path: its folder.
        campaign: the campaign that the envelopes answer.
        campaign_bytes: the signed campaign file.
    """

    what: ClassVar[str]
    """Plural noun for the envelopes, in texts."""
    suffix: ClassVar[str]
    """End of the names of files of such envelopes."""

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    @staticmethod
    @abstractmethod
    def check(campaign: Campaign) -> None:
        """Refuse a campaign of another kind.

        Raises:
            InputError: ``campaign_masked``, ``campaign_not_masked``.
        """

    @abstractmethod
    def judge(self, documents: Mapping[str, bytes], now: int) -> Judge:
        """What judges the envelopes of an ingest.

        Args:
            documents: the store's documents by name.
            now: the present, in seconds since 1970.

        Raises:
            InputError: ``nodes_unknown``, ``keys_unknown``: a document is missing.
        """

    @abstractmethod
    def heard(self) -> Iterator[tuple[Heard, str | None]]:
        """All kept envelopes by period, node and identity, each with the reason why it does not count, or None.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
            StorageError: ``store_damaged``: an envelope is not the one that was taken in.
        """

    @abstractmethod
    def statistics(self, scope: Scope = EVERYTHING, rule: Rule | None = None) -> Statistics:
        """Statistics of the envelopes of some periods.

        Args:
            scope: the periods. What it says of damaged batches does not matter: every envelope is signed by itself.
            rule: a robust rule in place of plain addition; None for plain addition.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes; ``robust_invalid``, ``robust_unequal``.
            PolicyError: ``batch_too_small``: nothing counts; ``nodes_too_few``.
            StorageError: ``store_damaged``, ``store_busy``, ``io_failed``.
        """

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
        """Take in the envelopes of files. The same files again change nothing.

        After a crash, or an error, the store has the envelopes of some files; giving all files again completes it. A
        file that is given again is judged again, so an envelope that was too early, or whose node was not listed, may
        count then.

        Args:
            files: paths and URLs; patterns of URLs are expanded.
            now: the present, in seconds since 1970.
            progress: called after each file with (files finished, files given).

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes; ``keys_unknown``: no key book.
            StorageError: ``store_busy``, ``store_damaged``, ``disk_full``, ``io_failed``.
        """
        given = expand(files)
        unreadable = []
        with closing(Database(self.path)) as database:
            judge = self.judge(database.documents(), now)
            writer = Writer(database)
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

    def judged(self) -> Iterator[tuple[Row, str | None]]:
        """All kept envelopes by period, node and identity, each with the reason why it does not count, or None.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
            StorageError: ``store_damaged``: an envelope is not the one that was taken in.
        """
        listed = self.node_list().nodes
        for rows in self._by_node():
            fault = _fault(rows[0].node, len(rows), listed)
            for row in rows:
                yield row, fault

    def rows(self) -> Iterator[Row]:
        """All kept envelopes by period, node and identity, whether they count or not.

        Raises:
            StorageError: ``store_damaged``: an envelope is not the one that was taken in.
        """
        with closing(Database(self.path)) as database, closing(database.rows()) as found:
            yield from found

    def _by_node(self) -> Iterator[list[Row]]:
        """The kept rows of each period and node: one, or two that contradict each other."""
        waiting: list[Row] = []
        for row in self.rows():
            if waiting and (row.period, row.node) != (waiting[0].period, waiting[0].node):
                yield waiting
                waiting = []
            waiting.append(row)
        if waiting:
            yield waiting

    def refused(self) -> dict[str, int]:
        """Number of refused pieces of all input files, by reason."""
        with closing(Database(self.path)) as database:
            return database.rejected()

    def rejected(self) -> dict[str, int]:
        """Number of pieces of files, and of kept envelopes, that do not count, by reason, in alphabetical order."""
        listed = self.node_list().nodes
        found = Counter(self.refused())
        with closing(Database(self.path)) as database:
            for node, number in database.numbers():
                fault = _fault(node, number, listed)
                if fault is not None:
                    found[fault] += number
        return dict(sorted(found.items()))

    def export(self, output: Path, *, scope: Scope = EVERYTHING, everything: bool = False, force: bool = False) -> int:
        """Write envelopes to one file, sorted, so that stores of equal envelopes give equal files.

        Args:
            output: the file.
            scope: the periods.
            everything: write all kept envelopes, also those that do not count.
            force: replace an existing file.

        Returns:
            The number of envelopes.

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
