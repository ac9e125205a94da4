"""Clocks of a device: a wall clock that may be wrong, and one that only knows how long the device has run."""

from __future__ import annotations

import time

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def system_clock() -> int:
    """Seconds since 1970, UTC, as this device believes."""
    return max(0, int(time.time()))


def system_uptime() -> tuple[str, int]:
    """A name of the present boot ("" if the system gives none), and seconds since it began.

    The seconds never go back and nobody can set them; they count while the device sleeps, where the
    system can tell.
    """
    boot = ""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read(64).strip()
    except (OSError, ValueError):
        boot = ""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return boot, int(time.monotonic() if clock is None else time.clock_gettime(clock))
