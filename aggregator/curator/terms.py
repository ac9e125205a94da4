"""Terms of a curator's fit: everything public about it, decided before the records are seen.

Source: docs/math.md, section 7; decision 68.
"""

from __future__ import annotations

from fractions import Fraction
from hashlib import sha256
from typing import Any, NamedTuple

from aggregator.estimates.sums import OF_SUMS
from protocol import canonical
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Fit
from protocol.documents.model import TRUNCATED_GAUSSIAN
from protocol.epsilon import MICRO, format_micro
from protocol.errors import InputError
from protocol.questions import ADJACENCIES, CHANGE
from protocol.schema import Schema

EQUAL, TWO_TO_ONE, WORTH = "equal", "2:1", "worth"
DIVISIONS = (EQUAL, TWO_TO_ONE, WORTH)
"""How ε is divided among the released vectors (:func:`aggregator.curator.accounting.divide`)."""

DISCRETE_LAPLACE = "discrete-laplace"
"""The noise of the methods whose terms name none, as cards show it."""

AUTO = "auto"
"""A family or post-processing that :func:`aggregator.curator.fitting.settled` chooses before anything is paid."""
FAMILIES = (DISCRETE, GAUSSIAN, TRUNCATED_GAUSSIAN)
TERMS_ID = b"hearsay terms of a curator's fit v1"
DEFAULT_FLOOR_MICRO = 10_000
DEFAULT_TRIM_MICRO = 50_000


class FitTerms(NamedTuple):
    """Terms of one fit.

    ``method``: a key of :data:`aggregator.curator.methods.table.METHODS`; ``epsilon_micro``: ε of the whole fit in
    millionths; ``adjacency``: one of :data:`protocol.questions.ADJACENCIES`; ``division`` of ε among the vectors: one
    of :data:`DIVISIONS`; ``noise``: kind for smooth sensitivity, else None; ``trim_micro``: share of the values that
    trimmed means leave out at either end, ``variance_floor_micro``: smallest variance of a number scaled to [−1, 1], in
    millionths.
    """

    method: str
    epsilon_micro: int
    delta: Fraction = Fraction(0)
    adjacency: str = CHANGE
    division: str = TWO_TO_ONE
    noise: str | None = None
    family: str = GAUSSIAN
    postprocess: str = OF_SUMS
    variance_floor_micro: int = DEFAULT_FLOOR_MICRO
    trim_micro: int = DEFAULT_TRIM_MICRO

    @property
    def fit(self) -> Fit:
        """How a model is made from the statistics of the fit."""
        return Fit(self.family, self.postprocess, 0 if self.family == DISCRETE else self.variance_floor_micro)

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as text and integers, for a model's card and for :func:`terms_id`."""
        return {
            "method": self.method,
            "epsilon_total": format_micro(self.epsilon_micro),
            "delta": str(self.delta),
            "adjacency": self.adjacency,
            "division": self.division,
            "noise": self.noise or DISCRETE_LAPLACE,
            "family": self.family,
            "postprocess": self.postprocess,
            "variance_floor_micro": self.variance_floor_micro,
            "trim_micro": self.trim_micro,
        }


def terms_id(terms: FitTerms, schema: Schema) -> bytes:
    """Return the SHA-256 of terms and schema, a model's origin (docs/formats.md, section 5, "A curator's fit")."""
    packed = canonical.pack(
        {
            "terms": terms.to_dict(),
            "label": schema.label.to_dict(),
            "features": [feature.to_dict() for feature in schema.features],
            "projection": None if schema.projection is None else schema.projection.to_dict(),
            "groups": [None if groups is None else list(groups) for groups in schema.groups],
        }
    )
    return sha256(TERMS_ID + packed).digest()


def check_terms(terms: FitTerms) -> None:
    """Raise an error if a term has a value that no method allows. Each method checks more.

    Raises InputError ``epsilon_invalid``: not positive, or 10⁶ or more; ``delta_invalid``: not in [0, 1);
    ``floor_invalid``: not in (0, 1]; ``trim_invalid``: not in [0, ½); ``adjacency_unknown``, ``division_unknown``,
    ``family_unknown``.
    """
    if type(terms.epsilon_micro) is not int or not 0 < terms.epsilon_micro < MICRO * MICRO:
        raise InputError("epsilon_invalid", "ε of a fit is a positive multiple of 10⁻⁶ below 10⁶")
    if not 0 <= terms.delta < 1:
        raise InputError("delta_invalid", "δ is from 0 to less than 1; take less than 1/n for n records")
    if terms.adjacency not in ADJACENCIES:
        raise InputError("adjacency_unknown", f"the adjacency is one of {', '.join(ADJACENCIES)}")
    if terms.division not in DIVISIONS:
        raise InputError("division_unknown", f"the division of ε is one of {', '.join(DIVISIONS)}")
    if terms.family not in FAMILIES:
        raise InputError("family_unknown", f"the families are {', '.join(FAMILIES)}")
    if terms.family != DISCRETE and not 0 < terms.variance_floor_micro <= MICRO:
        raise InputError("floor_invalid", "the variance floor is above 0 and at most 1")
    if not 0 <= 2 * terms.trim_micro < MICRO:
        raise InputError("trim_invalid", "a trimmed mean leaves out a share from 0 to less than half at either end")
