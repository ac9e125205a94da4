"""Which files an ingest was given: folders, patterns and lists of names become names of files.

URLs stay as they are: the store expands their patterns (:mod:`aggregator.intake.urls`).
"""

from __future__ import annotations

import os
import re
from glob import glob
from typing import IO, TYPE_CHECKING, NamedTuple

from aggregator.intake.sources import Unreadable, read_source
from aggregator.intake.urls import is_url
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SUFFIXES = (".hsr", ".hsr.gz", ".hsr.zst")
"""Files in a folder whose names end so are report files; others there, and hidden ones, are left."""
MAX_LIST_BYTES = 1 << 28
_PATTERN = re.compile(r"[*?\[]")


class Gathered(NamedTuple):
    """What was found.

    Attributes:
        files: to be read, in the order given, those of one folder or pattern sorted.
        left: how many other files are in the folders.
    """

    files: list[str]
    left: int


def gather(names: Iterable[str], *, recursive: bool = False) -> Gathered:
    """The files that some names stand for. Run by the operator's ingest.

    Args:
        names: files; folders, of which the report files are taken; patterns with ``*``, ``?``, ``[`` and ``**``,
            unless there is a file of that very name; URLs.
        recursive: folders in folders too. Links to folders are not followed.
    """
    files: list[str] = []
    left = 0
    for name in names:
        if is_url(name) or "\0" in name:
            files.append(name)
        elif os.path.isdir(name):  # noqa: PTH112 - of a hundred thousand names, making a Path takes longest
            left += _take(name, files, recursive=recursive)
        elif _PATTERN.search(name) and not os.path.lexists(name):
            left += _match(name, files, recursive=recursive)
        else:
            files.append(name)
    return Gathered(files, left)


def _match(pattern: str, files: list[str], *, recursive: bool) -> int:
    """A pattern's files; one without match stays, and is then a file that is not found."""
    left = 0
    found = sorted(glob(pattern, recursive=True))  # noqa: PTH207 - names come back as they were given
    for name in found:
        if not os.path.isdir(name):  # noqa: PTH112 - as above
            files.append(name)
        elif recursive:
            left += _take(name, files, recursive=True)
    if not found:
        files.append(pattern)
    return left


def _take(folder: str, files: list[str], *, recursive: bool) -> int:
    """A folder's report files; returns how many others are there. One that can not be listed stays as it is."""
    left = 0
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        files.append(folder)
        return 0
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            left += _take(entry.path, files, recursive=True) if recursive else 0
        elif entry.name.endswith(SUFFIXES) and not entry.name.startswith("."):
            files.append(entry.path)
        else:
            left += 1
    return left


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


def all_unreadable(files: Sequence[str | os.PathLike[str]]) -> tuple[Unreadable, ...]:
    """Why none of some files can be read; nothing as soon as one can be, which is all that is asked here."""
    found: list[Unreadable] = []
    for file in files:
        read = read_source(file)
        if not isinstance(read, Unreadable):
            return ()
        found.append(read)
    return tuple(found)
