"""Check the quarantine again: reports whose period has begun since, and reports that a rule wrongly refused.

Records that are good now are added as an input file of their own, a batch that is known by its content, so a repeated
retry adds them once. Records of a damaged batch stay unproven. Source: decision 27.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.operations.report_store import Store
from aggregator.reports.decoding.decode import Decoder, Rejected
from aggregator.reports.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.reports.intake.enrolment import Enrolled, check_enrolment
from aggregator.reports.intake.reader import FORGOTTEN, Reader
from aggregator.reports.intake.sources import Source
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.storage.input_index import Ingested, identity, pack_places, tail, unpack_places
from aggregator.reports.storage.manifest import QUARANTINE
from aggregator.reports.storage.quarantine import Quarantine, QuarantinedFile
from protocol.batches.batch import Header, trailer, write_batch
from protocol.batches.report import ID_BYTES

EARLY = "report_too_early"
NO_RECORD = "it is no record of this campaign"
NOT_WHOLE = "an older release did not keep it whole"
NOT_ALL = "not all that was too early in its file was kept; ingest the file again"
NO_FILE = "its file is not in the store; ingest it again"
STILL = "a rule refuses it still"


class RetrySummary(NamedTuple):
    """The result of one retry.

    ``tried``: number of pieces (rejected records or byte ranges) that were checked again. ``proven``, ``unproven``:
    numbers of records added to the store, of complete and of damaged batches. ``repeated``: number of records that the
    store had already, for example after a crash of an earlier retry. ``left``: numbers of pieces that were not added,
    by the cause.
    """

    tried: int
    proven: int
    unproven: int
    repeated: int
    left: Mapping[str, int]


class _Group(NamedTuple):
    """What rejected records share that are added to the store as one file.

    ``proven``: whether their batch is complete. ``claim``: the digest that a damaged batch states. ``key``: their
    period, if they came too early; else the bytes of the one record.
    """

    proven: bool
    claim: bytes
    key: bytes


class _Judged(NamedTuple):
    """Rejected records of a file after a second check: offsets of all, the good ones, those with a new reason."""

    places: list[int]
    good: dict[_Group, list[Rejected]]
    turned: list[tuple[Rejected, str]]

    @property
    def amount(self) -> int:
        return sum(map(len, self.good.values()))

    def pieces(self) -> list[Rejected]:
        return [piece for group in self.good.values() for piece in group] + [piece for piece, _ in self.turned]


def retry(store: Store, *, now: int, enrolled: Enrolled | None = None, reason: str | None = None) -> RetrySummary:
    """Check the rejected records in a store's quarantine again, and add those that are good now.

    Only records that were set aside for ``reason`` are checked; None checks all. Raises the errors of
    :meth:`~aggregator.operations.report_store.Store.ingest`. If the error came after the manifest was replaced, the
    records are added and still in the quarantine; another retry removes them there.
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
    """Checks a quarantine again, and adds the good records to an ingest as files of their own."""

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
        self._rest: list[tuple[QuarantinedFile, list[Rejected]]] = []
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
        """Remove from the quarantine the pieces that are in the store now, or are refused for another reason."""
        for kept, rest in self._rest:
            self._quarantine.keep(kept.identity, kept.file, rest)
        self._quarantine.flush()

    def _file(self, reader: Reader, kept: QuarantinedFile, entry: Ingested | None, reason: str | None) -> None:
        """Check the rejected pieces of one file. ``entry`` is None if the ingest of the file was never committed."""
        if entry is not None:  # This retry may have replaced the entry, by adding records with this file's content.
            entry = self._inputs.get(entry.identity) or entry
        pieces = [piece for piece in kept.pieces if reason in (None, piece.reason)]
        settled = [] if entry is None else self._settled(pieces, entry)
        lost = 0 if entry is None else self._lost_early(kept, settled, entry)
        self.tried += len(pieces)
        self.known += len(settled)
        judged = self._judged(self._judgeable(_without(pieces, settled), entry, lost))
        self.left[STILL] += len(judged.places) - judged.amount
        if entry is None or not (settled or judged.good or judged.turned):
            return
        self._add(reader, kept.file, judged.good)
        entry = self._corrected(entry, kept, judged, every_early=reason in (None, EARLY) and lost == 0)
        self._rest.append((kept, _rest(kept.pieces, [*settled, *judged.pieces()], entry)))

    def _settled(self, pieces: Sequence[Rejected], entry: Ingested) -> list[Rejected]:
        """Return the pieces in the store that a crash kept an earlier retry from removing from the quarantine."""
        refused = _refused(entry, pieces)
        return [
            piece
            for piece in pieces
            if (piece.reason == NOT_ENROLLED and piece.offset not in refused)
            or (piece.reason == EARLY and self._is_whole(piece) and self._is_past(piece, entry))
        ]

    def _lost_early(self, kept: QuarantinedFile, settled: Sequence[Rejected], entry: Ingested) -> int:
        """Return how many of the file's too early records the quarantine does not keep whole."""
        whole = sum(piece.reason == EARLY and self._is_whole(piece) for piece in kept.pieces)
        return entry.rejected.get(EARLY, 0) - whole + sum(piece.reason == EARLY for piece in settled)

    def _judgeable(self, pieces: Sequence[Rejected], entry: Ingested | None, lost_early: int) -> list[Rejected]:
        """Return the rejected pieces that can be checked again. Count the rest, by cause, as left in quarantine."""
        judgeable = []
        for piece in pieces:
            if piece.proven is None:
                self.left[NO_RECORD] += 1
            elif not self._is_whole(piece):
                self.left[NOT_WHOLE] += 1
            elif entry is None:
                self.left[NO_FILE] += 1
            elif piece.reason == EARLY and lost_early > 0:
                self.left[NOT_ALL] += 1
            else:
                judgeable.append(piece)
        return judgeable

    def _corrected(self, entry: Ingested, kept: QuarantinedFile, judged: _Judged, *, every_early: bool) -> Ingested:
        """Correct the file's index entry and the store's totals by the result of a check; return the new entry."""
        # The good records, written as a file, may equal the very file that `entry` describes. Then `_add` has already
        # replaced this file's entry in the index, and its counts must not be corrected a second time.
        after = self._inputs.get(entry.identity) or entry
        if after != entry:
            return after
        fewer, more = _no_longer_rejected(entry, kept, judged), Counter(reason for _, reason in judged.turned)
        self._transaction.correct_totals(fewer=fewer, more=more)
        places = _refused_places(entry, judged)
        after = entry._replace(
            rejected=dict(sorted((Counter(entry.rejected) - fewer + more).items())),
            refused=pack_places(places),
            enrolment=self._refusing_ids(entry, judged, places),
        )
        if every_early:
            # Every early record of the file was judged. Those still refused as too early are of later periods, or from
            # before the campaign began. So the file counts as read at the present period.
            after = after._replace(present=max(entry.present, self._campaign.period_at(self._now)))
        if after != entry:
            self._inputs.add(after)
        return after

    def _refusing_ids(self, entry: Ingested, judged: _Judged, places: NDArray[np.int64]) -> bytes:
        """Return the digest of the list of enrolled ids that lacks the ids of all records at ``places``.

        Empty without such records, or if some were refused by another list.
        """
        if not len(places):
            return b""
        if self._enrolled is None or self._enrolled.digest == entry.enrolment:
            return entry.enrolment
        if np.isin(places, judged.places).all():
            return self._enrolled.digest
        # Two sets of ids refused records of this file, unless none was refused just now.
        return b"" if any(reason == NOT_ENROLLED for _, reason in judged.turned) else entry.enrolment

    def _is_past(self, piece: Rejected, entry: Ingested) -> bool:
        """Return whether the period of a too early report had begun when its file was last read."""
        at = len(self._campaign.layout.prefix) + ID_BYTES
        first = self._campaign.header.not_before // self._campaign.time_precision
        return first <= int.from_bytes(piece.data[at : at + 4]) <= entry.present

    def _is_whole(self, piece: Rejected) -> bool:
        return piece.proven is not None and len(piece.data) == self._header.record_length

    def _judged(self, pieces: Sequence[Rejected]) -> _Judged:
        """Divide rejected pieces into those that every rule accepts now and those that are refused for a new reason."""
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
        """Add each group of good records as a file. ``name`` is the name of the file that they come from."""
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
    """Return the offsets of those pieces that the index entry of the file counts as not enrolled."""
    offsets = np.array([piece.offset for piece in pieces], np.int64)
    return set(offsets[np.isin(offsets, unpack_places(entry.refused))].tolist())


def _refused_places(entry: Ingested, judged: _Judged) -> NDArray[np.int64]:
    """Return the offsets of the N records that were not enrolled when they were checked last: (N,) int64, rising."""
    places = np.setdiff1d(unpack_places(entry.refused), [piece.offset for piece in judged.pieces()])
    foreign = [piece.offset for piece, reason in judged.turned if reason == NOT_ENROLLED]
    return np.union1d(places, np.array(foreign, np.int64))


def _no_longer_rejected(entry: Ingested, kept: QuarantinedFile, judged: _Judged) -> Counter[str]:
    """Return the numbers to subtract from the index entry's counts of rejected records, by reason."""
    held = Counter(piece.reason for piece in kept.pieces)
    return Counter(
        piece.reason
        for piece in judged.pieces()
        if piece.reason in (EARLY, NOT_ENROLLED) or held[piece.reason] <= entry.rejected.get(piece.reason, 0)
    )


def _rest(pieces: Sequence[Rejected], done: Sequence[Rejected], entry: Ingested) -> list[Rejected]:
    """Return the pieces to keep in the quarantine: those not in ``done``, and those in it that are not enrolled now."""
    refused = _refused(entry, pieces)
    foreign = [piece._replace(reason=NOT_ENROLLED) for piece in done if piece.offset in refused]
    return sorted(_without(pieces, done) + foreign, key=lambda piece: piece.offset)


def _without(pieces: Sequence[Rejected], excluded: Sequence[Rejected]) -> list[Rejected]:
    """Return the pieces but for ``excluded``. Objects are compared, since different pieces may have equal values."""
    objects = set(map(id, excluded))
    return [piece for piece in pieces if id(piece) not in objects]


def _file_of(header: Header, group: _Group, records: Sequence[bytes]) -> bytes:
    """Return ``records`` as a file: one batch, complete or damaged as ``group`` says, so that it is read as such."""
    records = sorted(records)
    if group.proven:
        return write_batch(header, records)
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), group.claim) if group.claim else body
