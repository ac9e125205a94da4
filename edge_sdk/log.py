"""What happens on a device, for the log of the application that embeds it: the logger ``edge_sdk``.

Logs are sent to other machines, so no line depends on a record: a line says which campaign was answered, what was
refused and why, what was sealed and fetched, and neither a value nor whether there was one. The one exception is a
refused value in a campaign whose ``unlisted`` is ``refuse``, which owners allow for development only.

``logging`` is not imported for it, which keeps the start of a small device short: whoever wants the lines has imported
it. Without a handler nothing is written.
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
"""As ``logging`` numbers them: what was done or refused to a caller who is told; what a run went on without."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def note(level: int, message: str, *arguments: object) -> None:
    """Write one line, if the application has a log. What a handler raises changes nothing here."""
    logging = sys.modules.get("logging")
    if logging is not None:
        with suppress(Exception):
            logger = logging.getLogger(LOGGER)
            if not logger.handlers:
                logger.addHandler(logging.NullHandler())
            logger.log(level, message, *arguments)


def logged(step: str, told: Callable[[Any], str] | None = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Note every refusal of a method, and what was done.

    Args:
        step: the word that begins the line.
        told: result → what was done; None notes refusals only.
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
