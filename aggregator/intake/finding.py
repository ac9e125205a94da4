"""Which files an ingest was given: folders, patterns and lists of names become names of files.

URLs stay as they are: the store expands their patterns (:mod:`aggregator.intake.urls`).
"""

from __future__ import annotations

import os
import re
from glob import escape, glob
from typing import IO, TYPE_CHECKING, NamedTuple

from aggregator.intake.sources import Unreadable, read_source
from aggregator.intake.urls import check_urls, is_url
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aggregator.intake.executor import Executor

SUFFIXES = (".hsr", ".hsr.gz", ".hsr.zst")
"""Files in a folder whose names end so are report files; others there, and hidden ones, are left."""
MAX_LIST_BYTES = 1 << 28
_FILES_EACH = 2048
"""Files that one task of a cluster tries to read."""
_PATTERN = re.compile(r"[*?\[]")


class Gathered(NamedTuple):
    """What was found.

    Attributes:
        files: to be read, in the order given, those of one folder or pattern sorted.
        left: how many other files are in the folders.
        folders: how many folders are in the folders, or match a pattern, and were not looked into.
    """

    files: list[str]
    left: int
    folders: int


def gather(names: Iterable[str], *, recursive: bool = False) -> Gathered:
    """The files that some names stand for. Run by the operator's ingest and by a gateway's merge.

    Args:
        names: files; folders, of which the report files are taken; patterns with ``*``, ``?``, ``[`` and ``**``,
            unless there is a file of that very name; URLs.
        recursive: folders in folders too. Neither so nor by ``**`` are links to folders followed.
    """
    search = _Search(recursive=recursive)
    for name in names:
        if is_url(name) or "\0" in name:
            search.files.append(name)
        elif os.path.isdir(name):  # noqa: PTH112 - of a hundred thousand names, making a Path takes longest
            search.take(name)
        elif _PATTERN.search(name) and not os.path.lexists(name):
            search.match(name)
        else:
            search.files.append(name)
    return Gathered(search.files, search.left, search.folders)


class _Search:
    """What is found on the way; attributes as of :class:`Gathered`."""

    def __init__(self, *, recursive: bool) -> None:
        self._recursive = recursive
        self.files: list[str] = []
        self.left = self.folders = 0

    def match(self, pattern: str) -> None:
        """A pattern's files; one without match stays, and is then a file that is not found."""
        found = sorted(set(_matching(pattern)))
        for name in found:
            if not os.path.isdir(name):  # noqa: PTH112 - as above
                self.files.append(name)
            else:
                self._enter(name)
        if not found:
            self.files.append(pattern)

    def take(self, folder: str) -> None:
        """A folder's report files. One that can not be listed stays as it is."""
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self.files.append(folder)
            return
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                self._enter(entry.path)
            elif entry.name.endswith(SUFFIXES) and not entry.name.startswith("."):
                self.files.append(entry.path)
            else:
                self.left += 1

    def _enter(self, folder: str) -> None:
        if self._recursive:
            self.take(folder)
        else:
            self.folders += 1


def _matching(pattern: str) -> Iterator[str]:
    """What a pattern matches, perhaps repeatedly. ``**`` follows no links to folders, which may lead back."""
    above, stars, rest = _divided(pattern)
    if not stars:
        yield from glob(pattern)  # noqa: PTH207 - names come back as they were given
        return
    for start in glob(above) if above else [os.curdir]:  # noqa: PTH207 - as above
        for folder, inner, names in os.walk(start):
            inner[:] = [name for name in inner if not name.startswith(".")]
            within = os.path.join(folder, "") if above else os.path.join(folder, "")[2:]  # noqa: PTH118 - as above
            if rest:
                yield from _matching(escape(within) + rest)
            else:
                yield from (within + name for name in names if not name.startswith("."))


def _divided(pattern: str) -> tuple[str, bool, str]:
    """What stands before the first part ``**`` of a pattern, whether there is one, and what stands after it."""
    parts = pattern.split("/")
    if "**" not in parts:
        return pattern, False, ""
    place = parts.index("**")
    rest = parts[place + 1 :]
    while rest[:1] == ["**"]:
        rest = rest[1:]
    return "".join(f"{part}/" for part in parts[:place]), True, "/".join(rest)


def read_names(stream: IO[bytes]) -> list[str]:
    """Names of files, one a line; where there is a zero byte each ends in one, as of ``find -print0``.

    They are taken as they are: a star in them is a star.

    Raises:
        InputError: ``too_large``, the list has more than 256 MiB.
    """
    raw = stream.read(MAX_LIST_BYTES + 1)
    if len(raw) > MAX_LIST_BYTES:
        raise InputError("too_large", "the list of names has more than 256 MiB; give it in several runs")
    names = raw.split(b"\0") if b"\0" in raw else raw.split(b"\n")
    return [os.fsdecode(name) for name in names if name]


def all_unreadable(files: Sequence[str | os.PathLike[str]], cluster: Executor | None = None) -> tuple[Unreadable, ...]:
    """Why none of some files can be read. Empty if one file can be read: the search ends there.

    Args:
        files: paths and URLs.
        cluster: its workers try to read the files; None: this process does.
    """
    if cluster is None:
        return _all_unreadable(files)
    given = [os.fspath(file) for file in files]
    names = [name if is_url(name) else os.path.abspath(name) for name in given]  # noqa: PTH100 - as above
    starts = range(0, len(names), _FILES_EACH)
    reasons: dict[int, str] = {}
    for start, found in cluster.run(
        _unreadable_from, [(start, names[start : start + _FILES_EACH]) for start in starts]
    ):
        if not found:
            return ()
        reasons |= {start + place: one.reason for place, one in enumerate(found)}
    return tuple(Unreadable(name, reasons[number]) for number, name in enumerate(given))


def _unreadable_from(start: int, files: Sequence[str]) -> tuple[int, tuple[Unreadable, ...]]:
    check_urls(files)
    return start, _all_unreadable(files)


def _all_unreadable(files: Sequence[str | os.PathLike[str]]) -> tuple[Unreadable, ...]:
    found: list[Unreadable] = []
    for file in files:
        read = read_source(file)
        if not isinstance(read, Unreadable):
            return ()
        found.append(read)
    return tuple(found)
