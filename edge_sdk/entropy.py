"""Fresh randomness from the operating system. Devices draw random bytes nowhere else."""

from __future__ import annotations

import os

from protocol.errors import StorageError


def system_entropy(count: int) -> bytes:
    """Draw ``count`` bytes from the kernel's random generator, once it is ready.

    Early in a boot the generator may still be predictable. A report is refused then, because its noise could be
    guessed.

    Raises:
        StorageError: ``entropy_unavailable``; nothing was spent, try again later.
    """
    if not hasattr(os, "getrandom"):
        return os.urandom(count)
    try:
        return os.getrandom(count, os.GRND_NONBLOCK)
    except BlockingIOError:
        pass
    raise StorageError("entropy_unavailable", "the system's random generator is not ready yet; try again later")
