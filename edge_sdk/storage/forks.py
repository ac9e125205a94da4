"""Forks of the process wait until no thread uses a state.

A child process inherits SQLite's record of held locks and can not correct it. After a fork in the middle of another
thread's transaction, the child would find the state busy for ever. So the locks of all states are taken before every
fork and released after it. The child then opens a connection of its own.
"""

from __future__ import annotations

import os
from _thread import RLock
from _weakref import ref  # the same as weakref.ref; importing weakref takes as long as importing this package
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_forking = RLock()
_locks: dict[int, tuple[Any, Any]] = {}
_taken: list[Any] = []


def quiet_at_fork(owner: object, lock: AbstractContextManager[Any]) -> None:
    """Hold ``lock``, a reentrant lock, during every fork of the process, until ``owner`` is garbage-collected."""
    key = id(owner)
    _locks[key] = ref(owner, lambda _: _locks.pop(key, None)), lock


def _before() -> None:
    _forking.acquire()
    for _, lock in list(_locks.values()):
        lock.acquire()
        _taken.append(lock)


def _after() -> None:
    while _taken:
        _taken.pop().release()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
