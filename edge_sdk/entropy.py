"""Fresh randomness from the operating system: the one place where a device draws any."""

from __future__ import annotations

import os

from protocol.errors import StorageError


def system_entropy(count: int) -> bytes:
    """``count`` bytes from the kernel's generator, never before it is ready.

    Early in a boot the kernel's pool may still be predictable; a report then waits rather than being
    made with noise that can be guessed.

    Raises:
        StorageError: ``entropy_unavailable``; try again later, nothing was spent.
    """
    if not hasattr(os, "getrandom"):
        return os.urandom(count)
    try:
        return os.getrandom(count, os.GRND_NONBLOCK)
    except BlockingIOError:
        pass
    raise StorageError("entropy_unavailable", "the system's random generator is not ready yet; try again later")
