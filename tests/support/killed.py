"""Kill a forked process just before its n-th change of the file system."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.chmod", "os.truncate"}
_DIED, _FAILED = 86, 87


def killed_before(function: Callable[[], object], number: int) -> bool:
    """Run a function in a child that dies before change ``number`` (1, 2, …) of the file system.

    Returns:
        False if there are fewer changes: then the function ran to its end.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest's workers have threads; the child uses none
        child = os.fork()
    if child == 0:
        left = [number]

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if event in CHANGES or writes:
                left[0] -= 1
                if left[0] == 0:
                    os._exit(_DIED)

        try:
            sys.addaudithook(watch)
            function()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent must not go on as two
            os._exit(_FAILED)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _DIED), f"the child failed with {status}"
    return status == _DIED


def left_before_death(function: Callable[[], Any], number: int, also: Sequence[tuple[Any, str]] = ()) -> list[Any]:
    """Run a function in a child that dies before step ``number``, and return what left it.

    Args:
        function: what the child does. What it returns has left once it has returned.
        number: the step before which the child dies: a change of the file system, or a call of ``also``.
        also: objects and names of methods, of which each call is a step, for example the statements of a database.

    Returns:
        The function's result in a list; the empty list if the child died before. The result must be made for pickle.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        left = [number]

        def step() -> None:
            left[0] -= 1
            if left[0] == 0:
                os._exit(_DIED)

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if event in CHANGES or writes:
                step()

        def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                step()
                return plain(*arguments, **options)

            return call

        try:
            for owner, name in also:
                setattr(owner, name, counted(getattr(owner, name)))
            sys.addaudithook(watch)
            found = pickle.dumps(function())
            with os.fdopen(os.dup(writer), "wb") as pipe:
                left[0] = 0  # What is returned has left.
                pipe.write(found)
        except BaseException:  # noqa: BLE001 - whatever it is, the parent must not go on as two
            os._exit(_FAILED)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _DIED), f"the child failed with {status}"
    return [] if status == _DIED else [pickle.loads(found)]


def every_death(function: Callable[[], object]) -> Iterator[int]:
    """Run a function repeatedly and kill it before its first, second, … change. Yield after each kill."""
    for number in count(1):
        if not killed_before(function, number):
            return
        yield number
