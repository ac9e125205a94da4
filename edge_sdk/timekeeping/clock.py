"""The clocks of a device: a wall clock, which may be wrong, and the time since the device was started."""

from __future__ import annotations

import time

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def system_clock() -> int:
    """Seconds since 1970, UTC, by the wall clock of this device."""
    return max(0, int(time.time()))


def system_uptime() -> tuple[str, int]:
    """A name of the present boot ("" if the system gives none), and the seconds since the boot.

    The seconds never decrease within a boot, and no user can set them. They include the time that the device sleeps, if
    the system counts it.
    """
    boot = ""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read(64).strip()
    except (OSError, ValueError):
        boot = ""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return boot, int(time.monotonic() if clock is None else time.clock_gettime(clock))
