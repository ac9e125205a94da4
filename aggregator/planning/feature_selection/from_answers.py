"""``hearsay refine``: the next step of a series, from the statistics of its campaigns.

The procedure keeps no state besides the campaigns: each states its share of the devices, and an evaluation names its
candidate models, whose names say their features (:func:`candidate_name`). Source: decision 65.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aggregator.collectors.draws import SHARED
from aggregator.estimates.joining import join, of_features
from aggregator.estimates.source import newest_origin
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.postprocess.posterior import posterior_tables
from aggregator.planning.feature_selection.candidates import Measurement, Subset
from aggregator.planning.feature_selection.from_pilot import with_features
from aggregator.planning.feature_selection.steps import (
    WHOLE,
    Evaluation,
    FeatureCampaign,
    SeriesFleet,
    Share,
    Step,
    can_choose,
    conclusion,
    next_evaluation,
    next_round,
    pooled,
)
from aggregator.publishing.ask_table import Ask, AskedFeature, asked_names
from aggregator.publishing.decisions import Decision, bounded
from aggregator.publishing.models import check_parted, publish_model
from aggregator.publishing.series import check_series_name
from aggregator.publishing.workspace import Workspace, latest_of_each
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import read_envelope
from protocol.documents.model import Model, parse_model
from protocol.documents.payload import quoted
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.features import Categorical, Grouped
from protocol.schema import Schema

_ALL = "all"


class Refinement(NamedTuple):
    """The next step of a series of campaigns, with what is needed to take it.

    Attributes:
        step: the step; features are indices in ``names``.
        names: names of all features that the series may ask about.
        asked: the schema of these features, with their groups.
        statistics: joined statistics from which the candidate models are made; None before there are answers.
        candidates: name of each candidate model to be evaluated → names of its features.
        used: part of the fleet that all campaigns so far ask.
        decision: the step as a record for the schema file (:meth:`record`); empty if there is no record.
    """

    series: str
    step: Step
    names: tuple[str, ...]
    asked: Schema
    statistics: Statistics | None
    candidates: dict[str, tuple[str, ...]]
    used: float
    decision: Decision = MappingProxyType({})

    def named(self, features: Subset) -> tuple[str, ...]:
        """Return the names of the features with these indices."""
        return tuple(self.names[index] for index in features)

    @property
    def ask(self) -> Ask:
        """The table ``[ask]`` of the next campaign, with the groups of earlier ones; empty if none is asked."""
        if not self.step.asks:
            return {}
        (asked,) = self.step.asks
        weights = asked.weights or (1,) * len(asked.features)
        found: dict[str, AskedFeature] = {}
        for index, weight in zip(asked.features, weights, strict=True):
            part = self.asked.parts[index]
            members = {self.asked.ungrouped[one].name: _entry(self.asked, one, 0) for one in part}
            if len(part) == 1:
                found[self.names[index]] = _entry(self.asked, part[0], weight)
            else:
                found |= {name: one for name, one in members.items() if one.groups or one.bins}
                found[self.names[index]] = AskedFeature(share=weight)
        return found

    @property
    def share(self) -> Share | None:
        """The share of the devices that the next campaign asks; None if no campaign follows."""
        return self.step.asks[0].share if self.step.asks else self.step.share

    def to_json(self) -> dict[str, Any]:
        """Return the output of ``hearsay refine --json``."""
        step, share = self.step, self.share
        found: dict[str, Any] = {
            "step": step.kind,
            "why": step.why,
            "series": self.series,
            "used": self.used,
            "share": None if share is None else {"from": share.low, "to": share.high, "part": share.part},
            "ask": {name: self.ask[name].share for name in asked_names(self.ask)},
            "candidates": {name: list(features) for name, features in self.candidates.items()},
            "features": None if step.features is None else list(self.named(step.features)),
            "choice": None,
        }
        if step.choice is not None:
            choice = step.choice
            found["choice"] = {"gain": choice.gain, "error": choice.error} | {
                key: {"features": list(self.named(one.features)), "accuracy": one.mean, "error": one.error}
                for key, one in (("best", choice.best), ("all", choice.everything))
            }
        return found

    def record(self, fleet: SeriesFleet) -> dict[str, Any]:
        """Return the step as a record for schema files and cards of models; all of it follows from private answers."""
        step, share = self.step, self.share
        record: dict[str, Any] = {
            "by": "hearsay refine",
            "step": step.kind,
            "why": step.why,
            "series": self.series,
            "devices": fleet.devices,
            "epsilon": format_micro(fleet.epsilon_micro),
            "asked_so_far": f"{self.used:.1%} of {'ε' if fleet.is_same else 'the devices'}",
        }
        record |= {} if fleet.noise is None else {"trust": SHARED}
        record |= {} if share is None else {"share": share.shown}
        if step.choice is not None:
            choice = step.choice
            record["gain"] = f"{100 * choice.gain:+z.1f} ± {100 * choice.error:.1f} points over all features"
            record["candidates"] = [
                {
                    "features": len(one.features),
                    "names": ", ".join(self.named(one.features)),
                    "accuracy": f"{one.mean:.1%}",
                    "error": f"{one.error:.1%}",
                    "chosen": "yes" if one.features == choice.features else "no",
                }
                for one in dict.fromkeys((choice.best, choice.everything))
            ]
        elif self.candidates:
            record["candidates"] = [
                {"model": name, "features": len(features), "names": ", ".join(features)}
                for name, features in self.candidates.items()
            ]
        asked = step.features if step.features is not None else step.asks[0].features if step.asks else None
        return bounded(record) if asked is None else with_features(record, self.names, self.named(asked))


def _entry(schema: Schema, index: int, share: int) -> AskedFeature:
    """Return how the feature with this index in ``schema.ungrouped`` is asked about."""
    feature, plain = schema.single[index], schema.ungrouped[index]
    if not isinstance(feature, Grouped):
        return AskedFeature(share=share)
    if isinstance(plain, Categorical):
        return AskedFeature(tuple(map(tuple, feature.members())), (), share)
    bins = feature.groups[: len(plain.edges) + 1]
    return AskedFeature((), tuple(bins.count(group) for group in sorted(set(bins))), share)


def candidate_name(series: str, features: Subset, count: int) -> str:
    """Return the name of a candidate model: the series, and ``all`` or the numbers of its features, from 1.

    >>> candidate_name("chess", (3, 8), 36)
    'chess-4-9'
    """
    return f"{series}-{_ALL if len(features) == count else '-'.join(str(index + 1) for index in features)}"


def _features_of(name: str, series: str, count: int) -> Subset:
    said = name.removeprefix(f"{series}-")
    parts = said.split("-")
    found: Subset = ()
    if said == _ALL:
        found = tuple(range(count))
    elif all(part.isascii() and part.isdecimal() and len(part) <= 5 for part in parts):
        found = tuple(int(part) - 1 for part in parts)
    known = bool(found) and set(found) <= set(range(count)) and list(found) == sorted(set(found))
    if not known or candidate_name(series, found, count) != name:
        raise InputError("refine_invalid", f"{quoted(name)} is no candidate that hearsay refine named for this series")
    return found


def first_step(schema: Schema, series: str, fleet: SeriesFleet) -> Refinement:
    """Return the step that makes the first campaign of a series, before there are answers.

    ``schema``: the features that the series may ask about. Raises InputError ``series_invalid`` for a name (``series``)
    that no campaign can state; ``not_fittable``: a feature may be asked about in several ways, alone or joined.
    """
    check_series_name(series)
    check_parted(schema)
    step = next_round(len(schema.observed), len(schema.label.classes), fleet, [], None)
    assert step is not None
    return Refinement(series, step, tuple(each.name for each in schema.observed), schema, None, {}, 0.0)


class _Series(NamedTuple):
    """The state of a series of campaigns. All lists are in the order of the shares.

    Attributes:
        name: name of the series.
        asking: statistics of the campaigns that asked about features.
        parts: the share of each of ``asking``.
        waves: the evaluations of candidate models so far.
        shares: the shares of all these campaigns.
    """

    name: str
    asking: list[Statistics]
    parts: list[Share]
    waves: list[Evaluation]
    shares: list[Share]

    @property
    def schema(self) -> Schema:
        """The schema of the first campaign, which asked about all features that the series may ask about."""
        return self.asking[0].schema

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.schema.observed)

    @property
    def before(self) -> list[Statistics]:
        """Statistics of the campaigns before the first evaluation, from which the candidates are made."""
        return self.asking[: len(self.rounds())]

    def rounds(self) -> list[FeatureCampaign]:
        names = self.names
        return [
            FeatureCampaign(tuple(names.index(feature.name) for feature in one.schema.observed), share)
            for one, share in zip(self.asking, self.parts, strict=True)
            if not self.waves or share < self.waves[0].share
        ]


def refine(
    stores: Sequence[Statistics], evaluations: Sequence[Statistics], fleet: SeriesFleet, named: str | None = None
) -> Refinement:
    """Return the next step of a series of campaigns, from these statistics alone. Run by the analyst.

    ``stores``: statistics of the campaigns that asked about features, at least one. The campaign with the lowest share
    must have asked about all features that the series may ask about. ``evaluations``: statistics of the campaigns that
    compared candidates. ``fleet``: number of devices, ε, and for two collectors their noise. ``named``: name of the
    series, only for steps that ask the same devices, whose campaigns do not state one.

    Raises:
        InputError: ``refine_invalid``: a campaign is of no series, of another series, or of another family; shares
            overlap; a model is no candidate; one name stands for two models; the errors of
            :func:`aggregator.estimates.joining.join`.
        PolicyError: ``batch_too_small``: a store has fewer reports than its campaign's smallest batch.
    """
    series = _series(stores, evaluations, fleet, named)
    names = series.names
    joined, every = (_together(part, fleet) for part in (series.before, series.asking))
    if {feature.name for feature in every.schema.observed} != set(names):
        raise InputError("refine_invalid", "the first campaign of the series did not ask about all of the features")
    step = _next_step(series, joined, every, fleet)
    candidates = {
        candidate_name(series.name, each, len(names)): tuple(names[index] for index in each) for each in step.models
    }
    part = sum(share.part for share in series.shares)
    return Refinement(series.name, step, names, series.schema, joined, candidates, part)


def _series(
    stores: Sequence[Statistics], evaluations: Sequence[Statistics], fleet: SeriesFleet, named: str | None
) -> _Series:
    everything = [*stores, *evaluations]
    places = _parts(everything, fleet) if fleet.is_same else {id(one): share_of(one) for one in everything}
    name = _check(everything, len(stores), fleet, sorted(places.values()), named)
    asking, comparing = (sorted(part, key=lambda one: places[id(one)]) for part in (stores, evaluations))
    count = len(asking[0].schema.observed)
    waves = [_evaluation(one, places[id(one)], name, count) for one in comparing]
    _check_frozen(comparing)
    if waves and tuple(range(count)) not in pooled(waves):
        raise InputError(
            "refine_invalid", "the evaluations have no answer about the model of all features; wait for more reports"
        )
    return _Series(name, asking, [places[id(one)] for one in asking], waves, sorted(places.values()))


def _parts(everything: Sequence[Statistics], fleet: SeriesFleet) -> dict[int, Share]:
    """Return the part of ε that each campaign of the same devices spent, as a share, in the order of their issue."""
    found, low = {}, 0
    for one in sorted(everything, key=lambda each: (each.campaign.header.not_before, each.campaign.header.name)):
        high = low + one.campaign.epsilon_micro
        found[id(one)] = Share(low * WHOLE // fleet.epsilon_micro, high * WHOLE // fleet.epsilon_micro)
        low = high
    if low > fleet.epsilon_micro:
        raise InputError("refine_invalid", "the campaigns together have a larger ε than --epsilon says")
    return found


def _next_step(series: _Series, joined: Statistics, every: Statistics, fleet: SeriesFleet) -> Step:
    names, rounds = series.names, series.rounds()
    features, classes = len(names), len(series.schema.label.classes)
    if len(rounds) == len(series.asking):  # nothing was asked after an evaluation: the choice is not made yet
        tables = _tables(joined, names)
        step = next_round(features, classes, fleet, rounds, tables)
        if step is None and not can_choose(features, classes, fleet):
            seed = int.from_bytes(joined.statistics_id[:8], "big")
            step = next_evaluation(tables, fleet, rounds, series.waves, seed)
        if step is not None:
            return step
    return conclusion(features, classes, fleet, _counts(every, names), series.waves, series.shares)


def share_of(one: Statistics) -> Share:
    """Return the share of the devices that a campaign asks. Raises InputError ``refine_invalid`` without a series."""
    series = one.campaign.series
    if series is None:
        raise InputError(
            "refine_invalid", f"the campaign {quoted(one.campaign.header.name)} is of no series; see --series"
        )
    return Share(series.low, series.high)


def _check(
    everything: Sequence[Statistics], stores: int, fleet: SeriesFleet, shares: Sequence[Share], named: str | None
) -> str:
    """Return the series' name, or raise ``refine_invalid``. The first ``stores`` statistics are not of evaluations."""
    if any(one.high > two.low for one, two in pairwise(shares)):
        raise InputError("refine_invalid", "two campaigns of the series ask the same devices; their shares overlap")
    for before, after in pairwise([Share(0, 0), *shares]):
        if before.high < after.low:
            gap = Share(before.high, after.low).shown
            raise InputError("refine_invalid", f"no store asked the devices {gap}; give all stores of the series")
    found = {one.campaign.series.name for one in everything if one.campaign.series is not None}
    if fleet.is_same and (found or named is None):
        raise InputError("refine_invalid", "the same devices answer campaigns of no series; name the steps by --series")
    found |= {named} if named is not None and fleet.is_same else set()
    if len(found) != 1:
        raise InputError("refine_invalid", f"the campaigns are of {len(found)} series; refine one series at a time")
    for one in everything:
        one.check_publishable()
        if (one.campaign.shared is None) != (fleet.noise is None):
            raise InputError("refine_invalid", "--trust says shared if and only if two collectors answer the campaigns")
        if one.campaign.epsilon_micro != fleet.epsilon_micro and not fleet.is_same:
            raise InputError("refine_invalid", "a campaign has another ε than --epsilon says")
    are_discrete = all(one.fit.family == DISCRETE and one.campaign.memory is None for one in everything[:stores])
    if not are_discrete or not all(one.campaign.models for one in everything[stores:]):
        raise InputError(
            "refine_invalid",
            "--store takes discrete campaigns without memory, and --evaluation those that compare several models",
        )
    return found.pop()


def _check_frozen(comparing: Sequence[Statistics]) -> None:
    digests: dict[str, bytes] = {}
    for one in comparing:
        for name, digest in zip(one.campaign.model_names, one.campaign.models, strict=True):
            if digests.setdefault(name, digest) != digest:
                raise InputError(
                    "refine_invalid",
                    f"the evaluations name two versions of the model {quoted(name)}; their answers can not be pooled",
                )


def _evaluation(one: Statistics, share: Share, series: str, count: int) -> Evaluation:
    measured = {}
    for question in one.questions:
        if question.right is not None and question.n and question.subject.model is not None:
            name = one.campaign.model_names[question.subject.model]
            n, right = question.n, question.right.share
            if one.campaign.shared is None:
                found = Measurement.of_answers(n, right, one.campaign.epsilon_micro)
            else:
                found = Measurement(right, (float(question.right.law.at(np.array(0.5))) + 0.25) / n)
            measured[_features_of(name, series, count)] = found
    return Evaluation(share, measured)


def _together(parts: Sequence[Statistics], fleet: SeriesFleet) -> Statistics:
    return parts[0] if len(parts) == 1 else join(parts, one_population=fleet.is_same).statistics


def _tables(joined: Statistics, names: Sequence[str]) -> Tables:
    places = [feature.name for feature in joined.schema.observed]
    return posterior_tables(joined, [places.index(name) for name in names])


def _counts(joined: Statistics, names: Sequence[str]) -> list[int]:
    places = [feature.name for feature in joined.schema.observed]
    found = dict.fromkeys(names, 0)
    for one in joined.questions:
        if one.subject.feature is not None:
            found[places[one.subject.feature]] += one.n
    return [found[name] for name in names]


def sign_candidates(
    workspace: Workspace, refined: Refinement, campaigns: Sequence[bytes], now: int
) -> dict[str, bytes]:
    """Return the signed models of the candidates that ``refined`` wants evaluated: name → bytes of its ``.hsm`` file.

    Each is made once and kept: answers of several evaluations about a candidate can be added up only if its model is
    the same in all of them. ``campaigns``: the files of all campaigns that asked about features.

    Raises InputError ``refine_invalid``: the workspace has another model of a candidate's name; and the errors of
    :func:`aggregator.publishing.models.publish_model`.
    """
    assert refined.statistics is not None
    wanted = {source.origin.id for source in refined.statistics.sources}
    files = [file for file in campaigns if sha256(read_envelope(file, "campaign").payload).digest() in wanted]
    known = {item.name: item for item in latest_of_each(workspace.history()) if item.role == "model"}
    found: dict[str, bytes] = {}
    for name, features in refined.candidates.items():
        if name in known:
            found[name] = workspace.copy(known[name])
            _check_candidate(parse_model(read_envelope(found[name], "model").payload), refined, features)
        else:
            chosen = of_features(refined.statistics, features)
            found[name] = publish_model(workspace, chosen, files, now, name=name, foretell=None)
    return found


def _check_candidate(model: Model, refined: Refinement, features: Sequence[str]) -> None:
    """Refuse a model of a candidate's name that was not made for this series, or a second version of one."""
    assert refined.statistics is not None
    read = {feature.name for feature in model.schema.observed}
    origin = newest_origin(refined.statistics.sources).id
    if model.header.version != 1 or read != set(features) or model.campaign != origin:
        raise InputError(
            "refine_invalid",
            f"the workspace has another model named {quoted(model.header.name)}, so this candidate can not have that "
            "name; begin the series anew under another name",
        )
