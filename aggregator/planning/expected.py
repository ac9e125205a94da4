"""Which numeric mechanism: by the variances that theory gives, before any data is seen; and which family.

For N devices and Q questions asked alike, a question gets about N/Q answers, so what one answer leaves
of variance v becomes v·Q/N. Candidates are compared by v·Q, the variance per device of the fleet, where v is
the worst variance of one answer about a number x in [−1, 1] (over inputs −1, 0 and 1), in units of half its
range. All are then about the same moments of the same numbers.

The discrete family is not compared with them: the variance of a cell and that of a moment say nothing of
which model is right more often. ``auto`` for a family therefore means discrete.
Source: docs/math.md, sections 1 to 3; docs/decisions/0014.
"""

from __future__ import annotations

from contextlib import suppress
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from aggregator.planning.choice import AUTO, form_of, forms, moment_mechanism
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.errors import InputError
from protocol.mechanisms.numeric import NumericMechanism
from protocol.questions import gaussian_subjects

if TYPE_CHECKING:
    from protocol.schema import Schema

AUTO_FAMILY = (
    "family auto means discrete: which family is right more often, variances do not tell; hearsay simulate does"
)
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
    """All ways to ask for this schema's numbers at one answer of ε, the smallest variance first.

    Raises:
        InputError: ``epsilon_invalid``; ``no_numbers``: the schema has no number to ask about.
    """
    found = []
    for name in forms():
        for approach in APPROACHES.get(name, (None,)):
            with suppress(_TooWideError):
                found.append(_gaussian(schema, epsilon_micro, name, approach))
    return sorted(found, key=lambda candidate: candidate.variance)


class _TooWideError(Exception):
    """With so many numbers and so small an ε the noise of ``laplace`` does not fit into a report."""


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


def settle_family(family: str, mechanism: str) -> str:
    """The family that a user's words mean: ``auto`` is discrete.

    Raises:
        InputError: ``family_unknown``: ``auto`` with a mechanism of the gaussian family.
    """
    if family != AUTO:
        return family
    if mechanism in forms():
        raise InputError(
            "family_unknown", f"auto means discrete, which takes no mechanism {mechanism}; say --family gaussian"
        )
    return DISCRETE


def choose(schema: Schema, family: str, mechanism: str, approach: int | None, epsilon_micro: int) -> Candidate | None:
    """The candidate with the smallest variance, where the analyst leaves the numeric mechanism open.

    Args:
        schema: of the campaign, with its projection.
        family: ``discrete`` or ``gaussian``.
        mechanism: a mechanism or ``auto``.
        approach: of laplace, or None.
        epsilon_micro: ε of one answer, in millionths.

    Returns:
        None where nothing is left open, or only which of ``direct`` and ``oue`` answers a question.

    Raises:
        InputError: ``approach_invalid``; ``no_numbers``: the schema has no number to ask about.
    """
    if approach not in (None, 1, 3):
        raise InputError("approach_invalid", "an approach is 1 or 3, and of laplace alone")
    if (family, mechanism) != (GAUSSIAN, AUTO):
        return None
    return next(found for found in candidates(schema, epsilon_micro) if approach in (None, found.approach))
