"""Which mechanism answers which question: as named, or chosen by the variance that theory gives."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from protocol import mechanisms
from protocol.epsilon import exp_below
from protocol.errors import InputError
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import ALL_AT_ONCE, MOMENT, MOMENTS, ONE_PER_CLASS, SINGLE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.mechanisms import Mechanism
    from protocol.questions import Subject

AUTO = "auto"


def mechanism_for(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """The mechanism of one question. Run by the analyst, before any data is seen.

    ``auto`` takes ``direct`` if K < 3e^ε + 2, else ``oue``: whichever has the smaller variance for a
    value that nobody holds, (K − 2 + e^ε)/(e^ε − 1)² against 4e^ε/(e^ε − 1)² per answer.

    Args:
        name: a mechanism, or :data:`AUTO`.
        epsilon_micro: ε of one answer, in millionths.
        size: K, the number of values.
        options: of the mechanism.

    Raises:
        InputError: ``mechanism_unknown``, ``option_unknown``, ``epsilon_invalid``, ``size_invalid``.
    Source: Wang et al., USENIX Security 2017, section 5.1, equations for f = 0.
    """
    if name == AUTO:
        if options:
            raise InputError("option_unknown", f"{AUTO} chooses direct or oue, which have no option '{min(options)}'")
        name = "direct" if size - 2 < 3 * exp_below(epsilon_micro) else "oue"
    if name not in mechanisms.names():
        raise InputError("mechanism_unknown", f"the mechanisms are {', '.join(mechanisms.names())}, or {AUTO}")
    return mechanisms.from_micro(name, epsilon_micro, size, **options)


@cache
def forms() -> Mapping[str, str]:
    """Numeric mechanism → how it asks for moments. ``laplace`` can also ask for all numbers at once."""
    kinds = {name: mechanisms.kind(name) for name in mechanisms.names()}
    return MappingProxyType(
        {name: _own_form(kind) for name, kind in kinds.items() if issubclass(kind, NumericMechanism)}
    )


def _own_form(kind: type[NumericMechanism]) -> str:
    if kind.layout == mechanisms.SINGLE:
        return SINGLE_NUMBER
    return ALL_AT_ONCE if kind.asks_for_all else ONE_PER_CLASS


def form_of(name: str, approach: int | None = None) -> str:
    """How a mechanism asks for moments.

    Args:
        name: a numeric mechanism.
        approach: for ``laplace``: 1 all numbers at once, 3 one feature's number (the papers' numbering).

    Raises:
        InputError: ``mechanism_unknown``, it is none for numbers; ``approach_invalid``.
    """
    if name not in forms():
        raise InputError("mechanism_unknown", f"a Gaussian campaign takes {', '.join(forms())}")
    if approach is None or (name, approach) == ("laplace", 3):
        return forms()[name]
    if (name, approach) == ("laplace", 1):
        return ALL_AT_ONCE
    raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")


def moment_mechanism(name: str, epsilon_micro: int, subject: Subject, numbers: int) -> Mechanism:
    """The mechanism of one question of a Gaussian campaign: numeric for moments, ``direct`` for the rest.

    Args:
        name: a numeric mechanism.
        epsilon_micro: ε of one answer, in millionths.
        subject: what the question is about.
        numbers: how many observed features are numbers.
    """
    if subject.kind not in (MOMENT, MOMENTS):
        return mechanism_for("direct", epsilon_micro, subject.size)
    options = {}
    if name == "laplace":
        options = {"delta": 2 * (numbers if subject.kind == MOMENTS else 1)}
    return mechanism_for(name, epsilon_micro, subject.size, **options)
