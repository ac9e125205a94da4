"""Judge again what was set aside: reports whose period has begun since, or that a rule wrongly refused.

A record that is good by now is added as an input file of its own: a batch of just these records, whose
content names it. So it goes through the same commit as any ingest, and however often a crash makes an
operator repeat a retry, the store knows the content and takes it once. Its standing stays: records of a
damaged batch go into a batch without a right trailer, which states the same claim.

What one file kept back as too early is added by period, since a period begins for all of it at once; all
else record by record. Source: docs/decisions/0027.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.decoding.decode import Decoder
from aggregator.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.intake.enrolment import check_enrolment
from aggregator.intake.reader import FORGOTTEN
from aggregator.intake.sources import Source
from aggregator.intake.transaction import QUARANTINE, Ingest
from aggregator.storage.input_index import identity, pack_places, tail, unpack_places
from aggregator.storage.quarantine import Quarantine
from protocol.batches.batch import Header, trailer, write_batch
from protocol.batches.report import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aggregator.decoding.decode import Rejected
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.reader import Reader
    from aggregator.storage.input_index import Ingested
    from aggregator.storage.quarantine import Kept
    from aggregator.store.store import Store

EARLY = "report_too_early"
NO_RECORD = "it is no record of this campaign"
NOT_WHOLE = "an older release did not keep it whole"
NOT_ALL = "not all that was too early in its file was kept; ingest the file again"
NO_FILE = "its file is not in the store; ingest it again"
STILL = "a rule refuses it still"


class RetrySummary(NamedTuple):
    """What one retry did.

    Attributes:
        tried: pieces looked at.
        proven, unproven: records added to the store.
        repeated: records that an earlier retry had added already.
        left: pieces that stay set aside: why → how many.
    """

    tried: int
    proven: int
    unproven: int
    repeated: int
    left: Mapping[str, int]


class _Group(NamedTuple):
    """Records that are added together. Attributes as in ``Rejected``; ``key`` keeps groups apart."""

    proven: bool
    claim: bytes
    key: bytes


class _Judged(NamedTuple):
    """What became of pieces.

    Attributes:
        places: where in their file all of them are.
        good: those to add, in the groups in which they are added.
        turned: those that are too early no longer and that another rule refuses, each with its reason; likewise
            those of a device that is not enrolled whose period was forgotten since.
    """

    places: list[int]
    good: dict[_Group, list[Rejected]]
    turned: list[tuple[Rejected, str]]

    @property
    def amount(self) -> int:
        """How many are to be added."""
        return sum(map(len, self.good.values()))

    def pieces(self) -> list[Rejected]:
        """Those whose reason holds no longer."""
        return [piece for group in self.good.values() for piece in group] + [piece for piece, _ in self.turned]


def retry(store: Store, *, now: int, enrolled: Enrolled | None = None, reason: str | None = None) -> RetrySummary:
    """Judge the quarantine's pieces again, and add what is good by now. Run by the operator.

    Args:
        store: whose quarantine.
        now: the present, in seconds since 1970.
        enrolled: as for an ingest; a closed fleet's store needs it.
        reason: only what was set aside for this reason.

    Raises:
        PolicyError: ``enrolment_needed``, ``store_open``.
        StorageError: ``store_busy``, ``store_damaged``, ``disk_full``, ``io_failed``; the store is then as before.
    """
    with store.changing() as manifest:
        begun = manifest._replace(closed=check_enrolment(manifest, enrolled))
        run = _Retry(store.path, store.campaign, begun, now, 1, enrolled)
        run.judge(reason)
        changed = run.commit()
        if changed is not None:
            store.commit(changed)
        run.clear()
    return RetrySummary(run.tried, run.proven, run.unproven, run.known, dict(sorted((+run.left).items())))


class _Untouched(Quarantine):
    """The quarantine until the commit: a crash must not lose what is about to be added."""

    def keep(self, digest: str, name: str, pieces: Sequence[Rejected]) -> int:
        """Nothing."""
        del digest, name, pieces
        return 0


class _Retry(Ingest):
    """An ingest whose files are made of what the quarantine keeps."""

    tried = known = 0

    def judge(self, reason: str | None) -> None:
        """Add what is good by now; ``clear`` removes it from the quarantine after the commit."""
        self.left: Counter[str] = Counter()
        self._quarantine = _Untouched(self._folder / QUARANTINE)
        self._rest: list[tuple[Kept, list[Rejected]]] = []
        self._decoder = Decoder(self._campaign)
        layout = self._campaign.layout
        self._header = Header(self._campaign.id, layout.kind, layout.record_length)
        entries = {entry.identity.hex(): entry for entry in self._inputs.entries()}
        with ExitStack() as stack:
            reader = self._reader(stack)
            for kept in Quarantine(self._folder / QUARANTINE).files():
                self._file(reader, kept, entries.get(kept.identity), reason)
            self._parts += reader.finish()

    def clear(self) -> None:
        """Remove from the quarantine what is in the store."""
        quarantine = Quarantine(self._folder / QUARANTINE)
        for kept, rest in self._rest:
            quarantine.keep(kept.identity, kept.file, rest)

    def _file(self, reader: Reader, kept: Kept, entry: Ingested | None, reason: str | None) -> None:
        chosen = [piece for piece in kept.pieces if reason in (None, piece.reason)]
        self.tried += len(chosen)
        if entry is not None:  # a group of another file may have been this one, and changed its entry
            entry = self._inputs.get(entry.identity, entry.tail) or entry
        settled = [] if entry is None else self._settled(chosen, entry)
        self.known += len(settled)
        early = sum(piece.reason == EARLY and self._is_whole(piece) for piece in kept.pieces)
        early -= sum(piece.reason == EARLY for piece in settled)
        fitting = []
        for piece in _without(chosen, settled):
            hindrance = self._hindrance(piece, entry, early)
            if hindrance is not None:
                self.left[hindrance] += 1
            else:
                fitting.append(piece)
        judged = self._judged(fitting)
        self.left[STILL] += len(fitting) - judged.amount
        if entry is None or not (settled or judged.good or judged.turned):
            return
        self._add(reader, kept.file, judged.good)
        # A group may be a file that is in the store, even this one: then adding it made that file's entry right.
        after = self._inputs.get(entry.identity, entry.tail) or entry
        if after == entry:
            after = self._after(entry, kept, judged)
            if reason in (None, EARLY) and early == entry.rejected.get(EARLY, 0):
                # nothing before it is left in the file
                after = after._replace(present=max(entry.present, self._campaign.period_at(self._now)))
            if after != entry:
                self._inputs.add(after)
        refused = _refused(after, kept.pieces)
        gone = [*settled, *judged.pieces()]
        foreign = [piece._replace(reason=NOT_ENROLLED) for piece in gone if piece.offset in refused]
        rest = sorted(_without(kept.pieces, gone) + foreign, key=lambda piece: piece.offset)
        self._rest.append((kept, rest))

    def _after(self, entry: Ingested, kept: Kept, judged: _Judged) -> Ingested:
        """What the index says of a file once these pieces of it are judged; the totals follow."""
        counts = Counter(piece.reason for piece in kept.pieces)
        due: Counter[str] = Counter()
        for reason, number in Counter(piece.reason for piece in judged.pieces()).items():
            exact = reason in (EARLY, NOT_ENROLLED)
            if exact or counts[reason] <= entry.rejected.get(reason, 0):  # else a retry before a crash subtracted them
                due[reason] = number
        more = Counter(reason for _, reason in judged.turned)
        self._totals.subtract(due)
        self._totals.update(more)
        foreign = [piece.offset for piece, reason in judged.turned if reason == NOT_ENROLLED]
        places = np.setdiff1d(unpack_places(entry.refused), [piece.offset for piece in judged.pieces()])
        places = np.union1d(places, np.array(foreign, np.int64))
        enrolment = entry.enrolment
        if self._enrolled is not None and enrolment != self._enrolled.digest:
            if np.isin(places, judged.places).all():
                enrolment = self._enrolled.digest
            elif foreign:  # some were refused with other ids
                enrolment = b""
        return entry._replace(
            rejected=dict(sorted((Counter(entry.rejected) - due + more).items())),
            refused=pack_places(places),
            enrolment=enrolment if len(places) else b"",
        )

    def _settled(self, pieces: Sequence[Rejected], entry: Ingested) -> list[Rejected]:
        """Those of which the entry says already what became of them: a crash kept them from being cleared."""
        refused = _refused(entry, pieces)
        return [
            piece
            for piece in pieces
            if (piece.reason == NOT_ENROLLED and piece.offset not in refused)
            or (piece.reason == EARLY and self._is_whole(piece) and self._is_past(piece, entry))
        ]

    def _is_past(self, piece: Rejected, entry: Ingested) -> bool:
        """Whether a report that was too early is of a period in which its file was read again since."""
        at = len(self._campaign.layout.prefix) + ID_BYTES
        first = self._campaign.header.not_before // self._campaign.time_precision
        return first <= int.from_bytes(piece.data[at : at + 4]) <= entry.present

    def _is_whole(self, piece: Rejected) -> bool:
        return piece.proven is not None and len(piece.data) == self._header.record_length

    def _hindrance(self, piece: Rejected, entry: Ingested | None, early: int) -> str | None:
        """Why a piece can not be retried, whatever the rules say by now."""
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
        """Those that every rule accepts by now, and those that another one refuses."""
        data = write_batch(self._header, [piece.data for piece in pieces])
        found = self._decoder.decode(data, now=self._now)
        gone = found.records.period < self._manifest.first_period
        accepted = ~gone
        if self._enrolled is not None:
            accepted &= self._enrolled.accepts(found.records)
        groups: defaultdict[_Group, list[Rejected]] = defaultdict(list)
        turned = []
        places = (found.positions - len(self._header.to_bytes())) // self._header.record_length
        rows = zip(places.tolist(), found.records.period.tolist(), accepted.tolist(), gone.tolist(), strict=True)
        for place, period, is_good, is_gone in rows:
            piece = pieces[place]
            verdict = FORGOTTEN if is_gone else NOT_ENROLLED
            if is_good:
                key = period.to_bytes(4, "big") if piece.reason == EARLY else piece.data
                groups[_Group(bool(piece.proven), piece.claim, key)].append(piece)
            elif piece.reason in (EARLY, NOT_ENROLLED) and piece.reason != verdict:
                turned.append((piece, verdict))
        return _Judged([piece.offset for piece in pieces], dict(groups), turned)

    def _add(self, reader: Reader, name: str, good: Mapping[_Group, Sequence[Rejected]]) -> None:
        """Add groups as files of their own."""
        for group, pieces in good.items():
            data = _file_of(self._header, group, [piece.data for piece in pieces])
            source, end = Source(0, name, data), tail(data)
            known = self._inputs.get(identity(data), end) if self._inputs.may_know(end) else None
            nothing_taken = known is not None and known.rejected and not known.proven + known.unproven
            for read in [reader.read_anew(source)] if nothing_taken else reader.read([source], again=True):
                if read.entry is None:
                    self.known += len(pieces)
                else:
                    self._note(read)


def _refused(entry: Ingested, pieces: Sequence[Rejected]) -> set[int]:
    """Where those pieces are that the entry counts as not enrolled; of all that it counts there may be many."""
    offsets = np.array([piece.offset for piece in pieces], np.int64)
    return set(offsets[np.isin(offsets, unpack_places(entry.refused))].tolist())


def _without(pieces: Sequence[Rejected], those: Sequence[Rejected]) -> list[Rejected]:
    gone = set(map(id, those))
    return [piece for piece in pieces if id(piece) not in gone]


def _file_of(header: Header, group: _Group, records: Sequence[bytes]) -> bytes:
    """A batch of these records with the standing that they had."""
    records = sorted(records)
    if group.proven:
        return write_batch(header, records)
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), group.claim) if group.claim else body
