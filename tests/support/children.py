"""Run a function in a forked child process, which may be killed."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


LOOKS = ("SELECT", "PRAGMA")
"""Statements that change nothing. A kill between two changes has the same effect at each of them."""


class Steps:
    """Counts steps; kills the process at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self.kill_at = kill_at

    def __call__(self, *_: object) -> None:
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner, name):
        """Make each call of a function of ``owner`` a step."""
        plain = getattr(owner, name)

        def counted(*arguments, **options):
            self()
            return plain(*arguments, **options)

        setattr(owner, name, counted)


def in_child(work: Callable[[], int]) -> int | None:
    """The function's result, or None if the child was killed."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            os.write(write_end, b"%d" % work())
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.WEXITSTATUS(status) == 0
    return int(text)
