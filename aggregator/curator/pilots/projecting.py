"""``hearsay projection --private``: a projection of a curator's records that may be published.

The directions of PCA or DCA come from noisy moments (:mod:`aggregator.curator.second_moments`). The bounds of the
outputs follow from these moments or from the bounds of the inputs. The bins are of equal width; or, for half of ε, of
about equal frequency (:mod:`aggregator.curator.quantiles`), where each of K components gets a K-th of that half. The
shares of clipped records, the largest rounding error on the records and counts of numbers outside the bounds are
exact, so none of these is computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats
from aggregator.common.files import write_output
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile
from aggregator.curator.composition import checked, decimal_text
from aggregator.curator.curating import SEED_BYTES, made_up_records
from aggregator.curator.data_digest import record_bytes
from aggregator.curator.quantiles import check_edges, edges_cost, private_edges
from aggregator.curator.records import Records, read_records
from aggregator.curator.second_moments import MomentTerms, NoisyMoments, noise_of, release
from aggregator.models.encoding import NO_NUMBER, projected_numbers
from aggregator.models.pilot import read_pilot
from aggregator.models.reduction import (
    DEFAULT_RIDGE,
    Directions,
    bounds_of_inputs,
    check_bins,
    check_directions,
    directions_of,
    equal_width_edges,
    numeric_inputs,
    with_projection,
)
from aggregator.publishing.schemas.projection_file import projection_text
from protocol.documents.pilots import PilotCost
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.schema import Schema
from protocol.stream import Stream
from protocol.sums.adjacency import CHANGE

TAG = b"hearsay/1/central-projection"
MOMENTS, INPUTS = "moments", "inputs"
BOUNDS = (MOMENTS, INPUTS)
"""Where the bounds of the outputs come from: noisy moments, or the bounds of the inputs."""
REACH = 3
"""Bounds from moments are so many standard deviations on both sides of the mean."""


class ProjectionTerms(NamedTuple):
    """What is public about a private projection, before the records are seen.

    Attributes:
        method: ``pca`` or ``dca``.
        components: K.
        epsilon_micro: ε of everything, in millionths.
        delta: δ; 0 for pure differential privacy.
        adjacency: the budget's.
        ridge: ρ of DCA, in units of variance.
        bins: number of bins of a component.
        equal_frequency: whether half of ε pays for bins of about equal frequency.
        bounds: one of :data:`BOUNDS`.
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

    Attributes:
        schema: the schema with the projection.
        directions: directions with their noisy qualities.
        facts: how it was made, what it cost and how good it seems; every number is public or has noise.
        paid: what was paid; None if nobody paid.
    """

    schema: Schema
    directions: Directions
    facts: dict[str, Any]
    paid: PilotCost | None = None

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the projection file, for the argument ``projection`` of ``aggregator.make_campaign``.

        ``force`` replaces an existing file.

        Raises:
            InputError: ``output_exists``, ``output_invalid``.
            StorageError: ``disk_full``, ``io_failed``.
        """
        pilots = () if self.paid is None else (self.paid,)
        write_output(Path(path), projection_text(self.schema, self.facts, pilots).encode(), force=force)


def cost_of_projection(schema: Schema, terms: ProjectionTerms) -> Cost:
    """The cost of a projection. It looks at no record.

    Raises:
        InputError: ``no_numbers``; ``bounds_invalid``; ``bins_invalid``; ``delta_invalid``; the reasons of
            :func:`aggregator.models.reduction.check_directions` and :func:`aggregator.curator.second_moments.noise_of`.
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
    for _ in range(terms.components if terms.equal_frequency else 0):
        edges = edges_cost(terms.edges_micro)
        rho = None if cost.rho is None or edges.rho is None else cost.rho + edges.rho
        cost = Cost(cost.epsilon_micro + edges.epsilon_micro, cost.delta, rho)
    return checked(cost)


def project(records: Records, terms: ProjectionTerms, seed: bytes) -> PrivateProjection:
    """Fit a projection to records with noise. Run by the curator, after the cost was recorded.

    Args:
        records: the records, of a schema without a projection.
        terms: the public terms.
        seed: 32 secret bytes from the operating system, used for this projection alone.

    Raises:
        InputError: the reasons of :func:`cost_of_projection`; ``projection_overflow``, ``schema_invalid``: no integer
            projection follows from the noisy directions (:func:`aggregator.models.reduction.with_projection`).
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

    Everything that can be refused without the records is refused before anything is paid.

    Args:
        table: the records as text, from :func:`aggregator.common.tables.read_table`, with all columns.
        schema: label and features with public bounds, decided without these records.
        terms: the terms, with the budget's adjacency.
        budget: the open budget file, to which the records are assigned.
        missing: texts of a missing value.
        random_bytes: ``random_bytes(n)`` returns n random bytes, for the noise.

    Raises:
        InputError: ``adjacency_differs``; the reasons of :func:`cost_of_projection`, :func:`project`,
            :func:`aggregator.models.pilot.read_pilot` and :func:`aggregator.curator.records.read_records`.
        PolicyError: ``data_unknown``, ``budget_exceeded``.
        StorageError: the budget file can not be used.
    """
    budget.check_adjacency(terms.adjacency)
    cost = cost_of_projection(schema, terms)
    project(made_up_records(schema), terms, bytes(SEED_BYTES))
    records = read_records(read_pilot(table, schema, missing), schema)
    bins = ", bins of equal frequency" if terms.equal_frequency else ""
    number = "1 component" if terms.components == 1 else f"{terms.components} components"
    query = f"projection: {terms.method}, {number}{bins}"
    budget.spend(budget.digest(record_bytes(table)), query, cost)
    made = project(records, terms, random_bytes(SEED_BYTES))
    paid = budget.receipt(query, cost)
    return made._replace(facts={**made.facts, "budget": paid.budget}, paid=paid)


def _moment_terms(schema: Schema, terms: ProjectionTerms) -> MomentTerms:
    inputs = numeric_inputs(schema)
    has_missing = any(schema.features[index].substitute is None for index in inputs)
    classes = len(schema.label.classes) if terms.method == "dca" else 1
    return MomentTerms(len(inputs), classes, has_missing, terms.moments_micro, terms.delta, terms.adjacency)


def _bounds(directions: Directions, total: Floats, terms: ProjectionTerms) -> tuple[Floats, Floats]:
    """Bounds of the outputs: those that no input exceeds; of ``moments`` not beyond :data:`REACH` deviations."""
    low, high = bounds_of_inputs(directions)
    if terms.bounds == INPUTS:
        return low, high
    reach = REACH * np.sqrt(np.einsum("ik,ij,jk->k", directions.weights, total, directions.weights))
    return np.maximum(low, -reach), np.minimum(high, reach)


def _facts(noisy: NoisyMoments, directions: Directions, terms: ProjectionTerms, cost: Cost) -> dict[str, Any]:
    """Facts for the projection file. Every number follows from ``terms`` or from noisy moments."""
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
        facts |= {
            "rho": terms.ridge,
            "discriminant": [round(float(power), 6) for power in directions.discriminant],
        }
    return facts
