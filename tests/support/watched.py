"""Bytes that count the operations on them, so that tests measure work without a clock; and waiting for what comes."""

from __future__ import annotations

import time
import tracemalloc


class Watched(bytes):
    """Bytes that count steps: every comparison, and every searched or copied byte, is one step."""

    steps = 0

    def startswith(self, prefix, start=0):
        Watched.steps += 1
        return super().startswith(prefix, start)

    def find(self, what, start=0, stop=None):
        stop = len(self) if stop is None else min(stop, len(self))
        place = super().find(what, start, stop)
        Watched.steps += 1 + max(0, (stop if place < 0 else place) - start)
        return place

    def rfind(self, what, start=0, stop=None):
        stop = len(self) if stop is None else min(stop, len(self))
        place = super().rfind(what, start, stop)
        Watched.steps += 1 + max(0, stop - (start if place < 0 else place))
        return place

    def endswith(self, suffix):
        Watched.steps += 1
        return super().endswith(suffix)

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Watched.steps += len(found) if isinstance(key, slice) else 1
        return found


def wait_for(holds):
    """Wait until a condition holds, for a minute at most."""
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to that")


def peak(work):
    """The most memory that a call has in use at once, in bytes."""
    tracemalloc.start()
    work()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found
