"""The quarantine: rejected pieces (records or byte ranges) of input files, kept for the operator.

``quarantine/<identity of the file>.jsonl`` holds one JSON object per piece. Only the store's user may read it. Beyond
the limits per folder and per file, pieces are counted and not kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.files import PRIVATE
from aggregator.reports.decoding.decode import Rejected
from aggregator.reports.storage.locking import TEMPORARY, make_folder, replace_durably, write_temporary
from aggregator.reports.storage.manifest import damaged

LIMIT_BYTES = 64 << 20
FILE_BYTES = 1 << 12
"""The quarantine keeps up to this much of any input file, and of a larger file :data:`MOST_GROWTH` times its length."""
MOST_GROWTH = 10
"""Largest ratio of kept to received bytes. A rejected record of 18 bytes takes some 150 bytes of JSON."""
_SUFFIX = ".jsonl"
EMPTY_FILE = "empty_file"
MAX_EMPTY = 1000
_EMPTY_TAG = b"hearsay/1/empty file\0"


class QuarantinedFile(NamedTuple):
    """The rejected pieces kept of one input file, with the hex digest of its content (``identity``) and its name."""

    identity: str
    file: str
    pieces: tuple[Rejected, ...]


class Quarantine:
    """The ``quarantine`` folder of a store, with at most ``limit_bytes`` of files. The first piece makes it."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._used: int | None = None
        self._pending: dict[Path, int] = {}

    def keep(self, digest: str, name: str, pieces: Sequence[Rejected], received: int | None = None) -> int:
        """Replace the kept pieces of one input file, from the next :meth:`flush` on.

        ``digest`` names the file's content, ``name`` the file for people. If there is no room for all pieces, the first
        ones are kept; their number is returned. ``received``: number of the file's bytes as they came, which bounds
        what is kept of it; None for pieces that were kept before.
        """
        path = self._folder / f"{digest}{_SUFFIX}"
        if not pieces and not path.exists():
            return 0
        make_folder(self._folder)
        before = self._size(path)
        room = self._limit - self._used_bytes() + before
        if received is not None:
            room = min(room, max(FILE_BYTES, MOST_GROWTH * received))
        lines: list[bytes] = []
        for piece in pieces:
            line = _line(name, piece)
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
        write_temporary(path, b"".join(lines), PRIVATE)
        self._pending[path] = sum(map(len, lines))
        self._used = self._used_bytes() - before + self._pending[path]
        return len(lines)

    def flush(self) -> None:
        """Put all pieces since the last flush on the disk, before a manifest counts them. A kill loses only them."""
        if self._pending:
            replace_durably(list(self._pending))
            self._pending.clear()

    def keep_empty(self, names: Iterable[str]) -> None:
        """Keep the names of empty files, at most the first :data:`MAX_EMPTY`, from the next :meth:`flush` on.

        They hold no report, so they are not counted. Names are kept without folders while there is room, equal names
        once.
        """
        for name in map(os.path.basename, islice(names, MAX_EMPTY)):
            identity = sha256(_EMPTY_TAG + name.encode(errors="surrogateescape")).hexdigest()
            if not self._size(self._folder / f"{identity}{_SUFFIX}"):
                self.keep(identity, name, [Rejected(EMPTY_FILE, 0, 0, b"")])

    def remove(self, kept: QuarantinedFile, rest: Sequence[Rejected]) -> None:
        """Remove the rejected pieces of one file, except those in ``rest``. The counts of the store do not change."""
        if rest:
            self.keep(kept.identity, kept.file, rest)
            self.flush()
            return
        (self._folder / f"{kept.identity}{_SUFFIX}").unlink(missing_ok=True)
        self._used = None

    def files(self) -> Iterator[QuarantinedFile]:
        """Yield the rejected pieces of every input file that has any, by identity. Raises ``store_damaged``."""
        paths = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
        for path in paths:
            kept = _read(path)
            if kept.pieces:
                yield kept

    def _used_bytes(self) -> int:
        """Return the number of bytes in the folder. The folder is listed once; later changes are added up."""
        if self._used is None:
            self._used = sum(_stored_size(path) for path in self._folder.iterdir() if path.suffix != TEMPORARY)
        return self._used

    def _size(self, path: Path) -> int:
        """Return the number of bytes that a file will have after the next flush; 0 if there is no file."""
        return self._pending[path] if path in self._pending else _stored_size(path)


def _stored_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _line(name: str, piece: Rejected) -> bytes:
    entry: dict[str, Any] = {
        "reason": piece.reason,
        "file": name,
        "offset": piece.offset,
        "length": piece.length,
        "bytes": piece.data.hex(),
    }
    if piece.proven is not None:
        entry["proven"] = piece.proven
    if piece.claim:
        entry["claim"] = piece.claim.hex()
    return json.dumps(entry).encode() + b"\n"


def _read(path: Path) -> QuarantinedFile:
    try:
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        pieces = tuple(map(_piece, entries))
        return QuarantinedFile(path.stem, str(entries[-1]["file"]) if entries else "", pieces)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        problem = damaged(f"quarantine file '{path.name}' is not as it was written; it may be removed")
    raise problem


def _piece(entry: dict[str, Any]) -> Rejected:
    reason, offset, length, proven = entry["reason"], entry["offset"], entry["length"], entry.get("proven")
    if type(reason) is not str or type(offset) is not int or type(length) is not int:
        raise ValueError
    if proven is not None and type(proven) is not bool:
        raise ValueError
    return Rejected(
        reason, offset, length, bytes.fromhex(entry["bytes"]), proven, bytes.fromhex(entry.get("claim", ""))
    )
