"""``hearsay design``: what a campaign should ask, from a pilot's records, and how good a model of the pilot alone is.

Source: decision 66.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.collectors.draws import SharedNoise
from aggregator.common.arrays import Floats, Integers
from aggregator.common.notebooks import facts, table
from aggregator.estimates.debias import Z95
from aggregator.models.population import Population, check_columns
from aggregator.planning.feature_selection.codings import AS_STATED, GROUPS, Cut
from aggregator.planning.feature_selection.forward_selection import (
    DRAWS,
    Candidate,
    Tabled,
    best_of,
    divisions,
    fleet_scores,
    mean_error,
    part_of,
    plain_scores,
    select,
    shared_scores,
)
from aggregator.publishing.ask_table import Ask, AskedFeature
from aggregator.publishing.decisions import bounded
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol.documents.asked import plain
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.features import JOINED, Categorical, Feature, Grouped, Numeric
from protocol.schema import Schema, build_schema

LEAST_RECORDS = 40
MOST_RECORDS = 2000
"""Most records of a pilot that are used; if a pilot is larger, a random part of it is used."""


BY_DESIGN = "hearsay design"
_SMALLEST = (
    "of the sets tried, the smallest one that is not worse than the most accurate one by more than a standard error of "
    "the difference; a set of joined features, if it is more accurate than all others by half of that error"
)


class Accuracy(NamedTuple):
    """An accuracy with its 95 % interval (Wilson) for the people that the pilot is a random sample of."""

    accuracy: float
    low: float
    high: float

    @classmethod
    def of(cls, right: Floats) -> Accuracy:
        """Return the accuracy from the share of models that are right about each record: (records,) float64 or NaN."""
        known = right[np.isfinite(right)]
        return cls.of_share(float(known.mean()), len(known))

    @classmethod
    def of_share(cls, p: float, n: int) -> Accuracy:
        """Return the accuracy p of n ≥ 1 predictions with its interval."""
        z = Z95
        middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return cls(p, (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))

    @property
    def shown(self) -> str:
        """The accuracy and its interval as text."""
        return f"{self.accuracy:.1%} ({self.low:.1%} to {self.high:.1%})"


class PilotDesign(NamedTuple):
    """What a campaign should ask, and the accuracies of the fleet's model and of the pilot's (None if not measured).

    ``chosen``: the ways to ask, with groups and edges from all of the pilot; ``path``: the best set of each number of
    features, then all features as the schema states them, then sets with joined features; ``fleet``: accuracy on
    records that took no part in the choice; ``alone``: of Naive Bayes on the pilot's records; ``lead``: their
    difference, and its standard error; ``largest``: name and share of the largest class; ``used``: of ``records`` with
    a class.
    """

    file: SchemaFile
    chosen: tuple[Cut, ...]
    path: tuple[Candidate, ...]
    best: Candidate
    fleet: Accuracy | None = None
    alone: Accuracy | None = None
    lead: tuple[float, float] | None = None
    largest: tuple[str, float] = ("", 0.0)
    used: int = 0
    records: int = 0
    unlabelled: int = 0

    @property
    def source(self) -> str:
        """The records that were used, in words: all of the pilot, or a random part of a large one."""
        if self.used == self.records:
            return "the pilot alone"
        return f"a random part of the pilot ({self.used} of {self.records} records)"

    @property
    def verdict(self) -> str:
        """What the fleet would add to the pilot, as a sentence; empty if accuracies were not measured."""
        if self.lead is None:
            return ""
        gain, error = self.lead
        said = f"{100 * gain:+z.1f} ± {100 * error:.1f} points"
        if gain > error:
            return f"the fleet would be better than {self.source} by {said}"
        better = f"{self.source} is as good as the fleet would be ({said})"
        if gain < -error:
            said = f"{-100 * gain:.1f} ± {100 * error:.1f} points"
            better = f"{self.source} would be better than the fleet by {said}"
        return (
            f"{better}: the fleet would add only that its model is about all of its people, and not about those who "
            "joined the pilot"
        )

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"records": self.records, "of these used": self.used}
        about |= {"without a class, left out": self.unlabelled, "largest class": percent(self.largest)}
        judged = {"accuracy of the fleet": self.fleet, f"accuracy of {self.source}": self.alone}
        about |= {name: found.shown for name, found in judged.items() if found is not None}
        about |= {"verdict": self.verdict} if self.verdict else {}
        return facts("Design", about) + table(("features", "accuracy", "asked"), shown_path(self, self.file.schema))


def design(
    pilot: pd.DataFrame,
    file: SchemaFile,
    epsilon_micro: int,
    devices: int,
    *,
    seed: int = 0,
    judge: bool = True,
    draws: int = DRAWS,
    noise: SharedNoise | None = None,
) -> PilotDesign:
    """Choose features, groups of values and bins for a campaign. Run by the analyst.

    Raises InputError: ``pilot_too_small``: fewer than :data:`LEAST_RECORDS` records with a class; ``schema_invalid``:
    the schema has a projection; ``columns_missing``; the errors of :meth:`Population.of_frame`.

    Args:
        pilot: typed records with their label (:func:`aggregator.models.population.check_pilot`).
        file: the schema to start from; what it says in ``[ask]`` is replaced.
        epsilon_micro: ε of the one answer of a device, in millionths.
        devices: size of the fleet.
        judge: whether accuracies are measured. It takes most of the time.
        draws: number of models for each division of the records into folds.
        noise: of the two collectors, if they share the answers; its ε counts. None for answers with their own noise.
    """
    schema = plain(file.schema)
    if schema.projection is not None:
        raise InputError("schema_invalid", "a projection is fitted on the pilot already; design a schema without one")
    check_columns(pilot, schema)
    records = Population.of_frame(pilot, schema)
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(records.known)
    if len(rows) < LEAST_RECORDS:
        raise InputError(
            "pilot_too_small", f"the pilot has {len(rows)} records with a class; a design needs {LEAST_RECORDS}"
        )
    size = len(rows)
    if size > MOST_RECORDS:
        rows = np.sort(rng.choice(rows, MOST_RECORDS, replace=False))
    tabled = fleet_scores(devices, epsilon_micro) if noise is None else shared_scores(devices, noise)
    path = select(records, schema, rows, tabled, draws, rng)
    best = best_of(path)
    cuts = part_of(records, schema, best.ways, rows, rows[:1]).cuts
    asked, features = asked_by(cuts, schema, best.joins)
    made = file._replace(schema=build_schema(schema.label, features), ask=asked)
    counts = np.bincount(records.truth[rows], minlength=len(schema.label.classes))
    largest = largest_class(counts / len(rows), schema)
    found = PilotDesign(
        made, cuts, tuple(path), best, largest=largest, used=len(rows), records=size, unlabelled=len(pilot) - size
    )
    if not judge:
        return found
    fleet = _right_on_unseen(records, schema, rows, tabled, np.random.default_rng([seed, 1]))
    alone = _right_on_unseen(records, schema, rows, plain_scores, np.random.default_rng([seed, 1]))
    lead = float(np.nanmean(fleet - alone)), mean_error(fleet - alone)
    return found._replace(fleet=Accuracy.of(fleet), alone=Accuracy.of(alone), lead=lead)


def _right_on_unseen(
    records: Population, schema: Schema, rows: Integers, tabled: Tabled, rng: np.random.Generator
) -> Floats:
    """Return how often models are right about each record, if features are chosen without it; NaN if unused."""
    right = np.full(len(records.labels), np.nan)
    for learned, tested in divisions(records, rows, rng):
        # One model per fold, not DRAWS: the whole selection is repeated for each part of the records.
        best = best_of(select(records, schema, learned, tabled, 1, rng))
        part = part_of(records, schema, best.ways, learned, tested)
        part = part.merged(best.blocks) if best.joins else part
        scoring = tabled(part)
        found = np.zeros(len(tested))
        for _ in range(DRAWS):
            scores = scoring(len(best.blocks), rng)
            found += (scores.prior + scores.terms.sum(axis=1)).argmax(axis=1) == part.truth
        right[tested] = found / DRAWS
    return right


def asked_by(cuts: Sequence[Cut], schema: Schema, joins: Sequence[Sequence[int]] = ()) -> tuple[Ask, list[Feature]]:
    """Return the table ``[ask]`` with the groups of ``cuts``, and the schema's features with the bins of ``cuts``.

    ``joins``: indices in ``cuts`` of those that are asked about as one.
    """
    members = {place for join in joins for place in join}
    features: list[Feature] = list(schema.features)
    asked: dict[str, AskedFeature] = {}
    for place in sorted(range(len(cuts)), key=lambda one: cuts[one].way.feature):
        each = cuts[place]
        feature = features[each.way.feature]
        groups: tuple[tuple[str, ...], ...] = ()
        if each.group_of is not None and isinstance(feature, Categorical):
            groups = tuple(map(tuple, Grouped(feature.name, feature.labels(), each.group_of, None).members()))
        if each.edges is not None and isinstance(feature, Numeric):
            features[each.way.feature] = Numeric(
                feature.name, feature.low, feature.high, list(each.edges), feature.unlisted, feature.substitute
            )
        if groups or place not in members:
            asked[feature.name] = AskedFeature(groups, share=int(place not in members))
    names = [JOINED.join(features[cuts[place].way.feature].name for place in join) for join in joins]
    return asked | dict.fromkeys(names, AskedFeature()), features


def largest_class(shares: Floats, schema: Schema) -> tuple[str, float]:
    """Return the name of the largest class and its share. ``shares``: shape (k,) float64, their sum is 1."""
    place = int(shares.argmax())
    return schema.label.classes[place], float(shares[place])


def percent(named: tuple[str, float]) -> str:
    """Return a name with its share as text: ``no (71.2%)``."""
    name, share = named
    return f"{name} ({share:.1%})"


def shown_path(found: PilotDesign, schema: Schema) -> list[tuple[str, str, str]]:
    """Return the path as rows: number of features, accuracy with standard error, features; a star marks the choice."""
    rows = []
    for each in found.path:
        star = " *" if each is found.best else ""
        accuracy = f"{each.accuracy:.1%} ± {each.error:.1%}"
        rows.append((f"{len(each.ways)}{star}", accuracy, _asked(each, schema)))
    return rows


def _asked(candidate: Candidate, schema: Schema) -> str:
    chosen = candidate.ways
    if candidate.joins:
        return ", ".join(_blocks(candidate, [feature.name for feature in schema.observed]))
    if all(way.kind == AS_STATED for way in chosen) and len(chosen) == len(schema.observed):
        return "all, as the schema states them"
    everything = len(chosen) == len(schema.observed)
    named = ", ".join(
        schema.observed[way.feature].name + ("" if way.kind == AS_STATED else f" ({way.shown})")
        for way in chosen
        if not everything or way.kind != AS_STATED
    )
    return f"all, with {named}" if everything else named


def _blocks(candidate: Candidate, names: Sequence[str]) -> list[str]:
    """Return what each question of a set is about: a feature, or joined ones, with the ways to ask in brackets."""
    named = [names[way.feature] + ("" if way.kind == AS_STATED else f" ({way.shown})") for way in candidate.ways]
    return [JOINED.join(named[place] for place in block) for block in candidate.blocks]


def as_json(found: PilotDesign) -> dict[str, Any]:
    """Return the design as a JSON object for programs."""
    schema = found.file.schema
    return {
        "asked": {
            schema.features[each.way.feature].name: {
                "way": each.way.kind,
                "codes": each.size,
                **({"groups": [list(group) for group in found.file.ask[schema.features[each.way.feature].name].groups]}
                   if each.way.kind == GROUPS else {}),
            }
            for each in found.chosen
        },
        "path": [
            {
                "features": [schema.features[way.feature].name for way in each.ways],
                "ways": [way.shown for way in each.ways],
                "joins": [[schema.features[each.ways[place].feature].name for place in join] for join in each.joins],
                "accuracy": each.accuracy,
                "error": each.error,
                "chosen": each is found.best,
            }
            for each in found.path
        ],
        "accuracy_fleet": None if found.fleet is None else found.fleet._asdict(),
        "largest_class": {"name": found.largest[0], "share": found.largest[1]},
        "records": found.records,
        "used": found.used,
        "unlabelled": found.unlabelled,
        "accuracy_pilot_alone": None if found.alone is None else found.alone._asdict(),
        "verdict": found.verdict,
    }  # fmt: skip


def of_design(found: PilotDesign, schema: Schema, epsilon_micro: int, devices: int, seed: int) -> dict[str, Any]:
    """Return the record of a design for schema files and cards of models. Accuracies are from the pilot's records."""
    names = [feature.name for feature in schema.observed]
    record: dict[str, Any] = {
        "by": BY_DESIGN,
        "why": _SMALLEST,
        "devices": devices,
        "epsilon": format_micro(epsilon_micro),
        "seed": seed,
        "pilot": f"{found.used} of {found.records} records with a class",
        "largest_class": percent(found.largest),
    }
    if found.fleet is not None and found.alone is not None:
        record["accuracy_of_the_fleet"] = f"{found.fleet.shown}, on records that chose nothing"
        record["accuracy_of_the_pilot"] = f"{found.alone.shown}, on records that chose nothing"
        record["verdict"] = found.verdict
    record["candidates"] = [
        {
            "features": len(each.ways),
            "names": ", ".join(_blocks(each, names)),
            "accuracy": f"{each.accuracy:.1%}",
            "error": f"{each.error:.1%}",
            "chosen": "yes" if each is found.best else "no",
        }
        for each in found.path
    ]
    kept = {way.feature for way in found.best.ways}
    return with_features(record, names, [names[place] for place in sorted(kept)])


def with_features(record: Mapping[str, Any], names: Iterable[str], kept: Iterable[str]) -> dict[str, Any]:
    """Return the record, cut to the allowed size, with the names of asked and of other features."""
    asked = list(kept)
    rest = [name for name in names if name not in set(asked)]
    return bounded({**record, "features": ", ".join(asked)} | ({"dropped": ", ".join(rest)} if rest else {}))
