"""Merge many report files into one, sorted by id, so that the order of records hides their origin (decision 26).

Any order, division or repetition of the same batches gives the same bytes, and a store counts the same from the output
as from the inputs (but see :func:`_readable`). Different records with one id are all written; records of damaged
batches are written without a trailer, which every reader takes for unproven. Each campaign has its own batches.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.files import PRIVATE, check_output, open_output, storage_errors
from aggregator.reports.decoding.columns import as_strings, count_adjacent
from aggregator.reports.decoding.content import Content, FileShortenedError, piecewise_digest
from aggregator.reports.decoding.decode import header_fault
from aggregator.reports.intake.sources import SHORTENED_REASON, Unreadable, check_urls, read_source
from protocol.batches.batch import Batch, Header, prefixes, read_batches, trailer
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

Bytes = NDArray[np.uint8]


_TAG_BYTES = 4
_PARTS = 256
_ID_BYTES = 8


class Sorter:
    """Sorts records of L = ``length`` bytes by the id at offset ``id_at``, also more records than fit into memory.

    Each record has a tag, a number that is kept with it. Records that do not fit are divided into files below
    ``folder`` by the first byte of the id, and files that are too large by the next byte. ``held_bytes`` is the size in
    memory.
    """

    def __init__(self, folder: Path, length: int, id_at: int) -> None:
        self._folder = folder
        self._length = length
        self._id_at = id_at
        self._held: list[Bytes] = []
        self._spilled = False
        self.held_bytes = 0

    def add(self, rows: Bytes, tag: int) -> None:
        """Add N records of L bytes, (N, L) uint8, each with ``tag`` < 2^32, which :meth:`pieces` yields again."""
        tags = np.frombuffer(tag.to_bytes(_TAG_BYTES, "big"), np.uint8)
        tagged = np.concatenate([rows, np.broadcast_to(tags, (len(rows), _TAG_BYTES))], axis=1)
        self._held.append(tagged)
        self.held_bytes += tagged.nbytes

    def spill(self) -> None:
        """Move the records in memory to the disk."""
        if self._held:
            self._divide(self._joined(), self._folder, 0)
            self._spilled = True

    def pieces(self, memory_bytes: int) -> Iterator[tuple[Bytes, NDArray[np.uint32]]]:
        """Yield all records, sorted by id, several at a time; call it once, since it empties the sorter.

        A piece is N sorted records, (N, L) uint8, and their tags, (N,) uint32; its ids are below those of the next. It
        is larger than ``memory_bytes`` only if its ids are all equal, or if :meth:`spill` was never called: then all
        records are one.
        """
        if not self._spilled:
            yield self._untag(self._joined())
            return
        self.spill()
        yield from map(self._untag, self._read(self._folder, 0, memory_bytes))

    def _joined(self) -> Bytes:
        rows = np.concatenate(self._held) if self._held else np.empty((0, self._length + _TAG_BYTES), np.uint8)
        self._held, self.held_bytes = [], 0
        return rows

    def _divide(self, rows: Bytes, folder: Path, depth: int) -> None:
        """Append N records of L bytes with their tags, (N, L + 4) uint8, to files by byte ``depth`` of their ids."""
        folder.mkdir(exist_ok=True)
        byte = rows[:, self._id_at + depth]
        order = np.argsort(byte, kind="stable")
        ends = np.cumsum(np.bincount(byte, minlength=_PARTS))
        for part, end in enumerate(ends.tolist()):
            start = int(ends[part - 1]) if part else 0
            if end > start:
                with (folder / f"{part:02x}").open("ab") as file:
                    file.write(rows[order[start:end]].tobytes())

    def _read(self, folder: Path, depth: int, memory_bytes: int) -> Iterator[Bytes]:
        width = self._length + _TAG_BYTES
        for path in sorted(folder.iterdir()):
            if path.stat().st_size <= max(memory_bytes, width) or depth + 1 == _ID_BYTES:
                yield np.fromfile(path, np.uint8).reshape(-1, width)
            else:
                deeper = folder / f"{path.name}-divided"
                with path.open("rb") as file:
                    while some := file.read(max(1, memory_bytes // width) * width):
                        self._divide(np.frombuffer(some, np.uint8).reshape(-1, width), deeper, depth + 1)
                path.unlink()
                yield from self._read(deeper, depth + 1, memory_bytes)
                deeper.rmdir()
                continue
            path.unlink()

    def _untag(self, tagged: Bytes) -> tuple[Bytes, NDArray[np.uint32]]:
        order = self._order(tagged)
        tagged = tagged[order]
        tags = np.ascontiguousarray(tagged[:, self._length :]).view(">u4")[:, 0].astype(np.uint32)
        return tagged[:, : self._length], tags

    def _order(self, tagged: Bytes) -> NDArray[np.intp]:
        """Return the order of N records of L bytes with tags, (N, L + 4) uint8, by id, then by all other bytes."""
        ids = np.ascontiguousarray(tagged[:, self._id_at : self._id_at + _ID_BYTES]).view(">u8")[:, 0]
        ids = ids.astype(np.uint64)
        order = np.argsort(ids, kind="stable")
        same = ids[order[1:]] == ids[order[:-1]]
        if same.any():
            repeated = np.zeros(len(ids), np.bool_)
            repeated[1:] |= same
            repeated[:-1] |= same
            doubtful = order[repeated]
            order[repeated] = doubtful[np.argsort(as_strings(tagged[doubtful]), kind="stable")]
        return order


def split_standing(rows: Bytes, proven: NDArray[np.bool_]) -> tuple[Bytes, Bytes, int]:
    """Keep one of each group of identical rows of N sorted records of L bytes, (N, L) uint8: proven if any of it is.

    Returns:
        (P, L) and (U, L) uint8, the P proven (of a complete batch) and U unproven kept rows; the number left out.
    """
    if not len(rows):
        return rows, rows, 0
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    starts = np.flatnonzero(first)
    best = np.logical_or.reduceat(proven, starts)
    return rows[starts[best]], rows[starts[~best]], len(rows) - len(starts)


MEMORY_BYTES = 1 << 28
MAX_BATCH_RECORDS = (1 << 32) - 1
_MAPPED_BYTES = 1 << 24
"""Larger files are read piece by piece."""
_CHUNK_BYTES = 1 << 24
_UNPROVEN_BYTES = 1 << 18
"""Largest size of a batch of unproven records, whatever the memory, so that the output depends on the records alone."""
_PROVEN, _NO_CLAIM = 0, 1
"""Tags of records of complete batches, and of records of damaged batches whose trailer states no digest.

Each larger tag stands for one digest that the trailers of damaged batches state.
"""
_CLAIM_BYTES = 8
"""Number of bytes of a stated digest that are compared with other digests, the same as in a store."""


class MergeSummary(NamedTuple):
    """The result of one merge.

    ``proven``, ``unproven``: written records of complete and of damaged batches. Left out: ``repeated``, copies of
    written records; ``superseded``, records of damaged copies of a complete batch; ``rejected``, byte ranges that are
    no record and records of other campaigns, by reason.
    """

    files: int
    campaigns: int
    proven: int
    unproven: int
    repeated: int
    superseded: int
    rejected: dict[str, int]


class _Kind(NamedTuple):
    """What records that may be in one batch have in common: the batch's header, and the first bytes of a record."""

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
    """Merge report files into the file ``out``. Run by a gateway, or by an operator who archives reports.

    After an error ``out`` is as before, unless only the last flush or the removal of temporary files failed. Raises
    InputError: ``output_exists``, ``output_invalid``; the reason of an
    :class:`~aggregator.reports.intake.sources.Unreadable`; ``no_reports``: the files hold no record that could be kept.
    Of URLs also ``missing_extra``, ``protocol_unknown``.

    Args:
        paths: report files, or URLs without patterns, compressed or not. All must be readable; empty files are passed
            over.
        out: the file to write, atomically. ``force`` replaces it.
        campaign: keep only records of this campaign; None keeps all records.
        memory_bytes: bytes of records in memory. More records are sorted on the disk, in the folder of ``out``.
        progress: called after each file with (files done, files given).
    """
    check_output(out, force=force)
    check_urls(paths)
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
        campaigns = {kind.header.campaign for kind in self.sorters}
        rejected = dict(sorted(self._rejected.items()))
        counts = (self._proven, self._unproven, self._repeated, self._superseded)
        return MergeSummary(files, len(campaigns), *counts, rejected)

    def read(self, path: str | os.PathLike[str]) -> None:
        with _content(path) as data:
            for found in read_batches(data, self._layouts, adjacent=count_adjacent, digest=piecewise_digest):
                if not isinstance(found, Batch):
                    self._rejected[found.reason] += 1
                elif self._wanted and (reason := header_fault(found.header, self._wanted)) is not None:
                    self._rejected[reason] += sum(count for _, count in found.spans)
                else:
                    self._take(data, found)

    def _take(self, data: Content, batch: Batch) -> None:
        if batch.proven:
            self._whole.add(batch.digest[:_CLAIM_BYTES])
            tag = _PROVEN
        else:
            claim = batch.digest[:_CLAIM_BYTES]
            tag = self._claims.setdefault(claim, len(self._claims) + 2) if claim else _NO_CLAIM
        if not batch.spans:
            return
        length = batch.header.record_length
        # All records of a batch have the same first bytes, so the first record tells the layout of all.
        first = data[batch.spans[0][0] : batch.spans[0][0] + 4]
        fitting = prefixes(batch.header.layout, length)
        kind = _Kind(batch.header, next(prefix for prefix in fitting if first.startswith(prefix)))
        sorter = self.sorters.get(kind)
        if sorter is None:
            place = self._folder / str(len(self.sorters))
            sorter = self.sorters[kind] = Sorter(place, length, len(kind.prefix))
        for joined in self._joined(data, batch.spans, length):
            sorter.add(np.frombuffer(joined, np.uint8).reshape(-1, length), tag)
            if sum(sorter.held_bytes for sorter in self.sorters.values()) > self._memory:
                for each in self.sorters.values():
                    each.spill()

    def _joined(self, data: Content, spans: Sequence[tuple[int, int]], length: int) -> Iterator[bytes]:
        """Yield the bytes of runs of adjacent records (``spans``): short runs are joined, long runs are divided."""
        step, held = max(1, min(_CHUNK_BYTES, self._memory) // length) * length, 0
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

    def write(self, sink: IO[bytes]) -> None:
        left_out = np.zeros(len(self._claims) + 2, np.bool_)
        left_out[[tag for digest, tag in self._claims.items() if digest in self._whole]] = True
        for number, kind in enumerate(sorted(self.sorters)):
            with (self._folder / f"unproven-{number}").open("w+b") as aside:
                self._write_kind(sink, aside, kind, left_out)

    def _write_kind(self, sink: IO[bytes], aside: IO[bytes], kind: _Kind, left_out: NDArray[np.bool_]) -> None:
        """Write proven records as one batch, unproven ones without trailers. ``left_out``: mask of tags to drop."""
        writer = _BatchWriter(sink, kind.header)
        for rows, tags in self.sorters[kind].pieces(self._memory):
            kept = ~left_out[tags]
            self._superseded += int((~kept).sum())
            proven, unproven, repeated = split_standing(rows[kept], tags[kept] == _PROVEN)
            self._proven += len(proven)
            self._repeated += repeated
            writer.add(proven)
            aside.write(unproven.tobytes())
        writer.close()
        aside.seek(0)
        length = kind.header.record_length
        while some := aside.read(_UNPROVEN_BYTES // length * length):
            for batch in _readable(kind.header, some, self._layouts):
                self._unproven += (len(batch) - len(kind.header.to_bytes())) // length
                sink.write(batch)


@contextmanager
def _content(path: str | os.PathLike[str]) -> Iterator[Content]:
    """Context manager that gives the content of a file as an ingest reads it; empty bytes for an empty file."""
    found = read_source(path, _MAPPED_BYTES)
    if isinstance(found, Unreadable):
        if found.reason != "empty_file":  # An empty file is passed over: no report is lost by that.
            raise InputError(found.reason, f"'{found.file}' can not be read; nothing was written")
        data: Content = b""
    else:
        data = found.data
    try:
        yield data
    except FileShortenedError:
        raise InputError(SHORTENED_REASON, f"'{path}' became shorter while it was read; nothing was written") from None
    finally:
        if isinstance(data, mmap.mmap):
            data.close()


class _BatchWriter:
    """Writes the records of complete batches piece by piece; every full batch gets its trailer."""

    def __init__(self, sink: IO[bytes], header: Header) -> None:
        self._sink = sink
        self._header = header
        self._count = 0
        self._digest = sha256()

    def add(self, rows: NDArray[np.uint8]) -> None:
        """Append N records of L bytes, (N, L) uint8. A full batch is ended, and a new one begun."""
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
        if self._count:
            self._sink.write(trailer(self._count, self._digest.digest()))
        self._count, self._digest = 0, sha256()

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._sink.write(data)


def _readable(header: Header, records: bytes, layouts: Any) -> Iterable[bytes]:
    """Return batches without a trailer from which a reader gets exactly the given records, whatever header follows.

    The bytes of two adjacent records may form a header where they meet. Such a batch is halved until no header is
    formed. A record that forms a header alone, which an attacker can make, is lost.
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
