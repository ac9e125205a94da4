"""Check before a campaign is signed that the aggregator supports all of its mechanisms.

Devices spend their ε on answers. A mechanism without an estimator must be refused before a device sees the campaign,
and not after the reports have arrived. Source: docs/decisions/0050.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.estimates.debias import debias, marginal, noise_law
from aggregator.estimates.intervals import count_interval
from aggregator.planning.draws import draw
from protocol.errors import InputError
from protocol.mechanisms import ValueMechanism
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
"""Parts that a family of mechanisms needs: name → function with one registered implementation per family."""
PARTS_OF_VALUES: Mapping[str, _SingleDispatchCallable[Any]] = {"noise law": noise_law, "group estimator": marginal}
"""Further parts of a mechanism about one value. Without them its answers would say nothing of the classes' shares."""
MAX_DESCRIPTION = 200
"""Longest description of a mechanism, in characters. ``explain`` prints the description in one line."""


def check_complete(questions: Iterable[Question]) -> None:
    """Refuse questions whose mechanism can not be described to owners or not be estimated. Run before signing.

    A mechanism needs a description, an estimator, an interval and a vectorised draw (:data:`PARTS`); a mechanism about
    one value also needs the parts in :data:`PARTS_OF_VALUES`.

    Raises:
        InputError: ``mechanism_incomplete``, for one such mechanism; the error names all parts that it lacks.
    """
    for mechanism in {question.mechanism for question in questions}:
        missing = missing_parts(mechanism)
        if missing:
            lacking = ", ".join(missing)
            raise InputError(
                "mechanism_incomplete",
                f"the mechanism {mechanism.name} lacks its {lacking}: see docs/how-to/extending.md",
            )


def missing_parts(mechanism: Mechanism) -> list[str]:
    """Names of a mechanism's missing parts; empty for a complete mechanism.

    The description is missing unless it is one line of at most :data:`MAX_DESCRIPTION` visible characters.
    """
    parts = dict(PARTS) | (dict(PARTS_OF_VALUES) if isinstance(mechanism, ValueMechanism) else {})
    missing = [name for name, part in parts.items() if part.dispatch(type(mechanism)) is part.dispatch(object)]
    described = mechanism.describe()
    if not described.strip() or len(described) > MAX_DESCRIPTION or not is_seen(described):
        missing.insert(0, "description")
    return missing
