"""Judge the quarantine again: reports whose period has begun since, and reports that a rule wrongly refused.

Records that are good now are added as an input file of their own: a batch of these records, known by its content.
This file goes through the same commit as any ingest. When an operator repeats a retry after a crash, the store knows
the content and takes it once. A record's standing stays: records of a damaged batch go into a batch without a valid
trailer, with the same claimed digest.

Too early records of one file are added period by period, since all records of a period become good at once. Other
records are added one by one. Source: decision 27.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.reports.decoding.decode import Decoder, Rejected
from aggregator.reports.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.reports.intake.enrolment import Enrolled, check_enrolment
from aggregator.reports.intake.reader import FORGOTTEN, Reader
from aggregator.reports.intake.sources import Source
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.storage.input_index import Ingested, identity, pack_places, tail, unpack_places
from aggregator.reports.storage.manifest import QUARANTINE
from aggregator.reports.storage.quarantine import Kept, Quarantine
from protocol.batches.batch import Header, trailer, write_batch
from protocol.batches.report import ID_BYTES

if TYPE_CHECKING:
    from aggregator.operations.report_store import Store


EARLY = "report_too_early"
NO_RECORD = "it is no record of this campaign"
NOT_WHOLE = "an older release did not keep it whole"
NOT_ALL = "not all that was too early in its file was kept; ingest the file again"
NO_FILE = "its file is not in the store; ingest it again"
STILL = "a rule refuses it still"


class RetrySummary(NamedTuple):
    """The result of one retry.

    Attributes:
        tried: number of pieces that were judged again: all pieces, or all pieces with the given reason.
        proven, unproven: numbers of records added to the store.
        repeated: number of records that the store had already, for example after a crash of an earlier retry.
        left: numbers of pieces that were not added, by the cause in words: :data:`NO_RECORD`, :data:`NOT_WHOLE`,
            :data:`NOT_ALL`, :data:`NO_FILE` or :data:`STILL`.
    """

    tried: int
    proven: int
    unproven: int
    repeated: int
    left: Mapping[str, int]


class _Group(NamedTuple):
    """Records that are added as one file.

    Attributes:
        proven: whether the records' batch was complete.
        claim: the digest that a damaged batch states; empty without one.
        key: the period of too early records, or the bytes of the only record.
    """

    proven: bool
    claim: bytes
    key: bytes


class _Judged(NamedTuple):
    """Pieces of one file after they were judged again.

    Attributes:
        places: offsets of all pieces in their file.
        good: pieces to add, in the groups in which they are added.
        turned: pieces that are refused for another reason than before, each with the new reason. They were too early,
            and now their period is forgotten or their device is not enrolled; or they were not enrolled, and now their
            period is forgotten.
    """

    places: list[int]
    good: dict[_Group, list[Rejected]]
    turned: list[tuple[Rejected, str]]

    @property
    def amount(self) -> int:
        """Number of pieces to add."""
        return sum(map(len, self.good.values()))

    def pieces(self) -> list[Rejected]:
        """Pieces whose earlier reason no longer holds."""
        return [piece for group in self.good.values() for piece in group] + [piece for piece, _ in self.turned]


def retry(store: Store, *, now: int, enrolled: Enrolled | None = None, reason: str | None = None) -> RetrySummary:
    """Judge the pieces in a store's quarantine again, and add those that are good now. Run by the operator.

    Args:
        store: its quarantine is judged.
        now: the present, in seconds since 1970.
        enrolled: the ids of a closed fleet, whose store needs it; None for other stores.
        reason: judge only the pieces that were set aside for this reason; None for all.

    Raises:
        PolicyError: ``enrolment_needed``: the store belongs to a closed fleet, and no ids are given; ``store_open``:
            ids are given, and the store has taken reports without.
        InputError: ``file_not_found``, ``ids_invalid``: the file of the enrolled ids changed after it was opened.
        StorageError: ``store_busy``, ``not_a_store``, ``store_newer``, ``store_older``, ``store_damaged``,
            ``disk_full``, ``io_failed``. The reports are then as before; or, if the error came after the manifest was
            replaced, the records are added and still in the quarantine too. Another retry sets that right.
    """
    with store.changing() as manifest:
        begun = manifest._replace(closed=check_enrolment(manifest, enrolled))
        # The transaction gets no quarantine, so pieces leave the quarantine only after the commit, in run.clear().
        # After a crash in between, the next retry finds these pieces in the store already and adds none again.
        transaction = IngestTransaction(store.path, store.campaign, begun, quarantine=None)
        run = _Retry(transaction, Quarantine(store.path / QUARANTINE, store.quarantine_bytes), now, enrolled)
        run.judge(reason)
        changed = transaction.commit()
        if changed is not None:
            store.commit(changed)
        run.clear()
    left = dict(sorted((+run.left).items()))
    return RetrySummary(run.tried, transaction.proven, transaction.unproven, run.known, left)


class _Retry:
    """Judges a quarantine, and adds the good records to an ingest as files of their own.

    Args:
        transaction: takes the files. It does not change the quarantine.
        quarantine: the pieces to judge.
        now: the present, in seconds since 1970.
        enrolled: the ids of a closed fleet; None for an open store.

    Attributes:
        tried: number of pieces that were judged.
        left: numbers of pieces that were not added, by the cause in words.
        known: number of records that the store has already.
    """

    def __init__(
        self, transaction: IngestTransaction, quarantine: Quarantine, now: int, enrolled: Enrolled | None
    ) -> None:
        self._transaction = transaction
        self._inputs = transaction.inputs
        self._campaign = transaction.campaign
        self._quarantine = quarantine
        self._now = now
        self._enrolled = enrolled
        self._decoder = Decoder(self._campaign)
        layout = self._campaign.layout
        self._header = Header(self._campaign.id, layout.kind, layout.record_length)
        self._rest: list[tuple[Kept, list[Rejected]]] = []
        self.tried = self.known = 0
        self.left: Counter[str] = Counter()

    def judge(self, reason: str | None) -> None:
        """Add the records that are good now. After the commit, :meth:`clear` removes them from the quarantine."""
        entries = {entry.identity.hex(): entry for entry in self._inputs.entries()}
        with self._transaction.reader(self._now, self._enrolled) as reader:
            for kept in self._quarantine.files():
                self._file(reader, kept, entries.get(kept.identity), reason)
            self._transaction.add_parts(reader.finish())

    def clear(self) -> None:
        """Remove from the quarantine the pieces that are in the store, or are refused for another reason."""
        for kept, rest in self._rest:
            self._quarantine.keep(kept.identity, kept.file, rest)
        self._quarantine.flush()

    def _file(self, reader: Reader, kept: Kept, entry: Ingested | None, reason: str | None) -> None:
        """Judge the pieces of one file.

        Args:
            reader: adds the good ones.
            kept: the pieces.
            entry: what the index says of the file; None if its ingest was never committed.
            reason: judge only the pieces that were set aside for this reason; None for all.
        """
        chosen = [piece for piece in kept.pieces if reason in (None, piece.reason)]
        self.tried += len(chosen)
        if entry is not None:  # This retry may have replaced the entry, by adding records with this file's content.
            entry = self._inputs.get(entry.identity) or entry
        settled = [] if entry is None else self._settled(chosen, entry)
        self.known += len(settled)
        early = sum(piece.reason == EARLY and self._is_whole(piece) for piece in kept.pieces)
        early -= sum(piece.reason == EARLY for piece in settled)
        fitting = []
        for piece in _without(chosen, settled):
            obstacle = self._obstacle(piece, entry, early)
            if obstacle is not None:
                self.left[obstacle] += 1
            else:
                fitting.append(piece)
        judged = self._judged(fitting)
        self.left[STILL] += len(fitting) - judged.amount
        if entry is None or not (settled or judged.good or judged.turned):
            return
        self._add(reader, kept.file, judged.good)
        # The good records, written as a file, may equal the very file that `entry` describes. Then `_add` has already
        # replaced this file's entry in the index, and its counts must not be corrected a second time.
        after = self._inputs.get(entry.identity) or entry
        if after == entry:
            after = self._after(entry, kept, judged)
            if reason in (None, EARLY) and early == entry.rejected.get(EARLY, 0):
                # Every early record of the file was judged. Those still refused as too early are of later periods,
                # or from before the campaign began. So the file counts as read at the present period.
                after = after._replace(present=max(entry.present, self._campaign.period_at(self._now)))
            if after != entry:
                self._transaction.replace_entry(after)
        refused = _refused(after, kept.pieces)
        done = [*settled, *judged.pieces()]
        foreign = [piece._replace(reason=NOT_ENROLLED) for piece in done if piece.offset in refused]
        rest = sorted(_without(kept.pieces, done) + foreign, key=lambda piece: piece.offset)
        self._rest.append((kept, rest))

    def _after(self, entry: Ingested, kept: Kept, judged: _Judged) -> Ingested:
        """The entry of a file after its pieces were judged. Corrects the store's totals, too."""
        counts = Counter(piece.reason for piece in kept.pieces)
        due: Counter[str] = Counter()  # numbers to subtract from the entry's counts of rejected records
        for reason, number in Counter(piece.reason for piece in judged.pieces()).items():
            # If the quarantine holds more pieces than the entry counts, an earlier retry subtracted these pieces and
            # crashed before it removed them from the quarantine: nothing is to be subtracted. The reasons EARLY and
            # NOT_ENROLLED need no such test, because :meth:`_settled` has singled out the pieces subtracted before.
            exact = reason in (EARLY, NOT_ENROLLED)
            if exact or counts[reason] <= entry.rejected.get(reason, 0):
                due[reason] = number
        more = Counter(reason for _, reason in judged.turned)
        self._transaction.correct_totals(fewer=due, more=more)
        foreign = [piece.offset for piece, reason in judged.turned if reason == NOT_ENROLLED]
        places = np.setdiff1d(unpack_places(entry.refused), [piece.offset for piece in judged.pieces()])
        places = np.union1d(places, np.array(foreign, np.int64))
        enrolment = entry.enrolment
        if self._enrolled is not None and enrolment != self._enrolled.digest:
            if np.isin(places, judged.places).all():
                enrolment = self._enrolled.digest
            elif foreign:  # Two sets of ids refused records of this file, so no single digest describes them.
                enrolment = b""
        return entry._replace(
            rejected=dict(sorted((Counter(entry.rejected) - due + more).items())),
            refused=pack_places(places),
            enrolment=enrolment if len(places) else b"",
        )

    def _settled(self, pieces: Sequence[Rejected], entry: Ingested) -> list[Rejected]:
        """Pieces that the entry accounts for already: a crash came before they were removed from the quarantine."""
        refused = _refused(entry, pieces)
        return [
            piece
            for piece in pieces
            if (piece.reason == NOT_ENROLLED and piece.offset not in refused)
            or (piece.reason == EARLY and self._is_whole(piece) and self._is_past(piece, entry))
        ]

    def _is_past(self, piece: Rejected, entry: Ingested) -> bool:
        """Whether the period of a too early report had begun when its file was last read."""
        at = len(self._campaign.layout.prefix) + ID_BYTES
        first = self._campaign.header.not_before // self._campaign.time_precision
        return first <= int.from_bytes(piece.data[at : at + 4]) <= entry.present

    def _is_whole(self, piece: Rejected) -> bool:
        """Whether the quarantine keeps all bytes of a record."""
        return piece.proven is not None and len(piece.data) == self._header.record_length

    def _obstacle(self, piece: Rejected, entry: Ingested | None, early: int) -> str | None:
        """The reason in words why a piece can not be judged at all; None if it can."""
        if piece.proven is None:
            return NO_RECORD
        if len(piece.data) != self._header.record_length:
            return NOT_WHOLE
        if entry is None:
            return NO_FILE
        if piece.reason == EARLY and early < entry.rejected.get(EARLY, 0):
            return NOT_ALL
        return None

    def _judged(self, pieces: Sequence[Rejected]) -> _Judged:
        """Divide pieces into pieces that every rule accepts now and pieces that are refused for a new reason."""
        data = write_batch(self._header, [piece.data for piece in pieces])
        found = self._decoder.decode(data, now=self._now)
        forgotten = found.records.period < self._transaction.manifest.first_period
        accepted = ~forgotten
        if self._enrolled is not None:
            accepted &= self._enrolled.accepts(found.records)
        groups: defaultdict[_Group, list[Rejected]] = defaultdict(list)
        turned = []
        places = (found.positions - len(self._header.to_bytes())) // self._header.record_length
        rows = zip(places.tolist(), found.records.period.tolist(), accepted.tolist(), forgotten.tolist(), strict=True)
        for place, period, is_good, is_forgotten in rows:
            piece = pieces[place]
            verdict = FORGOTTEN if is_forgotten else NOT_ENROLLED
            if is_good:
                key = period.to_bytes(4, "big") if piece.reason == EARLY else piece.data
                groups[_Group(bool(piece.proven), piece.claim, key)].append(piece)
            elif piece.reason in (EARLY, NOT_ENROLLED) and piece.reason != verdict:
                turned.append((piece, verdict))
        return _Judged([piece.offset for piece in pieces], dict(groups), turned)

    def _add(self, reader: Reader, name: str, good: Mapping[_Group, Sequence[Rejected]]) -> None:
        """Add each group as a file.

        Args:
            reader: reads the file.
            name: of the file that the pieces came from.
            good: groups with their pieces.
        """
        for group, pieces in good.items():
            data = _file_of(self._header, group, [piece.data for piece in pieces])
            source = Source(0, name, data, len(data))
            known = self._inputs.get(identity(data)) if self._inputs.may_know(tail(data)) else None
            nothing_taken = known is not None and known.rejected and not known.proven + known.unproven
            for read in [reader.read_anew(source)] if nothing_taken else reader.read([source], may_repeat=True):
                if read.entry is None:
                    self.known += len(pieces)
                else:
                    self._transaction.note(read)


def _refused(entry: Ingested, pieces: Sequence[Rejected]) -> set[int]:
    """Offsets of the pieces that the entry counts as not enrolled.

    The entry may count further records, which the quarantine did not keep.
    """
    offsets = np.array([piece.offset for piece in pieces], np.int64)
    return set(offsets[np.isin(offsets, unpack_places(entry.refused))].tolist())


def _without(pieces: Sequence[Rejected], excluded: Sequence[Rejected]) -> list[Rejected]:
    """The pieces without ``excluded``, compared as objects, since different pieces may have equal values."""
    objects = set(map(id, excluded))
    return [piece for piece in pieces if id(piece) not in objects]


def _file_of(header: Header, group: _Group, records: Sequence[bytes]) -> bytes:
    """The bytes of a batch with some records. Reading it gives the records the group's ``proven`` and ``claim``."""
    records = sorted(records)
    if group.proven:
        return write_batch(header, records)
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), group.claim) if group.claim else body
