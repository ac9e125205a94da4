"""Test of homogeneity: are several sources samples of one population?

In: estimates of the same shares or means by several sources. Out: p-values, of all numbers together by Bonferroni. The
heavy tails of a few nodes' noise are taken into account. Source: docs/math.md, section 1; decision 53.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import erfc, exp, lgamma, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.common.notebooks import facts, table
from aggregator.estimates.cells import cell_names, question_name
from aggregator.estimates.intervals import two_sided_tail
from aggregator.estimates.question_estimate import QuestionEstimate
from protocol.schema import Schema

LEVEL = 0.02
"""Level of the test: largest probability of rejecting sources of one population, over all numbers together.

The χ² law of a number is inexact in the far tail that Bonferroni's bound looks at: measured rates are up to twice this.
"""
HALVINGS = 60
"""Number of bisection steps for the common share, enough for the last bit of a float."""
_LEAST_CHANCE = 1e-300
LEAST_DEVICES = 30
"""Smallest number m of answers of a compared source. With fewer, the χ² distribution is inaccurate."""
_SHOWN = 5


class Comparison(NamedTuple):
    """Comparison of one share or mean between sources.

    ``question`` and ``cell`` say in words what it is about, ``estimates`` has the number by each source with enough
    answers, ``chance`` is the p-value for this number alone.
    """

    question: str
    cell: str
    estimates: tuple[float, ...]
    chance: float


class Homogeneity(NamedTuple):
    """The test's result: number of ``sources`` (joined ones count once), and ``compared`` numbers by rising p-value."""

    sources: int
    compared: tuple[Comparison, ...]

    @property
    def chance(self) -> float | None:
        """Upper bound of the p-value over all numbers (Bonferroni); None if nothing was compared."""
        return min(1.0, len(self.compared) * self.compared[0].chance) if self.compared else None

    @property
    def differs(self) -> bool:
        """Whether the test rejects one population: p-value below :data:`LEVEL`. False if nothing was compared."""
        return self.chance is not None and self.chance < LEVEL

    def to_json(self) -> dict[str, object]:
        """Return the numbers of sources and of compared numbers, the p-value (null if none), and the verdict."""
        return {"sources": self.sources, "compared": len(self.compared), "p": self.chance, "differs": self.differs}

    @property
    def verdict(self) -> str:
        """The result as one sentence."""
        if self.chance is None:
            return f"homogeneity of {self.sources} sources: not tested, no number can be compared in two of them"
        verdict = "they are not samples of one population" if self.differs else "no sign of different populations"
        found = f"{len(self.compared)} numbers compared, p = {self.chance:.2g}"
        return f"homogeneity of {self.sources} sources: {found}; {verdict}"

    def __str__(self) -> str:
        """Return :attr:`verdict`; if the sources differ, also the numbers with the smallest p-values."""
        lines = [self.verdict]
        for one in self.compared[: _SHOWN if self.differs else 0]:
            shares = ", ".join(f"{share:z.3f}" for share in one.estimates)
            lines.append(f"  {one.question}: {one.cell}: {shares} (alone p = {one.chance:.2g})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"sources": self.sources, "numbers compared": len(self.compared)}
        about["p"] = "not tested" if self.chance is None else self.chance
        return facts("Homogeneity", about) + table(Comparison._fields, self.compared)


def homogeneity(asked: Sequence[Sequence[QuestionEstimate]], schema: Schema, sources: int) -> Homogeneity:
    """Compare the estimates of sources that share no report. Run by the analyst.

    A number is compared if at least two sources have enough answers (:data:`LEAST_DEVICES`). ``asked``: for every
    question, one estimate per source that asks it. ``sources``: their number, for the result's text.
    """
    found = [one for estimates in asked for one in _compared([each for each in estimates if _is_enough(each)], schema)]
    return Homogeneity(sources, tuple(sorted(found, key=lambda one: one.chance)))


def _is_enough(estimate: QuestionEstimate) -> bool:
    """Return whether an estimate has enough answers for the test, and may have intervals (no robust rule made it)."""
    return estimate.has_interval and estimate.n >= LEAST_DEVICES * max(estimate.scatter, 1.0)


def _compared(estimates: Sequence[QuestionEstimate], schema: Schema) -> Iterator[Comparison]:
    """Yield the comparisons of all numbers of one question; nothing if there is one estimate, or a variance is 0."""
    if len(estimates) < 2:
        return
    statistic = deviance(estimates) if all(one.law for one in estimates) else squares(estimates)
    if statistic is None:
        return
    subject = estimates[0].subject
    values = np.array([one.estimate / one.n for one in estimates]).T
    names = cell_names(subject, schema)
    tails = _tails(estimates)
    for name, row, size, tail in zip(names, values.tolist(), statistic.tolist(), tails.tolist(), strict=True):
        chance = _chance(size, len(estimates) - 1, tail)
        yield Comparison(question_name(subject, schema), name, tuple(row), chance)


def _tails(estimates: Sequence[QuestionEstimate]) -> Floats:
    """Return the excess kurtosis of the difference between the sources, for each of the K numbers: shape (K,) float64.

        Σ_j κ_j v_j²/(Σ_j V_j)²      for two sources; for more sources the largest κ_j v_j²/V_j²

    κ_j: excess kurtosis of source j's noise; v_j: variance of its noise; V_j: variance of its estimate.
    """
    sizes = [one.n**2 for one in estimates]
    fourth = np.array([one.kurtosis * (one.noise_variance / n) ** 2 for one, n in zip(estimates, sizes, strict=True)])
    variance = np.array([one.variance / n for one, n in zip(estimates, sizes, strict=True)])
    if not fourth.any():
        return np.zeros(fourth.shape[1])
    if len(estimates) == 2:
        return np.asarray(fourth.sum(axis=0) / variance.sum(axis=0) ** 2)
    return np.asarray((fourth / variance**2).max(axis=0))


def _chance(statistic: float, freedom: int, kurtosis: float) -> float:
    """Return the p-value of one number: the tail of χ², corrected for noise whose tails have this excess kurtosis."""
    if not kurtosis:
        return chi_square_tail(statistic, freedom)
    tail = two_sided_tail(sqrt(max(statistic, 0.0)), kurtosis)
    if freedom == 1 or tail <= _LEAST_CHANCE:
        return tail
    return chi_square_tail(NormalDist().inv_cdf(tail / 2) ** 2, freedom)


def deviance(estimates: Sequence[QuestionEstimate]) -> Floats:
    """Return the likelihood ratio statistic G² for each of the K numbers of one question: shape (K,) float64.

    An answer about a share f counts as a coin throw. φ₀, φ₁: the noise variance φ(f) at f = 0, 1; b = 1 + φ₁ − φ₀:

        g = 1/√(4φ₀ + b²),   q = (1 − b g)/2,   λ(f) = q + g f,   λ(1 − λ)/g² = φ(f) + f(1 − f)
        G² = 2 Σ_j m_j [λ̂_j ln(λ̂_j/λ_j(f̄)) + (1 − λ̂_j) ln((1 − λ̂_j)/(1 − λ_j(f̄)))]

    λ̂_j = λ_j(f̂_j): the rate of source j's estimate; m_j: its answers over its scatter; f̄: the common share of
    largest likelihood, by bisection. G² is χ² with J − 1 degrees of freedom if all J sources have one share.
    ``estimates``: one per source, each with a noise law and an answer.
    """
    scatter = np.array([[max(one.scatter, 1.0)] for one in estimates])
    throws = np.array([[one.n] for one in estimates]) / scatter
    ends = np.array([one.law for one in estimates], np.float64) / scatter
    at_zero, slope = ends[:, :1], 1 + ends[:, 1:] - ends[:, :1]
    gain = 1 / np.sqrt(4 * at_zero + slope**2)
    base = (1 - slope * gain) / 2
    share = np.array([(one.estimate / one.n - one.least) / (1 - one.least) for one in estimates])
    seen = np.clip(base + gain * share, 0, 1)
    # λ must be a probability for every source. This limits the common share, which may lie outside [0, 1].
    least = np.full(share.shape[1], (-base / gain).max())
    most = np.full(share.shape[1], ((1 - base) / gain).min())
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        chance = base + gain * middle
        # G² is convex in the common share. A negative slope means that the minimum is at a larger share.
        slope_there = (throws * gain * (_over(1 - seen, 1 - chance) - _over(seen, chance))).sum(axis=0)
        least, most = np.where(slope_there < 0, middle, least), np.where(slope_there < 0, most, middle)
    expected = np.clip(base + gain * (least + most) / 2, 0, 1)
    return np.asarray(2 * (throws * (_divergence(seen, expected) + _divergence(1 - seen, 1 - expected))).sum(axis=0))


def _over(seen: Floats, chance: Floats) -> Floats:
    """Return ``seen``/``chance``, or 0 where ``seen`` is 0: float64 of shape (sources, K)."""
    return np.asarray(np.where(seen > 0, seen / np.maximum(chance, _LEAST_CHANCE), 0.0))


def _divergence(seen: Floats, expected: Floats) -> Floats:
    """Return x ln(x/y) with x = ``seen`` and y = ``expected``, or 0 where x is 0: float64 of shape (sources, K)."""
    ratio = np.maximum(seen, _LEAST_CHANCE) / np.maximum(expected, _LEAST_CHANCE)
    return np.asarray(np.where(seen > 0, seen * np.log(ratio), 0.0))


def squares(estimates: Sequence[QuestionEstimate]) -> Floats | None:
    """Return Σ_j (x̂_j − x̄)²/V_j for each of the K numbers of one question: shape (K,) float64; None if a V_j is 0.

    x̂_j: source j's estimate; V_j: its variance; x̄: the mean weighted by 1/V_j. For noise without a linear law.
    """
    if not all((one.variance > 0).all() for one in estimates):
        return None
    values = np.array([one.estimate / one.n for one in estimates])
    weights = np.array([one.n**2 / one.variance for one in estimates])
    common = (weights * values).sum(axis=0) / weights.sum(axis=0)
    return np.asarray((weights * (values - common) ** 2).sum(axis=0))


def chi_square_tail(x: float, freedom: int) -> float:
    """Return P(χ² ≥ x) for a whole number of degrees of freedom k = ``freedom`` ≥ 1, by a finite sum.

    With h = x/2: Σ_{i < k/2} e^{−h} h^i/i! for even k, erfc(√h) + Σ_{i ≤ (k−1)/2} e^{−h} h^{i−½}/Γ(i + ½) for odd k.
    """
    half = x / 2
    if half <= 0:
        return 1.0
    if freedom % 2 == 0:
        return min(1.0, sum(exp(i * log(half) - half - lgamma(i + 1)) for i in range(freedom // 2)))
    terms = (exp((i - 0.5) * log(half) - half - lgamma(i + 0.5)) for i in range(1, (freedom - 1) // 2 + 1))
    return min(1.0, erfc(sqrt(half)) + sum(terms))
