"""What a probe measures of its own process. Loads nothing that a bare interpreter has not loaded."""

from __future__ import annotations

import sys
import time

COUNT = 1000
"""Reports, or messages, that a probe hands over."""


def resident() -> int:
    """Resident memory of this process in bytes."""
    with open("/proc/self/status") as file:  # noqa: PTH123
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def written() -> tuple[int, int]:
    """Bytes handed to ``write`` so far, and bytes that the page cache owes the disk for them."""
    with open("/proc/self/io") as file:  # noqa: PTH123
        fields = dict(line.split(": ") for line in file)
    return int(fields["wchar"]), int(fields["write_bytes"])


class Thousand:
    """Measures a block that hands over :data:`COUNT` messages."""

    def __enter__(self) -> Thousand:  # noqa: PYI034 - importing typing would show in the figures
        self._before = written()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        after = written()
        self.written, self.disk = after[0] - self._before[0], after[1] - self._before[1]


def tell(bare: int, imported: int, used: int, block: Thousand, waiting: int) -> None:
    """Print the figures as JSON, by hand: importing json would show in them.

    Args:
        bare, imported, used: resident bytes before the import, after it, after one use of each part.
        block: the thousand.
        waiting: how many of the thousand are still there to be sent.
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
