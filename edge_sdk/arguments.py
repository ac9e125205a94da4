"""The default clocks and random generator of a device, and checks of arguments that callers often confuse."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from protocol.errors import InputError, StorageError

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def system_clock() -> int:
    """Return the seconds since 1970, UTC, that this device's wall clock shows."""
    return max(0, int(time.time()))


def system_uptime() -> tuple[str, int]:
    """Return a name of the present boot ("" if the system gives none), and the seconds since the boot.

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


def system_entropy(count: int) -> bytes:
    """Draw ``count`` bytes from the kernel's random generator.

    Raise StorageError ``entropy_unavailable`` if it is not ready yet, early in a boot: noise from it could be guessed.
    Systems without ``os.getrandom`` do not tell; there ``os.urandom`` is used.
    """
    if not hasattr(os, "getrandom"):
        return os.urandom(count)
    try:
        return os.getrandom(count, os.GRND_NONBLOCK)
    except BlockingIOError:
        pass
    raise StorageError("entropy_unavailable", "the system's random generator is not ready yet; try again later")


def check_bytes(value: object, what: str) -> None:
    """Raise InputError ``argument_invalid`` if ``value`` is not bytes. The error's text calls it ``what``."""
    if not isinstance(value, bytes):
        raise InputError("argument_invalid", f"{what} is given as bytes, not as {type(value).__name__}")


def path_of(value: object, what: str) -> str:
    """Return the absolute path for ``value``, a ``str`` or an ``os.PathLike``, so that ``os.chdir`` does not change it.

    Raises InputError ``argument_invalid``: ``value`` is no path, is a path of bytes, or has a zero byte; or it is
    relative, and the working folder is gone. The error's text calls it ``what``.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError("argument_invalid", f"{what} is the path of a file or folder")
    with suppress(FileNotFoundError):
        return os.path.abspath(path)
    raise InputError("argument_invalid", f"{what} is relative, and the working folder was removed; give a whole path")


def is_called(text: str, name: str, identifier: bytes) -> bool:
    """Return whether ``text`` is a campaign's ``name``, or the first hexadecimal digits of its id ``identifier``.

    The digits may be in upper or lower case. The empty text only matches an empty name.
    """
    return text == name or (bool(text) and identifier.hex().startswith(text.lower()))
