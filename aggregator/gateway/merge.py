"""The gateway's join: many report files become one, sorted by id, so that neighbours say nothing of origin.

Ids are pseudo-random, so sorting by them shuffles. Nothing of the input files' names, order, sizes or
times is in the output, and any order, split or repetition of the same batches gives the same bytes. What a
store counts from the output is what it counts from the inputs, byte for byte.

    - Identical records become one. Different ones with one id stay: the store sets them aside.
    - Proven records go into a batch with a trailer; the others into one *without*, which no reader takes for
      proven: a gateway vouches for nothing that its inputs did not.
    - Records of a damaged batch whose trailer states the digest of a whole one among the inputs, by its first
      eight bytes, are left out: they are a damaged copy of it (docs/formats.md, section 4).
    - Each campaign has batches of its own. Its document is not needed; with it (``campaign``), headers in
      which a bit changed are read too, and foreign records are left out.

Source: docs/decisions/0026.
"""

from __future__ import annotations

import mmap
import tempfile
from collections import Counter
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.files import PRIVATE, check_output, open_output
from aggregator.gateway.external_sort import Sorter, split_standing
from aggregator.intake.sources import Unreadable, read_source
from aggregator.storage.locking import storage_errors
from protocol.batches.batch import Batch, Header, prefixes, read_batches, trailer
from protocol.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from protocol.documents.campaign import Campaign

MEMORY_BYTES = 1 << 28
MAX_BATCH_RECORDS = (1 << 32) - 1
_MAPPED_BYTES = 1 << 24
"""Files from this size on are mapped into memory instead of read."""
_CHUNK_BYTES = 1 << 24
_PROVEN, _NO_CLAIM = 0, 1
"""Tags of records; above these, each tag stands for what the trailer of some damaged batch states."""
_CLAIM_BYTES = 8
"""Of a digest that a trailer states, how many bytes say whose copy it is: as many as a store compares."""


class MergeSummary(NamedTuple):
    """What one merge did.

    Attributes:
        files: how many were read.
        campaigns: how many campaigns had records in them.
        proven, unproven: records written.
        repeated: records left out since an identical one is there.
        superseded: records left out since the whole batch is there that theirs is a damaged copy of.
        rejected: stretches of bytes that are no record, and records of other campaigns than the one
            given, by reason: left out.
    """

    files: int
    campaigns: int
    proven: int
    unproven: int
    repeated: int
    superseded: int
    rejected: dict[str, int]


class _Kind(NamedTuple):
    """Records that may share a batch."""

    header: Header
    prefix: bytes


def merge_files(
    paths: Sequence[str | os.PathLike[str]],
    out: Path,
    *,
    campaign: Campaign | None = None,
    memory_bytes: int = MEMORY_BYTES,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MergeSummary:
    """Join report files. Run by a gateway, or by an operator before an archive.

    Args:
        paths: report files or URLs, compressed or not; all of them must be readable.
        out: the file to write, whole or not at all.
        campaign: keep its records alone.
        memory_bytes: how many bytes of records to hold; more are sorted on the disk, beside ``out``.
        force: replace ``out``.
        progress: called after each file with (files done, files given).

    Raises:
        InputError: ``output_exists``, ``output_invalid``; ``file_not_found``, ``is_folder``, ``permission_denied``,
            ``too_large``, ``expands_too_far``, ``compression_damaged``, ``not_reached``, ``unreadable``: a file can
            not be read and nothing was written; ``no_reports``: the files hold no record.
        StorageError: ``disk_full``, ``io_failed``; nothing is left behind.
    """
    check_output(out, force=force)
    with (
        storage_errors(f"the records can not be sorted beside '{out}'"),
        tempfile.TemporaryDirectory(prefix=f".{out.name[:40]}.", suffix=".tmp", dir=out.parent) as folder,
    ):
        merge = _Merge(Path(folder), campaign, memory_bytes)
        for done, path in enumerate(paths, 1):
            merge.read(path)
            if progress is not None:
                progress(done, len(paths))
        if not merge.sorters:
            raise InputError("no_reports", "the files hold no record that could be kept")
        with open_output(out, force=force, mode=PRIVATE) as sink:
            merge.write(sink)
    return merge.summary(len(paths))


class _Merge:
    """What one merge has read so far."""

    def __init__(self, folder: Path, campaign: Campaign | None, memory_bytes: int) -> None:
        self._folder = folder
        self._memory = memory_bytes
        self._layouts = {campaign.id: campaign.layout} if campaign is not None else {}
        self._wanted = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length) if campaign else None
        self._claims: dict[bytes, int] = {}
        self._whole: set[bytes] = set()
        self.sorters: dict[_Kind, Sorter] = {}
        self._rejected: Counter[str] = Counter()
        self._proven = self._unproven = self._repeated = self._superseded = 0

    def summary(self, files: int) -> MergeSummary:
        """What was done."""
        campaigns = {kind.header.campaign for kind in self.sorters}
        rejected = dict(sorted(self._rejected.items()))
        counts = (self._proven, self._unproven, self._repeated, self._superseded)
        return MergeSummary(files, len(campaigns), *counts, rejected)

    def read(self, path: str | os.PathLike[str]) -> None:
        """Take the records of one file."""
        with _content(path) as data:
            for found in read_batches(data, self._layouts):
                if not isinstance(found, Batch):
                    self._rejected[found.reason] += 1
                elif (reason := self._header_fault(found.header)) is not None:
                    self._rejected[reason] += sum(count for _, count in found.spans)
                else:
                    self._take(data, found)

    def _header_fault(self, header: Header) -> str | None:
        if self._wanted is None or header == self._wanted:
            return None
        return "invalid_message" if header.campaign == self._wanted.campaign else "unrecognized_campaign"

    def _take(self, data: bytes | mmap.mmap, batch: Batch) -> None:
        if batch.proven:
            self._whole.add(batch.digest[:_CLAIM_BYTES])
            tag = _PROVEN
        else:
            claim = batch.digest[:_CLAIM_BYTES]
            tag = self._claims.setdefault(claim, len(self._claims) + 2) if claim else _NO_CLAIM
        if not batch.spans:
            return
        length = batch.header.record_length
        kind = _kind(batch.header, data[batch.spans[0][0] : batch.spans[0][0] + 4])  # all begin alike
        sorter = self.sorters.get(kind)
        if sorter is None:
            place = self._folder / str(len(self.sorters))
            sorter = self.sorters[kind] = Sorter(place, length, len(kind.prefix))
        for joined in self._joined(data, batch.spans, length):
            sorter.add(np.frombuffer(joined, np.uint8).reshape(-1, length), tag)
            self._bound_memory()

    def _joined(self, data: bytes | mmap.mmap, spans: Sequence[tuple[int, int]], length: int) -> Iterator[bytes]:
        """The records of some runs, so many at a time as are to be moved: short runs together, long ones in parts."""
        step, held = self._step(length) * length, 0
        waiting: list[bytes] = []
        for start, count in spans:
            for first in range(start, start + count * length, step):
                piece = data[first : min(first + step, start + count * length)]
                if held + len(piece) > step:
                    yield b"".join(waiting)
                    waiting, held = [], 0
                waiting.append(piece)
                held += len(piece)
        yield b"".join(waiting)

    def _step(self, length: int) -> int:
        """How many records to move at a time."""
        return max(1, min(_CHUNK_BYTES, self._memory) // length)

    def _bound_memory(self) -> None:
        if sum(sorter.held_bytes for sorter in self.sorters.values()) > self._memory:
            for sorter in self.sorters.values():
                sorter.spill()

    def write(self, sink: IO[bytes]) -> None:
        """All batches, in the order of their headers."""
        gone = np.zeros(len(self._claims) + 2, np.bool_)
        gone[[tag for digest, tag in self._claims.items() if digest in self._whole]] = True
        for number, kind in enumerate(sorted(self.sorters)):
            with (self._folder / f"unproven-{number}").open("w+b") as aside:
                self._write_kind(sink, aside, kind, gone)

    def _write_kind(self, sink: IO[bytes], aside: IO[bytes], kind: _Kind, gone: NDArray[np.bool_]) -> None:
        """A batch of the proven records, then the others, for which there was no place in it, without trailer."""
        writer = _BatchWriter(sink, kind.header)
        for rows, tags in self.sorters[kind].pieces(self._memory):
            kept = ~gone[tags]
            self._superseded += int((~kept).sum())
            proven, unproven, repeated = split_standing(rows[kept], tags[kept] == _PROVEN)
            self._proven += len(proven)
            self._repeated += repeated
            writer.add(proven)
            aside.write(unproven.tobytes())
        writer.close()
        aside.seek(0)
        length = kind.header.record_length
        while some := aside.read(self._step(length) * length):
            for batch in _readable(kind.header, some, self._layouts):
                self._unproven += (len(batch) - len(kind.header.to_bytes())) // length
                sink.write(batch)


@contextmanager
def _content(path: str | os.PathLike[str]) -> Iterator[bytes | mmap.mmap]:
    """A file's content as an ingest reads it: decompressed, and mapped if there is much of it.

    Raises:
        InputError: the reason of an :class:`aggregator.intake.sources.Unreadable`.
    """
    found = read_source(path, _MAPPED_BYTES)
    if isinstance(found, Unreadable):
        if found.reason != "empty_file":  # which holds no report that could be lost
            raise InputError(found.reason, f"'{found.file}' can not be read; nothing was written")
        found = b""
    try:
        yield found
    finally:
        if isinstance(found, mmap.mmap):
            found.close()


def _kind(header: Header, first: bytes) -> _Kind:
    """Header and prefix of records, one of which begins so."""
    fitting = prefixes(header.layout, header.record_length)
    return _Kind(header, next(prefix for prefix in fitting if first.startswith(prefix)))


class _BatchWriter:
    """Proven batches, written as their records come: the trailer has their number and digest."""

    def __init__(self, sink: IO[bytes], header: Header) -> None:
        self._sink = sink
        self._header = header
        self._count = 0
        self._digest = sha256()

    def add(self, rows: NDArray[np.uint8]) -> None:
        """Append records; another batch begins before a trailer could not count them."""
        while len(rows):
            if self._count == MAX_BATCH_RECORDS:
                self.close()
            some = rows[: MAX_BATCH_RECORDS - self._count]
            if not self._count:
                self._put(self._header.to_bytes())
            self._put(some.tobytes())
            self._count += len(some)
            rows = rows[len(some) :]

    def close(self) -> None:
        """Write the trailer, if anything stands before it."""
        if self._count:
            self._sink.write(trailer(self._count, self._digest.digest()))
        self._count, self._digest = 0, sha256()

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._sink.write(data)


def _readable(header: Header, records: bytes, layouts: Any) -> Iterable[bytes]:
    """Batches without trailer from which a reader gets just these records, also if another header follows.

    Records that stand side by side may spell a header where they meet: there it would be cut. Such a batch is
    halved until none does; who made them for the purpose may lose them.
    """
    head = header.to_bytes()
    batch = head + records
    found = list(read_batches(batch + head, layouts))
    read = [item.spans for item in found if isinstance(item, Batch)]
    count = len(records) // header.record_length
    if len(found) == 2 and read == [((len(head), count),), ()]:
        return [batch]
    if count <= 1:
        return []
    middle = count // 2 * header.record_length
    halves = (records[:middle], records[middle:])
    return [batch for half in halves for batch in _readable(header, half, layouts)]
