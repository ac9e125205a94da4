"""From unbiased estimates to probabilities: the second, named step, which may be biased but never negative.

A post-processing has two functions: one for the classes, one for a feature's table. Estimates are in reports asked,
may be negative, and need not sum to the number of reports.

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
"""What add-half smoothing adds to every cell, in reports: no probability is zero."""


class Tables(NamedTuple):
    """Probabilities of a discrete Naive Bayes model, all positive.

    Attributes:
        prior: shape (k,), P(class), sums to 1.
        likelihood: per feature, shape (values, k): P(value | class), columns sum to 1.
    """

    prior: Floats
    likelihood: tuple[Floats, ...]


class Postprocess(NamedTuple):
    """How estimates become probabilities.

    Attributes:
        prior: statistics → P(class), shape (k,).
        table: estimated joint table, shape (values, k), and the number asked → P(value | class).
    """

    prior: Callable[[Statistics], Floats]
    table: Callable[[Floats, int], Floats]


def paper_prior(statistics: Statistics) -> Floats:
    """As printed, of the class question alone: P(C_j) = Ê_j / Σ_l Ê_l, estimates ≤ 0 become 1.

    Raises:
        InputError: ``not_fittable``.
    """
    prior = _at_least_one(_estimate(statistics, CLASS, None))
    return np.asarray(prior / prior.sum(), np.float64)


def paper_table(joint: Floats, _asked: int) -> Floats:
    """As printed: P(F = a | C_j) = Ê_{a,j} / Σ_h Ê_{h,j}, estimates ≤ 0 become 1."""
    positive = _at_least_one(joint)
    return np.asarray(positive / positive.sum(axis=0), np.float64)


def simplex_prior(statistics: Statistics) -> Floats:
    """The classes by all questions that tell of them (:func:`aggregator.estimates.class_shares.class_shares`).

    Made possible by the nearest point of the simplex, then every class gets half a report.
    """
    reports = statistics.reports
    prior = project_to_simplex(class_shares(statistics).share * reports, reports) + HALF
    return np.asarray(prior / prior.sum(), np.float64)


def simplex_table(joint: Floats, asked: int) -> Floats:
    """The nearest (Euclidean) table with cells ≥ 0 that sum to the reports asked, plus half a report each."""
    smooth = project_to_simplex(joint.ravel(), asked).reshape(joint.shape) + HALF
    return np.asarray(smooth / smooth.sum(axis=0), np.float64)


def table_of(postprocess: Postprocess, statistics: Statistics, feature: int) -> Floats:
    """P(value | class) of one observed feature, shape (values, k): input a·k + c of its question is row a.

    Raises:
        InputError: ``not_fittable``.
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

    τ is found by sorting: with u the values in falling order, ρ the last j for which
    u_j > (u_1 + … + u_j − total)/j, τ = (u_1 + … + u_ρ − total)/ρ.

    Args:
        values: shape (n,), n ≥ 1.
        total: ≥ 0; 0 gives zeros.
    """
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values)[::-1]
    taus = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    tau = taus[np.flatnonzero(falling > taus)[-1]]
    return np.asarray(np.maximum(values - tau, 0.0))


def _estimate(statistics: Statistics, kind: str, feature: int | None) -> Floats:
    """The estimate about one subject; if several questions ask about it, their sum.

    Raises:
        InputError: ``not_fittable``.
    """
    found = [item.estimate for item in statistics.questions if _is_about(item.subject, kind, feature)]
    if not found:
        raise InputError("not_fittable", "the campaign does not ask for the classes and for every feature")
    return np.asarray(np.sum(found, axis=0), dtype=np.float64)


def _asked(statistics: Statistics, kind: str, feature: int | None) -> int:
    return sum(item.n for item in statistics.questions if _is_about(item.subject, kind, feature))


def _is_about(subject: Subject, kind: str, feature: int | None) -> bool:
    return (subject.kind, subject.feature) == (kind, feature)


def _at_least_one(estimate: Floats) -> Floats:
    return np.where(estimate > 0, estimate, 1.0)
