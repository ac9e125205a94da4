"""Fresh randomness from the operating system. Devices draw random bytes nowhere else."""

from __future__ import annotations

import os

from protocol.errors import StorageError


def system_entropy(count: int) -> bytes:
    """Draw ``count`` bytes from the kernel's random generator, once it is ready.

    Early in a boot the generator may still be predictable, and noise from it could be guessed. Systems without
    ``os.getrandom`` do not tell whether it is ready; there ``os.urandom`` is used.

    Raises:
        StorageError: ``entropy_unavailable``: the generator is not ready; try again later.
    """
    if not hasattr(os, "getrandom"):
        return os.urandom(count)
    try:
        return os.getrandom(count, os.GRND_NONBLOCK)
    except BlockingIOError:
        pass
    raise StorageError("entropy_unavailable", "the system's random generator is not ready yet; try again later")
