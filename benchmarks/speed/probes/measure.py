"""Figures that a probe measures in its own process. This module loads only modules of a bare interpreter."""

from __future__ import annotations

import sys
import time

COUNT = 1000
"""Number of reports or messages that a probe sends."""


def resident() -> int:
    """Resident memory of this process in bytes."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def written() -> tuple[int, int]:
    """Bytes passed to ``write`` so far, and bytes that the page cache must write to the disk for them."""
    with open("/proc/self/io") as file:  # noqa: PTH123
        fields = dict(line.split(": ") for line in file)
    return int(fields["wchar"]), int(fields["write_bytes"])


class Thousand:
    """Context manager that measures a block in which :data:`COUNT` messages are sent."""

    def __enter__(self) -> Thousand:  # noqa: PYI034 - importing typing would show in the figures
        self._before = written()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        after = written()
        self.written, self.disk = after[0] - self._before[0], after[1] - self._before[1]


def tell(bare: int, imported: int, used: int, block: Thousand, waiting: int) -> None:
    """Print the figures as JSON, without the module json: its import would change the figures.

    Args:
        bare, imported, used: resident bytes before the import, after it, after one use of each part.
        block: the measured block.
        waiting: number of messages of the block that wait to be sent.
    """
    figures = {
        "bare": bare,
        "imported": imported,
        "used": used,
        "seconds": block.seconds,
        "written": block.written,
        "disk": block.disk,
        "waiting": waiting,
    }
    print("{" + ", ".join(f'"{name}": {value}' for name, value in figures.items()) + "}")
    sys.stdout.flush()
