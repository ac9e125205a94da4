"""``hearsay schema --private``: bins of about equal frequency for a schema's numbers, which may be published.

Values, classes and bounds of the schema are public and stay. Of ε each number gets an equal part, for all its edges
(:mod:`aggregator.curator.quantiles`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import pandas as pd

from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost, cost_of
from aggregator.curator.budget import BudgetFile
from aggregator.curator.curating import SEED_BYTES
from aggregator.curator.data_digest import record_bytes
from aggregator.curator.quantiles import check_edges, private_edges
from aggregator.curator.records import Records, read_records
from aggregator.models.encoding import NO_NUMBER
from aggregator.models.pilot import read_pilot
from aggregator.models.reduction import numeric_inputs
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol.errors import InputError
from protocol.features import Feature, Numeric
from protocol.schema import Schema, build_schema
from protocol.stream import Stream

TAG = b"hearsay/1/central-bins"


class BinTerms(NamedTuple):
    """What is public about private bins, before the records are seen.

    Attributes:
        bins: number of bins of every number.
        epsilon_micro: ε of everything, in millionths.
        adjacency: the budget's.
    """

    bins: int
    epsilon_micro: int
    adjacency: str


def cost_of_bins(schema: Schema, terms: BinTerms) -> Cost:
    """The cost of the bins: ε, in equal parts for the numbers. It looks at no record.

    Raises:
        InputError: ``no_numbers``; ``bins_invalid``; ``epsilon_invalid``: ε is too small to be divided;
            ``schema_invalid``: the schema has a projection, or a number has too many values for one question.
    """
    numbers = numeric_inputs(schema)
    if schema.projection is not None:
        raise InputError("schema_invalid", "its numbers are projected already; make bins before the projection")
    share = terms.epsilon_micro // len(numbers)
    check_edges(terms.bins, share)
    _binned(schema, dict.fromkeys(numbers, range(1, terms.bins)))
    return cost_of([share] * len(numbers))


def bins_of(records: Records, terms: BinTerms, seed: bytes) -> Schema:
    """The schema of the records with private bins. Run by the curator, after the cost was recorded.

    Args:
        records: the records.
        terms: the public terms.
        seed: 32 secret bytes from the operating system, used for these bins alone.

    Raises:
        InputError: the reasons of :func:`cost_of_bins`.
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
    """Pay from a budget, then make bins of about equal frequency. Run by the curator.

    Args:
        table: the records as text, from :func:`aggregator.common.tables.read_table`, with all columns.
        file: the schema file, decided without these records. Its bins are replaced, and what it asks about stays.
        terms: the terms, with the budget's adjacency.
        budget: the open budget file, to which the records are assigned.
        missing: texts of a missing value.
        random_bytes: ``random_bytes(n)`` returns n random bytes, for the draws.

    Returns:
        The schema file with new bins, which states what they cost.

    Raises:
        InputError: ``adjacency_differs``; ``ask_invalid``: the table ``[ask]`` groups bins, which are about to change;
            the reasons of :func:`cost_of_bins`, :func:`aggregator.models.pilot.read_pilot` and
            :func:`aggregator.curator.records.read_records`.
        PolicyError: ``data_unknown``, ``budget_exceeded``.
        StorageError: the budget file can not be used.
    """
    budget.check_adjacency(terms.adjacency)
    if any(asked.bins for asked in file.ask.values()):
        raise InputError("ask_invalid", "the table [ask] groups bins that are about to change; leave them out")
    cost = cost_of_bins(file.schema, terms)
    records = read_records(read_pilot(table, file.schema, missing), file.schema)
    names = len(numeric_inputs(file.schema))
    query = f"{terms.bins} bins of equal frequency for {names} {'number' if names == 1 else 'numbers'}"
    budget.spend(budget.digest(record_bytes(table)), query, cost)
    made = bins_of(records, terms, random_bytes(SEED_BYTES))
    paid = budget.receipt(query, cost)
    return file._replace(schema=made, pilots=(*file.pilots, paid))


def _binned(schema: Schema, edges: Mapping[int, Collection[int]]) -> Schema:
    """The schema with other inner edges of some numbers."""
    features: list[Feature] = list(schema.features)
    for index, inner in edges.items():
        old = features[index]
        assert isinstance(old, Numeric)
        features[index] = Numeric(old.name, old.low, old.high, list(inner), old.unlisted, old.substitute)
    return build_schema(schema.label, features)
