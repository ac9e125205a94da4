"""The mechanism of each question: named by the analyst, or chosen by the theoretical variance."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from protocol import mechanisms
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism, Mechanism
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import ALL_AT_ONCE, MOMENT, MOMENTS, ONE_PER_CLASS, SINGLE_NUMBER, Subject

AUTO = "auto"
CANDIDATES = ("direct", "oue")
"""Mechanisms of one value that :data:`AUTO` compares; of equally good ones the first. A mechanism of another package
is none: a campaign names it, since each device needs its package."""


def kind_of(name: str) -> type[Mechanism]:
    """The class of a mechanism that an analyst named, also of another package.

    Raises:
        InputError: ``mechanism_unknown``, which also says that there is ``auto``; ``mechanism_incomplete``.
    """
    try:
        return mechanisms.kind(name)
    except InputError as error:
        if error.reason != "mechanism_unknown":
            raise
        told = f"{error.detail}; or {AUTO}"
    raise InputError("mechanism_unknown", told)


def mechanism_for(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """The mechanism of one question. Run by the analyst, before any device answers.

    ``auto`` means the one of :data:`CANDIDATES` with the smallest variance per answer for a value that no device holds,
    q(1 − q)/(p − q)². That is (K − 2 + e^ε)/(e^ε − 1)² for ``direct`` and 4e^ε/(e^ε − 1)² for ``oue``: ``direct`` if
    K < 3e^ε + 2.

    Args:
        name: a mechanism, or :data:`AUTO`.
        epsilon_micro: ε of one answer, in millionths.
        size: K, the number of values.
        options: further parameters of the mechanism.

    Raises:
        InputError: ``mechanism_unknown``; ``option_unknown``, ``auto`` or the mechanism has no such option;
            ``epsilon_invalid``, ``size_invalid``, outside the mechanism's range; ``parameters_invalid``, the noise
            does not fit into a report; ``theta_invalid``, ``delta_invalid``, of a mechanism with this option.

    Source: Wang et al., USENIX Security 2017, section 5.1, equations for f = 0.
    """
    if name == AUTO:
        if options:
            raise InputError("option_unknown", f"{AUTO} chooses direct or oue, which have no option '{min(options)}'")
        return min((mechanisms.from_micro(each, epsilon_micro, size) for each in CANDIDATES), key=_noise_of_nothing)
    return mechanisms.from_micro(kind_of(name).name, epsilon_micro, size, **options)


def _noise_of_nothing(mechanism: Mechanism) -> Fraction:
    """q(1 − q)/(p − q)²: the variance of one answer about a value that no device holds."""
    assert isinstance(mechanism, FrequencyMechanism)
    return mechanism.q * (1 - mechanism.q) / (mechanism.p - mechanism.q) ** 2


@cache
def forms() -> Mapping[str, str]:
    """For each numeric mechanism, by name: the default form of its questions about moments.

    A form says how many numbers one question asks for: a single one, one per class, or all at once. These are the
    mechanisms of the table; :func:`form_of` also knows one of another package.
    """
    kinds = {name: mechanisms.kind(name) for name in mechanisms.names()}
    return MappingProxyType(
        {name: _own_form(kind) for name, kind in kinds.items() if issubclass(kind, NumericMechanism)}
    )


def is_numeric(name: str) -> bool:
    """Whether a mechanism is about numbers. An unknown name is none."""
    try:
        return issubclass(mechanisms.kind(name), NumericMechanism)
    except InputError:
        return False


def _own_form(kind: type[NumericMechanism]) -> str:
    """The form of a mechanism's questions about moments, from its layout."""
    if kind.layout == mechanisms.SINGLE:
        return SINGLE_NUMBER
    return ALL_AT_ONCE if kind.asks_for_all else ONE_PER_CLASS


def form_of(name: str, approach: int | None = None) -> str:
    """The form of a mechanism's questions about moments: a single number, one per class, or all numbers at once.

    Args:
        name: a numeric mechanism.
        approach: only for ``laplace``: 1 asks for all numbers at once, 3 for one feature's number (the papers'
            numbering).

    Raises:
        InputError: ``mechanism_unknown``, the mechanism is not numeric; ``approach_invalid``, the approach is neither
            1 nor 3, or the mechanism is not ``laplace``.
    """
    if not is_numeric(name):
        raise InputError("mechanism_unknown", f"a Gaussian campaign takes {', '.join(forms())}")
    if approach is None or (name, approach) == ("laplace", 3):
        return _own_form(cast("type[NumericMechanism]", mechanisms.kind(name)))
    if (name, approach) == ("laplace", 1):
        return ALL_AT_ONCE
    raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")


def moment_mechanism(name: str, epsilon_micro: int, subject: Subject, numbers: int) -> Mechanism:
    """The mechanism of one question of a Gaussian campaign: ``name`` for moments, ``direct`` for all other subjects.

    Args:
        name: a numeric mechanism.
        epsilon_micro: ε of one answer, in millionths.
        subject: the question's subject.
        numbers: number of numeric observed features.

    Raises:
        InputError: ``mechanism_unknown``, ``epsilon_invalid``, ``size_invalid``, ``parameters_invalid``, as
            :func:`mechanism_for` explains.
    """
    if subject.kind not in (MOMENT, MOMENTS):
        return mechanism_for("direct", epsilon_micro, subject.size)
    options = {}
    if name == "laplace":
        options = {"delta": 2 * (numbers if subject.kind == MOMENTS else 1)}
    return mechanism_for(name, epsilon_micro, subject.size, **options)
