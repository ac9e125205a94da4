"""What a failure is called, and everything it says to whoever sees it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from protocol.errors import HearsayError

if TYPE_CHECKING:
    from collections.abc import Callable


def failure(function: Callable[..., Any], *arguments: Any, **options: Any) -> HearsayError | None:
    """The error of ours that a call ends with; None if it succeeds. Other errors pass through."""
    try:
        function(*arguments, **options)
    except HearsayError as error:
        return error
    return None


def reason(function: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
    """The stable reason a call is refused for; None if it succeeds.

    No other error may hang on to ours: its text is not under our control.
    """
    error = failure(function, *arguments, **options)
    if error is None:
        return None
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason


def everything_said(error: BaseException) -> str:
    """All that a log or a crash report could show of an error and of those it hangs on to."""
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
    """The result, or our error; any other is the test's failure."""
    try:
        return action(*arguments, **options)
    except HearsayError as error:
        return error
