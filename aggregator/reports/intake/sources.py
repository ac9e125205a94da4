"""Load report files one after the other by path or URL, decompressed within bounds.

Compressed files are gzip and zstd. A file that grows much would cost memory and disk for bytes that nobody sent.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import socket
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeVar

import pyarrow as pa

from aggregator.common.extras import missing_extra
from aggregator.common.files import read_regular, too_large
from aggregator.reports.decoding.content import Content, FileShortenedError, LargeFile
from aggregator.reports.storage.input_index import tail
from protocol.errors import InputError

Found = TypeVar("Found")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(::[^/]*)?://")
_COLLAPSED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_PATTERN = re.compile(r"[*?\[]")
_MAPPED_BYTES = 1 << 25
"""Content of at least this size goes through a temporary file, to bound memory."""
_WHOLE_BYTES = 1 << 14
"""Files up to this size are read in one request where only their ends are needed."""
_AHEAD = 8
"""Largest number of remote files that are read at a time."""
_UNANSWERED = {"ClientConnectionError", "EndpointConnectionError", "HTTPClientError", "ServerTimeoutError"}
"""Names of the errors that aiohttp and botocore raise when no server answers. Both may not be installed."""


def is_url(file: str | os.PathLike[str]) -> bool:
    """Return whether the name ``file`` is a URL, and not a path."""
    return _URL.match(os.fspath(file)) is not None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise ``store_not_folder`` if a store's path has a zero byte or is a URL, perhaps one that became a ``Path``."""
    if "\0" in os.fspath(path):
        raise InputError("store_not_folder", "the path of a store can not have a zero byte; choose another name")
    if _COLLAPSED.match(os.fspath(path)):
        raise InputError("store_not_folder", "a store is a folder; only report files can be named by a URL")


def check_urls(files: Iterable[str | os.PathLike[str]]) -> None:
    """Check that this process can read all URLs among the names ``files``. Other names are not checked.

    Raises InputError: ``missing_extra``: fsspec or the library of a file system is not installed; ``protocol_unknown``:
    fsspec knows no such file system.
    """
    matches = (_URL.match(os.fspath(file)) for file in files)
    for protocol in sorted({match[1] for match in matches if match is not None}):
        try:
            from fsspec import get_filesystem_class
        except ImportError:
            raise missing_extra("URLs are read by fsspec", "cluster") from None
        try:
            get_filesystem_class(protocol)
        except ImportError as error:
            raise InputError("missing_extra", f"{protocol}:// takes another library: {error}") from None
        except ValueError:
            problem = f"no file system is called '{protocol}'; known are for example s3, gs, http and file"
            raise InputError("protocol_unknown", problem) from None


def expand(files: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Replace each URL pattern by the sorted files that match it, if one does. Raises as :func:`check_urls`."""
    given = list(files)
    urls = [file for file in given if is_url(file)]
    check_urls(urls)
    if not any(_PATTERN.search(os.fspath(url)) for url in urls):
        return given
    return [match for file in given for match in (_matches(os.fspath(file)) if is_url(file) else [file])]


def read_url(url: str, most: int) -> bytes | mmap.mmap:
    """Read the content of the remote file ``url``. Large content is a mapping of a temporary file.

    Raises OSError: ``errno`` ``EFBIG``: it has more than ``most`` bytes; ``EISDIR``: it is a folder; ``EHOSTUNREACH``:
    no server answers; ``EIO``: an error of the file system's library that is no ``OSError``. An ``OSError`` of the
    library, for example ``FileNotFoundError``, is raised as it is. Raises ImportError: fsspec is not installed
    (:func:`check_urls`).
    """
    files, path, size = _found(url)
    with _library_errors():
        if size is not None and size > most:
            raise too_large()
        if size is not None and size < _MAPPED_BYTES:
            return bytes(files.cat_file(path))
        with tempfile.NamedTemporaryFile(prefix="hearsay-") as copy:
            files.get_file(path, copy.name)
            length = os.stat(copy.name).st_size  # noqa: PTH116 - the path is a text
            if length > most:
                raise too_large()
            return mmap.mmap(copy.fileno(), length, prot=mmap.PROT_READ) if length else b""


def ends_of(url: str, most: int) -> tuple[int, bytes, bytes]:
    """Return the length, and the first and last ``most`` bytes, of a remote file. Errors are those of ``read_url``."""
    files, path, size = _found(url)
    with _library_errors():
        if size is None or size <= _WHOLE_BYTES:
            data = bytes(files.cat_file(path))
            return len(data), data[:most], data[-most:]
        begin = bytes(files.cat_file(path, start=0, end=most))
        return size, begin, bytes(files.cat_file(path, start=size - most, end=size))


def ahead(
    function: Callable[[str | os.PathLike[str]], Found], files: Sequence[str | os.PathLike[str]]
) -> Iterator[Found]:
    """Yield ``function(file)`` of every file, in order. With a URL among them, several calls run at a time."""
    if not any(map(is_url, files)):
        yield from map(function, files)
        return
    with ThreadPoolExecutor(_AHEAD) as pool:
        waiting: deque[Future[Found]] = deque()
        for file in files:
            waiting.append(pool.submit(function, file))
            if len(waiting) == _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _found(url: str) -> tuple[Any, str, int | None]:
    """Return the file system of a URL, the path in it, and the file's size; None if that is not known."""
    from fsspec.core import url_to_fs

    with _library_errors():
        files, path = url_to_fs(url)
        found = files.info(path)
    if found.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return files, path, found.get("size")


def _matches(url: str) -> list[str]:
    """Return the URLs of the files that match a URL with a pattern; without a pattern or a match, the URL itself."""
    from fsspec.core import url_to_fs

    if not _PATTERN.search(url):
        return [url]
    try:
        files, pattern = url_to_fs(url)
        names = sorted(files.glob(pattern))
    except Exception:  # noqa: BLE001 - reading the URL will raise the error again
        return [url]
    return [files.unstrip_protocol(name) for name in names] or [url]


@contextmanager
def _library_errors() -> Iterator[None]:
    """Context manager that turns exceptions of file systems into ``OSError``: ``EHOSTUNREACH`` if none answered."""
    try:
        yield
    except Exception as error:
        problem = f"{type(error).__name__} while reading a URL"
        if _is_unanswered(error):
            raise OSError(errno.EHOSTUNREACH, problem) from error
        if isinstance(error, OSError):
            raise
        raise OSError(errno.EIO, problem) from error


def _is_unanswered(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, says that no server answered."""
    seen: BaseException | None = error
    while seen is not None:
        names = {kind.__name__ for kind in type(seen).__mro__}
        if isinstance(seen, ConnectionError | TimeoutError | socket.gaierror) or names & _UNANSWERED:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
MOST_GROWTH = 16
"""A compressed file may hold this many times its length, but any file may hold :data:`LEAST_BYTES`."""
LEAST_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 20
_STEP_BYTES = ((1 << 16, 1 << 20), (1 << 12, 1 << 15), (1 << 8, 1 << 10), (1 << 4, 1 << 5), (1, 1))
"""Rounds of decompression: (bytes given to the codec, bytes asked of it) at a time.

When the codec fails, it loses the output of the failing step. The next round repeats the work with smaller steps from
that place on, so less is lost. Each round takes about as long as the first.
"""


def codec_of(data: Content) -> str | None:
    """Return the compression of ``data`` by its first bytes, which no batch has: ``gzip`` or ``zstd``, or None."""
    return next((codec for codec, magic in _MAGIC.items() if data[: len(magic)] == magic), None)


def decompress(data: Content, codec: str, in_memory: int, growth: int = MOST_GROWTH) -> bytes | mmap.mmap:
    """Decompress a file by ``codec``, ``gzip`` or ``zstd``; of a damaged file return the content before the damage.

    gzip gives every byte before a cut, zstd complete blocks of up to 128 KiB. Consecutive members form one content;
    other bytes after them are ignored. Over ``in_memory`` bytes the result maps a temporary file. Raises OSError:
    ``EFBIG``: the file holds more than ``growth`` times its length; ``EILSEQ``: no content.
    """
    most = max(LEAST_BYTES, growth * len(data))
    with tempfile.SpooledTemporaryFile(max_size=in_memory, prefix="hearsay-") as content:
        size = _copy(data, codec, content, most)
        if size <= in_memory:
            content.seek(0)
            return content.read()
        content.flush()
        return mmap.mmap(content.fileno(), size, prot=mmap.PROT_READ)


def _copy(data: Content, codec: str, content: IO[bytes], most: int) -> int:
    """Write the decompressed content of ``data``, of at most ``most`` bytes, into a file, and return its length."""
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
    """A compressed file as a codec reads it, in small pieces near damage, so that all before the damage is unpacked.

    Reads give what is asked up to the offset ``sound``, which an earlier try has unpacked, and at most ``given`` bytes
    each after it.
    """

    closed = False

    def __init__(self, data: Content, sound: int, given: int) -> None:
        self._data = data
        self._sound = sound
        self._given = given
        self._position = self.start = 0

    def read(self, most: int) -> bytes:
        start = self.start = self._position
        stop = min(start + most, self._sound) if start < self._sound else start + min(most, self._given)
        piece = self._data[start:stop]
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Do nothing: a codec's stream closes its source."""


MAX_FILE_BYTES = 1 << 40
MAPPED_BYTES = 1 << 27
"""Larger content is mapped from a temporary file, and larger files are read in pieces, to bound memory."""
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
    """A loaded file: its index among those given, its name, its decompressed content, and its length as it came."""

    number: int
    file: str
    data: Content
    received: int


class Share(NamedTuple):
    """Files that one thread reads together: a large file, or many small ones.

    ``sources``: the loaded files. ``unreadable``: files that could not be read, each with its index among the files
    given. ``similar``: indices and names of possible copies: files with the length and the last bytes of an earlier
    file.
    """

    sources: list[Source]
    unreadable: list[tuple[int, Unreadable]]
    similar: list[tuple[int, str]]


def shares(files: Sequence[str | os.PathLike[str]]) -> Iterator[Share]:
    """Load the files one after the other, and yield them in shares of several megabytes or many files.

    A file with the length and the last bytes of an earlier file may be a copy: it is not loaded, but named as
    ``similar``.
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
        share.sources.append(loaded._replace(number=number))
        size += len(loaded.data)
        if size >= _SHARE_BYTES or len(share.sources) >= _SHARE_FILES:
            yield share
            share, size = Share([], [], []), 0
    yield share


def read_source(
    file: str | os.PathLike[str], in_memory: int | None = None, growth: int = MOST_GROWTH
) -> Source | Unreadable:
    """Load the content of a path or URL, decompressed, or return the reason why it can not be read.

    Files of more than ``in_memory`` bytes (:data:`MAPPED_BYTES`) are read in pieces; their content raises
    ``FileShortenedError`` if the file became shorter. ``growth``: as for :func:`decompress`. Raises ImportError without
    fsspec (:func:`check_urls`).
    """
    in_memory = MAPPED_BYTES if in_memory is None else in_memory
    reason = "unreadable"
    try:
        received = _content(file, in_memory)
        data = decompressed(file, received, in_memory, growth)
        return data if isinstance(data, Unreadable) else Source(0, os.fspath(file), data, len(received))
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
    """Return the content of a file whose bytes ``data`` may be compressed, or the reason why there is none."""
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
            return read_regular(path, MAX_FILE_BYTES)  # repeats both checks, and raises the error
        return LargeFile(os.dup(descriptor), found.st_size)
    finally:
        os.close(descriptor)
