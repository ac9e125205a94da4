"""Post-processing: the named step from unbiased estimates to probabilities, which may be biased.

Sources: docs/math.md, section 4; ``paper``: Yilmaz, Al-Rubaie, Chang 2019, section 3.1; ``simplex``: Duchi,
Shalev-Shwartz, Singer, Chandra (ICML 2008), figure 1; other modules of this folder for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import OF_SUMS
from aggregator.models.postprocess.joint_tables import (
    HALF,
    Tables,
    estimate_of,
    joint_table,
    normalised,
    project_to_simplex,
    simplex_table,
)
from aggregator.models.postprocess.learned import learned_tables
from aggregator.models.postprocess.noisy_sums import floored_tables, halves_tables, printed_tables
from aggregator.models.postprocess.posterior import posterior_tables
from protocol.errors import InputError
from protocol.questions import CLASS

NEED_CLASS_QUESTION = frozenset({"paper", "add-one", "printed", "halves"})
"""Post-processings that use only the question about the class alone for the shares of the classes."""
DEFAULT = "posterior"
"""Post-processing of a campaign for devices' own answers that names no other."""


class Postprocess(Protocol):
    """A post-processing: the function from statistics to probabilities."""

    def __call__(self, statistics: Statistics, features: Sequence[int], /) -> Tables:
        """Return P(class), and P(value | class) of the observed features with the indices ``features``, in their order.

        Raises InputError ``not_fittable``: the campaign lacks a question that the post-processing needs.
        """


def paper(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return fractions of the estimates, as printed in the paper; estimates that are not positive first become 1.

        P(C_j) = Ê_j / Σ_l Ê_l        P(F = a | C_j) = Ê_{a,j} / Σ_h Ê_{h,j}

    Ê_j: the estimated number of reports of class j, from the questions that ask for the class alone, which are needed;
    Ê_{a,j}: of class j with value a. The interface is that of :class:`Postprocess`.
    """
    prior = _at_least_one(estimate_of(statistics, CLASS, None))
    joints = [_at_least_one(joint_table(statistics, feature).estimate) for feature in features]
    return Tables(normalised(prior), tuple(normalised(joint) for joint in joints))


def simplex(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return the nearest tables that sum to the number of answers (:class:`Postprocess`; :func:`simplex_table`)."""
    tables = tuple(simplex_table(joint_table(statistics, feature)) for feature in features)
    return Tables(simplex_prior(statistics), tables)


def simplex_prior(statistics: Statistics) -> Floats:
    """Return P(class), (k,): the nearest shares ≥ 0 that sum to 1, with half a report more for every class."""
    reports, found = statistics.reports, class_shares(statistics)
    share = found.ratio if np.isfinite(found.ratio).all() else found.share
    return normalised(project_to_simplex(share * reports, reports) + HALF)


def add_one(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return fractions of the estimates, each with one report added (Laplace's rule); those below 0 first become 0.

        P(C_j) = (Ê_j + 1) / (Σ_l Ê_l + k)        P(F = a | C_j) = (Ê_{a,j} + 1) / (Σ_h Ê_{h,j} + A)

    with the Ê of :func:`paper`, k classes and A values. The interface is that of :class:`Postprocess`; the question
    about the class alone is needed. Source: Zafarani, Clifton (2020), for a curator's noisy counts.
    """
    prior = np.maximum(estimate_of(statistics, CLASS, None), 0) + 1
    joints = [np.maximum(joint_table(statistics, feature).estimate, 0) + 1 for feature in features]
    return Tables(normalised(prior), tuple(normalised(joint) for joint in joints))


POSTPROCESSES: Mapping[str, Postprocess] = {
    "paper": paper,
    "simplex": simplex,
    "posterior": posterior_tables,
    OF_SUMS: learned_tables,
    "add-one": add_one,
    "printed": printed_tables,
    "floored": floored_tables,
    "halves": halves_tables,
}


def check_postprocess(name: str) -> Postprocess:
    """Return the post-processing of this name, or raise ``postprocess_unknown`` (``InputError``)."""
    if name not in POSTPROCESSES:
        raise InputError("postprocess_unknown", f"the post-processings are {', '.join(POSTPROCESSES)}")
    return POSTPROCESSES[name]


def _at_least_one(estimate: Floats) -> Floats:
    return np.where(estimate > 0, estimate, 1.0)
