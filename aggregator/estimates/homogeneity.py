"""Do several sources speak of one population? A test of every number that two of them or more were asked about.

The noise of a share is that of a coin. With φ₀ and φ₁ the ends of the law (``aggregator.estimates.debias.Law``) and
b = 1 + φ₁ − φ₀:

    g = 1/√(4φ₀ + b²),   q = (1 − b g)/2,   λ(f) = q + g f,   λ(1 − λ)/g² = φ(f) + f(1 − f)

so m answers have the variance of m throws with the chance λ; of a pure protocol they are these throws. Where devices
answer again, D times as much scatter is that of m = n/D answers with the law φ/D. Source j's estimate f̂_j is the rate
λ̂_j = λ_j(f̂_j), f̄ is the common share of the largest likelihood, and

    G² = 2 Σ_j m_j [λ̂_j ln(λ̂_j/λ_j(f̄)) + (1 − λ̂_j) ln((1 − λ̂_j)/(1 − λ_j(f̄)))]

has a χ² law of J − 1 degrees of freedom if the shares of all J populations are equal. G² is convex in f̄, so f̄ is found
by halving; it may lie outside [0, 1], as estimates may. A number whose noise is no line (``piecewise``, ``hybrid``,
``laplace``) has Σ_j (x̂_j − x̄)²/V_j in its place. A source with m_j below 30 is left out of the comparison.

The smallest of M chances times M (Bonferroni) is the chance of them all: numbers of one question depend on each other,
and for this bound they may. If the same devices answered in several sources, the sources differ by less than assumed,
and the test rejects less often than it says.

Source: docs/decisions/0053.
"""

from __future__ import annotations

from math import erfc, exp, gamma, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.cells import cell_names, question_name
from aggregator.notebooks import facts, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

LEVEL = 0.05
"""Sources of one population are said to differ at most so often."""
HALVINGS = 60
"""Of the interval that the common share lies in: to the last bit of a float."""
_LEAST_CHANCE = 1e-300
LEAST_DEVICES = 30
"""Answers to a question, as of different devices, below which a source is not compared: χ² is too far off."""
_SHOWN = 5


class Compared(NamedTuple):
    """One number, as several sources estimate it.

    Attributes:
        question, cell: in words.
        estimates: the share or mean by source, in the order of the sources that were asked.
        chance: of so large a difference in one population, for this number alone.
    """

    question: str
    cell: str
    estimates: tuple[float, ...]
    chance: float


class Homogeneity(NamedTuple):
    """Whether several sources can be samples of one population.

    Attributes:
        sources: how many.
        compared: every number that at least two sources were asked about, the least likely first.
    """

    sources: int
    compared: tuple[Compared, ...]

    @property
    def chance(self) -> float | None:
        """Of so large a difference of any number in one population, at most; None if nothing was compared."""
        return min(1.0, len(self.compared) * self.compared[0].chance) if self.compared else None

    @property
    def differs(self) -> bool:
        """Whether the chance is below :data:`LEVEL`."""
        return self.chance is not None and self.chance < LEVEL

    def __str__(self) -> str:
        """One sentence, and the numbers that differ most if the sources differ."""
        if self.chance is None:
            return f"homogeneity of {self.sources} sources: not tested, no number was asked for in two of them"
        verdict = "they are not samples of one population" if self.differs else "no sign of different populations"
        found = f"{len(self.compared)} numbers compared, p = {self.chance:.2g}"
        lines = [f"homogeneity of {self.sources} sources: {found}; {verdict}"]
        for one in self.compared[: _SHOWN if self.differs else 0]:
            shares = ", ".join(f"{share:.3f}" for share in one.estimates)
            lines.append(f"  {one.question}: {one.cell}: {shares} (alone p = {one.chance:.2g})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"sources": self.sources, "numbers compared": len(self.compared)}
        about["p"] = "not tested" if self.chance is None else self.chance
        return facts("Homogeneity", about) + table(Compared._fields, self.compared)


def homogeneity(asked: Sequence[Sequence[QuestionEstimate]], schema: Schema, sources: int) -> Homogeneity:
    """Compare the estimates of sources that share no report. Run by the analyst.

    Args:
        asked: for every subject the estimates of it, by source.
        schema: what the subjects are about.
        sources: how many there are.
    """
    found = [one for estimates in asked for one in _compared([each for each in estimates if _is_enough(each)], schema)]
    return Homogeneity(sources, tuple(sorted(found, key=lambda one: one.chance)))


def _is_enough(estimate: QuestionEstimate) -> bool:
    return estimate.n >= LEAST_DEVICES * max(estimate.scatter, 1.0)


def _compared(estimates: Sequence[QuestionEstimate], schema: Schema) -> Iterator[Compared]:
    if len(estimates) < 2:
        return
    statistic = deviance(estimates) if all(one.law for one in estimates) else squares(estimates)
    if statistic is None:
        return
    subject = estimates[0].subject
    values = np.array([one.estimate / one.n for one in estimates]).T
    names = cell_names(subject, schema)
    for name, row, size in zip(names, values.tolist(), statistic.tolist(), strict=True):
        yield Compared(question_name(subject, schema), name, tuple(row), chi_square_tail(size, len(estimates) - 1))


def deviance(estimates: Sequence[QuestionEstimate]) -> Floats:
    """G² of every number, shape (K,); each estimate has a law and at least one answer."""
    scatter = np.array([[max(one.scatter, 1.0)] for one in estimates])
    throws = np.array([[one.n] for one in estimates]) / scatter
    ends = np.array([one.law for one in estimates], np.float64) / scatter
    at_zero, slope = ends[:, :1], 1 + ends[:, 1:] - ends[:, :1]
    gain = 1 / np.sqrt(4 * at_zero + slope**2)
    base = (1 - slope * gain) / 2
    share = np.array([(one.estimate / one.n - one.least) / (1 - one.least) for one in estimates])
    seen = np.clip(base + gain * share, 0, 1)
    # The common share lies where every source's λ is a chance, and may be outside [0, 1] as estimates may.
    least = np.full(share.shape[1], (-base / gain).max())
    most = np.full(share.shape[1], ((1 - base) / gain).min())
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        chance = base + gain * middle
        # G² is convex: its slope rises from one end to the other.
        slope_there = (throws * gain * (_over(1 - seen, 1 - chance) - _over(seen, chance))).sum(axis=0)
        least, most = np.where(slope_there < 0, middle, least), np.where(slope_there < 0, most, middle)
    expected = np.clip(base + gain * (least + most) / 2, 0, 1)
    return np.asarray(2 * (throws * (_divergence(seen, expected) + _divergence(1 - seen, 1 - expected))).sum(axis=0))


def _over(seen: Floats, chance: Floats) -> Floats:
    """seen/chance; 0 where nothing is seen."""
    return np.asarray(np.where(seen > 0, seen / np.maximum(chance, _LEAST_CHANCE), 0.0))


def _divergence(seen: Floats, expected: Floats) -> Floats:
    """The terms x ln(x/y), x what is seen; 0 where x is 0."""
    ratio = np.maximum(seen, _LEAST_CHANCE) / np.maximum(expected, _LEAST_CHANCE)
    return np.asarray(np.where(seen > 0, seen * np.log(ratio), 0.0))


def squares(estimates: Sequence[QuestionEstimate]) -> Floats | None:
    """Σ_j (x̂_j − x̄)²/V_j of every number, shape (K,); None where a source shows no variance."""
    if not all((one.variance > 0).all() for one in estimates):
        return None
    values = np.array([one.estimate / one.n for one in estimates])
    weights = np.array([one.n**2 / one.variance for one in estimates])
    common = (weights * values).sum(axis=0) / weights.sum(axis=0)
    return np.asarray((weights * (values - common) ** 2).sum(axis=0))


def chi_square_tail(x: float, freedom: int) -> float:
    """P(χ² ≥ x) for a whole number of degrees of freedom.

    Q_1 = erfc(√(x/2)),  Q_2 = e^{−x/2},  Q_{k+2} = Q_k + (x/2)^{k/2} e^{−x/2}/Γ(k/2 + 1)
    """
    half = max(x, 0.0) / 2
    k = 2 - freedom % 2
    found = exp(-half) if k == 2 else erfc(sqrt(half))
    while k < freedom:
        found += half ** (k / 2) * exp(-half) / gamma(k / 2 + 1)
        k += 2
    return min(found, 1.0)
