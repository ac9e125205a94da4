"""Check before a campaign is signed that the aggregator supports all of its mechanisms.

A mechanism without an estimator must be refused before a device spends ε on it. Source: decision 50.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aggregator.estimates.debias import debias, marginal, noise_law, pairs_of
from aggregator.estimates.intervals import count_interval
from aggregator.publishing.mechanisms.draws import draw
from protocol.documents.payload import is_seen
from protocol.errors import InputError
from protocol.mechanisms import BITS, Mechanism, ValueMechanism
from protocol.mechanisms.by_family import ByFamily
from protocol.questions import Question

PARTS: Mapping[str, ByFamily[Any]] = {
    "estimator": debias,
    "interval": count_interval,
    "vectorised draw": draw,
}
"""Functions that every family of mechanisms needs: name → function with one registered implementation per family."""
PARTS_OF_VALUES: Mapping[str, ByFamily[Any]] = {
    "noise law": noise_law,
    "covariances": pairs_of,
    "group estimator": marginal,
}
"""Further functions that a mechanism about one value needs. They estimate the classes' shares from its answers."""
MAX_DESCRIPTION = 200
"""Longest description of a mechanism, in characters. ``explain`` prints the description in one line."""


def check_complete(questions: Iterable[Question]) -> None:
    """Raise InputError ``mechanism_incomplete`` if answers to a question can not be described or estimated.

    The error names all that a mechanism lacks: a description, the functions in :data:`PARTS` and ``impossible``; if it
    is about one value also :data:`PARTS_OF_VALUES`; if its answers are rows of bits also ``set_bits_law``.
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
    """Return the names of what :func:`check_complete` misses in a mechanism; empty for a complete one."""
    parts = dict(PARTS) | (dict(PARTS_OF_VALUES) if isinstance(mechanism, ValueMechanism) else {})
    kind = type(mechanism)
    missing = [name for name, part in parts.items() if not part.has(kind)]
    if (
        isinstance(mechanism, ValueMechanism)
        and not missing
        and marginal(mechanism, 1, [0] * mechanism.size, 1) is None
    ):
        missing.append("group estimator")
    if kind.impossible is Mechanism.impossible:
        missing.append("check of impossible answers")
    if mechanism.layout == BITS and kind.set_bits_law is Mechanism.set_bits_law:
        missing.append("law of set bits")
    described = mechanism.describe()
    if not described.strip() or len(described) > MAX_DESCRIPTION or not is_seen(described):
        missing.insert(0, "description")
    return missing
