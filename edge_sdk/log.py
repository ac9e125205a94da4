"""The logger ``edge_sdk``: log lines for the application that embeds a device. No line depends on a record.

(One exception: in a campaign with ``unlisted = "refuse"``, for development only, a line tells that a value was
refused.) This module does not import ``logging``, which keeps the start of a small device short. Nothing is written
unless the application has imported ``logging`` and added a handler.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from protocol.errors import HearsayError

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGER = "edge_sdk"
INFO = 20
WARNING = 30
"""Levels of lines, with the numbers that ``logging`` has. INFO: an action, or a refusal that the caller sees too.
WARNING: a step that a run of sync skipped."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def note(level: int, message: str, *arguments: object) -> None:
    """Write one line to the logger ``edge_sdk``, if the application has imported ``logging``.

    ``level`` is :data:`INFO` or :data:`WARNING`; ``message`` has a ``%`` format, for example ``%s``, for each argument.
    Exceptions of the application's log handlers are ignored.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        with suppress(Exception):
            logger = logging.getLogger(LOGGER)
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())
            logger.log(level, message, *arguments)


def logged(step: str, told: Callable[[Any], str] | None = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that logs each :class:`HearsayError` of a method, and its results if ``told`` is given.

    ``step`` is the first word of the line. ``told`` makes the rest of the line from the method's result.
    """

    def decorate(method: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(method)
        def call(*args: _P.args, **options: _P.kwargs) -> _R:
            try:
                result = method(*args, **options)
            except HearsayError as error:
                note(INFO, "%s refused: %s", step, error)
                raise
            if told is not None:
                note(INFO, "%s: %s", step, told(result))
            return result

        return call

    return decorate
