"""Post-processing: the named step from unbiased estimates to probabilities, which may be biased.

A post-processing is a function of statistics and the indices of observed features that returns probabilities.
Estimates are in reports and have variances; they may be negative, and their sum may differ from the number of reports.

Source: docs/math.md, section 4; ``paper`` is Yilmaz, Al-Rubaie, Chang 2019, section 3.1;
``simplex`` projects as Duchi, Shalev-Shwartz, Singer, Chandra (ICML 2008), figure 1; ``posterior`` has a module of its
own (:mod:`aggregator.models.postprocess.posterior`), and ``printed``, ``halves`` and ``floored`` are in
:mod:`aggregator.models.postprocess.noisy_sums`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import (
    HALF,
    Tables,
    estimate_of,
    joint_table,
    normalised,
    project_to_simplex,
    simplex_table,
)
from aggregator.models.postprocess.noisy_sums import floored_tables, halves_tables, printed_tables
from aggregator.models.postprocess.posterior import posterior_tables
from protocol.errors import InputError
from protocol.questions import CLASS

NEED_CLASS_QUESTION = frozenset({"paper", "add-one", "printed", "halves"})
"""Post-processings that use only the question about the class alone for the shares of the classes."""
DEFAULT = "posterior"
"""Post-processing of a campaign that names no other."""


class Postprocess(Protocol):
    """A post-processing: the function from statistics to probabilities."""

    def __call__(self, statistics: Statistics, features: Sequence[int], /) -> Tables:
        """Return P(class), and P(value | class) of the observed features, in the order of ``features``.

        ``statistics``: statistics of a campaign, discrete or Gaussian. ``features``: indices of observed features.

        Raises:
            InputError: ``not_fittable``: the campaign lacks a question that the post-processing needs.
        """


def paper(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return fractions of the estimates, as printed in the paper; estimates that are not positive first become 1.

        P(C_j) = Ê_j / Σ_l Ê_l        P(F = a | C_j) = Ê_{a,j} / Σ_h Ê_{h,j}

    Ê_j is the estimated number of reports of class j, from the questions that ask for the class alone; Ê_{a,j} is
    the estimated number of reports of class j with value a. Arguments and errors are those of :class:`Postprocess`;
    the question about the class alone is needed.
    """
    prior = _at_least_one(estimate_of(statistics, CLASS, None))
    joints = [_at_least_one(joint_table(statistics, feature).estimate) for feature in features]
    return Tables(normalised(prior), tuple(normalised(joint) for joint in joints))


def simplex(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return the shares of the nearest tables with entries ≥ 0 that sum to the number of answers.

    Half a report is added to each entry (:func:`simplex_table`). P(class) is that of :func:`simplex_prior`. Arguments
    and errors are those of :class:`Postprocess`.
    """
    tables = tuple(simplex_table(joint_table(statistics, feature)) for feature in features)
    return Tables(simplex_prior(statistics), tables)


def simplex_prior(statistics: Statistics) -> Floats:
    """Return P(class), (k,) float64, from all questions about the classes (:mod:`aggregator.estimates.class_shares`).

    The classes' shares are projected to the nearest shares that are not negative and sum to 1. Then every class gets
    half a report.
    """
    reports, found = statistics.reports, class_shares(statistics)
    share = found.ratio if np.isfinite(found.ratio).all() else found.share
    return normalised(project_to_simplex(share * reports, reports) + HALF)


def add_one(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return fractions of the estimates, each with one report added (Laplace's rule); those below 0 first become 0.

        P(C_j) = (Ê_j + 1) / (Σ_l Ê_l + k)        P(F = a | C_j) = (Ê_{a,j} + 1) / (Σ_h Ê_{h,j} + A)

    with the Ê of :func:`paper`, k classes and A values. Arguments and errors are those of :class:`Postprocess`; the
    question about the class alone is needed.
    Source: Zafarani, Clifton (2020), who smooth a curator's noisy counts in this way.
    """
    prior = np.maximum(estimate_of(statistics, CLASS, None), 0) + 1
    joints = [np.maximum(joint_table(statistics, feature).estimate, 0) + 1 for feature in features]
    return Tables(normalised(prior), tuple(normalised(joint) for joint in joints))


POSTPROCESSES: Mapping[str, Postprocess] = {
    "paper": paper,
    "simplex": simplex,
    "posterior": posterior_tables,
    "add-one": add_one,
    "printed": printed_tables,
    "floored": floored_tables,
    "halves": halves_tables,
}


def check_postprocess(name: str) -> Postprocess:
    """Return the post-processing of this name.

    Raises:
        InputError: ``postprocess_unknown``: the name is not one of :data:`POSTPROCESSES`.
    """
    if name not in POSTPROCESSES:
        raise InputError("postprocess_unknown", f"the post-processings are {', '.join(POSTPROCESSES)}")
    return POSTPROCESSES[name]


def _at_least_one(estimate: Floats) -> Floats:
    """Return the estimates with 1 in place of every estimate ≤ 0."""
    return np.where(estimate > 0, estimate, 1.0)
