"""Means, covariance and scatter of class means with noise, for PCA and DCA of a curator's records.

Three integer vectors are released, each with noise for its own sensitivity: the counts of the classes, the sums of u
by class, and for i ≤ j the sums of ⌊u_i u_j/S⌋ over all records. PCA takes all records as one class, and so looks at no
label. Records with a missing number take no part. All else follows from these vectors:

    S_B = Σ_c p_c (m_c − m)(m_c − m)ᵀ − its expected noise,   S̄ = M/n − m mᵀ

S_B is made positive semidefinite. Eigenvalues of the within-class scatter S̄ − S_B below 2σ√d are raised to that: a
symmetric matrix of nothing but noise of standard deviation σ has a largest eigenvalue near 2σ√d (Wigner), and a
direction of too little variance would look as if it told the classes apart. S̄ is the sum of both.

Largest difference of neighbours, for d numbers in units of S (s = 1 + 1/S for the rounding down; docs/math.md, 7):

    vector                  add-remove        change                change-features
                            L1       L2²      L1         L2²        L1         L2²
    counts of the classes   1        1        2          2          0, or 1 if a number may be missing
    sums of u by class      d        d        2d         4d         2d         4d
    sums of ⌊u_i u_j/S⌋     d(d+1)/2 d(d+1)/2 s·d(d+1)/2 s²(d²+d/2) as change

Noise: discrete Laplace for δ = 0. With δ > 0 discrete Gaussian noise, if the sums of products have less noise by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.curator.accounting import Cost, cost_of
from aggregator.curator.noise.whole_numbers import discrete_gaussian
from aggregator.models.reduction import Moments
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.rational_bounds import log_above, root_above
from protocol.stream import Stream
from protocol.sums.adjacency import ADD_REMOVE, CHANGE, CHANGE_FEATURES
from protocol.sums.vectors import laplace_variance

LAPLACE, GAUSSIAN = "discrete Laplace", "discrete Gaussian"


class MomentTerms(NamedTuple):
    """What is public about a release of moments, before the records are seen.

    Attributes:
        inputs: d, number of numbers.
        classes: number of classes; 1 for PCA.
        has_missing: whether a record may lack a number.
        epsilon_micro: ε in millionths.
        delta: δ; 0 for pure differential privacy.
        adjacency: one of :data:`protocol.sums.adjacency.ADJACENCIES`.
    """

    inputs: int
    classes: int
    has_missing: bool
    epsilon_micro: int
    delta: Fraction
    adjacency: str


class Noise(NamedTuple):
    """The noise of one vector.

    Attributes:
        sensitivity: Δ, the largest L1 distance of neighbours in units of the vector; 0 means exact.
        epsilon_micro: ε of discrete Laplace noise in millionths; 0 if the noise is Gaussian.
        variance: σ² of discrete Gaussian noise; 0 if the noise is Laplace.
    """

    sensitivity: int
    epsilon_micro: int
    variance: int

    @property
    def rate(self) -> Fraction:
        """The rate of discrete Laplace noise: ε/Δ."""
        return Fraction(self.epsilon_micro, MICRO * self.sensitivity)

    @property
    def entry_variance(self) -> float:
        """Variance of the noise of one entry."""
        if not self.sensitivity:
            return 0.0
        return float(self.variance) if self.variance else laplace_variance(self.rate)

    def added(self, values: Integers, stream: Stream) -> Floats:
        """Exact integers of any shape with noise, as float64 of the same shape."""
        if not self.sensitivity:
            return values.astype(np.float64)
        exact = [int(value) for value in values.ravel()]
        if self.variance:
            noisy = [value + discrete_gaussian(stream, self.variance) for value in exact]
        else:
            s, t = self.rate.as_integer_ratio()
            noisy = [value + discrete_laplace(stream, s, t) for value in exact]
        return np.array(noisy, np.float64).reshape(values.shape)


class MomentNoise(NamedTuple):
    """The noise of all three vectors, and what they cost together.

    Attributes:
        name: :data:`LAPLACE` or :data:`GAUSSIAN`.
        counts, sums, products: noise of the counts, the sums of u and the sums of products.
        cost: the cost of the release.
    """

    name: str
    counts: Noise
    sums: Noise
    products: Noise
    cost: Cost


class NoisyMoments(NamedTuple):
    """Moments with noise, which may leave the curator.

    Attributes:
        moments: of the numbers in [−1, 1]; S̄ and S_B are positive semidefinite.
        records: number of records with all numbers, with noise unless it is public; at least 1.
        noise: the noise that was added.
    """

    moments: Moments
    records: float
    noise: MomentNoise


def noise_of(terms: MomentTerms) -> MomentNoise:
    """The noise of a release and its cost. They depend on ``terms`` alone, never on records.

    ε is divided ∝ Δ^(2/3), ρ of Gaussian noise ∝ Δ₂: both minimise the sum of the variances of one entry per vector.

    Raises:
        InputError: ``epsilon_invalid``, ε is too small to be divided; ``adjacency_unknown``.
    """
    first, squares = _sensitivities(terms)
    pure = _laplace(first, terms)
    if not terms.delta:
        return pure
    concentrated = _gaussian(first, squares, terms)
    return concentrated if concentrated.products.entry_variance < pure.products.entry_variance else pure


def release(numbers: Integers, labels: Integers, terms: MomentTerms, stream: Stream) -> NoisyMoments:
    """Moments of records with noise. Run by the curator, after the cost was recorded.

    Args:
        numbers: shape (n, d) int64, u in [−S, S], of records that lack no number.
        labels: shape (n,) int64, class codes from 0 to below ``terms.classes``; not read for one class.
        terms: the public terms.
        stream: the randomness, from a seed that is used once and kept secret.

    Raises:
        InputError: the reasons of :func:`noise_of`.
    """
    noise = noise_of(terms)
    d, k = terms.inputs, terms.classes
    classes = labels if k > 1 else np.zeros(len(numbers), np.int64)
    counts = noise.counts.added(np.bincount(classes, minlength=k), stream)
    exact = np.array([numbers[classes == each].sum(axis=0) for each in range(k)], np.int64)
    sums = noise.sums.added(exact, stream) / SCALE
    rows, columns = np.triu_indices(d)
    products = np.array([(numbers[:, i] * numbers[:, j] // SCALE).sum() for i, j in zip(rows, columns, strict=True)])
    second = np.zeros((d, d))
    second[rows, columns] = second[columns, rows] = noise.products.added(products.astype(np.int64), stream) / SCALE
    count = max(float(counts.sum()), 1.0)
    variances = noise.sums.entry_variance / SCALE**2, noise.products.entry_variance / SCALE**2
    return NoisyMoments(_moments(counts, sums, second, variances), count, noise)


def _moments(counts: Floats, sums: Floats, second: Floats, variances: tuple[float, float]) -> Moments:
    """Moments from noisy vectors.

    Args:
        counts: shape (k,) float64, records of each class.
        sums: shape (k, d) float64, sums of the numbers in [−1, 1] of each class.
        second: shape (d, d) float64, sums of products.
        variances: variance of the noise of an entry of ``sums`` and of ``second``.
    """
    count = max(float(counts.sum()), 1.0)
    d = len(second)
    mean = np.clip(sums.sum(axis=0) / count, -1, 1)
    between = np.zeros((d, d))
    for size, total in zip(counts, sums, strict=True):
        if len(counts) > 1 and size >= 1:
            away = np.clip(total / size, -1, 1) - mean
            between += size / count * (np.outer(away, away) - variances[0] / size**2 * np.eye(d))
    between = at_least(between, 0)
    within = at_least(second / count - np.outer(mean, mean) - between, 2 * sqrt(variances[1] * d) / count)
    return Moments(mean, within + between, between)


def at_least(matrix: Floats, least: float) -> Floats:
    """A symmetric matrix, (d, d) float64, with eigenvalues below ``least`` raised to ``least``."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.maximum(values, least) @ vectors.T)


def _sensitivities(terms: MomentTerms) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """L1 distances and squared L2 distances of neighbours: of counts, sums and products, in units of the vectors."""
    d, pairs = terms.inputs, terms.inputs * (terms.inputs + 1) // 2
    if terms.adjacency == ADD_REMOVE:
        return (1, d * SCALE, pairs * SCALE), (1, d * SCALE**2, pairs * SCALE**2)
    moved = {CHANGE: 2, CHANGE_FEATURES: int(terms.has_missing)}.get(terms.adjacency)
    if moved is None:
        raise InputError("adjacency_unknown", "the adjacency is add-remove, change or change-features")
    if terms.classes == 1:
        moved = int(terms.has_missing)
    squared = (2 * d * d + d) * (SCALE + 1) ** 2 // 2 + 1
    return (moved, 2 * d * SCALE, pairs * (SCALE + 1)), (moved, 4 * d * SCALE**2, squared)


def _laplace(sensitivities: Sequence[int], terms: MomentTerms) -> MomentNoise:
    units = [1, SCALE, SCALE]
    weights = [round(MICRO * (delta / unit) ** (2 / 3)) for delta, unit in zip(sensitivities, units, strict=True)]
    shares = [terms.epsilon_micro * weight // sum(weights) for weight in weights]
    shares[-1] += terms.epsilon_micro - sum(shares)
    if any(delta and share < 1 for delta, share in zip(sensitivities, shares, strict=True)):
        raise InputError("epsilon_invalid", "ε is too small to be divided among counts, sums and products")
    counts, sums, products = (Noise(delta, share, 0) for delta, share in zip(sensitivities, shares, strict=True))
    return MomentNoise(LAPLACE, counts, sums, products, cost_of(share for share in shares if share))


def _gaussian(sensitivities: Sequence[int], squares: Sequence[int], terms: MomentTerms) -> MomentNoise:
    rho = _rho_below(Fraction(terms.epsilon_micro, MICRO), terms.delta)
    units = [1, SCALE**2, SCALE**2]
    weights = [isqrt(MICRO**2 * square // unit) for square, unit in zip(squares, units, strict=True)]
    parts = [rho * weight / sum(weights) for weight in weights]
    variances = [-(-square // (2 * part)) if square else 0 for square, part in zip(squares, parts, strict=True)]
    counts, sums, products = (
        Noise(delta, 0, variance) for delta, variance in zip(sensitivities, variances, strict=True)
    )
    return MomentNoise(GAUSSIAN, counts, sums, products, Cost(terms.epsilon_micro, terms.delta, rho))


def _rho_below(epsilon: Fraction, delta: Fraction) -> Fraction:
    """A ρ close to the largest for which ρ-zero-concentrated privacy is (ε, δ): ρ + 2√(ρ ln(1/δ)) ≤ ε."""
    inverse = log_above(1 / delta)
    root = root_above(inverse)
    # √ρ = √(L + ε) − √L = ε/(√(L + ε) + √L) solves the equality. A divisor that is rounded up is on the safe side.
    slope = epsilon / (root_above(inverse + epsilon) + root)
    rho = slope * slope * (1 - Fraction(1, 10**12))
    rho = Fraction(rho.numerator * 10**18 // rho.denominator, 10**18)
    assert rho + 2 * root_above(rho * inverse) <= epsilon
    return rho
