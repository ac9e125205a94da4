"""Errors of SQLite as errors of this software, without the texts of SQLite, which may quote bytes of a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aggregator.common.files import failure_of
from protocol.errors import StorageError

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_ERROR", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH",
           "SQLITE_TOOBIG", "OperationalError", "OverflowError", "UnicodeDecodeError")  # fmt: skip
"""Beginnings of the names of errors that an undamaged file of this software never causes."""


class Failures(NamedTuple):
    """The errors that a user of an SQLite file sees.

    Attributes:
        what: the file in words, for example "the budget file".
        busy: another process holds the file.
        full: there is no space left.
        damaged: the contents are not what this software has written.
    """

    what: str
    busy: StorageError
    full: StorageError
    damaged: StorageError


@contextmanager
def sqlite_errors(failures: Failures) -> Iterator[None]:
    """Context manager that turns errors of SQLite and of the system into those of ``failures``, or ``io_failed``."""
    problem: Exception
    try:
        yield
    except (OSError, sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        problem = error
    else:
        return
    failure = _translated(problem, failures)
    try:
        raise failure
    finally:
        failure.__context__ = None  # An error of this package shows no text of another error.


def _translated(error: Exception, failures: Failures) -> StorageError:
    if isinstance(error, OSError):
        reason, problem = failure_of(error)
        return StorageError(reason, f"{failures.what} can not be used: {problem}")
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return failures.busy
    if name.startswith("SQLITE_FULL"):
        return failures.full
    if name.startswith(_DAMAGE):
        return failures.damaged
    return StorageError("io_failed", f"{failures.what} can not be read or written ({name})")
