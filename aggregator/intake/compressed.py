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

_CODECS = {".gz": ("gzip", b"\x1f\x8b"), ".zst": ("zstd", b"\x28\xb5\x2f\xfd")}
MOST_GROWTH = 64
"""So many times its length a compressed file may hold, and any may hold 16 MiB."""
_LEAST_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20


def has_suffix(name: str) -> bool:
    """Whether a file's name says that it is compressed."""
    return name.endswith(tuple(_CODECS))


def codec_of(name: str, data: bytes | mmap.mmap) -> str | None:
    """How a file is compressed: its name must say so and its first bytes too, since some servers send it plain."""
    for suffix, (codec, magic) in _CODECS.items():
        if name.endswith(suffix) and data[: len(magic)] == magic:
            return codec
    return None


def decompress(data: bytes | mmap.mmap, codec: str, in_memory: int) -> bytes | mmap.mmap:
    """What a compressed file holds; of one that is cut or damaged, what comes before that.

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
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec) as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except (OSError, pa.ArrowException):
                if size:
                    return size
                raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ)) from None
            if not chunk:
                return size
            size += len(chunk)
            if size > most:
                raise too_large()
            content.write(chunk)
