"""Dimension reduction: fit PCA or DCA on a pilot, and make the integer projection for devices. Run by the analyst.

Data of devices are never used. Inputs and outputs are integers from −S to S, S = :data:`protocol.SCALE`. Source:
docs/math.md, section 4; DCA: S. Y. Kung, Multimedia Tools and Applications 76 (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats, Integers
from aggregator.models.encoding import NO_NUMBER, label_codes, observe
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.schema import MAX_COMPONENTS, MAX_SHIFT, Component, Projection, Schema, build_schema

METHODS = ("pca", "dca")
DEFAULT_RIDGE = 1e-3
_WEIGHT_LIMIT = (1 << 31) - 1
_SUM_LIMIT = (1 << 62) - 1
_LEAST_PRECISION = 1 / 4096


class Moments(NamedTuple):
    """Moments of n inputs over the records; PCA and DCA need nothing else.

    ``mean`` has the shape (n,) float64; ``total``, the covariance S̄, and ``between``, the scatter S_B of the class
    means divided by the number of records, have the shape (n, n).
    """

    mean: Floats
    total: Floats
    between: Floats


class Directions(NamedTuple):
    """Result of a PCA or DCA fit: K directions in the space of n inputs.

    ``weights``: shape (n, K), one direction per column; ``mean``: (n,), of the pilot's inputs; ``explained``: (K,),
    share of the pilot's variance along each direction; ``discriminant``: (K,), the part of it between the classes; all
    float64.
    """

    weights: Floats
    mean: Floats
    explained: Floats
    discriminant: Floats


class Reduction(NamedTuple):
    """A fitted projection and its quality.

    ``directions`` are those before rounding to integers; ``clipped``: shape (K,) float64, share of the pilot's rows
    with a clipped output; ``worst_error``: largest rounding error on the pilot, as a part of the range [−S, S].
    """

    schema: Schema
    directions: Directions
    clipped: Floats
    worst_error: float


def numeric_inputs(schema: Schema) -> tuple[int, ...]:
    """Return the indices of the numeric features, which a projection replaces; ``no_numbers`` if there are none."""
    inputs = tuple(index for index, feature in enumerate(schema.features) if isinstance(feature, Numeric))
    if not inputs:
        raise InputError("no_numbers", "a projection needs numeric features; this schema has none")
    return inputs


def pilot_inputs(frame: pd.DataFrame, schema: Schema) -> tuple[tuple[int, ...], Integers]:
    """Return the indices of the n numeric features, and the numbers scaled to integers: shape (rows, n) int64.

    A missing number counts as its substitute, else it is :data:`.NO_NUMBER`. Raises InputError ``no_numbers``;
    ``pilot_incomplete``: every row lacks a number without a substitute; and as :func:`.observe`.
    """
    inputs = numeric_inputs(schema)
    numbers = observe(frame, schema._replace(projection=None)).numbers[:, list(inputs)]
    rows = (numbers != NO_NUMBER).all(axis=1)
    if not rows.any():
        raise InputError("pilot_incomplete", "every row of the pilot lacks a number")
    return inputs, numbers


def fit_directions(x: Floats, labels: Integers, method: str, components: int, ridge: float) -> Directions:
    """Return the directions of PCA or DCA from the records of a pilot, by :func:`directions_of`.

    ``x``: (rows, n) float64 in [−1, 1]. ``labels``: (rows,) int64, for DCA. Raises InputError as
    :func:`check_directions` and :func:`directions_of`; ``pilot_too_small``: not more rows than inputs; ``one_class``.
    """
    rows, n = x.shape
    check_directions(n, method, components, ridge)
    if rows <= n:
        raise InputError("pilot_too_small", f"a pilot of {rows} rows can not tell {n} dimensions apart; it needs more")
    if method == "dca" and len(np.unique(labels)) < 2:
        raise InputError("one_class", "the pilot has one class, so nothing tells classes apart")
    return directions_of(moments_of(x, labels), method, components, ridge)


def check_directions(n: int, method: str, components: int, ridge: float) -> None:
    """Raise ``method_unknown``, ``components_invalid`` or ``ridge_invalid`` for a PCA or DCA of ``n`` inputs."""
    if method not in METHODS:
        raise InputError("method_unknown", f"a method is {' or '.join(METHODS)}")
    if type(components) is not int or not 1 <= components <= min(n, MAX_COMPONENTS):
        raise InputError("components_invalid", f"there are 1 to {min(n, MAX_COMPONENTS)} components of {n} numbers")
    if not 0 <= ridge < np.inf:
        raise InputError("ridge_invalid", "ρ is a number that is not negative")


def directions_of(moments: Moments, method: str, components: int, ridge: float) -> Directions:
    """Return K directions. PCA: eigenvectors of S̄. DCA: the W that maximises tr(WᵀS_B W) with Wᵀ(S̄ + ρI)W = I.

    Raises InputError ``scatter_singular``, for DCA: S̄ + ρI has no inverse.

    Args:
        moments: exact or noisy moments of n inputs: S̄ is ``total``, S_B ``between``; both are positive semidefinite.
        method: ``pca`` or ``dca``.
        components: K, at most n. Of k classes, at most k − 1 directions of DCA tell the classes apart.
        ridge: ρ ≥ 0, in units of variance; used by DCA only.
    """
    mean, total, between = moments
    if method == "dca":
        weights = _discriminant(total, between, components, ridge)
    else:
        weights = _oriented(np.linalg.eigh(total)[1][:, ::-1][:, :components])
    spread = np.einsum("ik,ij,jk->k", weights, total, weights)
    apart = np.einsum("ik,ij,jk->k", weights, between, weights)
    lengths = (weights**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = np.nan_to_num(spread / lengths / np.trace(total))
        discriminant = np.nan_to_num(apart / spread)
    return Directions(weights, mean, explained, discriminant)


def moments_of(x: Floats, labels: Integers) -> Moments:
    """Return exact moments of records: ``x``, (rows, n) float64, with the class codes ``labels``, (rows,) int64."""
    rows, n = x.shape
    mean = x.mean(axis=0)
    between = np.zeros((n, n))
    for label in np.unique(labels):
        members = x[labels == label]
        away = members.mean(axis=0) - mean
        between += len(members) / rows * np.outer(away, away)
    return Moments(mean, np.cov(x, rowvar=False, bias=True).reshape(n, n), between)


def _discriminant(total: Floats, between: Floats, components: int, ridge: float) -> Floats:
    """Return the directions of DCA, (n, K): whiten by ``total`` + ρI (ρ: ``ridge``), then maximise ``between``."""
    values, vectors = np.linalg.eigh(total + ridge * np.eye(len(total)))
    if values[0] <= 1e-12 * max(values[-1], 1e-300):
        raise InputError("scatter_singular", "some numbers follow from others, or never vary; give a larger --rho")
    whitening = vectors / np.sqrt(values)
    _, found = np.linalg.eigh(whitening.T @ between @ whitening)
    return _oriented(whitening @ found[:, ::-1][:, :components])


def _oriented(weights: Floats) -> Floats:
    """Return directions, multiplied by ±1 so that the largest weight of each is positive on every machine."""
    largest = np.abs(weights).argmax(axis=0)
    signs = np.sign(weights[largest, np.arange(weights.shape[1])])
    return weights * np.where(signs == 0, 1, signs)


def fit_projection(
    frame: pd.DataFrame,
    schema: Schema,
    method: str,
    components: int,
    *,
    bins: int = 4,
    ridge: float = DEFAULT_RIDGE,
    bounds: str = "pilot",
    quantile: float = 0.0,
    equal_frequency: bool = False,
) -> Reduction:
    """Fit a projection on a pilot, and return it in integers with its quality.

    Raises InputError: the errors of :func:`pilot_inputs`, :func:`fit_directions` and :func:`with_projection`;
    ``label_missing``; ``bins_invalid``, also if the outputs are too alike for bins of equal frequency;
    ``bounds_invalid``; ``quantile_invalid``; ``scatter_singular``, the pilot does not vary along a component.

    Args:
        frame: the pilot as a typed table, with its label.
        schema: the pilot's schema, without a projection; every numeric feature is projected.
        method: ``pca`` or ``dca``.
        components: K, the number of components.
        bins: number of bins of every component; the largest number with ``equal_frequency``.
        ridge: ρ of DCA.
        bounds: range of the outputs: ``inputs`` (no possible input leads to a clipped output) or ``pilot`` (quantiles
            of the pilot's outputs).
        quantile: share of the pilot's outputs that may be clipped on each side, with ``bounds="pilot"``.
        equal_frequency: True for bins of equal frequency in the pilot, False for bins of equal width.
    """
    _, numbers = pilot_inputs(frame, schema)
    rows = (numbers != NO_NUMBER).all(axis=1)
    check_bins(bins)
    labels = label_codes(frame, schema.label, substitute=True)
    x = numbers[rows] / SCALE
    directions = fit_directions(x, labels[rows], method, components, ridge)
    outputs = (x - directions.mean) @ directions.weights
    low, high = _bounds(directions, outputs, bounds, quantile)
    real = 2 * SCALE * (outputs - low) / (high - low) - SCALE
    edges = _quantile_edges(real, bins) if equal_frequency else [equal_width_edges(bins)] * components
    projected = with_projection(schema, method, directions, (low, high), edges)
    assert projected.projection is not None
    exact = np.array([projected.projection.apply(row) for row in numbers[rows].tolist()])
    worst = float(np.abs(exact - np.clip(real, -SCALE, SCALE)).max()) / (2 * SCALE)
    clipped = ((real < -SCALE) | (real > SCALE)).mean(axis=0)
    return Reduction(projected, directions, clipped, worst)


def with_projection(
    schema: Schema, method: str, directions: Directions, bounds: tuple[Floats, Floats], edges: Sequence[Sequence[int]]
) -> Schema:
    """Return the schema with an integer projection of its numeric features. No record is needed.

    Raises InputError: ``projection_overflow``, the bounds are too narrow; ``projection_invalid``; ``schema_invalid``, a
    component has too many values for one question.

    Args:
        schema: a schema without a projection; all numeric features are inputs, n of them.
        method: beginning of the components' names: ``pca`` gives ``pca1``, ``pca2`` and so on.
        directions: K directions of n inputs.
        bounds: the real outputs that the integer outputs −S and S represent: two arrays of shape (K,) float64.
        edges: inner edges of the bins of each component, in integer outputs.
    """
    inputs = numeric_inputs(schema)
    matrix, offsets, shift = _integers(directions, *bounds)
    has_missing = any(schema.features[index].substitute is None for index in inputs)
    parts = [
        Component(f"{method}{index + 1}", -SCALE, SCALE, each, has_missing=has_missing)
        for index, each in enumerate(edges)
    ]
    return build_schema(schema.label, schema.features, Projection(inputs, matrix, offsets, shift, parts))


def _bounds(directions: Directions, outputs: Floats, bounds: str, quantile: float) -> tuple[Floats, Floats]:
    """Return the real outputs that the integer outputs −S and S represent: shape (K,) float64 each."""
    if bounds == "inputs":
        if quantile:
            raise InputError("quantile_invalid", "a quantile is for bounds from the pilot; say --bounds pilot")
        return bounds_of_inputs(directions)
    if bounds != "pilot":
        raise InputError("bounds_invalid", "bounds come from inputs or from pilot")
    if not 0 <= quantile < 0.5:
        raise InputError("quantile_invalid", "the quantile on each side is from 0 to below 0.5")
    low, high = np.quantile(outputs, [quantile, 1 - quantile], axis=0)
    if (high <= low).any():
        raise InputError("scatter_singular", "the pilot does not vary along a component; ask for fewer")
    return low, high


def bounds_of_inputs(directions: Directions) -> tuple[Floats, Floats]:
    """Return the least and the largest output w·(x − mean) of any input x in [−1, 1]ⁿ: shape (K,) float64 each."""
    reach = np.abs(directions.weights).sum(axis=0)
    centre = directions.mean @ directions.weights
    return -reach - centre, reach - centre


def _integers(directions: Directions, low: Floats, high: Floats) -> tuple[list[list[int]], list[int], int]:
    """Return matrix, offsets and shift of the integer projection, as fine as 32-bit weights and 62-bit sums allow.

    An output is Σ g_i u_i + c for the scaled inputs u_i and a direction w: g = 2w/(high − low) and c = S(−2(mean·w +
    low)/(high − low) − 1), times 2^shift; c also has 2^shift/2, so that the shift rounds to nearest.
    """
    gains = 2 * directions.weights / (high - low)
    constants = SCALE * (-2 * (directions.mean @ directions.weights + low) / (high - low) - 1)
    largest = max(float(np.abs(gains).max()), 1e-300)
    reach = float((np.abs(gains).sum(axis=0) * SCALE + np.abs(constants)).max()) + 1
    shift = MAX_SHIFT
    while shift and (largest * 2**shift >= _WEIGHT_LIMIT or reach * 2**shift >= _SUM_LIMIT):
        shift -= 1
    coarseness = len(gains) * SCALE / 2 ** (shift + 1) / (2 * SCALE)
    if largest * 2**shift >= _WEIGHT_LIMIT or coarseness > _LEAST_PRECISION:
        raise InputError("projection_overflow", "the outputs' bounds are too narrow for integer weights; widen them")
    matrix = [[round(float(gain) * 2**shift) for gain in column] for column in gains.T]
    offsets = [round(float(constant) * 2**shift) + (1 << shift >> 1) for constant in constants]
    return matrix, offsets, shift


def check_bins(bins: int) -> None:
    """Raise ``bins_invalid`` (``InputError``) if the number of bins is outside 2 … 65536."""
    if not 2 <= bins <= 65536:
        raise InputError("bins_invalid", "a component has 2 to 65536 bins")


def equal_width_edges(bins: int) -> list[int]:
    """Return the inner edges of ``bins`` bins of equal width between −S and S."""
    return [round(-SCALE + 2 * SCALE * j / bins) for j in range(1, bins)]


def _quantile_edges(real: Floats, bins: int) -> list[list[int]]:
    """Return integer edges of every component's bins at the quantiles of ``real``, outputs in [−S, S]."""
    found = []
    for column in np.clip(real, -SCALE, SCALE).T:
        cuts = np.unique(np.ceil(np.quantile(column, np.arange(1, bins) / bins)).astype(np.int64))
        inside = [int(cut) for cut in cuts if -SCALE < cut <= SCALE]
        if not inside:
            raise InputError("bins_invalid", "the pilot's outputs are too alike for bins of equal frequency")
        found.append(inside)
    return found
