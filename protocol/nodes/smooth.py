"""Noise of campaigns for nodes with the sensitivity ``smooth``: what a node draws and an aggregator has to know of it.

Neighbours differ in the features of one record; the numbers n_c of records of the classes are the same. Every released
vector has ε' millionths. Counts and sums of u have discrete Laplace noise (:func:`protocol.nodes.terms.sensitivity`).
The sums of squares Q = Σu²/S of one number are released per class:

- a class of fewer than n₀ = ⌈3/ε'⌉ records: Q with discrete Laplace noise of rate ε'/S;
- any other class: the variance v of its u, ṽ = v + k·S*·Z, S* the smooth sensitivity of v and Z Student's t with 3
  degrees of freedom; from it and the noisy sum T̃ of u, whose noise has the variance V, Q̃ = (n_c·ṽ + (T̃² − V)/n_c)/S.

Q̃ has no bias. k and β follow from ε' with a proven cost (``protocol.noise``). Source: decision 77.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.nodes.terms import SMOOTH, sensitivity, terms_of
from protocol.noise.calibration import calibrated
from protocol.noise.student import StudentT
from protocol.questions import MOMENT, SQUARE
from protocol.sums.vectors import laplace_variance, rate

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.noise.calibration import Calibration
    from protocol.questions import Subject

_LEAST_RECORDS = 3


@lru_cache(maxsize=256)
def calibration(share: int) -> Calibration:
    """K and β of the noise of variances for ε' = ``share`` millionths.

    Raises:
        InputError: ``epsilon_invalid``, ``noise_unfit``, ``beta_invalid``: no constants are proven for this ε'.
    """
    return calibrated(StudentT(), Fraction(share, MICRO), Fraction(0))


def least_records(share: int) -> int:
    """n₀: the smallest class whose variance is released. In smaller ones the noise of T̃² would outweigh the rest."""
    return max(2, -(-_LEAST_RECORDS * MICRO // share))


def variance_of_sums(share: int) -> float:
    """V: the variance of the noise of one sum of u."""
    return laplace_variance(rate(share, 2 * SCALE))


def variance_of_squares(share: int) -> float:
    """An upper bound of the variance of the noise of one sum of squares, for all records; the true one is private.

    With k·S* ≤ k·GS, n·GS ≤ 4S², |mean| ≤ S, n ≥ n₀, and at most 5V² + V for the variance of the square of the noise:

        48·k²·S² + 4V + (5V² + V)/(n₀·S)²
    """
    k, spread = float(calibration(share).multiplier), variance_of_sums(share)
    bound = 48 * k**2 * SCALE**2 + 4 * spread + (5 * spread**2 + spread) / (least_records(share) * SCALE) ** 2
    return max(bound, laplace_variance(rate(share, SCALE)))


def noise_variance(campaign: Campaign, subject: Subject, share: int) -> float:
    """The variance of the noise of one number of a released vector; of sums of squares by ``smooth`` an upper bound.

    Args:
        campaign: a campaign for nodes, of either sensitivity.
        subject: of the vector.
        share: ε' of the vector in millionths.
    """
    kind = terms_of(campaign).sensitivity
    if kind == SMOOTH and (subject.kind, subject.power) == (MOMENT, SQUARE):
        return variance_of_squares(share)
    return laplace_variance(rate(share, sensitivity(subject, kind)))
