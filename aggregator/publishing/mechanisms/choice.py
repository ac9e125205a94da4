"""The mechanism of each question: named by the analyst, or chosen by the theoretical variance.

N devices that are asked Q questions give N/Q answers to each, so if one answer has variance v, an estimate has variance
v·Q/N. Mechanisms for numbers are compared by v·Q; v is the largest variance of one answer about x ∈ {−1, 0, 1}, divided
by 4, the squared width of the range. Source: docs/math.md, 1 to 3; decision 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache
from math import sqrt
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from protocol import SCALE, mechanisms
from protocol.documents.campaign import GAUSSIAN
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism, Mechanism
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import ALL_AT_ONCE, MOMENT, MOMENTS, ONE_PER_CLASS, SINGLE_NUMBER, Subject, gaussian_subjects
from protocol.schema import Schema

AUTO = "auto"
CANDIDATES = ("direct", "oue", "subset")
"""Mechanisms of one value that :data:`AUTO` compares. A mechanism of another package is not compared: a campaign must
name it, since each device needs that package."""
OR = "+"
"""Stands between mechanisms that a campaign names for a comparison like that of :data:`AUTO`: ``direct+oue``."""
WORTH = 0.05
"""A mechanism must need over 5 % fewer devices to be preferred to one that is named before it."""


def kind_of(name: str) -> type[Mechanism]:
    """Return a mechanism's class by its name. Raises ``mechanism_unknown`` or ``mechanism_incomplete``."""
    try:
        return mechanisms.kind(name)
    except InputError as error:
        if error.reason != "mechanism_unknown":
            raise
        told = f"{error.detail}; or {AUTO}"
    raise InputError("mechanism_unknown", told)


def mechanism_for(name: str, epsilon_micro: int, size: int, **options: Any) -> Mechanism:
    """Return the mechanism of one question with K = ``size`` values. ``options``: further parameters of the mechanism.

    ``auto`` compares :data:`CANDIDATES`, and names with :data:`OR` between them compare these. The first is taken that
    no other undercuts by more than :data:`WORTH` in the noise variance of one answer, summed over the K values:

        ((K − 1)q(1 − q) + p(1 − p))/(p − q)²

    where an answer supports the true value with probability p, any other with q. This is the exact sum for all shares
    of the values, since these sum to 1. Source: docs/math.md, section 1; decision 124.

    Raises InputError: ``mechanism_unknown``; ``option_unknown``; or a number is out of the mechanism's range.
    """
    names = named(name)
    if len(names) == 1:
        return mechanisms.from_micro(name, epsilon_micro, size, **options)
    if options:
        raise InputError(
            "option_unknown", f"{name} chooses among {', '.join(names)}, which take no option '{min(options)}'"
        )
    found = [mechanisms.from_micro(each, epsilon_micro, size) for each in names]
    noise = [_noise_of_table(each) for each in found]
    return next(each for each, own in zip(found, noise, strict=True) if (1 - WORTH) * own <= min(noise))


def named(name: str) -> tuple[str, ...]:
    """Return the names of the mechanisms that ``name`` stands for; :data:`CANDIDATES` for ``auto``.

    Raises InputError ``mechanism_unknown`` or ``mechanism_incomplete``.
    """
    return CANDIDATES if name == AUTO else tuple(kind_of(each).name for each in name.split(OR))


def _noise_of_table(mechanism: Mechanism) -> Fraction:
    """Return ((K − 1)q(1 − q) + p(1 − p))/(p − q)², with p and q as in :class:`FrequencyMechanism`."""
    if not isinstance(mechanism, FrequencyMechanism):
        raise InputError("mechanism_unknown", f"{mechanism.name} can not be compared: its answers support no values")
    p, q = mechanism.p, mechanism.q
    return ((mechanism.size - 1) * q * (1 - q) + p * (1 - p)) / (p - q) ** 2


@cache
def forms() -> Mapping[str, str]:
    """Return numeric mechanism → default form of its questions about moments: one number, one per class, or all."""
    kinds = {name: mechanisms.kind(name) for name in mechanisms.names()}
    return MappingProxyType(
        {name: _own_form(kind) for name, kind in kinds.items() if issubclass(kind, NumericMechanism)}
    )


def is_numeric(name: str) -> bool:
    """Return whether a name is that of a mechanism for numbers; False for an unknown name."""
    try:
        return issubclass(mechanisms.kind(name), NumericMechanism)
    except InputError:
        return False


def _own_form(kind: type[NumericMechanism]) -> str:
    if kind.layout == mechanisms.SINGLE:
        return SINGLE_NUMBER
    return ALL_AT_ONCE if kind.asks_for_all else ONE_PER_CLASS


def form_of(name: str, approach: int | None = None) -> str:
    """Return the form of a mechanism's questions about moments: a single number, one per class, or all numbers at once.

    ``approach``, of ``laplace`` alone: 1 asks for all numbers at once, 3 for one (the papers' numbering). Raises
    InputError ``mechanism_unknown``: it is not numeric; ``approach_invalid``.
    """
    if not is_numeric(name):
        raise InputError("mechanism_unknown", f"a Gaussian campaign takes {', '.join(forms())}")
    if approach is None or (name, approach) == ("laplace", 3):
        return _own_form(cast("type[NumericMechanism]", mechanisms.kind(name)))
    if (name, approach) == ("laplace", 1):
        return ALL_AT_ONCE
    raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")


def moment_mechanism(name: str, epsilon_micro: int, subject: Subject, numbers: int) -> Mechanism:
    """Return a Gaussian campaign's mechanism for a question; ``numbers``: how many observed features are numeric."""
    if subject.kind not in (MOMENT, MOMENTS):
        return mechanism_for("direct", epsilon_micro, subject.size)
    options = {}
    if name == "laplace":
        options = {"delta": 2 * (numbers if subject.kind == MOMENTS else 1)}
    return mechanism_for(name, epsilon_micro, subject.size, **options)


_RANGE_SQUARED = 4
APPROACHES = {"laplace": (1, 3)}


class Candidate(NamedTuple):
    """One choice of mechanism and approach (None except for ``laplace``), with its theoretical variance.

    ``questions``: Q, the number of questions. ``variance``: v·Q, with v the largest variance of one answer, for a
    number of range 1. Divided by the number of devices it is the variance of an estimate.
    """

    family: str
    mechanism: str
    approach: int | None
    questions: int
    variance: float

    def standard_error(self, devices: int) -> float:
        """Return the standard error of an estimate from one answer of each device: √(``variance``/``devices``)."""
        return sqrt(self.variance / devices)


def candidates(schema: Schema, epsilon_micro: int, *, joint: bool = True) -> list[Candidate]:
    """Return all mechanisms and approaches for the numbers of a schema, sorted by rising variance.

    ``laplace`` is left out where its noise does not fit into a report. ``joint``: whether one question may be about all
    numbers. Raises InputError ``epsilon_invalid``; ``no_numbers``.
    """
    found = []
    for name in forms():
        for approach in APPROACHES.get(name, (None,)):
            if not joint and form_of(name, approach) == ALL_AT_ONCE:
                continue
            with suppress(_TooWideError):
                found.append(_gaussian(schema, epsilon_micro, name, approach))
    return sorted(found, key=lambda candidate: candidate.variance)


class _TooWideError(Exception):
    """The noise of ``laplace`` does not fit into a report: too many numbers for so small an ε."""


def _gaussian(schema: Schema, epsilon_micro: int, name: str, approach: int | None) -> Candidate:
    subjects = gaussian_subjects(schema, form_of(name, approach))
    try:
        mechanism = moment_mechanism(name, epsilon_micro, subjects[-1], len(schema.numeric))
    except InputError as error:
        if error.reason != "parameters_invalid":
            raise
        raise _TooWideError from None
    assert isinstance(mechanism, NumericMechanism)
    worst = max(float(mechanism.variance(x)) for x in (-SCALE, 0, SCALE)) / SCALE**2 / _RANGE_SQUARED
    return Candidate(GAUSSIAN, name, approach, len(subjects), worst * len(subjects))


def choose(
    schema: Schema, family: str, mechanism: str, approach: int | None, epsilon_micro: int, *, joint: bool = True
) -> Candidate | None:
    """Return the numeric mechanism with the smallest variance; None unless a Gaussian campaign leaves it to ``auto``.

    ``schema``: with its projection. ``joint``: whether questions may be about all numbers at once. Raises InputError
    ``approach_invalid``; ``ask_invalid``: the approach needs ``joint``; and as :func:`candidates`.
    """
    if approach not in (None, 1, 3):
        raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")
    if (family, mechanism) != (GAUSSIAN, AUTO):
        return None
    fitting = [one for one in candidates(schema, epsilon_micro, joint=joint) if approach in (None, one.approach)]
    if not fitting:
        raise InputError("ask_invalid", "approach 1 asks about all numbers at once; ask about all, or say approach 3")
    return fitting[0]
