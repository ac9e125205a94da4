"""What became of an input: refused for a documented reason, or taken, and then it has a property."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from support.failures import failure

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD_REASONS = {"malformed", "unsupported_version"}


def refused(function: Callable[..., Any], *arguments: Any, reasons: set[str]) -> str | None:
    """The reason of a refusal, which must be one of those documented; None if there was none."""
    error = failure(function, *arguments)
    if error is None:
        return None
    assert error.reason in reasons, error.reason
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason


def taken_by(parser: str, reasons: set[str]) -> Callable[[Callable[..., str | None]], Callable[[bytes], str]]:
    """Make a target of the property that a parser's results have.

    Args:
        parser: its name in the module of the property: tests replace it there by a faulty parser.
        reasons: with which it may refuse its input.
    """

    def make(check: Callable[..., str | None]) -> Callable[[bytes], str]:
        @wraps(check)
        def target(data: bytes) -> str:
            parse = check.__globals__[parser]
            return refused(parse, data, reasons=reasons) or check(parse(data), data) or "accepted"

        return target

    return make
