"""The reason of an error, and all texts that the error shows."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from protocol.errors import HearsayError

if TYPE_CHECKING:
    from collections.abc import Callable


def failure(function: Callable[..., Any], *arguments: Any, **options: Any) -> HearsayError | None:
    """The HearsayError that a call raises; None if the call succeeds. Other errors are raised again."""
    try:
        function(*arguments, **options)
    except HearsayError as error:
        return error
    return None


def reason(function: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
    """The stable reason of the error that a call raises; None if the call succeeds.

    The error must have no cause and no context: the text of another error may contain values.
    """
    error = failure(function, *arguments, **options)
    if error is None:
        return None
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason


def reason_of(kind: type[HearsayError], function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The stable reason of the error of this class that a call must raise; it may have a cause."""
    error = failure(function, *arguments, **options)
    assert isinstance(error, kind), f"{error!r} is no {kind.__name__}"
    return error.reason


def refusal(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The stable reason of the error that a call must raise. Unlike that of :func:`reason` it may have a cause."""
    return reason_of(HearsayError, function, *arguments, **options)


def everything_said(error: BaseException) -> str:
    """All texts that a log or crash report could show of an error, its causes and its contexts."""
    parts = []
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        parts += [str(each), repr(each), repr(each.args), repr(vars(each))]
        pending += [each.__cause__, each.__context__]
    return "\n".join([*parts, *traceback.format_exception(error)])


def failing(action, *arguments, **options):
    """The result of a call or its HearsayError. Any other error fails the test."""
    try:
        return action(*arguments, **options)
    except HearsayError as error:
        return error
