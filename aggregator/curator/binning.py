"""``hearsay schema --private``: bins of about equal frequency for a schema's numbers, which may be published.

Edges are drawn by the exponential mechanism: the middle edge, then the middle of each half, and so on. Source:
McSherry, Talwar (FOCS 2007); Smith (STOC 2011); Kaplan, Schnapp, Stemmer (2022); docs/math.md, section 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost, cost_of
from aggregator.curator.budget import BudgetFile
from aggregator.curator.fitting import SEED_BYTES
from aggregator.curator.records import Records, read_records
from aggregator.curator.sampling import below
from aggregator.models.encoding import NO_NUMBER
from aggregator.models.population import read_pilot
from aggregator.models.reduction import numeric_inputs
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.features import Feature, Numeric
from protocol.noise.rational_bounds import exp_below
from protocol.questions import ADD_REMOVE
from protocol.schema import Schema, build_schema
from protocol.stream import Stream

TAG = b"hearsay/1/central-bins"


class BinTerms(NamedTuple):
    """What is public about private bins: number of bins per number, ε of everything in millionths, and adjacency."""

    bins: int
    epsilon_micro: int
    adjacency: str


def cost_of_bins(schema: Schema, terms: BinTerms) -> Cost:
    """Return the cost of private bins: the ε of ``terms``. No record is read.

    Raises InputError ``no_numbers``; ``bins_invalid``; ``epsilon_invalid``: too small to be divided;
    ``schema_invalid``: it has a projection, or a number has too many values for one question.
    """
    numbers = numeric_inputs(schema)
    if schema.projection is not None:
        raise InputError("schema_invalid", "its numbers are projected already; make bins before the projection")
    share = terms.epsilon_micro // len(numbers)
    check_edges(terms.bins, share)
    _binned(schema, dict.fromkeys(numbers, range(1, terms.bins)))
    return cost_of([share] * len(numbers))


def bins_of(records: Records, terms: BinTerms, seed: bytes) -> Schema:
    """Return the schema of the records with private bins. Run by the curator, after the cost was recorded.

    ``seed``: 32 secret random bytes, used for these bins alone. Raises the errors of :func:`cost_of_bins`.
    """
    cost_of_bins(records.schema, terms)
    stream = Stream(seed, TAG)
    inputs = numeric_inputs(records.schema)
    edges = {}
    for index in inputs:
        numbers = records.numbers[:, index]
        present = numbers[numbers != NO_NUMBER]
        edges[index] = private_edges(present, terms.bins, terms.epsilon_micro // len(inputs), terms.adjacency, stream)
    return _binned(records.schema, edges)


def bin_records(
    table: pd.DataFrame,
    file: SchemaFile,
    terms: BinTerms,
    budget: BudgetFile,
    *,
    missing: Collection[str] = MISSING_TOKENS,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> SchemaFile:
    """Pay from a budget, then return a schema file with private bins and their cost. Run by the curator.

    ``file`` was decided without these records; its bins are replaced, and what it asks about stays. The other arguments
    are those of :func:`aggregator.curator.fitting.fit_records`. Raises InputError: ``adjacency_differs``;
    ``ask_invalid``: the table ``[ask]`` groups bins, which are about to change; the reasons of :func:`cost_of_bins`,
    :func:`aggregator.models.population.read_pilot` and :func:`aggregator.curator.records.read_records`. Raises the
    errors of :meth:`aggregator.curator.budget.BudgetFile.spend`.
    """
    budget.check_adjacency(terms.adjacency)
    if any(asked.bins for asked in file.ask.values()):
        raise InputError("ask_invalid", "the table [ask] groups bins that are about to change; leave them out")
    cost = cost_of_bins(file.schema, terms)
    records = read_records(read_pilot(table, file.schema, missing), file.schema)
    names = len(numeric_inputs(file.schema))
    query = f"{terms.bins} bins of equal frequency for {names} {'number' if names == 1 else 'numbers'}"
    paid = budget.pay(table, query, cost)
    made = bins_of(records, terms, random_bytes(SEED_BYTES))
    return file._replace(schema=made, pilots=(*file.pilots, paid))


def _binned(schema: Schema, edges: Mapping[int, Collection[int]]) -> Schema:
    features: list[Feature] = list(schema.features)
    for index, inner in edges.items():
        old = features[index]
        assert isinstance(old, Numeric)
        features[index] = Numeric(old.name, old.low, old.high, list(inner), old.unlisted, old.substitute)
    return build_schema(schema.label, features)


MAX_EDGES = 1023
_MARGIN = Fraction(1, 10**20)
"""Part of ε that covers the rounding of the weights."""
_BITS = 256
_DEEPEST = 80
"""γT: the least weight is e^−80 of the largest; its relative error is below 2^−140."""


class Draw(NamedTuple):
    """The distribution of one edge: the range is cut into p intervals.

    ``starts``, ``lengths``: shape (p,) int64: first integer of each interval, and number of its integers. ``weights``:
    p integers: the weight of each integer of an interval.
    """

    starts: Integers
    lengths: Integers
    weights: tuple[int, ...]

    def one(self, stream: Stream) -> int:
        """Draw one integer with probability ∝ its weight."""
        totals: dict[int, int] = {}
        for weight, length in zip(self.weights, self.lengths.tolist(), strict=True):
            totals[weight] = totals.get(weight, 0) + length
        ticket = below(stream, sum(weight * count for weight, count in totals.items()))
        for chosen, count in sorted(totals.items()):
            if ticket < chosen * count:
                break
            ticket -= chosen * count
        place = ticket // chosen
        for weight, start, length in zip(self.weights, self.starts.tolist(), self.lengths.tolist(), strict=True):
            if weight == chosen:
                if place < length:
                    return int(start + place)
                place -= length
        raise AssertionError


def levels(edges: int) -> int:
    """Return L, the number of levels in which ``edges`` edges are drawn."""
    return edges.bit_length()


def check_edges(bins: int, epsilon_micro: int) -> None:
    """Raise ``bins_invalid`` or ``epsilon_invalid`` (millionths) if private edges are impossible."""
    if not 2 <= bins <= MAX_EDGES + 1:
        raise InputError("bins_invalid", f"private bins of equal frequency are 2 to {MAX_EDGES + 1}")
    if epsilon_micro < 1:
        raise InputError("epsilon_invalid", "ε is too small to be divided among the bins' edges")


def private_edges(
    numbers: Integers,
    bins: int,
    epsilon_micro: int,
    adjacency: str,
    stream: Stream,
    bounds: tuple[int, int] = (-SCALE, SCALE),
) -> list[int]:
    """Return inner edges of bins that hold about as many records each. Run by the curator, after the cost was recorded.

    m edges have L = ⌈log₂(m + 1)⌉ levels of ε/L each, as the draws of one level are about disjoint records.

    ``numbers``, shape (n,) int64, are the records' numbers within the public ``bounds``, without missing ones;
    ``epsilon_micro`` is ε of all edges together. Return at most ``bins`` − 1 rising integers above the least number;
    fewer only if two drawn edges have too few integers between them.
    """
    check_edges(bins, epsilon_micro)
    share = Fraction(epsilon_micro, MICRO * levels(bins - 1))
    ordered = np.sort(numbers)
    return [edge for edge in _below_and_above(ordered, bins, bounds, share, adjacency, stream) if edge is not None]


def _below_and_above(
    ordered: Integers, bins: int, bounds: tuple[int, int], share: Fraction, adjacency: str, stream: Stream
) -> Iterator[int | None]:
    """Yield the edges of ``bins`` bins, rising, within ``bounds``; None for an edge without an integer left."""
    if bins < 2:
        return
    left = (bins + 1) // 2
    low, high = bounds
    if low >= high:
        yield None
        return
    edge = edge_law(ordered, (left, bins), bounds, share, adjacency).one(stream)
    cut = int(np.searchsorted(ordered, edge))
    yield from _below_and_above(ordered[:cut], left, (low, edge - 1), share, adjacency, stream)
    yield edge
    yield from _below_and_above(ordered[cut:], bins - left, (edge, high), share, adjacency, stream)


def edge_law(
    ordered: Integers, ratio: tuple[int, int], bounds: tuple[int, int], epsilon: Fraction, adjacency: str
) -> Draw:
    """Return the distribution of one edge above ``bounds[0]`` and at most ``bounds[1]``, for ``ordered`` x, (n,).

    A share j/b of the records (``ratio``) is to be below the edge e. e has the weight e^{−γ·min(s(e) − s⁎, T)}, where
    s(e) = |(b − j)·#{x < e} − j·#{x ≥ e}| is its miss, s⁎ the least one and T a limit. One record more changes s by at
    most Δ = max(j, b − j), so the draw costs 2γΔ; a replaced record costs twice as much. ``epsilon``: of this draw.
    """
    j, b = ratio
    low, high = bounds
    delta = max(j, b - j) * (1 if adjacency == ADD_REMOVE else 2)
    gamma = min((epsilon - _MARGIN) / (2 * delta), Fraction(1))
    values, counts = np.unique(ordered, return_counts=True)
    starts = np.concatenate([[low + 1], values + 1])
    ends = np.concatenate([values, [high]])
    smaller = np.concatenate([[0], np.cumsum(counts)])
    there = ends >= starts
    misses = np.abs((b - j) * smaller - j * (len(ordered) - smaller))[there]
    deepest = -(-_DEEPEST * gamma.denominator // gamma.numerator)
    beyond = np.minimum(misses - misses.min(), deepest)
    weight = _weights(gamma, np.unique(beyond).tolist())
    weights: Sequence[int] = [weight[k] for k in beyond.tolist()]
    return Draw(starts[there].astype(np.int64), (ends - starts + 1)[there].astype(np.int64), tuple(weights))


def _weights(gamma: Fraction, depths: Sequence[int]) -> dict[int, int]:
    """Return k → 2^B e^{−γk} as an integer, γ = ``gamma``, for all k of ``depths``, rising from 0 to at most 81/γ.

    2B is the number of bits of the fixed point. The factors err by at most 82·10⁻⁵⁷, the roundings by 2^−390: of at
    most 2^17 weights the last is wrong by less than η = 10⁻³⁰, which adds at most 5η to the cost.
    """
    factors: dict[int, int] = {}
    found, last, product = {}, 0, 1 << 2 * _BITS
    for k in depths:
        step = k - last
        if step not in factors:
            factor = exp_below(-gamma * step) * (1 << 2 * _BITS)
            factors[step] = factor.numerator // factor.denominator
        product = product * factors[step] >> 2 * _BITS if step else product
        found[k], last = product >> _BITS, k
    return found
