"""Whether a function refuses its input, and for a documented reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.failures import failure

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(function: Callable[..., Any], *arguments: Any, reasons: set[str]) -> str | None:
    """The reason of a refusal, which must be one of those documented; None if there was none."""
    error = failure(function, *arguments)
    if error is None:
        return None
    assert error.reason in reasons, error.reason
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.reason
