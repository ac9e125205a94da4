"""A model of a disk: its contents after a power cut, computed from the recorded calls.

The shim records every call. The model replays the calls; each change waits until its file or folder is flushed. At a
power cut waiting changes are lost: all of them or any part, in any order that POSIX allows. Flushing a folder makes
its names durable, flushing a file makes its contents durable, and neither does both. The model is stricter than most
file systems, so the tests do not depend on one.
"""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CREATE, WRITE, TRUNCATE, SYNC, SYNC_FOLDER, RENAME, LINK, UNLINK, MKDIR, RMDIR, MARK = range(1, 12)
"""As in shim.c."""
SECTOR = 512
_HEAD = struct.Struct("<IIIIIIQq")


class Call(NamedTuple):
    """One recorded call, or a mark of the test between two calls. ``error`` is 0 for a successful call."""

    op: int
    error: int
    first: str
    second: str
    inode: int
    offset: int
    data: bytes


def read_log(path: Path) -> list[Call]:
    """The calls that the shim recorded."""
    return list(_records(path.read_bytes())) if path.exists() else []


def _records(raw: bytes) -> Iterator[Call]:
    position = 0
    while position < len(raw):
        op, error, first, second, length, _, inode, offset = _HEAD.unpack_from(raw, position)
        position += _HEAD.size
        ends = position + first, position + first + second, position + first + second + length
        yield Call(
            op, error, raw[position : ends[0]].decode(), raw[ends[0] : ends[1]].decode(), inode, offset,
            raw[ends[1] : ends[2]],
        )  # fmt: skip
        position = ends[2]


class Change(NamedTuple):
    """A write at an offset, or a new size (``data`` None)."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
        else:
            content.extend(bytes(max(0, self.offset - len(content))))
            content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(eq=False)
class File:
    """A file: its visible contents, its durable contents, and the changes since the last flush in order."""

    view: bytearray
    safe: bytearray
    waiting: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change.apply(self.view)
        self.waiting.append(change)

    def flush(self) -> None:
        for change in self.waiting:
            change.apply(self.safe)
        self.waiting.clear()

    def after_power_cut(self, choose: Callable[[Change], Iterator[Change]]) -> bytes:
        """The durable bytes with the chosen part of the waiting changes."""
        content = bytearray(self.safe)
        for change in self.waiting:
            for kept in choose(change):
                kept.apply(content)
        return bytes(content)


def _file(content: bytes) -> File:
    return File(bytearray(content), bytearray(content))


FOLDER = _file(b"")
"""A marker for folders among the files of a name table."""


class Naming(NamedTuple):
    """An atomic change of names: ``gone`` disappears, and ``name`` becomes ``what``."""

    gone: str
    name: str
    what: File | None

    def apply(self, names: dict[str, File]) -> None:
        names.pop(self.gone, None)
        if self.what is not None:
            names[self.name] = self.what

    @property
    def folders(self) -> set[str]:
        return {path.rpartition("/")[0] for path in (self.gone, self.name) if path}


class Disk:
    """A folder's files and names: as programs see them, and as a power cut would leave them."""

    def __init__(self, root: Path) -> None:
        """Start with the folder's current contents, all durable."""
        self.root = root
        self.names: dict[str, File] = {}
        self._inodes: dict[int, File] = {}
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                self.names[str(path)] = FOLDER
            else:
                inode = path.stat().st_ino
                self.names[str(path)] = self._inodes.setdefault(inode, _file(path.read_bytes()))
        self._safe_names = dict(self.names)
        self._waiting: list[Naming] = []

    def replay(self, calls: list[Call]) -> None:
        """Apply recorded calls. A failed flush loses the waiting changes, as in kernels."""
        for call in calls:
            if call.op == MARK:
                continue
            if call.error:
                if call.op == SYNC:
                    self._inodes[call.inode].waiting.clear()
                continue
            self._do(call)

    def _do(self, call: Call) -> None:
        op, first = call.op, call.first
        if op == CREATE:
            self._inodes[call.inode] = _file(b"")
            self._name(Naming("", first, self._inodes[call.inode]))
        elif op == WRITE and call.inode not in self._inodes:
            pass  # a file without a name, which nobody finds again
        elif op == WRITE:
            self._inodes[call.inode].change(Change(call.offset, call.data))
        elif op == TRUNCATE:
            self._inodes[call.inode].change(Change(call.offset, None))
        elif op == SYNC:
            self._inodes[call.inode].flush()
        elif op == SYNC_FOLDER:
            self._flush_folder(first)
        elif op == MKDIR:
            self._name(Naming("", first, FOLDER))
        elif op == LINK:
            self._name(Naming("", call.second, self.names[first]))
        elif op == RENAME:
            self._name(Naming(first, call.second, self.names[first]))
        else:
            self._name(Naming(first, "", None))

    def _name(self, naming: Naming) -> None:
        naming.apply(self.names)
        self._waiting.append(naming)

    def _flush_folder(self, folder: str) -> None:
        for naming in [each for each in self._waiting if folder in each.folders]:
            naming.apply(self._safe_names)
            self._waiting.remove(naming)

    # Ways a disk can look ---------------------------------------------------------------------------

    def seen(self) -> dict[str, bytes | None]:
        """The visible contents: path → bytes, None for a folder."""
        return self._tree(self.names, lambda file: bytes(file.view))

    def after_power_cut(self, seed: int | None = None) -> dict[str, bytes | None]:
        """The contents after a power cut: without all waiting changes, or with a random part of them by ``seed``."""
        if seed is None:
            return self._tree(self._safe_names, lambda file: bytes(file.safe))
        chance = random.Random(seed)
        names = dict(self._safe_names)
        for naming in self._waiting:
            if chance.random() < 0.5:
                naming.apply(names)
        return self._tree(names, lambda file: file.after_power_cut(lambda change: _part(change, chance)))

    def _tree(self, names: dict[str, File], read: Callable[[File], bytes]) -> dict[str, bytes | None]:
        tree: dict[str, bytes | None] = {}
        for path, what in sorted(names.items()):
            parent = path.rpartition("/")[0]
            if parent == str(self.root) or tree.get(parent, b"") is None:
                tree[path] = None if what is FOLDER else read(what)
        return tree


def _part(change: Change, chance: random.Random) -> Iterator[Change]:
    """A random part of a change: all, nothing, up to a sector, or zeros in place of the new end of a grown file."""
    fate = chance.randrange(5)
    if fate <= 1 or (fate >= 3 and change.data is None):
        yield change
    elif fate == 3:
        sectors = range(-change.offset % SECTOR, len(change.data), SECTOR)
        yield Change(change.offset, change.data[: chance.choice([0, *sectors])])
    elif fate == 4:
        yield _Grown(change.offset + len(change.data), None)


class _Grown(Change):
    """A write of which only the new file size became durable."""

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.offset - len(content))))


def read_tree(root: Path) -> dict[str, bytes | None]:
    """The contents of a folder: path → bytes, None for a folder."""
    return {str(path): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))}


def write_tree(root: Path, tree: dict[str, bytes | None]) -> None:
    """Make a folder hold exactly this."""
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for name, content in tree.items():
        if content is None:
            Path(name).mkdir(mode=0o700)
        else:
            with open(name, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
