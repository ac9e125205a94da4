"""``hearsay design --private-epsilon``: what a campaign should ask, chosen from a curator's records with privacy.

A keyed hash divides the records. From the first part, noisy tables are released, from which all candidates follow; on
the second, report-noisy-max releases the best; a noisy count on the third says how often it is right. Together they
cost ε (under replacement each part gets ε/2). Source: decision 71; docs/math.md, section 7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from itertools import combinations
from math import exp, hypot, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost, cost_of
from aggregator.curator.budget import BudgetFile, record_bytes
from aggregator.curator.fitting import SEED_BYTES, cost_of_fit, fit
from aggregator.curator.records import Records
from aggregator.curator.sampling import noisy_max
from aggregator.curator.terms import FitTerms
from aggregator.models.population import Population, read_pilot
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.postprocess.posterior import posterior_tables
from aggregator.planning.feature_selection.codings import (
    AS_STATED,
    EDGES,
    GROUPS,
    Cut,
    Way,
    chosen_edges,
    cut_at,
    in_groups,
    mutual_information,
    ways,
)
from aggregator.planning.feature_selection.forward_selection import MOST_FEATURES, Part, fleet_tables, scores_of
from aggregator.planning.feature_selection.from_pilot import (
    BY_DESIGN,
    Accuracy,
    asked_by,
    largest_class,
    percent,
    with_features,
)
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol.documents.asked import plain
from protocol.documents.campaign import DISCRETE, PilotCost
from protocol.epsilon import MICRO, check_answer_micro, format_micro
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.mechanisms.noise import discrete_laplace
from protocol.questions import ADD_REMOVE
from protocol.schema import Schema, build_schema
from protocol.stream import Stream

Flags = NDArray[np.bool_]
Fitted = tuple[Floats, Sequence[Floats]]
"""A model: P(class), and P(value | class) for each way to ask about a feature."""


_PSEUDO = 10_000.0
"""Number of records by which shares are multiplied where the choice of groups adds half a record to each count."""
TAG = b"hearsay/1/central-design"
MADE, COMPARED, MEASURED = range(3)
"""The parts: records that the candidates are made of, that compare them, and that measure the chosen candidate."""
PARTS = (115, 102, 39)
"""Expected size of each part, in 256ths of the records: 45, 40 and 15 %."""
_NOISE_QUANTILE = 2.17
"""Standard deviations of Laplace noise on either side of a 95 % interval (decision 68)."""
_LEAST_RECORDS = 4.0
"""Least noisy number of records for an accuracy, in standard deviations of that number's noise."""
DRAWS = 5
"""Simulated campaigns per candidate. A record counts as right if most of their models are right."""
PAIRED = 8
"""All sets of two and of three features are tried out of this number of features that tell most of the class."""


class DesignTerms(NamedTuple):
    """What is public about a private design, before the records are seen.

    ``epsilon_micro``: ε of the curator's records, ``answer_micro``: of the one answer of a device, in millionths;
    ``adjacency``: that of the budget; ``devices``: size of the fleet that will be asked; ``seed``: public, of the
    simulated answers.
    """

    epsilon_micro: int
    adjacency: str
    devices: int
    answer_micro: int
    seed: int = 0

    @property
    def part_micro(self) -> int:
        """ε that each part spends, for one record more or less, in millionths."""
        return self.epsilon_micro if self.adjacency == ADD_REMOVE else self.epsilon_micro // 2

    @property
    def tables(self) -> FitTerms:
        """Terms of the noisy tables of the first part."""
        return FitTerms("sums", self.part_micro, adjacency=ADD_REMOVE, family=DISCRETE)


class PrivateDesign(NamedTuple):
    """What a campaign should ask, chosen with privacy, so that all of it may be published.

    ``chosen``: the ways to ask, with groups and edges; ``candidates``: number of sets that were compared; ``accuracy``:
    of a model from one simulated campaign, on the third part of the records, or None if noise hides its size;
    ``largest``: name and noisy share of the largest class; ``paid``: what the budget paid, or None.
    """

    file: SchemaFile
    chosen: tuple[Cut, ...]
    candidates: int
    accuracy: Accuracy | None
    largest: tuple[str, float]
    paid: PilotCost | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``hearsay design --json`` prints."""
        schema = self.file.schema
        name, share = self.largest
        accuracy, low, high = (None, None, None) if self.accuracy is None else self.accuracy
        return {
            "asked": {
                schema.features[each.way.feature].name: {"way": each.way.kind, "codes": each.size}
                for each in self.chosen
            },
            "candidates": self.candidates,
            "accuracy_noisy": accuracy,
            "accuracy_low": low,
            "accuracy_high": high,
            "largest_class_noisy": {"name": name, "share": share},
            "private_epsilon": None if self.paid is None else format_micro(self.paid.epsilon_micro),
            "adjacency": None if self.paid is None else self.paid.adjacency,
            "budget": None if self.paid is None else self.paid.budget,
        }


def cost_of_design(schema: Schema, terms: DesignTerms) -> Cost:
    """Return the cost of a design, ε, without a record. Raises ``schema_invalid``, ``epsilon_invalid``."""
    if schema.projection is not None:
        raise InputError("schema_invalid", "a projection is fitted already; design a schema without one")
    check_answer_micro(terms.answer_micro)
    if terms.part_micro < 1:
        raise InputError("epsilon_invalid", "ε is too small to be divided")
    cost_of_fit(schema, terms.tables)
    return cost_of([terms.epsilon_micro])


def choose(population: Population, parts: Integers, file: SchemaFile, terms: DesignTerms, seed: bytes) -> PrivateDesign:
    """Choose features, groups and bins with privacy. For the curator, who must have recorded the cost before.

    ``population``: the records by the schema of ``file`` without groups. ``parts``: (records,) int64, :data:`MADE`,
    :data:`COMPARED` or :data:`MEASURED` by a keyed hash of the record alone. ``seed``: 32 secret bytes, used for this
    design alone. Raises as :func:`cost_of_design`.
    """
    schema = plain(file.schema)
    cost_of_design(schema, terms)
    stream, rate = Stream(seed, TAG), Fraction(terms.part_micro, MICRO)
    made_of, (codes, numbers) = parts == MADE, population.reported
    records = Records(schema, population.labels[made_of], codes[made_of], numbers[made_of], {}, ())
    released = fit(records, terms.tables, stream.read(SEED_BYTES)).statistics
    tables = posterior_tables(released, range(len(schema.observed)))
    listed = _shortlist(tables, schema, terms)
    compared = _part(population, listed.cuts, np.flatnonzero((parts == COMPARED) & population.known), schema)
    right = [int(listed.right(compared, places).sum()) for places in listed.candidates]
    best = listed.candidates[noisy_max(right, rate, stream)]
    measured = _part(population, listed.cuts, np.flatnonzero((parts == MEASURED) & population.known), schema)
    accuracy = noisy_accuracy(listed.right(measured, best, campaigns=1), rate, stream)
    chosen = tuple(listed.cuts[place] for place in best)
    asked, features = asked_by(chosen, schema)
    made = file._replace(schema=build_schema(schema.label, features), ask=asked)
    return PrivateDesign(made, chosen, len(listed.candidates), accuracy, largest_class(tables.prior, schema))


def design_records(
    table: pd.DataFrame,
    file: SchemaFile,
    terms: DesignTerms,
    budget: BudgetFile,
    *,
    missing: Collection[str] = MISSING_TOKENS,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> PrivateDesign:
    """Pay from a budget, then choose what a campaign asks. Run by the curator.

    ``table`` has all columns; ``file`` is the schema to start from, decided without these records, and what it says in
    ``[ask]`` is replaced; the budget's key divides the records into parts. Raises InputError: ``adjacency_differs``;
    the errors of :func:`cost_of_design` and of reading the records. Raises PolicyError ``data_unknown``,
    ``budget_exceeded``.
    """
    budget.check_adjacency(terms.adjacency)
    schema = plain(file.schema)
    cost = cost_of_design(schema, terms)
    population = Population.of_frame(read_pilot(table, schema, missing), schema)
    query = f"features for {terms.devices} devices at ε = {format_micro(terms.answer_micro)}"
    paid = budget.pay(table, query, cost)
    parts = np.array(budget.parts(record_bytes(table), PARTS), np.int64)
    made = choose(population, parts, file, terms, random_bytes(SEED_BYTES))
    decision = _decision(made, schema, terms)
    return made._replace(paid=paid, file=made.file._replace(pilots=(*file.pilots, paid), decision=decision))


def _decision(found: PrivateDesign, schema: Schema, terms: DesignTerms) -> dict[str, Any]:
    names = [feature.name for feature in schema.observed]
    record = {
        "by": f"{BY_DESIGN} --private-epsilon {format_micro(terms.epsilon_micro)}",
        "why": "the candidate that classifies most records rightly, chosen with noise (report-noisy-max)",
        "devices": terms.devices,
        "epsilon": format_micro(terms.answer_micro),
        "seed": terms.seed,
        "adjacency": terms.adjacency,
        "sets_compared": found.candidates,
        "accuracy_with_noise": "not known" if found.accuracy is None else found.accuracy.shown,
        "largest_class_with_noise": percent(found.largest),
    }
    kept = {each.way.feature for each in found.chosen}
    return with_features(record, names, [names[place] for place in sorted(kept)])


def _cuts(tables: Tables, schema: Schema) -> tuple[list[Cut], list[Floats]]:
    """Return all ways to ask, with groups and edges from noisy tables, and for each the joint shares, (values, k)."""
    cuts, joints = [], []
    for feature in range(len(schema.observed)):
        joint = tables.likelihood[feature] * tables.prior
        for way in _ways(schema, feature):
            cut = _cut(way, schema, joint)
            if cut is not None:
                members = np.zeros((cut.size, len(joint)))
                members[_codes_of(cut, schema), np.arange(len(joint))] = 1
                cuts.append(cut)
                joints.append(members @ joint)
    return cuts, joints


def _cut(way: Way, schema: Schema, joint: Floats) -> Cut | None:
    feature = schema.features[way.feature]
    if way.kind == AS_STATED:
        return Cut(way, feature.size)
    if way.kind == GROUPS:
        return in_groups(way, _PSEUDO * joint)
    assert isinstance(feature, Numeric)
    edges = chosen_edges(feature.edges, _PSEUDO * joint[: len(feature.edges) + 1], way.parts)
    return cut_at(way, feature, edges) if edges else None


def _ways(schema: Schema, feature: int) -> list[Way]:
    one = schema.features[feature]
    if not isinstance(one, Numeric):
        return ways(schema, feature)
    return [Way(feature), *(Way(feature, EDGES, parts) for parts in (2, 3) if parts <= len(one.edges))]


def _codes_of(cut: Cut, schema: Schema) -> Integers:
    """Return for each code of the schema the code in the groups or bins of ``cut``: shape (values,) int64."""
    feature = schema.features[cut.way.feature]
    if cut.edges is None or not isinstance(feature, Numeric):
        return np.arange(feature.size) if cut.group_of is None else np.array(cut.group_of, np.int64)
    starts = np.array([feature.edges[0] - 1, *feature.edges])
    found = np.searchsorted(np.array(cut.edges), starts, side="right")
    return np.append(found, cut.missing) if feature.size > len(starts) else found


class _Shortlist(NamedTuple):
    """All ways to ask, the compared sets as indices of ways, and the simulated models of the sets of each size."""

    cuts: list[Cut]
    candidates: list[tuple[int, ...]]
    models: dict[int, list[Fitted]]

    def right(self, part: Part, places: Sequence[int], campaigns: int = DRAWS) -> Flags:
        """Return which test records most models of the set ``places`` classify rightly: shape (tested,) bool."""
        votes = np.zeros(len(part.truth), np.int64)
        for prior, tables in self.models[len(places)][:campaigns]:
            scores = scores_of(part, prior, tables)
            votes += (scores.prior + scores.terms[:, list(places)].sum(axis=1)).argmax(axis=1) == part.truth
        return np.asarray(2 * votes > campaigns)


def _shortlist(tables: Tables, schema: Schema, terms: DesignTerms) -> _Shortlist:
    """Return the sets to compare, with the models that a fleet would make of each.

    A set has one way to ask per feature: the one that tells most of the class in simulated answers. The sets are: the m
    features that tell most, for each m; the m + 1 features that tell most without one of them; all sets of two or three
    of the first :data:`PAIRED`; and all features, as the schema states them.
    """
    cuts, joints = _cuts(tables, schema)
    inputs = [(np.arange(joint.size), joint.ravel() / joint.sum()) for joint in joints]
    sizes, rng = [cut.size for cut in cuts], np.random.default_rng(terms.seed)
    tabling = fleet_tables(terms.devices, terms.answer_micro, schema.label.classes, sizes, inputs)
    stated = tuple(place for place, cut in enumerate(cuts) if cut.way.kind == AS_STATED)
    sets: dict[tuple[int, ...], None] = {}
    models: dict[int, list[Fitted]] = {}
    for number in range(1, min(MOST_FEATURES, len(stated)) + 1):
        models[number] = [tabling(number, rng) for _ in range(DRAWS)]
        ranked = _ranked(cuts, models[number])
        sets[tuple(ranked[:number])] = None
        wider = ranked[: number + 1]
        if number < len(wider):
            sets |= dict.fromkeys(tuple(each for each in wider if each != left) for left in wider)
        if number in (2, 3):
            sets |= dict.fromkeys(combinations(ranked[:PAIRED], number))
    models.setdefault(len(stated), [tabling(len(stated), rng) for _ in range(DRAWS)])
    sets[stated] = None
    return _Shortlist(cuts, list(sets), models)


def _ranked(cuts: Sequence[Cut], models: Sequence[Fitted]) -> list[int]:
    """Return for each feature the index of its way that tells most of the class; the most telling feature first."""
    told = [
        float(np.mean([mutual_information(_PSEUDO * tables[place] * prior) for prior, tables in models]))
        for place in range(len(cuts))
    ]
    best: dict[int, int] = {}
    for place, cut in enumerate(cuts):
        held = best.setdefault(cut.way.feature, place)
        if told[place] > told[held]:
            best[cut.way.feature] = place
    return sorted(best.values(), key=lambda place: -told[place])


def _part(population: Population, cuts: Sequence[Cut], tested: Integers, schema: Schema) -> Part:
    codes, numbers = population.scored
    columns = [cut.codes(codes[tested, cut.way.feature], numbers[tested, cut.way.feature]) for cut in cuts]
    nothing = np.empty((0, len(cuts)), np.int64)
    scored = np.column_stack(columns).reshape(len(tested), len(cuts))
    truth = population.truth[tested]
    return Part(tuple(cuts), nothing, nothing[:, 0], scored, tested, truth, tuple(schema.label.classes))


def noisy_accuracy(right: Flags, rate: Fraction, stream: Stream) -> Accuracy | None:
    """Return the accuracy p = g/(g + b), from noisy counts g of the right and b of the wrong predictions.

    Both have discrete Laplace noise of rate r, of variance v = 2q/(1 − q)² with q = e^−r. Each end of the 95 % interval
    is away from p by the root of a sum of squares: of the distance to Wilson's limit for g + b records, and of 2.17
    standard deviations √(v (p² + (1 − p)²))/(g + b) of the noise. None if g + b is below four standard deviations of
    its noise.

    ``right``: (records,) bool. ``rate``: r > 0, the ε of one added or removed record.
    """
    s, t = rate.as_integer_ratio()
    good, bad = (int(count) + discrete_laplace(stream, s, t) for count in (right.sum(), (~right).sum()))
    n, q = good + bad, exp(-float(rate))
    variance = 2 * q / (1 - q) ** 2
    if n < max(1.0, _LEAST_RECORDS * sqrt(2 * variance)):
        return None
    p = min(max(good / n, 0.0), 1.0)
    noise = _NOISE_QUANTILE * sqrt(variance * (p * p + (1 - p) ** 2)) / n
    sampled = Accuracy.of_share(p, n)
    low, high = (hypot(p - limit, noise) for limit in (sampled.low, sampled.high))
    return Accuracy(p, max(0.0, p - low), min(1.0, p + high))
