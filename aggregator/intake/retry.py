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

from aggregator.intake.decode import Decoder
from aggregator.intake.durable import exclusive, storage_errors
from aggregator.intake.enrolment import check_enrolment
from aggregator.intake.ingest import QUARANTINE, Ingest, remove_orphans
from aggregator.intake.manifest import read_manifest, write_manifest
from aggregator.intake.quarantine import Quarantine
from aggregator.intake.sources import Source
from aggregator.intake.store import LOCK_FILE
from protocol.batch import Header, trailer, write_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aggregator.intake.decode import Rejected
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.inputs import Ingested
    from aggregator.intake.quarantine import Kept
    from aggregator.intake.reader import Reader
    from aggregator.intake.store import Store

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
    with (
        storage_errors(f"the store at '{store.path}' can not be written"),
        exclusive(store.path / LOCK_FILE, store.lock_timeout_seconds),
    ):
        manifest = read_manifest(store.path)
        remove_orphans(store.path, manifest)
        manifest = manifest._replace(closed=check_enrolment(manifest, enrolled))
        run = _Retry(store.path, store.campaign, manifest, now, 1, enrolled)
        run.judge(reason)
        changed = run.commit()
        if changed is not None:
            write_manifest(store.path, changed)
            remove_orphans(store.path, changed)
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
        early = sum(piece.reason == EARLY for piece in kept.pieces)
        fitting = []
        for piece in chosen:
            hindrance = self._hindrance(piece, entry, early)
            if hindrance is not None:
                self.left[hindrance] += 1
            else:
                fitting.append(piece)
        good = self._good(fitting)
        self.left[STILL] += len(fitting) - sum(map(len, good.values()))
        if not good or entry is None:
            return
        counts = Counter(piece.reason for piece in kept.pieces)
        added = self._add(reader, kept.file, good)
        # A group may be a file that is in the store, even this one: then adding it changed that file's entry.
        entry = self._inputs.get(entry.identity, entry.tail) or entry
        due = Counter(
            {
                reason: number
                for reason, number in added.items()
                if counts[reason] <= entry.rejected.get(reason, 0)  # else a retry before a crash subtracted them
            }
        )
        present = entry.present
        if reason in (None, EARLY) and early == entry.rejected.get(EARLY, 0):
            present = max(present, self._campaign.period_at(self._now))  # nothing before it is left in the file
        after = entry._replace(rejected=dict(sorted((Counter(entry.rejected) - due).items())), present=present)
        if after != entry:
            self._inputs.add(after)
            self._totals.subtract(due)
        gone = {id(piece) for pieces in good.values() for piece in pieces}
        self._rest.append((kept, [piece for piece in kept.pieces if id(piece) not in gone]))

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

    def _good(self, pieces: Sequence[Rejected]) -> dict[_Group, list[Rejected]]:
        """Those that every rule accepts by now, in the groups in which they are added."""
        data = write_batch(self._header, [piece.data for piece in pieces])
        found = self._decoder.decode(data, now=self._now)
        kept = found.records.period >= self._manifest.first_period
        if self._enrolled is not None:
            kept &= self._enrolled.accepts(found.records)
        groups: defaultdict[_Group, list[Rejected]] = defaultdict(list)
        places = (found.positions[kept] - len(self._header.to_bytes())) // self._header.record_length
        for place, period in zip(places.tolist(), found.records.period[kept].tolist(), strict=True):
            piece = pieces[place]
            key = period.to_bytes(4, "big") if piece.reason == EARLY else piece.data
            groups[_Group(bool(piece.proven), piece.claim, key)].append(piece)
        return dict(groups)

    def _add(self, reader: Reader, name: str, good: Mapping[_Group, Sequence[Rejected]]) -> Counter[str]:
        """Add groups as files of their own; how many pieces are in the store now, by the reason they had."""
        taken: Counter[str] = Counter()
        for group, pieces in good.items():
            data = _file_of(self._header, group, [piece.data for piece in pieces])
            for read in reader.read([Source(0, name, data)], again=True):
                if read.entry is None:
                    self.known += len(pieces)
                else:
                    self._note(read)
            taken.update(piece.reason for piece in pieces)
        return taken


def _file_of(header: Header, group: _Group, records: Sequence[bytes]) -> bytes:
    """A batch of these records with the standing that they had."""
    records = sorted(records)
    if group.proven:
        return write_batch(header, records)
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), group.claim) if group.claim else body
