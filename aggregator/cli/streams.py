"""Standard input, output and error of the program ``hearsay``: what to do if one is closed or can not be written."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from protocol.errors import StorageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

OUTPUT = 1
"""Descriptor of standard output."""


def prepare_streams() -> None:
    """Make the standard streams usable. Call it once, at the start of the program, before any file is opened.

    - A closed descriptor of 0, 1 and 2 is opened on the null device. Otherwise the next file that the program opens
      would get its number, and what is printed would be written into that file.
    - Characters that the terminal's encoding lacks, such as ε, are printed as ``?``.
    - A failed write to standard output raises ``output_failed``, or ``BrokenPipeError`` if the reader has ended. A
      failed write to standard error is ignored, since notes do not decide whether a command is carried out.

    A stream that replaces the one of Python's start, for example in a test, stays as it is.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _opened_on_null(number)
        if stream is not None:
            setattr(sys, name, stream)
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        sys.stdout = _text(_Output(OUTPUT, "wb", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _text(_Notes(2, "wb", closefd=False), sys.stderr)


def discard_output() -> None:
    """Send all further output to the null device, also what Python prints at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), OUTPUT)
    except OSError:  # the null device can not be opened
        _Output.discards = True


def _opened_on_null(number: int) -> io.TextIOWrapper | None:
    """Replace a closed descriptor by the null device, or a folder if there is none; return its stream, else None."""
    try:
        os.fstat(number)
        return None
    except OSError:
        pass
    try:
        opened, is_null = os.open(os.devnull, os.O_RDWR), True  # the system takes the lowest free number
    except OSError:
        opened, is_null = os.open(os.sep, os.O_RDONLY), False
    assert opened == number
    os.set_inheritable(opened, True)  # a worker process must not find the descriptor closed either
    if not is_null:
        return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")
    return os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", errors="replace")


class _Output(io.FileIO):
    """Standard output without a buffer. After a failed write the rest of the output is discarded."""

    discards = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes and return their number. Raise BrokenPipeError if the reader has ended, or ``output_failed``."""
        problem = ""
        if self.discards:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output()
            problem = error.strerror or "the system refused it"
        raise StorageError(
            "output_failed", f"the output can not be written: {problem}; what the command did before is not undone"
        )


class _Notes(io.FileIO):
    """Standard error without a buffer. What can not be written is dropped."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _text(raw: io.FileIO, like: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding,
        errors="replace",
        line_buffering=getattr(like, "line_buffering", False),
        write_through=getattr(like, "write_through", False),
    )
