"""Privacy of reports that an anonymous shuffler has mixed: the central ε of n shuffled reports.

n devices give one answer each through the same ε₀-locally private randomiser; the shuffled answers are (ε, δ)-private
for each device, with ε far below ε₀. With probability e^{−ε₀} an answer of another device is a clone of the first
device's answer, for either of its two inputs. With C ~ Bin(n−1, e^{−ε₀}), A ~ Bin(C, ½) and
D ~ Bernoulli(e^{ε₀}/(e^{ε₀}+1)), the pair

    P = (A + D, C − A + 1 − D)      Q = (A + 1 − D, C − A + D)

is at least as distinguishable as the shuffled reports under the device's two inputs.
Source: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021, Theorems 3.1 and 3.2; docs/math.md, section 3.
"""

from __future__ import annotations

from math import ceil, exp, floor, inf, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.cards.binomial import log_probability, upper_tail
from protocol.errors import InputError

MOST_REPORTS = 10**9
"""Larger numbers of reports are treated as this one. That gives an upper bound, since ε falls with n."""
_GROUPS = 128
_REACH = 10.0
"""Number of standard deviations on each side of the mean of C, the number of clones, that are divided into groups."""
_HALVINGS = 38
_GUARD = 1e-7
"""Relative error that is added for rounding; logarithms of probabilities have an error below 10⁻⁹."""


class Amplified(NamedTuple):
    """Upper bounds of the central ε of shuffled reports; the closed forms are None where they do not apply."""

    numeric: float
    closed_form: float | None
    printed: float | None


def amplified(local: float, reports: int, delta: float) -> Amplified:
    """Return upper bounds of the central ε of shuffled ``local``-private reports. Raises ``argument_invalid``."""
    if not (0 < local < inf and type(reports) is int and reports >= 1 and 0 < delta < 1):
        raise InputError("argument_invalid", "shuffling needs an ε above 0, a number of reports and 0 < δ < 1")
    return Amplified(numeric(local, reports, delta), *closed_forms(local, reports, delta))


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


def numeric(local: float, reports: int, delta: float) -> float:
    """Return the numeric bound: the least ε, to about 10⁻¹¹ of ε₀, with δ(ε) of :class:`Clones` at most ``delta``.

    It is at most ε₀ = ``local``. More than :data:`MOST_REPORTS` reports count as that number.
    """
    clones = Clones(local, min(reports, MOST_REPORTS))
    low, high = 0.0, local
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if clones.delta(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


class Clones:
    """An upper bound of δ(ε) for the pair (P, Q) of distributions in this module's description.

    The number C of clones is P's and Q's sum less 1, so it is observable, and δ is the mean over c of δ_c, the δ given
    C = c. δ_c falls with c: whoever has c clones can add one. So the values of C are divided into groups, and every
    value of a group gets δ_c of the group's least value. ``local``: ε₀; ``reports``: n.
    """

    def __init__(self, local: float, reports: int) -> None:
        self._local = local
        trials, share = reports - 1, exp(-local)
        middle, sd = trials * share, sqrt(trials * share * (1 - share))
        first = max(0, floor(middle - _REACH * sd))
        last = min(trials, ceil(middle + _REACH * sd))
        values = np.arange(first, last + 1)
        chances = np.exp(log_probability(values, trials, share))
        starts = np.unique(np.linspace(first, last, _GROUPS + 1).astype(np.int64)) if last > first else values[:1]
        self._least = starts.astype(np.float64)
        self._mass = np.add.reduceat(chances, starts - first)
        # A sum of geometric sequences is above both tails that have no group.
        self._below = _geometric(chances[0], first * (1 - share), (trials - first + 1) * share)
        self._mass[-1] += _geometric(chances[-1], (trials - last) * share, (last + 1) * (1 - share))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of the least δ with which shuffled reports are (ε, δ)-private; 0 from ε₀ on.

        Given c clones and K = c + 1, the first count X has P(X = x) = p·b(x−1) + (1−p)·b(x), with b the probabilities
        of Bin(c, ½) and p = e^{ε₀}/(e^{ε₀}+1); under Q, p and 1 − p change places. The ratio of both rises with x, so

            δ_c = Σ_{x ≥ t} P(x) − e^ε Q(x) = (p − e^ε(1−p))·b(t−1) − (e^ε − 1)·P(A ≥ t)

        where t is the least x with P(x) > e^ε Q(x).
        """
        if epsilon >= self._local:
            return 0.0
        p = 1 / (1 + exp(-self._local))
        grown = exp(epsilon)
        weight = p - grown * (1 - p)
        odds = (grown * p - (1 - p)) / weight
        clones = self._least
        t = np.floor((clones + 1) * (odds / (1 + odds))) + 1
        t = np.minimum(t, clones + 1)
        first = weight * np.exp(log_probability(t - 1, clones, 0.5))
        each = np.maximum(first * (1 + _GUARD) - (grown - 1) * upper_tail(t, clones, 0.5), 0)
        return float((self._mass @ each + self._below * weight) * (1 + _GUARD))


def _geometric(first: float, numerator: float, denominator: float) -> float:
    """Return the bound first·ρ/(1 − ρ) of a binomial tail, ρ = numerator/denominator, after ``first``."""
    ratio = numerator / denominator if numerator else 0.0
    return float(first) * ratio / (1 - ratio) if ratio < 1 else 1.0
