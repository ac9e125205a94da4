"""Find the files that an ingest is given: turn folders, patterns and lists into names of files. URLs stay unchanged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from glob import escape, glob
from typing import IO

from aggregator.reports.intake.sources import is_url
from protocol.errors import InputError

SUFFIXES = (".hsr", ".hsr.gz", ".hsr.zst")
"""Ends of the names of report files. Other files in a folder, and hidden files, are not read."""
MAX_LIST_BYTES = 1 << 28
_PATTERN = re.compile(r"[*?\[]")


def find_files(names: Iterable[str], *, recursive: bool = False, suffixes: tuple[str, ...] = SUFFIXES) -> FileList:
    """Find the files that ``names`` stand for.

    ``names``: files; folders, whose report files are taken; patterns with ``*``, ``?``, ``[`` and ``**``, unless a file
    has exactly this name; URLs, which stay unchanged. Links to folders are never followed. ``suffixes``: ends of the
    names that are taken from folders.
    """
    search = FileList(recursive=recursive, suffixes=suffixes)
    for name in names:
        if is_url(name) or "\0" in name:
            search.files.append(name)
        elif os.path.isdir(name):  # noqa: PTH112 - making a Path takes most of the time for 100,000 names
            search.take(name)
        elif _PATTERN.search(name) and not os.path.lexists(name):
            search.match(name)
        else:
            search.files.append(name)
    return search


class FileList:
    """The files that names stand for.

    ``files``: names in the order given, sorted within a folder or pattern (one without a match is kept as a name, whose
    reading will give the reason); ``left``: number of files in folders that are hidden or have another suffix;
    ``folders``: number of folders that were found and not searched.
    """

    def __init__(self, *, recursive: bool, suffixes: tuple[str, ...]) -> None:
        self._recursive = recursive
        self._suffixes = suffixes
        self.files: list[str] = []
        self.left = self.folders = 0

    def match(self, pattern: str) -> None:
        """Add the files that match a pattern; without a match the pattern, whose reading will give the reason."""
        found = sorted(set(_matching(pattern)))
        for name in found:
            if not os.path.isdir(name):  # noqa: PTH112 - making a Path takes longer than the check
                self.files.append(name)
            else:
                self._enter(name)
        if not found:
            self.files.append(pattern)

    def take(self, folder: str) -> None:
        """Add a folder's report files; if it can not be listed, the folder, whose reading will give the reason."""
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self.files.append(folder)
            return
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                self._enter(entry.path)
            elif entry.name.endswith(self._suffixes) and not entry.name.startswith("."):
                self.files.append(entry.path)
            else:
                self.left += 1

    def _enter(self, folder: str) -> None:
        if self._recursive:
            self.take(folder)
        else:
            self.folders += 1


def _matching(pattern: str) -> Iterator[str]:
    """Yield the names that match a pattern, some perhaps twice. ``**`` follows no links, which may form a circle."""
    above, stars, rest = _divided(pattern)
    if not stars:
        yield from glob(pattern)  # noqa: PTH207 - names come back as they were given
        return
    for start in glob(above) if above else [os.curdir]:  # noqa: PTH207 - names come back as they were given
        for folder, inner, names in os.walk(start):
            inner[:] = [name for name in inner if not name.startswith(".")]
            within = os.path.join(folder, "") if above else os.path.join(folder, "")[2:]  # noqa: PTH118
            if rest:
                yield from _matching(escape(within) + rest)
            else:
                yield from (within + name for name in names if not name.startswith("."))


def _divided(pattern: str) -> tuple[str, bool, str]:
    """Return the text before a pattern's first part ``**``, whether there is one, and the text after it."""
    parts = pattern.split("/")
    if "**" not in parts:
        return pattern, False, ""
    place = parts.index("**")
    rest = parts[place + 1 :]
    while rest[:1] == ["**"]:
        rest = rest[1:]
    return "".join(f"{part}/" for part in parts[:place]), True, "/".join(rest)


def read_names(stream: IO[bytes]) -> list[str]:
    """Read names of files: one on each line or, as ``find -print0`` writes them, each ended by a zero byte.

    The names are returned unchanged: patterns and folders are not searched. Empty names are left out. Raises InputError
    ``too_large``: the list has more than 256 MiB.
    """
    raw = stream.read(MAX_LIST_BYTES + 1)
    if len(raw) > MAX_LIST_BYTES:
        raise InputError("too_large", "the list of names has more than 256 MiB; give it in several runs")
    names = raw.split(b"\0") if b"\0" in raw else raw.split(b"\n")
    return [os.fsdecode(name) for name in names if name]
