"""Privacy of reports that an anonymous shuffler has mixed: the central ε of n shuffled reports.

n devices give one answer each through the same randomiser R. Let b be a function with b(y) ≤ R(y | x) for every answer
y and input x: the *blanket*, a part of every device's law that says nothing about the device. For the device's two
inputs x and x' and one draw of every device, let V = (R(y | x) − e^ε R(y | x'))/b(y) with density b(y), and V = 0 with
the rest of the probability. The shuffled reports are (ε, δ)-private with δ = E[max(0, V₁ + … + V_n)]/n, the V_i
independent. Balle, Bell, Gascón, Nissim, "The privacy blanket of the shuffle model", CRYPTO 2019, lemma 5.3; of all
decompositions of R this one gives the least δ (Su, Cheng, Wang, arXiv 2504.07414). docs/math.md, section 3, derives
from it the bound of this module, and the older one that counts clones (Feldman, McMillan, Talwar, "Hiding among the
clones", FOCS 2021, theorems 3.1 and 3.2), which is of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil, exp, floor, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.cards.binomial import log_probability, upper_tail
from aggregator.cards.patterns import Pattern, yes_or_no
from aggregator.common.arrays import Floats
from protocol.errors import InputError

MOST_REPORTS = 10**9
"""Larger numbers of reports are treated as this one. That gives an upper bound, since ε falls with n."""
_MOST_LOCAL = 100.0
"""From this ε₀ on no number of reports up to :data:`MOST_REPORTS` hides an answer."""
_GROUPS = 128
_REACH = 10.0
"""Number of standard deviations on each side of the mean of T that are divided into groups."""
_STEPS = np.array([300, 60, 20, 12, 8, 6.5, 5.5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5])
"""Standard deviations below the mean at which the sum of the neutral weights is cut."""
_LEAST = 1e-3
"""Smallest standard deviation of a neutral weight in means: a smaller one would make rounding errors count."""
_SMALLEST = 1e-9
"""Part of ε₀ below which no ε is told."""
_NEAR = 1e-4
_GUARD = 1e-7
"""Relative error that is added for rounding; logarithms of probabilities have an error below 10⁻⁹."""


class Decomposition(NamedTuple):
    """What an answer shows of two inputs, in the worst case.

    With probability ``share`` an answer of another device looks as if its input had been one of the two, each with
    probability ½: the pair of (probability for the first input, for the second one), divided by that of the blanket, is
    (``high``, ``low``) or (``low``, ``high``). With the probability of each entry of ``neutral``, weight → probability,
    both parts of the pair are that weight. Else the answer hides nothing.
    """

    high: float
    low: float
    share: float
    neutral: dict[float, float]


class Amplified(NamedTuple):
    """Upper bounds of the central ε of shuffled reports; the closed forms are None where they do not apply.

    ``decomposed``: from the laws of the mechanisms. ``clones``: from ε₀ alone.
    """

    decomposed: float
    clones: float
    closed_form: float | None
    printed: float | None

    @property
    def general(self) -> float:
        """The smaller one of the bounds that hold for every mechanism of this ε₀ by the theorems on clones."""
        return self.clones if self.closed_form is None else min(self.clones, self.closed_form)


def amplified(local: float, reports: int, delta: float, patterns: Iterable[Pattern] = ()) -> Amplified:
    """Return upper bounds of the central ε of shuffled ``local``-private reports. Raises ``argument_invalid``.

    ``patterns``: the law of an answer for two inputs; without it that of a yes/no answer, the worst of all laws.
    """
    if not (0 < local < inf and type(reports) is int and reports >= 1 and 0 < delta < 1):
        raise InputError("argument_invalid", "shuffling needs an ε above 0, a number of reports and 0 < δ < 1")
    if local > _MOST_LOCAL:
        return Amplified(local, local, None, None)
    clones = numeric(of_clones(local), local, reports, delta)
    known = decomposed(tuple(patterns) or yes_or_no(Fraction(exp(local))))
    return Amplified(numeric(known, local, reports, delta), clones, *closed_forms(local, reports, delta))


def decomposed(patterns: Iterable[Pattern]) -> Decomposition:
    """Return a decomposition whose δ is not below that of the law ``patterns``.

    With ρ the largest ratio of a probability to the blanket's, the pair (u, v) of a pattern's ratios, u ≥ v, is the
    mean of (ρ, 1) with probability α = (u − v)/(ρ − 1), and of a neutral pair with the weight (v − α)/(1 − α). Whatever
    has the same mean and is spread more has the larger δ, which is the mean of a convex function.
    """
    patterns = [each for each in patterns if each.blanket]
    ratio = max(max(each.own, each.other) / each.blanket for each in patterns)
    share = Fraction(0)
    neutral: dict[float, float] = {}
    for own, other, blanket in patterns:
        part = abs(own - other) / (ratio - 1)
        share += part
        if min(own, other) > part:
            weight = float((min(own, other) - part) / (blanket - part))
            neutral[weight] = neutral.get(weight, 0.0) + float(blanket - part)
    return Decomposition(float(ratio), 1.0, float(share), neutral)


def of_clones(local: float) -> Decomposition:
    """Return the decomposition of Feldman, McMillan and Talwar, which follows from ε₀ = ``local`` alone.

    With probability e^{−ε₀} an answer is a clone of an answer for one of the two inputs, each with probability ½; the
    device's own answer points to its input with probability e^{ε₀}/(e^{ε₀} + 1), and always to one of the two.
    """
    ratio = exp(local)
    return Decomposition(2 * ratio * ratio / (ratio + 1), 2 * ratio / (ratio + 1), 1 / ratio, {})


def closed_forms(local: float, reports: int, delta: float) -> tuple[float | None, float | None]:
    """Return the closed form of ε, corrected and as printed; None for both if ε₀ > ln(n/(16 ln(4/δ))).

        s = 8√(e^{ε₀} ln(4/δ)/n) + 8e^{ε₀}/n        for ε₀ = local, n = reports, δ = delta
        printed     ln(1 + s·(e^{ε₀} − 1)/(e^{ε₀} + 1))
        corrected   ln(1 + s·(1 − e^{−ε₀})/(1 + e^{−ε₀−ε'}))      ε' = ln(1 + s)

    Theorem 3.1 states the condition with 2/δ in place of 4/δ; the authors' code has 4/δ, which is stricter.
    """
    scale = log(4 / delta)
    if local > log(reports / (16 * scale)):
        return None, None
    grown = exp(local)
    sum_of_both = 8 * sqrt(grown * scale / reports) + 8 * grown / reports
    corrected = (1 - 1 / grown) / (1 + exp(-local) / (1 + sum_of_both))
    printed = (grown - 1) / (grown + 1)
    return log1p(sum_of_both * corrected), log1p(sum_of_both * printed)


def numeric(law: Decomposition, local: float, reports: int, delta: float) -> float:
    """Return the numeric bound: the least ε, to 1 part in 10⁴, with δ(ε) of :class:`Mixed` at most ``delta``.

    It is at least :data:`_SMALLEST`·ε₀ and at most ε₀ = ``local``. More than :data:`MOST_REPORTS` reports count as that
    number.
    """
    mixed = Mixed(law, min(reports, MOST_REPORTS))
    low, high = log(_SMALLEST * local), log(local)
    if mixed.delta(exp(low)) <= delta:
        return exp(low)
    while high - low > _NEAR:
        middle = (low + high) / 2
        if mixed.delta(exp(middle)) <= delta:
            high = middle
        else:
            low = middle
    return min(local, exp(high))


class Mixed:
    """An upper bound of δ(ε) = E[max(0, V₁ + … + V_n)]/n for the n = ``reports`` answers of a decomposition ``law``.

    Let T ~ Bin(n, share) count the answers that point to one of the two inputs, A ~ Bin(T, ½) those that point to the
    first one, and W be the sum of the weights of the neutral ones. Then

        V₁ + … + V_n = D·(A − T/2) − (e^ε − 1)·(W + T·(high + low)/2),      D = (high − low)(e^ε + 1)

    Of this the mean of the positive part rises with T in A − T/2, and falls with W and with T in the last bracket.
    So every value of a group of values of T counts as the group's largest one for the first and as the group's least
    one for the second, and W counts as the next lower one of a few values, with Chernoff's bound of falling below it.
    """

    def __init__(self, law: Decomposition, reports: int) -> None:
        self._law = law
        share = law.share
        middle, sd = reports * share, sqrt(reports * share * (1 - share))
        first = max(0, floor(middle - _REACH * sd))
        last = min(reports, ceil(middle + _REACH * sd))
        values = np.arange(first, last + 1)
        chances = np.exp(log_probability(values, reports, share)) / reports
        starts = np.unique(np.linspace(first, last, _GROUPS + 1).astype(np.int64)) if last > first else values[:1]
        self._least = starts.astype(np.float64)[:, None]
        self._most = np.append(starts[1:] - 1, last).astype(np.float64)[:, None]
        # A sum of geometric sequences is above each of both tails that have no group: there the sum is at most T/2·V.
        below = first * _geometric(chances[0], first * (1 - share), (reports - first + 1) * share)
        above = _geometric(last * chances[-1], (reports - last) * share, last * (1 - share))
        self._tails = (below + above) / 2
        self._neutral, fewer = self._weights(reports - self._most)
        self._mass = np.add.reduceat(chances, starts - first)[:, None] * np.diff(fewer, prepend=0.0, append=1.0)

    def _weights(self, answers: Floats) -> tuple[Floats, Floats]:
        """Return (T, S + 1) values of W that rise from 0, and (T, S) bounds of P(W < value) for all but the first one.

        ``answers``: (T, 1) numbers of answers that do not point to one of the two inputs.
        """
        law = self._law
        if not law.neutral:
            return np.zeros((len(answers), 1)), np.zeros((len(answers), 0))
        weights = np.array(list(law.neutral))
        chances = np.array(list(law.neutral.values())) / (1 - law.share)
        mean = float(weights @ chances)
        sd = max(sqrt(max(float(weights**2 @ chances) - mean**2, 0)), _LEAST * mean)
        roots = sd * np.sqrt(np.maximum(answers, 1))
        cut = np.maximum(answers * mean - roots * _STEPS, 0)
        slope = _STEPS / roots
        moved = sum(chance * np.expm1(-slope * weight) for weight, chance in zip(weights, chances, strict=True))
        logs = answers * np.log1p(np.maximum(moved, _GUARD - 1))
        # ln P(W < w) ≤ n·ln E[e^{−s·weight}] + s·w for every slope s > 0 and the sum W of n weights.
        least = np.minimum((logs[:, None, :] + slope[:, None, :] * cut[..., None]).min(axis=2), 0)
        bound = np.where(cut > 0, np.exp(least), 0)
        return np.pad(cut, ((0, 0), (1, 0))), np.maximum.accumulate(bound, axis=1)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of the least δ with which shuffled reports are (ε, δ)-private.

        With t the group's largest T, w = (e^ε − 1)(W + T·(high + low)/2)/D and k the least integer above t/2 + w,
        the mean of max(0, A − t/2 − w) is k/2·P(A = k) − w·P(A ≥ k).
        """
        high, low = self._law.high, self._law.low
        grown = exp(epsilon)
        if high <= grown * low:
            return 0.0
        scale = (high - low) * (1 + grown)
        w = (grown - 1) * (self._neutral + self._least * ((high + low) / 2)) / scale
        t = np.broadcast_to(self._most, w.shape)
        k = np.floor(t / 2 + w) + 1
        first = k / 2 * np.exp(log_probability(np.minimum(k, t), t, 0.5))
        mean = np.maximum(first * (1 + _GUARD) - w * upper_tail(k, t, 0.5), 0)
        mean = np.where(k <= t, mean, 0)
        return float((scale * (self._mass * mean).sum() + (high - grown * low) * self._tails) * (1 + _GUARD))


def _geometric(first: float, numerator: float, denominator: float) -> float:
    """Return the bound first·ρ/(1 − ρ) of a binomial tail, ρ = numerator/denominator, after ``first``."""
    ratio = numerator / denominator if numerator else 0.0
    return float(first) * ratio / (1 - ratio) if ratio < 1 else 1.0
