"""Trials of ``--design``: what to ask is chosen from a pilot's records or from private answers, then asked.

Every step runs as in a command: campaigns are signed, reports are bytes in files, stores ingest and count them,
``refine`` reads the stores, candidates are signed and evaluated. Only the devices' code is replaced, by the vector
engine. Each device has one number in the series of campaigns, which decides the campaign that it answers, one at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.curator.counting import count_frame
from aggregator.estimates.joining import of_features
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import EncodedFrame, combined, label_codes, observe, recognise
from aggregator.models.scoring import Model
from aggregator.operations.models import counts_of, together
from aggregator.planning.feature_selection.from_answers import Refinement, first_step, refine, sign_candidates
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.planning.feature_selection.steps import EVALUATE, WHOLE, SeriesFleet, Share
from aggregator.publishing.ask_table import Ask, asked_names
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.series import SeriesShare
from protocol.documents.campaign import DISCRETE, Campaign, Fit
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.local import (
    LocalTrust,
    SimulationConfig,
    Task,
    classify,
    count_files,
    make_evaluation_task,
    make_task,
    vector_file,
)
from simulation.settings import PILOT, REFINE, Asking
from simulation.trust import Lab, Part, Signed, Trial, rejections, trial_of

MOST_STEPS = 30


class Crowd(NamedTuple):
    """A simulated fleet.

    Attributes:
        schema: schema of the records, without groups of values. Campaigns ask about some of its features.
        reported, scored: the people's codes and numbers in reports, and for scoring; missing values have no code there.
        labels: shape (people,) int64, class codes in reports.
        holders: shape (devices,) int64, index of each device's record; several devices may hold the same one.
        places: shape (devices,) int64, below 2³²: decides which campaign of the series each device answers.
    """

    schema: Schema
    reported: EncodedFrame
    scored: EncodedFrame
    labels: Integers
    holders: Integers
    places: Integers

    @classmethod
    def of(cls, people: pd.DataFrame, schema: Schema, devices: int | None, rng: np.random.Generator) -> Crowd:
        """Return a fleet of ``devices`` with records drawn from ``people`` with replacement.

        If ``devices`` is None, each person has one device.
        """
        holders = np.arange(len(people)) if devices is None else rng.integers(0, len(people), devices)
        labels = label_codes(people, schema.label, substitute=True)
        places = rng.integers(0, WHOLE, len(holders))
        return cls(schema, observe(people, schema), recognise(people, schema), labels, holders, places)

    def asked(self, schema: Schema, rows: Integers) -> EncodedFrame:
        """Return the codes and numbers that the people ``rows``, (n,) int64, report by a campaign's schema."""
        return self._observed(self.reported, schema, rows)

    def predicted(self, model: Model) -> Integers:
        """Return the class that a model predicts for each of the people: shape (people,) int64."""
        return np.asarray(model.scores_of(self._observed(self.scored, model.schema)).argmax(axis=1))

    def _observed(self, encoded: EncodedFrame, schema: Schema, rows: Integers | slice = slice(None)) -> EncodedFrame:
        names = [feature.name for feature in self.schema.observed]
        columns = [names.index(feature.name) for feature in schema.ungrouped]
        found = combined(EncodedFrame(encoded.codes[:, columns], encoded.numbers[:, columns]), schema)
        return EncodedFrame(found.codes[rows], found.numbers[rows])


class Counted(NamedTuple):
    """The statistics of a store that has counted its reports, and the bytes of the campaign's file."""

    statistics: Statistics
    campaign: bytes


class AskingTrust(LocalTrust):
    """Devices answer with noise, and each trial chooses what they are asked. The settings say how."""

    def shared(self, lab: Lab) -> AbstractContextManager[Task | None]:
        """Return a context with None, since every trial signs its own campaigns."""
        del lab
        return nullcontext()

    def collect(self, lab: Lab, part: Part, shared: Task | None) -> Trial:
        """Choose what to ask, ask it, make the model and test it (:meth:`Trust.collect`)."""
        del shared
        return collect(self.config(lab), part, lab.settings.devices, Asking.parse(lab.settings.asking or ""))


class Answers(NamedTuple):
    """What a fleet was asked and answered in one trial: ``names`` of the model's features, decisions in ``steps``.

    ``pilot``: records of which the model is made too, or None.
    """

    schema: Schema
    crowd: Crowd
    stores: list[Counted]
    names: list[str]
    steps: list[dict[str, Any]]
    pilot: pd.DataFrame | None = None


def collect(config: SimulationConfig, part: Part, devices: int | None, asking: Asking) -> Trial:
    """Choose what to ask, ask it, make the model and test it.

    Args:
        config: keys, parameters, randomness. ``parameters.ask`` is replaced.
        part: people to learn from and people to test on; its number is part of the documents' names. People of the
            pilot do not answer.
        devices: size of a fleet drawn with replacement; None for each person once.

    Raises:
        InputError, PolicyError: a campaign or model can not be made, or the pilot is too small.
    """
    name, workspace = f"asking-{part.number}", config.workspace
    found = _answered(config, part, devices, asking, name)
    campaigns = [one.campaign for one in found.stores]
    parts = [one.statistics for one in found.stores]
    if found.pilot is not None:
        own = _counted(config, found.pilot, parts[0].campaign, name)
        parts += counts_of([own], campaigns, workspace=workspace, now=config.now)
    told = found.pilot is not None  # the pilot's people are people of the fleet's records, and do not answer
    joined = of_features(together(parts, one_population=told, disjoint=told).statistics, found.names)
    model = publish_model(
        workspace, joined, campaigns, config.now, postprocess=config.postprocess, name=name, foretell=None
    )
    return trial_of(
        part,
        part.people,
        found.schema,
        Fit(DISCRETE, config.postprocess),
        accuracy=classify(config, model, part.split.test),
        devices=len(found.crowd.holders),
        reports=sum(one.statistics.reports for one in found.stores),
        rejected=rejections([one.statistics for one in found.stores]),
        signed=Signed(model, workspace.root_bytes),
        steps=(*found.steps, {"step": "model", "part": 0.0, "features": found.names}),
    )


def _answered(config: SimulationConfig, part: Part, devices: int | None, asking: Asking, name: str) -> Answers:
    schema, people = part.schema, part.people
    ask: Ask = {}
    steps: list[dict[str, Any]] = []
    pilot = None
    if asking.records:
        order = config.rng.permutation(len(people))
        if asking.records >= len(people):
            raise InputError("setting_invalid", f"the pilot takes all of the {len(people)} people")
        pilot, people = people.iloc[order[: asking.records]], people.iloc[order[asking.records :]]
    if asking.way == PILOT:
        seed = int(config.rng.integers(0, 1 << 31))
        size = len(people) if devices is None else devices
        made = design(pilot, SchemaFile(name, schema), config.parameters.epsilon_micro, size, seed=seed, judge=False)
        schema, ask = made.file.schema, made.file.ask
        steps.append({"step": "design", "part": 0.0, "features": asked_names(ask), "expected": made.best.accuracy})
    crowd = Crowd.of(people, schema, devices, config.rng)
    if asking.way == REFINE:
        return Answers(schema, crowd, *_refined(config, schema, crowd, name))
    store = _ask(config, schema, ask, None, name, crowd)
    names = [feature.name for feature in store.statistics.schema.observed]
    if asking.counts:
        steps.append({"step": "count", "part": 0.0, "features": names, "records": asking.records})
    return Answers(schema, crowd, [store], names, steps, pilot if asking.counts else None)


def _counted(config: SimulationConfig, pilot: pd.DataFrame, campaign: Campaign, name: str) -> bytes:
    """Return signed exact counts of the pilot's records."""
    given: dict[str, Any] = {"name": name, "consent": "simulated people", "now": config.now}
    return count_frame(config.workspace, pilot, pilot, campaign, random_bytes=config.entropy, **given).raw


def _refined(
    config: SimulationConfig, schema: Schema, crowd: Crowd, series: str
) -> tuple[list[Counted], list[str], list[dict[str, Any]]]:
    """Follow ``refine`` to its end. Return the stores about features, the model's features, and the decided steps."""
    fleet = SeriesFleet(len(crowd.holders), config.parameters.epsilon_micro)

    def evaluated(turn: Turn, models: Sequence[bytes]) -> Statistics:
        share = SeriesShare(series, turn.share.low, turn.share.high)
        parameters = CampaignParameters(turn.name, fleet.epsilon_micro, series=share)
        return _answers(config, make_evaluation_task(config, models, parameters), crowd, models)

    def asked(turn: Turn, ask: Ask) -> Counted:
        share = SeriesShare(series, turn.share.low, turn.share.high)
        return _ask(config, schema, ask, share, turn.name, crowd)

    return follow(config, schema, series, fleet, asked, evaluated)


class Turn(NamedTuple):
    """A campaign of a series: its name, its share, and the time when it is signed."""

    name: str
    share: Share
    now: int


def follow(
    config: SimulationConfig,
    schema: Schema,
    series: str,
    fleet: SeriesFleet,
    ask: Callable[[Turn, Ask], Counted],
    evaluate: Callable[[Turn, Sequence[bytes]], Statistics],
) -> tuple[list[Counted], list[str], list[dict[str, Any]]]:
    """Follow ``refine`` to its end. Return the stores about features, the model's features, and the decided steps.

    Args:
        schema: features that the series may ask about.
        series: name of the series.
        ask: lets the share of a turn answer about features.
        evaluate: lets the share of a turn evaluate signed models.
    """
    stores: list[Counted] = []
    evaluations: list[Statistics] = []
    steps: list[dict[str, Any]] = []
    while len(steps) < MOST_STEPS:
        found = (
            refine([one.statistics for one in stores], evaluations, fleet, series if fleet.is_same else None)
            if stores
            else first_step(schema, series, fleet)
        )
        steps.append(_step(found))
        if found.share is None:
            assert found.step.features is not None
            return stores, list(found.named(found.step.features)), steps
        turn = Turn(f"{series}-step-{len(steps)}", found.share, config.now + len(steps) - 1)
        if found.step.kind == EVALUATE:
            signed = sign_candidates(config.workspace, found, [one.campaign for one in stores], turn.now)
            evaluations.append(evaluate(turn, list(signed.values())))
        else:
            stores.append(ask(turn, found.ask))
    raise AssertionError("a series does not end")


def _step(found: Refinement) -> dict[str, Any]:
    said = found.to_json()
    return {
        "step": said["step"],
        "why": said["why"],
        "part": 0.0 if found.share is None else found.share.part,
        "features": said["features"] or list(said["ask"]),
        "candidates": said["candidates"],
    }


def _ask(
    config: SimulationConfig, schema: Schema, ask: Ask, series: SeriesShare | None, name: str, crowd: Crowd
) -> Counted:
    """Sign a campaign that asks about features, and let its share of the devices answer."""
    parameters: CampaignParameters = config.parameters._replace(
        name=name, ask=ask, series=series, class_question=False, postprocess=config.postprocess
    )
    task = make_task(config._replace(parameters=parameters), schema)
    return Counted(_answers(config, task, crowd, ()), task.campaign_bytes)


def _answers(config: SimulationConfig, task: Task, crowd: Crowd, models: Sequence[bytes]) -> Statistics:
    """Let the campaign's share of the devices answer; ingest their reports into a store, and count them."""
    campaign = task.campaign
    low, high = (0, WHOLE) if campaign.series is None else (campaign.series.low, campaign.series.high)
    rows = crowd.holders[(crowd.places >= low) & (crowd.places < high)]
    parsed = [Model.of(parse_model(read_envelope(raw, "model").payload)) for raw in models]
    predicted = [crowd.predicted(model)[rows].take for model in parsed]
    asked = EncodedFrame(*np.empty((2, len(rows), 0), np.int64)) if models else crowd.asked(campaign.schema, rows)
    return count_files(
        config, task, lambda folder: [vector_file(config, campaign, asked, crowd.labels[rows], predicted, folder)]
    )
