"""Which family and which numeric mechanism: by the variances that theory gives, before any data is seen.

For N devices and Q questions asked alike, a question gets about N/Q answers, so what one answer leaves
of variance v becomes v·Q/N. Candidates are compared by v·Q, the variance per device of the fleet:

- Gaussian: v is the worst variance of one answer about a number x in [−1, 1] (over inputs −1, 0 and 1),
  halved twice because the range of a number is 2 and that of a share is 1;
- discrete: v is the variance of a cell's share that nobody holds, q(1 − q)/(p − q)², of the worst feature.

Both are then variances of a quantity of range 1. It is a rule of thumb for what can be known beforehand:
it knows nothing of how well normal distributions or bins would fit the data.
Source: docs/math.md, sections 1 to 3; docs/decisions/0014.
"""

from __future__ import annotations

from contextlib import suppress
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from aggregator.planning.choice import AUTO, FORMS, form_of, mechanism_for, moment_mechanism
from protocol import SCALE
from protocol.campaign import DISCRETE, GAUSSIAN
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import discrete_subjects, gaussian_subjects

if TYPE_CHECKING:
    from protocol.schema import Schema

_RANGE_SQUARED = 4
APPROACHES = {"laplace": (1, 3)}


class Candidate(NamedTuple):
    """One way to ask, and what theory expects of it.

    Attributes:
        family, mechanism, approach: what a campaign would be told; approach is of laplace alone.
        questions: Q.
        variance: v·Q, of a quantity of range 1, per device of the fleet.
    """

    family: str
    mechanism: str
    approach: int | None
    questions: int
    variance: float

    def standard_error(self, devices: int) -> float:
        """√(v·Q/N) for N devices that answer once."""
        return sqrt(self.variance / devices)


def candidates(schema: Schema, epsilon_micro: int) -> list[Candidate]:
    """All ways to ask this schema's questions at one answer of ε, the smallest variance first.

    Raises:
        InputError: ``epsilon_invalid``.
    """
    found = [_discrete(schema, epsilon_micro)]
    if schema.numeric:
        for name in FORMS:
            for approach in APPROACHES.get(name, (None,)):
                with suppress(_TooWideError):
                    found.append(_gaussian(schema, epsilon_micro, name, approach))
    return sorted(found, key=lambda candidate: candidate.variance)


class _TooWideError(Exception):
    """With so many numbers and so small an ε the noise of ``laplace`` does not fit into a report."""


def _discrete(schema: Schema, epsilon_micro: int) -> Candidate:
    subjects = discrete_subjects(schema)
    worst = 0.0
    for subject in subjects:
        mechanism = mechanism_for(AUTO, epsilon_micro, subject.size)
        assert isinstance(mechanism, FrequencyMechanism)
        p, q = mechanism.p, mechanism.q
        worst = max(worst, float(q * (1 - q) / (p - q) ** 2))
    return Candidate(DISCRETE, AUTO, None, len(subjects), worst * len(subjects))


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


def choose(schema: Schema, family: str, mechanism: str, approach: int | None, epsilon_micro: int) -> Candidate | None:
    """The candidate with the smallest variance among those that the analyst leaves open.

    Args:
        schema: of the campaign, with its projection.
        family: ``discrete``, ``gaussian`` or ``auto``.
        mechanism: a mechanism or ``auto``.
        approach: of laplace, or None.
        epsilon_micro: ε of one answer, in millionths.

    Returns:
        None where nothing is left open, or only which of ``direct`` and ``oue`` answers a question.

    Raises:
        InputError: ``approach_invalid``; ``family_unknown``: no candidate is of this family and mechanism.
    """
    if approach not in (None, 1, 3):
        raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")
    if family != AUTO and not (family == GAUSSIAN and mechanism == AUTO):
        return None
    fitting = [
        candidate
        for candidate in candidates(schema, epsilon_micro)
        if family in (AUTO, candidate.family)
        and mechanism in (AUTO, candidate.mechanism)
        and approach in (None, candidate.approach)
    ]
    if not fitting:
        raise InputError("family_unknown", "no family takes that mechanism; name both, or leave both to auto")
    return fitting[0]
