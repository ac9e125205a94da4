"""Report files that were compressed on their way: gzip and zstd, within bounds.

Reports hardly shrink (ids and noise are random), so a file that grows a hundredfold is no honest one: it would
fill memory or disk. Source: RFC 1952 (gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from typing import IO

import pyarrow as pa

from aggregator.reading import too_large

_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
MOST_GROWTH = 64
"""So many times its length a compressed file may hold, and any may hold 16 MiB."""
_LEAST_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20
_CAREFUL = ((1 << 16, 1 << 20), (1 << 12, 1 << 15), (1 << 8, 1 << 10), (1 << 4, 1 << 5), (1, 1))
"""How many bytes go into the codec and are asked of it at a time: where it fails, all that it had of a step is lost.

So it is asked again, in smaller steps; each round takes as long as the first, and few steps more.
"""


def codec_of(data: bytes | mmap.mmap) -> str | None:
    """How a file is compressed, by its first bytes, whatever its name: no batch begins so."""
    return next((codec for codec, magic in _MAGIC.items() if data[: len(magic)] == magic), None)


def decompress(data: bytes | mmap.mmap, codec: str, in_memory: int) -> bytes | mmap.mmap:
    """What a compressed file holds; of one that is cut or damaged, all that the codec gives of what comes before.

    gzip gives every byte before a cut, zstd whole blocks, of up to 128 KiB. Members and frames that follow one
    another are one content; what stands after them and is none of them (padding, say) ends it.

    Args:
        data: the file.
        codec: ``gzip`` or ``zstd``.
        in_memory: what has more bytes goes through a temporary file.

    Raises:
        OSError: ``errno`` ``EFBIG``, it holds more than :data:`MOST_GROWTH` times its length; ``EILSEQ``,
            nothing can be had from it; or whatever the system says of the temporary file.
    """
    most = max(_LEAST_BYTES, MOST_GROWTH * len(data))
    with tempfile.SpooledTemporaryFile(max_size=in_memory, prefix="hearsay-") as content:
        size = _copy(data, codec, content, most)
        if size <= in_memory:
            content.seek(0)
            return content.read()
        content.flush()
        return mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ)


def _copy(data: bytes | mmap.mmap, codec: str, content: IO[bytes], most: int) -> int:
    """Write what ``data`` holds; returns how many bytes."""
    size, sound = 0, len(data)
    for given, asked in _CAREFUL:
        steps = _Steps(data, sound, given)
        with pa.CompressedInputStream(pa.PythonFile(steps, mode="r"), codec) as stream:
            try:
                for place in range(0, size, _CHUNK_BYTES):  # what an earlier round wrote
                    stream.read(min(_CHUNK_BYTES, size - place))
                while chunk := stream.read(asked):
                    size += len(chunk)
                    if size > most:
                        raise too_large()
                    content.write(chunk)
            except (OSError, pa.ArrowException) as error:
                if getattr(error, "errno", None) is not None:  # not the codec's
                    raise
                sound = steps.start
            else:
                return size
    if not size:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ))
    return size


class _Steps:
    """A file on its way into a codec.

    Args:
        data: the file.
        sound: up to here in large steps.
        given: bytes of a step from there on.

    Attributes:
        start: where the last step begins.
    """

    closed = False

    def __init__(self, data: bytes | mmap.mmap, sound: int, given: int) -> None:
        self._data = data
        self._sound = sound
        self._given = given
        self._position = self.start = 0

    def read(self, most: int) -> bytes:
        """At most so many bytes."""
        start = self.start = self._position
        stop = min(start + most, self._sound) if start < self._sound else start + min(most, self._given)
        piece = self._data[start:stop]
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Nothing is held."""
