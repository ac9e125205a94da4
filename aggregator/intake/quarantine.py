"""What was set aside, so that an operator can see why: one file of JSON lines per ingested file.

``quarantine/<SHA-256 of the file>.jsonl`` holds one object per piece: ``reason``, ``file``, ``offset``,
``length`` and ``bytes`` (hexadecimal, only the beginning of long pieces). Writing the same file's
pieces again replaces them. The folder is bounded: above its limit pieces are counted and not kept.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aggregator.intake.durable import TEMPORARY, make_folder, write_durably

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aggregator.intake.decode import Rejected

LIMIT_BYTES = 64 << 20


class Quarantine:
    """The ``quarantine`` folder of a store."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._used: int | None = None

    def keep(self, digest: str, name: str, pieces: Sequence[Rejected]) -> int:
        """Replace what is kept of one input file; returns how many pieces there was room for.

        Args:
            digest: SHA-256 of the file's content, in hexadecimal.
            name: the file's name, for people.
            pieces: what was set aside.
        """
        path = self._folder / f"{digest}.jsonl"
        if not pieces and not path.exists():
            return 0
        make_folder(self._folder)
        room = self._limit - self._used_bytes() + _size(path)
        lines: list[bytes] = []
        for piece in pieces:
            line = _line(name, piece)
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
        before = _size(path)
        write_durably(path, b"".join(lines))
        self._used = self._used_bytes() - before + sum(map(len, lines))
        return len(lines)

    def _used_bytes(self) -> int:
        """Bytes in the folder; listed once, then kept up to date."""
        if self._used is None:
            self._used = sum(_size(path) for path in self._folder.iterdir() if path.suffix != TEMPORARY)
        return self._used


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _line(name: str, piece: Rejected) -> bytes:
    entry = {
        "reason": piece.reason,
        "file": name,
        "offset": piece.offset,
        "length": piece.length,
        "bytes": piece.data.hex(),
    }
    return json.dumps(entry).encode() + b"\n"
