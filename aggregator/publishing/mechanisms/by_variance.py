"""Choice of the numeric mechanism by its theoretical variance, before any device answers.

N devices and Q questions with equal chances give about N/Q answers to each question. One answer with variance v
therefore leads to an estimate with variance v·Q/N. Candidates are compared by v·Q, the variance for a fleet of one
device. v is the largest variance of one answer about a number x in [−1, 1], over the inputs −1, 0 and 1, divided by
4, the squared range of x. All candidates estimate the same moments of the same numbers.

Candidates of the discrete family are not in the comparison: variances of cells and of moments do not show which model
is right more often. :mod:`aggregator.planning.power_analysis.families` ranks both families by their expected accuracy.
Source: docs/math.md, sections 1 to 3; decision 14.
"""

from __future__ import annotations

from contextlib import suppress
from math import sqrt
from typing import NamedTuple

from aggregator.publishing.mechanisms.choice import AUTO, form_of, forms, moment_mechanism
from protocol import SCALE
from protocol.documents.campaign import GAUSSIAN
from protocol.errors import InputError
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import ALL_AT_ONCE, gaussian_subjects
from protocol.schema import Schema

_RANGE_SQUARED = 4
APPROACHES = {"laplace": (1, 3)}


class Candidate(NamedTuple):
    """One choice of mechanism and approach, with its theoretical variance.

    Attributes:
        family, mechanism, approach: the campaign's parameters; ``approach`` is None except for ``laplace``.
        questions: Q, the number of questions.
        variance: v·Q, with v the largest variance of one answer, for a number of range 1. Divided by the number of
            devices it is the variance of an estimate.
    """

    family: str
    mechanism: str
    approach: int | None
    questions: int
    variance: float

    def standard_error(self, devices: int) -> float:
        """Standard error of an estimate if ``devices`` devices give one answer each: √(``variance``/``devices``)."""
        return sqrt(self.variance / devices)


def candidates(schema: Schema, epsilon_micro: int, *, joint: bool = True) -> list[Candidate]:
    """All choices for the numbers of a schema, sorted by rising variance.

    ``laplace`` is left out where its noise does not fit into a report.

    Args:
        schema: the campaign's schema, with its projection.
        epsilon_micro: ε of one answer, in millionths.
        joint: whether questions may be about all numbers at once, which needs a campaign that asks about all.

    Raises:
        InputError: ``epsilon_invalid``: outside the range of an answer; ``no_numbers``: the schema has no numeric
            feature.
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
    """The candidate with the named mechanism. Raises :class:`_TooWideError` if its parameters are impossible."""
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
    """Choose the numeric mechanism with the smallest variance, if the analyst asks for ``auto``.

    Args:
        schema: the campaign's schema, with its projection.
        family: ``discrete`` or ``gaussian``.
        mechanism: a mechanism or ``auto``.
        approach: 1 or 3 of ``laplace``, or None.
        epsilon_micro: ε of one answer, in millionths.
        joint: whether questions may be about all numbers at once.

    Returns:
        The candidate; None unless the family is ``gaussian`` and the mechanism ``auto``.

    Raises:
        InputError: ``approach_invalid``: the approach is neither None, 1 nor 3; ``epsilon_invalid``: ε is outside the
            range of an answer; ``no_numbers``: the schema has no numeric feature; ``ask_invalid``: the approach asks
            about all numbers at once, and not ``joint``.
    """
    if approach not in (None, 1, 3):
        raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")
    if (family, mechanism) != (GAUSSIAN, AUTO):
        return None
    fitting = [one for one in candidates(schema, epsilon_micro, joint=joint) if approach in (None, one.approach)]
    if not fitting:
        raise InputError("ask_invalid", "approach 1 asks about all numbers at once; ask about all, or say approach 3")
    return fitting[0]
