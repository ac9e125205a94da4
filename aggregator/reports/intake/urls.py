"""Input files named by URLs that fsspec can read: ``s3://…``, ``gs://…``, ``file://…`` and others.

Paths need no fsspec: it is imported for the first URL. A store is never named by a URL (docs/decisions/0028).
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from aggregator.common.extras import missing_extra
from aggregator.common.files import too_large
from protocol.errors import InputError

Found = TypeVar("Found")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(::[^/]*)?://")
_COLLAPSED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_PATTERN = re.compile(r"[*?\[]")
_MAPPED_BYTES = 1 << 25
"""Content from this size on goes through a temporary file, to bound memory."""
_WHOLE_BYTES = 1 << 14
"""Files up to this size are read in one request where only their ends are needed."""
_AHEAD = 8
"""Number of remote files that are read at a time."""
_UNANSWERED = {"ClientConnectionError", "EndpointConnectionError", "HTTPClientError", "ServerTimeoutError"}
"""Names of the errors that aiohttp and botocore raise when no server answers. Both may not be installed."""


def is_url(file: str | os.PathLike[str]) -> bool:
    """Whether the name ``file`` is a URL, and not a path."""
    return _URL.match(os.fspath(file)) is not None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path of a store that can not name a folder: a URL, or a path with a zero byte.

    A URL that became a ``Path`` has lost one of its slashes.

    Raises:
        InputError: ``store_not_folder``: the path is a URL, or has a zero byte.
    """
    if "\0" in os.fspath(path):
        raise InputError("store_not_folder", "the path of a store can not have a zero byte; choose another name")
    if _COLLAPSED.match(os.fspath(path)):
        raise InputError("store_not_folder", "a store is a folder; only report files can be named by a URL")


def check_urls(files: Iterable[str | os.PathLike[str]]) -> None:
    """Check that this process can read all URLs among the names ``files``. Other names are not checked.

    Raises:
        InputError: ``missing_extra``: fsspec or the library of a file system is not installed;
            ``protocol_unknown``: fsspec knows no such file system.
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
    """Replace each URL with ``*``, ``?`` or ``[`` by the files that match it, sorted. Other names stay.

    A pattern without a match stays, too. Reading it will say that the file is not found.

    Raises:
        InputError: ``missing_extra``, ``protocol_unknown``: this process can not read one of the URLs.
    """
    given = list(files)
    urls = [file for file in given if is_url(file)]
    check_urls(urls)
    if not any(_PATTERN.search(os.fspath(url)) for url in urls):
        return given
    return [match for file in given for match in (_matches(os.fspath(file)) if is_url(file) else [file])]


def read_url(url: str, most: int) -> bytes | mmap.mmap:
    """Read the content of the remote file ``url``. Large content is a mapping of a temporary file.

    Raises:
        OSError: ``errno`` ``EFBIG``: it has more than ``most`` bytes; ``EISDIR``: it is a folder;
            ``EHOSTUNREACH``: no server answers; ``EIO``: an error of the file system's library that is no ``OSError``.
            An ``OSError`` of the library, for example ``FileNotFoundError``, is raised as it is.
        ImportError: fsspec is not installed (:func:`check_urls`).
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
    """The length, the first ``most`` bytes and the last ``most`` bytes of the remote file ``url``.

    A small file is read in one request.

    Raises:
        OSError: ``errno`` ``EISDIR``: it is a folder; ``EHOSTUNREACH``: no server answers; ``EIO``: an error of the
            file system's library that is no ``OSError``; or an ``OSError`` of the library.
        ImportError: fsspec is not installed.
    """
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
    """Yield ``function(file)`` of every file, in order. Exceptions of the function are raised here.

    If a URL is among the files, several calls run at a time, to wait less for servers.
    """
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
    """The file system of a URL, the path in it, and the file's size, None if the file system does not know it."""
    from fsspec.core import url_to_fs

    with _library_errors():
        files, path = url_to_fs(url)
        found = files.info(path)
    if found.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return files, path, found.get("size")


def _matches(url: str) -> list[str]:
    """The URLs of the files that match a URL with a pattern; the URL itself if it is none, or nothing matches."""
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
    """Turn the exceptions of all file system libraries into ``OSError``; ``EHOSTUNREACH`` if no server answered."""
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
    """Whether an error, or one of its causes, says that no server answered."""
    seen: BaseException | None = error
    while seen is not None:
        names = {kind.__name__ for kind in type(seen).__mro__}
        if isinstance(seen, ConnectionError | TimeoutError | socket.gaierror) or names & _UNANSWERED:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
