"""Several sources' estimates of one subject become one estimate, weighted by their planned variances.

The formulas are in :func:`aggregator.join`: the weights w_j, the noise variance, the devices'
scatter and the concentration c.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isclose, isfinite, sqrt

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Law, Pairs
from aggregator.estimates.heavy_tails import quantile95, relative_kurtosis
from aggregator.estimates.intervals import Interval, score_interval
from aggregator.estimates.question_estimate import QuestionEstimate, Right, Weighted, relative_spread
from protocol.errors import InputError


def joined_question(given: Sequence[QuestionEstimate], *, disjoint: bool) -> QuestionEstimate:
    """One estimate from several estimates of one subject, by the weights of :func:`aggregator.join`.

    Args:
        given: at least one estimate. Those without answers are left out, unless all are without.
        disjoint: True if no device answered in two of them.

    Raises:
        InputError: ``not_joinable``: a mechanism states no variance.
    """
    parts = [one for one in given if one.n] or given[:1]
    first = parts[0]
    if len(parts) == 1:
        return first
    n = sum(one.n for one in parts)
    weights = _weights(parts)
    by_number = all(isclose(w * n, one.n, rel_tol=1e-12) for w, one in zip(weights, parts, strict=True))
    factors = [1.0 if by_number else n * w / one.n for w, one in zip(weights, parts, strict=True)]
    estimate = _sum(factor * one.estimate for factor, one in zip(factors, parts, strict=True))
    share = np.clip(estimate / n, 0, 1)
    means = _sum(w * one.spread for w, one in zip(weights, parts, strict=True))
    spread = share * (1 - share) if first.is_share else means
    per_answer = [factor**2 * one.n / n for factor, one in zip(factors, parts, strict=True)]
    law = _law([one.law for one in parts], per_answer)
    if law is not None and first.is_share:
        noise = n * law.at(share)
    else:
        noise = _sum(factor**2 * one.noise_variance for factor, one in zip(factors, parts, strict=True))
    chosen = sum(part * one.devices_scatter for part, one in zip(per_answer, parts, strict=True))
    drawn = chosen + n * _concentration(weights, parts, disjoint=disjoint)
    made = replace(
        first,
        n=n,
        estimate=estimate,
        noise_variance=noise,
        spread=np.asarray(spread, np.float64),
        devices_scatter=chosen,
        scatter=drawn,
        planned_variance=1 / sum(1 / one.planned_variance for one in parts),
        law=law,
        pairs=_pairs([one.pairs for one in parts], per_answer),
        is_binomial=by_number and all(one.is_binomial and one.law == first.law for one in parts),
        adds_up=all(one.adds_up for one in parts),
        samples=_samples(parts, weights),
        classes=tuple(vote for one in parts for vote in one.classes),
        right=_right([one.right for one in parts], weights, per_answer),
        kurtosis=_kurtosis(parts, factors),
        noisy_n=None if all(one.noisy_n is None for one in parts) else sum(one.stated_n for one in parts),
    )
    if not all(one.has_interval for one in parts):
        return made.without_interval()
    return replace(made, interval=_interval(made, drawn), devices_interval=_interval(made, chosen))


def _weights(parts: Sequence[QuestionEstimate]) -> list[float]:
    """Weights w_j of :func:`aggregator.join`; exactly n_j/n if an answer's planned variance is equal in all parts."""
    each = [one.planned_variance * one.n for one in parts]
    if not all(map(isfinite, each)):
        raise InputError("not_joinable", "a mechanism states no variance before its answers are seen")
    if all(isclose(one, each[0], rel_tol=1e-12) for one in each):
        total = sum(one.n for one in parts)
        return [one.n / total for one in parts]
    precision = [1 / one.planned_variance for one in parts]
    return [one / sum(precision) for one in precision]


def _sum(terms: Iterable[Floats]) -> Floats:
    """Sum of float64 arrays of one shape."""
    return np.asarray(np.sum(list(terms), axis=0), np.float64)


def _law(laws: Sequence[Law | None], factors: Sequence[float]) -> Law | None:
    """Σ factor·law, again linear in the share. None if a law is missing."""
    known = [law for law in laws if law is not None]
    if len(known) < len(laws):
        return None
    if all(law == known[0] for law in known) and isclose(sum(factors), 1, rel_tol=1e-12):
        return known[0]
    return Law(*(sum(f * end for f, end in zip(factors, ends, strict=True)) for ends in zip(*known, strict=True)))


def _pairs(found: Sequence[Pairs | None], factors: Sequence[float]) -> Pairs | None:
    """Σ factor·covariances. None if a source's covariances are not known."""
    known = [pairs for pairs in found if pairs is not None]
    if len(known) < len(found):
        return None
    return Pairs(*(sum(f * end for f, end in zip(factors, ends, strict=True)) for ends in zip(*known, strict=True)))


def _samples(parts: Sequence[QuestionEstimate], weights: Sequence[float]) -> tuple[Weighted, ...]:
    """The samples of all sources, each with its share of the source's weight."""
    return tuple(
        Weighted(sample, w * weight) for w, part in zip(weights, parts, strict=True) for sample, weight in part.samples
    )


def _right(found: Sequence[Right | None], weights: Sequence[float], factors: Sequence[float]) -> Right | None:
    """Joined share of right predictions; None if a source has none or has no law."""
    known = [right for right in found if right is not None]
    law = _law([right.law for right in known], factors) if len(known) == len(found) else None
    return law and Right(sum(w * right.share for w, right in zip(weights, known, strict=True)), law)


def _kurtosis(parts: Sequence[QuestionEstimate], factors: Sequence[float]) -> float:
    """Excess kurtosis of the joined noise Σ a_j e_j, the largest of its numbers: Σ a_j⁴ v_j² κ_j/(Σ a_j² v_j)²."""
    if not any(one.kurtosis for one in parts):
        return 0.0
    pairs = list(zip(parts, factors, strict=True))
    total = _sum(factor**2 * one.noise_variance for one, factor in pairs) ** 2
    fourth = _sum(factor**4 * one.noise_variance**2 * one.kurtosis for one, factor in pairs)
    return float(np.divide(fourth, total, out=np.zeros_like(total), where=total > 0).max())


def _concentration(weights: Sequence[float], parts: Sequence[QuestionEstimate], *, disjoint: bool) -> float:
    """Concentration c of the joined answers, with c_j = (``scatter`` − ``devices_scatter``)/n_j."""
    each = [max(one.scatter - one.devices_scatter, 0.0) / one.n for one in parts]
    if disjoint:
        return sum(w**2 * c for w, c in zip(weights, each, strict=True))
    return sum(w * sqrt(c) for w, c in zip(weights, each, strict=True)) ** 2


def _interval(found: QuestionEstimate, scatter: float) -> Interval:
    """95 % interval with the given scatter, by the rules for one source."""
    n, least = found.n, found.least
    sampling = n * found.spread * scatter
    z = quantile95(relative_kurtosis(found.kurtosis, found.noise_variance, sampling))
    if found.law is None:
        sd = np.sqrt(found.noise_variance + sampling)
        return Interval(found.estimate - z * sd, found.estimate + z * sd)
    dependence: Floats | float = scatter
    if not found.is_share:
        dependence = 1 + (scatter - 1) * relative_spread(n, found.estimate, found.spread, least=least)
    width = 1 - least
    share = (found.estimate / n - least) / width
    most = float(z.max())
    ends = score_interval(share, n, found.law, dependence, is_binomial=found.is_binomial, z=most)
    return Interval(n * (least + width * ends.low), n * (least + width * ends.high))
