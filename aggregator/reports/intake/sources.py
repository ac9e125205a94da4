"""Load input files, from paths or fsspec's URLs, many small ones at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aggregator.common.files import read_regular
from aggregator.reports.decoding.large_file import FileShortenedError, LargeFile
from aggregator.reports.decoding.mapped import Source as Content
from aggregator.reports.intake.compressed import MOST_GROWTH, codec_of, decompress
from aggregator.reports.intake.urls import ahead, is_url, read_url
from aggregator.reports.storage.input_index import tail

MAX_FILE_BYTES = 1 << 40
MAPPED_BYTES = 1 << 27
"""Larger content is mapped from a temporary file, larger files are read in pieces. This bounds memory."""
SHORTENED_REASON = "file_shortened"
_SHARE_BYTES, _SHARE_FILES = 4 << 20, 2048


class Unreadable(NamedTuple):
    """A file given to an ingest that could not be read.

    Attributes:
        file: its name, as given.
        reason: ``file_not_found``, ``is_folder``, ``empty_file``, ``permission_denied``; ``not_reached``: no server
            answered; ``file_shortened``: it became shorter while it was read; ``too_large``: it has more than 1 TiB,
            or does not fit into memory; ``expands_too_far`` and
            ``compression_damaged``, of compressed files; ``unreadable``: a pipe, a device, an impossible name, a
            failing disk.
    """

    file: str
    reason: str


class Source(NamedTuple):
    """A loaded file.

    Attributes:
        number: index of the file among the files given, from 0.
        file: its name, as given.
        data: its content, decompressed.
        received: number of its bytes as they came, compressed or not.
    """

    number: int
    file: str
    data: Content
    received: int


class Loaded(NamedTuple):
    """The content of a file that could be read: ``data`` and ``received`` as in :class:`Source`."""

    data: Content
    received: int


class Share(NamedTuple):
    """Files that one thread judges together: a large one, or many small ones.

    Attributes:
        sources: the loaded files.
        unreadable: files that could not be read, each with its index among the files given.
        similar: indices and names of possible copies: files with the same length and the same last bytes as an earlier
            file.
    """

    sources: list[Source]
    unreadable: list[tuple[int, Unreadable]]
    similar: list[tuple[int, str]]


def shares(files: Sequence[str | os.PathLike[str]]) -> Iterator[Share]:
    """Load the files one after the other, and yield them in shares of several megabytes or many files.

    A file with the same length and the same last bytes as an earlier file may be a copy. Such a file is not loaded, but
    named in ``similar`` of the share that it would be in; the caller reads it later.
    """
    seen: set[tuple[int, bytes]] = set()
    share, size = Share([], [], []), 0
    for number, (file, loaded) in enumerate(zip(files, ahead(read_source, files), strict=True)):
        if isinstance(loaded, Unreadable):
            share.unreadable.append((number, loaded))
            continue
        mark = (len(loaded.data), tail(loaded.data))
        if mark in seen:
            share.similar.append((number, os.fspath(file)))
            continue
        seen.add(mark)
        share.sources.append(Source(number, os.fspath(file), *loaded))
        size += len(loaded.data)
        if size >= _SHARE_BYTES or len(share.sources) >= _SHARE_FILES:
            yield share
            share, size = Share([], [], []), 0
    yield share


def read_source(
    file: str | os.PathLike[str], in_memory: int | None = None, growth: int = MOST_GROWTH
) -> Loaded | Unreadable:
    """Load a file's content, decompressed, or return the reason why it can not be read.

    Args:
        file: path or URL.
        in_memory: files with more bytes are read in pieces, unless they are named by a URL; None for
            :data:`MAPPED_BYTES`. Content that is read in pieces raises
            :class:`~aggregator.reports.decoding.large_file.FileShortenedError` if the file became shorter.
        growth: how many times the length of a compressed file its content may have.

    Raises:
        ImportError: the file is a URL, and fsspec is not installed (:func:`aggregator.reports.intake.urls.check_urls`).
    """
    in_memory = MAPPED_BYTES if in_memory is None else in_memory
    reason = "unreadable"
    try:
        received = _content(file, in_memory)
        data = decompressed(file, received, in_memory, growth)
        return data if isinstance(data, Unreadable) else Loaded(data, len(received))
    except FileNotFoundError:
        reason = "file_not_found"
    except IsADirectoryError:
        reason = "is_folder"
    except PermissionError:
        reason = "permission_denied"
    except ValueError:
        pass  # The name holds a zero byte; the reason stays ``unreadable``.
    except FileShortenedError:
        reason = SHORTENED_REASON
    except MemoryError:
        reason = "too_large"
    except OSError as error:
        if error.errno == errno.EHOSTUNREACH:
            reason = "not_reached"
        else:
            reason = "too_large" if error.errno == errno.EFBIG else "unreadable"
    return Unreadable(os.fspath(file), reason)


def decompressed(
    file: str | os.PathLike[str], data: Content, in_memory: int = MAPPED_BYTES, growth: int = MOST_GROWTH
) -> Content | Unreadable:
    """The content of a file that may be compressed, or why there is none.

    Args:
        file: its name, or URL.
        data: the bytes of the file.
        in_memory: content of more bytes is mapped from a temporary file.
        growth: how many times the length of a compressed file its content may have.
    """
    codec = codec_of(data)
    if codec is None:
        return data or Unreadable(os.fspath(file), "empty_file")
    try:
        return decompress(data, codec, in_memory, growth) or Unreadable(os.fspath(file), "empty_file")
    except OSError as error:
        reasons = {errno.EFBIG: "expands_too_far", errno.EILSEQ: "compression_damaged"}
        return Unreadable(os.fspath(file), reasons.get(error.errno or 0, "unreadable"))


def _content(file: str | os.PathLike[str], in_memory: int) -> Content:
    if is_url(file):
        return read_url(os.fspath(file), MAX_FILE_BYTES)
    path = os.fspath(file)
    try:
        return read_regular(path, in_memory)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            return read_regular(path, MAX_FILE_BYTES)  # makes the same two checks, and raises the fitting error
        return LargeFile(os.dup(descriptor), found.st_size)
    finally:
        os.close(descriptor)
