"""Post-processing: the named step from unbiased estimates to probabilities, which may be biased.

A post-processing has two functions: one for the classes, one for a feature's table. Estimates are in reports; they may
be negative, and their sum may differ from the number of reports.

Source: docs/math.md, section 4; ``paper`` is Yilmaz, Al-Rubaie, Chang 2019, section 3.1;
``simplex`` projects as Duchi, Shalev-Shwartz, Singer, Chandra (ICML 2008), figure 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import class_shares
from protocol.errors import InputError
from protocol.questions import CELL, CLASS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics
    from protocol.questions import Subject

    Floats = NDArray[np.float64]

HALF = 0.5
"""Number of reports that add-half smoothing adds to every cell, so that no probability is zero."""


class Tables(NamedTuple):
    """Probabilities of a discrete Naive Bayes model, all positive.

    Attributes:
        prior: shape (k,) float64, P(class), sums to 1.
        likelihood: per observed feature, shape (values, k) float64, P(value | class); columns sum to 1.
    """

    prior: Floats
    likelihood: tuple[Floats, ...]


class Postprocess(NamedTuple):
    """The two functions of a post-processing.

    Attributes:
        prior: statistics → P(class), shape (k,) float64.
        table: estimated joint table, shape (values, k) float64 in reports, and the number of answers → P(value |
            class), of the same shape.
    """

    prior: Callable[[Statistics], Floats]
    table: Callable[[Floats, int], Floats]


def paper_prior(statistics: Statistics) -> Floats:
    """P(C_j) = Ê_j / Σ_l Ê_l from the questions that ask for the class alone, as printed in the paper.

    Ê_j is the estimated number of reports of class j. Before the division every Ê_j ≤ 0 is replaced by 1. Returns
    shape (k,) float64.

    Raises:
        InputError: ``not_fittable``: the campaign does not ask for the class alone.
    """
    prior = _at_least_one(_estimate(statistics, CLASS, None))
    return np.asarray(prior / prior.sum(), np.float64)


def paper_table(joint: Floats, _asked: int) -> Floats:
    """P(F = a | C_j) = Ê_{a,j} / Σ_h Ê_{h,j}, as printed in the paper; estimates Ê_{a,j} ≤ 0 become 1.

    ``joint`` and result: shape (values, k) float64. The number of answers, the second argument, is not used.
    """
    positive = _at_least_one(joint)
    return np.asarray(positive / positive.sum(axis=0), np.float64)


def simplex_prior(statistics: Statistics) -> Floats:
    """P(class) from all questions about the classes (:func:`aggregator.estimates.class_shares.class_shares`).

    The shares are projected to the nearest point of the probability simplex; then every class gets half a report.
    Returns shape (k,) float64.
    """
    reports = statistics.reports
    prior = project_to_simplex(class_shares(statistics).share * reports, reports) + HALF
    return np.asarray(prior / prior.sum(), np.float64)


def simplex_table(joint: Floats, asked: int) -> Floats:
    """P(value | class) from the nearest table (Euclidean) with cells ≥ 0 that sum to ``asked``.

    Every cell gets half a report before the columns are normalised.

    Args:
        joint: shape (values, k) float64, the estimates.
        asked: number of answers.

    Returns:
        Shape (values, k) float64.
    """
    smooth = project_to_simplex(joint.ravel(), asked).reshape(joint.shape) + HALF
    return np.asarray(smooth / smooth.sum(axis=0), np.float64)


def table_of(postprocess: Postprocess, statistics: Statistics, feature: int) -> Floats:
    """P(value | class) of one observed feature: shape (values, k) float64, value a of class c in row a, column c.

    Args:
        postprocess: the post-processing.
        statistics: statistics with a question about the feature's values and the class.
        feature: index of the observed feature.

    Raises:
        InputError: ``not_fittable``: there is no such question.
    """
    classes = len(statistics.schema.label.classes)
    joint = _estimate(statistics, CELL, feature).reshape(-1, classes)
    return postprocess.table(joint, _asked(statistics, CELL, feature))


POSTPROCESSES: Mapping[str, Postprocess] = {
    "paper": Postprocess(paper_prior, paper_table),
    "simplex": Postprocess(simplex_prior, simplex_table),
}


def check_postprocess(name: str) -> None:
    """Refuse a name that is not one of :data:`POSTPROCESSES`.

    Raises:
        InputError: ``postprocess_unknown``.
    """
    if name not in POSTPROCESSES:
        raise InputError("postprocess_unknown", f"the post-processings are {', '.join(POSTPROCESSES)}")


def project_to_simplex(values: Floats, total: float) -> Floats:
    """The nearest point x to ``values`` with x ≥ 0 and Σx = total: x = max(values − τ, 0).

    Sorting gives τ. With u the values in falling order and ρ the last j with u_j > (u_1 + … + u_j − total)/j,
    τ = (u_1 + … + u_ρ − total)/ρ.

    Args:
        values: shape (n,) float64, n ≥ 1.
        total: the sum, ≥ 0; 0 gives zeros.

    Returns:
        Shape (n,) float64.
    """
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values)[::-1]
    taus = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    tau = taus[np.flatnonzero(falling > taus)[-1]]
    return np.asarray(np.maximum(values - tau, 0.0))


def _estimate(statistics: Statistics, kind: str, feature: int | None) -> Floats:
    """Shape (K,) float64: the estimate about one subject, summed over all questions about the subject.

    Raises:
        InputError: ``not_fittable``: there is no such question.
    """
    found = [item.estimate for item in statistics.questions if _is_about(item.subject, kind, feature)]
    if not found:
        raise InputError("not_fittable", "the campaign does not ask for the classes and for every feature")
    return np.asarray(np.sum(found, axis=0), dtype=np.float64)


def _asked(statistics: Statistics, kind: str, feature: int | None) -> int:
    """Number of answers about one subject, summed over all questions about the subject."""
    return sum(item.n for item in statistics.questions if _is_about(item.subject, kind, feature))


def _is_about(subject: Subject, kind: str, feature: int | None) -> bool:
    return (subject.kind, subject.feature) == (kind, feature)


def _at_least_one(estimate: Floats) -> Floats:
    """The estimates with 1 in place of every estimate ≤ 0. Float64 of one shape."""
    return np.where(estimate > 0, estimate, 1.0)
