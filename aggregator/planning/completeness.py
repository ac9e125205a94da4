"""Whether the aggregator can do all that a campaign will need, looked at before the campaign is signed.

Devices spend their ε on answers. A mechanism whose answers nobody can estimate from must therefore be refused
before a device sees the campaign, not when the reports are there. Source: docs/decisions/0050.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.estimates.debias import debias
from aggregator.estimates.intervals import count_interval
from aggregator.planning.draws import draw
from protocol.errors import InputError
from protocol.shown import is_seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from functools import _SingleDispatchCallable

    from protocol.mechanisms import Mechanism
    from protocol.questions import Question

PARTS: Mapping[str, _SingleDispatchCallable[Any]] = {
    "estimator": debias,
    "interval": count_interval,
    "vectorised draw": draw,
}
"""What the aggregator holds per family of mechanisms: name → function with one implementation per family."""
MAX_DESCRIPTION = 200
"""Longest description of a mechanism, in characters: it stands in a line of ``explain``."""


def check_complete(questions: Iterable[Question]) -> None:
    """Refuse questions whose mechanism lacks a description, an estimator, an interval or a draw.

    Run by the analyst, before a signature is made.

    Raises:
        InputError: ``mechanism_incomplete``.
    """
    for mechanism in {question.mechanism for question in questions}:
        missing = missing_parts(mechanism)
        if missing:
            lacking = ", ".join(missing)
            raise InputError(
                "mechanism_incomplete", f"the mechanism {mechanism.name} lacks its {lacking}: see docs/extending.md"
            )


def missing_parts(mechanism: Mechanism) -> list[str]:
    """Names of the parts that a mechanism lacks; none for one that a campaign may use.

    A description counts if it is one line of at most :data:`MAX_DESCRIPTION` characters that all show.
    """
    missing = [name for name, part in PARTS.items() if part.dispatch(type(mechanism)) is part.dispatch(object)]
    described = mechanism.describe()
    if not described.strip() or len(described) > MAX_DESCRIPTION or not is_seen(described):
        missing.insert(0, "description")
    return missing
