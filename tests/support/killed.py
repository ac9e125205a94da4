"""Kill a forked process just before its n-th step: a change of the file system, or a call of a given function."""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
import warnings
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "os.truncate"}
_DIED, _FAILED = 86, 87


def left_before_death(
    function: Callable[[Callable[[Any], None]], object], number: int, also: Sequence[tuple[Any, str]] = ()
) -> tuple[list[Any], bool]:
    """Run a function in a child that dies before its step ``number``: 1, 2, …; or 0 for a child that does not die.

    Args:
        function: what the child does, with a function that tells the parent a value, which can be pickled.
        number: the step, counted from 1.
        also: objects and names of their functions, of which each call is a step, for example statements of a database.

    Returns:
        The values that were told, and whether the child died.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest's workers have threads; the child uses none
        child = os.fork()
    if child == 0:
        try:
            _count_steps(number, also)
            with os.fdopen(writer, "wb", buffering=0) as pipe:
                function(lambda value: pipe.write(pickle.dumps(value)))
        except BaseException:  # noqa: BLE001 - whatever it is, the parent must not go on as two
            traceback.print_exc()
            os._exit(_FAILED)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = list(_values(pipe.read()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _DIED), f"the child failed with {status}"
    return told, status == _DIED


def _count_steps(number: int, also: Sequence[tuple[Any, str]]) -> None:
    """Let this process die before its ``number``-th step from now on."""
    left = number

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(_DIED)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _CHANGES or writes:
            step()

    def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step()
            return plain(*arguments, **options)

        return call

    for owner, name in also:
        setattr(owner, name, counted(getattr(owner, name)))
    sys.addaudithook(watch)


def _values(raw: bytes) -> Iterator[Any]:
    stream = io.BytesIO(raw)
    while stream.tell() < len(raw):
        yield pickle.load(stream)


def killed_before(function: Callable[[], object], number: int) -> bool:
    """Run a function in a child that dies before step ``number``; false if there are fewer, so that it ended."""
    return left_before_death(lambda _: function(), number)[1]


def every_death(function: Callable[[], object]) -> Iterator[int]:
    """Run a function repeatedly and kill it before its first, second, … change. Yield after each kill."""
    for number in count(1):
        if not killed_before(function, number):
            return
        yield number
