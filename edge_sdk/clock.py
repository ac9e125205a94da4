"""The wall clock of a device, which may be wrong: the trust state's time floor corrects it upward."""

from __future__ import annotations

import time


def system_clock() -> int:
    """Seconds since 1970, UTC, as this device believes."""
    return max(0, int(time.time()))
