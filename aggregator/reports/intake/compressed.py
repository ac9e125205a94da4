"""Decompress report files, gzip and zstd, within bounds.

Reports hardly shrink, since ids and noise are random: batches of every mechanism grow less than fourfold. A file that
grows further makes an ingest work for bytes that nobody sent, or would fill memory or disk.
Source: RFC 1952 (gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from typing import IO

import pyarrow as pa

from aggregator.common.files import too_large
from aggregator.reports.decoding.mapped import Source

_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
MOST_GROWTH = 16
"""A compressed file may hold this many times its length. Any file may hold :data:`LEAST_BYTES`."""
LEAST_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 20
_STEP_BYTES = ((1 << 16, 1 << 20), (1 << 12, 1 << 15), (1 << 8, 1 << 10), (1 << 4, 1 << 5), (1, 1))
"""Rounds of decompression: (bytes given to the codec, bytes asked of it) at a time.

When the codec fails, it loses the output of the failing step. The next round repeats the work with smaller steps from
that place on, so less is lost. Each round takes about as long as the first.
"""


def codec_of(data: Source) -> str | None:
    """Find the compression of a file's content ``data`` by its first bytes. The file's name does not matter.

    Returns:
        ``gzip``, ``zstd``, or None for any other file. No batch begins with the first bytes of these formats.
    """
    return next((codec for codec, magic in _MAGIC.items() if data[: len(magic)] == magic), None)


def decompress(data: Source, codec: str, in_memory: int, growth: int = MOST_GROWTH) -> bytes | mmap.mmap:
    """Decompress a file. Of a cut or damaged file, return the content before the damage.

    gzip gives every byte before a cut, zstd complete blocks of up to 128 KiB. Consecutive members (gzip) or frames
    (zstd) form one content. Bytes after the last member or frame, for example padding, are ignored.

    Args:
        data: the file.
        codec: ``gzip`` or ``zstd``.
        in_memory: content with more bytes goes through a temporary file, and is returned as a mapping of it.
        growth: how many times the length of a file its content may have.

    Returns:
        The content, perhaps empty.

    Raises:
        OSError: ``errno`` ``EFBIG``: the file holds more than ``growth`` times its length; ``EILSEQ``:
            no content can be decompressed; others: the temporary file can not be written.
    """
    most = max(LEAST_BYTES, growth * len(data))
    with tempfile.SpooledTemporaryFile(max_size=in_memory, prefix="hearsay-") as content:
        size = _copy(data, codec, content, most)
        if size <= in_memory:
            content.seek(0)
            return content.read()
        content.flush()
        return mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ)


def _copy(data: Source, codec: str, content: IO[bytes], most: int) -> int:
    """Write the decompressed content of ``data`` into a file, and return its length.

    Content with more than ``most`` bytes is refused.
    """
    size, sound = 0, len(data)
    for given, asked in _STEP_BYTES:
        steps = _Steps(data, sound, given)
        with pa.CompressedInputStream(pa.PythonFile(steps, mode="r"), codec) as stream:
            try:
                for place in range(0, size, _CHUNK_BYTES):  # skip the bytes that an earlier round has written already
                    stream.read(min(_CHUNK_BYTES, size - place))
                while chunk := stream.read(asked):
                    size += len(chunk)
                    if size > most:
                        raise too_large()
                    content.write(chunk)
            except (OSError, pa.ArrowException) as error:
                if getattr(error, "errno", None) is not None:  # The disk failed; an error of the codec has no number.
                    raise
                sound = steps.start
            else:
                return size
    if not size:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ))
    return size


class _Steps:
    """A file that a codec reads in steps. Steps are smaller near a damaged place, so that less before it is lost.

    Args:
        data: the file.
        sound: offset up to which steps are as large as the codec asks.
        given: most bytes of a step after ``sound``.

    Attributes:
        start: offset at which the last step begins.
    """

    closed = False

    def __init__(self, data: Source, sound: int, given: int) -> None:
        self._data = data
        self._sound = sound
        self._given = given
        self._position = self.start = 0

    def read(self, most: int) -> bytes:
        """Return the next step, of at most ``most`` bytes."""
        start = self.start = self._position
        stop = min(start + most, self._sound) if start < self._sound else start + min(most, self._given)
        piece = self._data[start:stop]
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Do nothing: a codec's stream closes its source."""
