"""``hearsay projection --private``: a projection of a curator's records that may be published.

In: records and terms. Out: an integer projection from noisy moments: counts of the classes, sums by class of the scaled
numbers u_1 … u_d, and sums of ⌊u_i u_j/S⌋ (S: 65536). Source: docs/math.md, section 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from math import isqrt, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats, Integers
from aggregator.common.files import write_output
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost, checked, cost_of, decimal_text
from aggregator.curator.binning import check_edges, private_edges
from aggregator.curator.budget import BudgetFile
from aggregator.curator.concentrated import rho_within
from aggregator.curator.fitting import SEED_BYTES, made_up_records
from aggregator.curator.records import Records, read_records
from aggregator.curator.sampling import discrete_gaussian
from aggregator.models.encoding import NO_NUMBER, projected_numbers
from aggregator.models.population import read_pilot
from aggregator.models.reduction import (
    DEFAULT_RIDGE,
    Directions,
    Moments,
    bounds_of_inputs,
    check_bins,
    check_directions,
    directions_of,
    equal_width_edges,
    numeric_inputs,
    with_projection,
)
from aggregator.publishing.schemas.projection_file import projection_text
from protocol import SCALE
from protocol.documents.campaign import PilotCost
from protocol.epsilon import MICRO, format_micro
from protocol.errors import InputError
from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.sums import laplace_variance
from protocol.questions import ADD_REMOVE, CHANGE, CHANGE_FEATURES
from protocol.schema import Schema
from protocol.stream import Stream

TAG = b"hearsay/1/central-projection"
MOMENTS, INPUTS = "moments", "inputs"
BOUNDS = (MOMENTS, INPUTS)
"""Where the bounds of the outputs come from: noisy moments, or the bounds of the inputs."""
REACH = 3
"""Bounds from moments are so many standard deviations on both sides of the mean."""


class ProjectionTerms(NamedTuple):
    """What is public about a private projection, before the records are seen.

    ``method``: ``pca`` or ``dca``; ``epsilon_micro``, ``delta``: of everything, ε in millionths; ``ridge``: ρ of DCA,
    in units of variance; ``bins``: of a component; ``equal_frequency``: whether half of ε pays for bins of about equal
    frequency; ``bounds``: one of :data:`BOUNDS`.
    """

    method: str
    components: int
    epsilon_micro: int
    delta: Fraction = Fraction(0)
    adjacency: str = CHANGE
    ridge: float = DEFAULT_RIDGE
    bins: int = 4
    equal_frequency: bool = False
    bounds: str = MOMENTS

    @property
    def moments_micro(self) -> int:
        """ε of the moments in millionths."""
        return self.epsilon_micro // 2 if self.equal_frequency else self.epsilon_micro

    @property
    def edges_micro(self) -> int:
        """ε of the edges of one component in millionths; 0 for bins of equal width."""
        return (self.epsilon_micro - self.moments_micro) // self.components if self.equal_frequency else 0


class PrivateProjection(NamedTuple):
    """A projection that may be published.

    ``facts`` say how it was made, what it cost and how good it seems; every number is public or has noise. ``paid`` is
    the payment from a budget; None if nobody paid.
    """

    schema: Schema
    directions: Directions
    facts: dict[str, Any]
    paid: PilotCost | None = None

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the projection file, for ``projection`` of ``aggregator.make_campaign``; ``force`` replaces a file."""
        pilots = () if self.paid is None else (self.paid,)
        write_output(Path(path), projection_text(self.schema, self.facts, pilots).encode(), force=force)


def cost_of_projection(schema: Schema, terms: ProjectionTerms) -> Cost:
    """Return the cost of a private projection. No record is read.

    Raises InputError ``no_numbers``, ``bounds_invalid``, ``bins_invalid``, ``delta_invalid``; the reasons of
    :func:`aggregator.models.reduction.check_directions` and :func:`noise_of`.
    """
    inputs = numeric_inputs(schema)
    check_directions(len(inputs), terms.method, terms.components, terms.ridge)
    check_bins(terms.bins)
    if terms.bounds not in BOUNDS:
        raise InputError("bounds_invalid", f"bounds of a private projection come from {' or '.join(BOUNDS)}")
    if not 0 <= terms.delta < 1:
        raise InputError("delta_invalid", "δ is from 0 to less than 1; take less than 1/n for n records")
    if terms.equal_frequency:
        check_edges(terms.bins, terms.edges_micro)
    cost = noise_of(_moment_terms(schema, terms)).cost
    edges = cost_of([terms.edges_micro] * (terms.components if terms.equal_frequency else 0))
    rho = None if cost.rho is None or edges.rho is None else cost.rho + edges.rho
    return checked(Cost(cost.epsilon_micro + edges.epsilon_micro, cost.delta, rho))


def project(records: Records, terms: ProjectionTerms, seed: bytes) -> PrivateProjection:
    """Fit a projection to records with noise. Run by the curator, after the cost was recorded.

    ``seed`` is 32 secret bytes from the operating system, used for this projection alone. Raises InputError: the
    reasons of :func:`cost_of_projection`; ``projection_overflow``, ``schema_invalid``: no integer projection follows
    from the noisy directions (:func:`aggregator.models.reduction.with_projection`).
    """
    cost = cost_of_projection(records.schema, terms)
    stream = Stream(seed, TAG)
    schema = records.schema
    numbers = records.numbers[:, list(numeric_inputs(schema))]
    complete = (numbers != NO_NUMBER).all(axis=1)
    numbers = numbers[complete]
    noisy = release(numbers, records.labels[complete], _moment_terms(schema, terms), stream)
    directions = directions_of(noisy.moments, terms.method, terms.components, terms.ridge)
    bounds = _bounds(directions, noisy.moments.total, terms)
    edges = [equal_width_edges(terms.bins)] * terms.components
    projected = with_projection(schema, terms.method, directions, bounds, edges)
    if terms.equal_frequency:
        assert projected.projection is not None
        outputs = projected_numbers(projected.projection, numbers)
        edges = [private_edges(column, terms.bins, terms.edges_micro, terms.adjacency, stream) for column in outputs.T]
        projected = with_projection(schema, terms.method, directions, bounds, edges)
    return PrivateProjection(projected, directions, _facts(noisy, directions, terms, cost))


def project_records(
    table: pd.DataFrame,
    schema: Schema,
    terms: ProjectionTerms,
    budget: BudgetFile,
    *,
    missing: Collection[str] = MISSING_TOKENS,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> PrivateProjection:
    """Pay from a budget, then fit a projection to records with noise. Run by the curator.

    Everything that can be refused without the records is refused before anything is paid. Arguments and errors are
    those of :func:`project` and of :func:`aggregator.curator.fitting.fit_records`.
    """
    budget.check_adjacency(terms.adjacency)
    cost = cost_of_projection(schema, terms)
    project(made_up_records(schema), terms, bytes(SEED_BYTES))
    records = read_records(read_pilot(table, schema, missing), schema)
    bins = ", bins of equal frequency" if terms.equal_frequency else ""
    number = "1 component" if terms.components == 1 else f"{terms.components} components"
    query = f"projection: {terms.method}, {number}{bins}"
    paid = budget.pay(table, query, cost)
    made = project(records, terms, random_bytes(SEED_BYTES))
    return made._replace(facts={**made.facts, "budget": paid.budget}, paid=paid)


def _moment_terms(schema: Schema, terms: ProjectionTerms) -> MomentTerms:
    inputs = numeric_inputs(schema)
    has_missing = any(schema.features[index].substitute is None for index in inputs)
    classes = len(schema.label.classes) if terms.method == "dca" else 1
    return MomentTerms(len(inputs), classes, has_missing, terms.moments_micro, terms.delta, terms.adjacency)


def _bounds(directions: Directions, total: Floats, terms: ProjectionTerms) -> tuple[Floats, Floats]:
    """Return lowest and highest outputs: of any input, or with ``moments`` ±:data:`REACH` deviations, if narrower."""
    low, high = bounds_of_inputs(directions)
    if terms.bounds == INPUTS:
        return low, high
    reach = REACH * np.sqrt(np.einsum("ik,ij,jk->k", directions.weights, total, directions.weights))
    return np.maximum(low, -reach), np.minimum(high, reach)


def _facts(noisy: NoisyMoments, directions: Directions, terms: ProjectionTerms, cost: Cost) -> dict[str, Any]:
    """Return facts for the projection file. Every number follows from ``terms`` or from noisy moments."""
    facts: dict[str, Any] = {
        "method": terms.method,
        "private": True,
        "epsilon": format_micro(cost.epsilon_micro),
        "delta": decimal_text(cost.delta),
        "adjacency": terms.adjacency,
        "noise": noisy.noise.name,
        "records": round(noisy.records),
        "bounds": terms.bounds,
        "bins": "equal frequency" if terms.equal_frequency else "equal width",
        "explained": [round(float(share), 6) for share in directions.explained],
    }
    if terms.method == "dca":
        powers = [round(float(power), 6) for power in directions.discriminant]
        facts |= {"rho": terms.ridge, "discriminant": powers}
    return facts


LAPLACE, GAUSSIAN = "discrete Laplace", "discrete Gaussian"


class MomentTerms(NamedTuple):
    """What is public about a release of moments; ``has_missing``: whether a record may lack a number."""

    inputs: int
    classes: int
    has_missing: bool
    epsilon_micro: int
    delta: Fraction
    adjacency: str


class Noise(NamedTuple):
    """The noise of one vector.

    ``sensitivity``: Δ, the largest L1 distance of neighbours in the vector's integers; 0 for exact numbers.
    ``epsilon_micro``: ε of discrete Laplace noise in millionths; 0 if the noise is Gaussian. ``variance``: σ² of
    discrete Gaussian noise; 0 if the noise is Laplace.
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
        """Return exact integers of any shape with noise, as float64 of the same shape."""
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
    """The noise of counts, sums and sums of products, its kind (:data:`LAPLACE` or :data:`GAUSSIAN`), and its cost."""

    name: str
    counts: Noise
    sums: Noise
    products: Noise
    cost: Cost


class NoisyMoments(NamedTuple):
    """Noisy moments of numbers in [−1, 1], for publication; the number of ``records`` has noise unless it is public."""

    moments: Moments
    records: float
    noise: MomentNoise


def noise_of(terms: MomentTerms) -> MomentNoise:
    """Return the noise of a release and its cost. They depend on ``terms`` alone, never on records.

    ε is divided ∝ Δ^(2/3), ρ of Gaussian noise ∝ Δ₂ (Δ, Δ₂: a vector's L1 and L2 sensitivities), which minimises the
    sum of the variances of one entry per vector. With δ > 0 the noise is Gaussian if the sums of products then get
    less. Raises InputError: ``epsilon_invalid``, ε is too small to be divided; ``adjacency_unknown``.
    """
    first, squares = _sensitivities(terms)
    pure = _laplace(first, terms)
    if not terms.delta:
        return pure
    concentrated = _gaussian(first, squares, terms)
    return concentrated if concentrated.products.entry_variance < pure.products.entry_variance else pure


def release(numbers: Integers, labels: Integers, terms: MomentTerms, stream: Stream) -> NoisyMoments:
    """Return moments of records with noise. Run by the curator, after the cost was recorded.

    ``numbers``, (n, d) int64, are scaled to [−S, S] (S: 65536), of records that lack none; ``labels``, (n,) int64, are
    not read for one class. The seed of ``stream`` is used once and kept secret. Raises as :func:`noise_of`.
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
    """Return moments from noisy counts (k,), sums (k, d) and sums of products (d, d) of numbers in [−1, 1].

    The scatter of the class means loses its expected noise. Eigenvalues of the scatter within classes are raised to
    2σ√d, what noise of deviation σ alone would show (Wigner). ``variances``: noise of an entry of ``sums`` and
    ``second``.
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
    """Return a symmetric matrix, (d, d) float64, with eigenvalues below ``least`` raised to ``least``."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.maximum(values, least) @ vectors.T)


def _sensitivities(terms: MomentTerms) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return largest L1, then squared L2, distances of neighbours: of counts, sums and products, as integers."""
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
    rho = rho_within(Fraction(terms.epsilon_micro, MICRO), terms.delta)
    units = [1, SCALE**2, SCALE**2]
    weights = [isqrt(MICRO**2 * square // unit) for square, unit in zip(squares, units, strict=True)]
    parts = [rho * weight / sum(weights) for weight in weights]
    variances = [-(-square // (2 * part)) if square else 0 for square, part in zip(squares, parts, strict=True)]
    counts, sums, products = (
        Noise(delta, 0, variance) for delta, variance in zip(sensitivities, variances, strict=True)
    )
    return MomentNoise(GAUSSIAN, counts, sums, products, Cost(terms.epsilon_micro, terms.delta, rho))
