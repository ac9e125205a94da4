"""One trial of ``--design``: what to ask is chosen from a pilot or from private answers, then asked.

Every step is the step of a command: campaigns are signed, reports are bytes in files, stores ingest and count them,
``refine`` reads the stores, candidates are signed and evaluated. Only the devices' code is replaced, by the vector
engine. Each device has one place in the series, so it answers one campaign at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.estimates.joining import of_features
from aggregator.estimates.statistics import Statistics
from aggregator.models.baselines import fit_majority, fit_plain
from aggregator.models.encoding import MISSING, EncodedFrame, in_groups, label_codes, observe, recognise
from aggregator.models.scoring import Model
from aggregator.operations.models import together
from aggregator.planning.feature_selection.from_answers import Refined, first_step, refine, sign_candidates
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.planning.feature_selection.steps import EVALUATE, WHOLE, Fleet
from aggregator.publishing.ask_table import Ask
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.evaluations import EvaluationParameters
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.series import SeriesShare
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.design import Split
from simulation.experiment import (
    Signed,
    SimulationConfig,
    Task,
    Trial,
    classify,
    count_files,
    make_evaluation_task,
    make_task,
    vector_file,
)

ALL, PILOT, REFINE = "all", "pilot", "refine"
MOST_STEPS = 30


class Asking(NamedTuple):
    """How it is chosen what to ask: ``all``, ``pilot`` with the number of its records, or ``refine``."""

    way: str
    records: int = 0

    @classmethod
    def parse(cls, text: str) -> Asking:
        """Read ``all``, ``pilot:K`` or ``refine``.

        Raises:
            InputError: ``setting_invalid``.
        """
        way, _, count = text.partition(":")
        if text in (ALL, REFINE):
            return cls(text)
        if way == PILOT and count.isascii() and count.isdecimal() and 1 <= int(count[:7]) <= 10**6:
            return cls(PILOT, int(count))
        raise InputError("setting_invalid", "a design is all, refine, or pilot:K with K records")


class Crowd(NamedTuple):
    """A simulated fleet.

    Attributes:
        schema: of the records, without groups. Campaigns ask about some of its features.
        reported: the people's codes and numbers in reports.
        scored: the same for scoring; missing values have no code.
        labels: shape (people,) int64, class codes in reports.
        holders: shape (devices,) int64, index of each device's record; several devices may hold the same one.
        places: shape (devices,) int64, each device's place in the series, below 2³².
    """

    schema: Schema
    reported: EncodedFrame
    scored: EncodedFrame
    labels: NDArray[np.int64]
    holders: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, people: pd.DataFrame, schema: Schema, devices: int | None, rng: np.random.Generator) -> Crowd:
        """A fleet of ``devices`` with records drawn from ``people`` with replacement; None gives each one device."""
        holders = np.arange(len(people)) if devices is None else rng.integers(0, len(people), devices)
        labels = label_codes(people, schema.label, substitute=True)
        places = rng.integers(0, WHOLE, len(holders))
        return cls(schema, observe(people, schema), recognise(people, schema), labels, holders, places)

    def asked(self, schema: Schema, rows: NDArray[np.int64]) -> EncodedFrame:
        """Codes and numbers in reports of the people ``rows``, (n,) int64, by a campaign's schema."""
        columns = self._columns(schema)
        codes = in_groups(self.reported.codes[:, columns], schema)
        return EncodedFrame(codes[rows], self.reported.numbers[:, columns][rows])

    def predicted(self, model: Model) -> NDArray[np.int64]:
        """The class that a model predicts for each of the people: shape (people,) int64."""
        columns = self._columns(model.schema)
        return np.asarray(
            model.scores_of(EncodedFrame(self.scored.codes[:, columns], self.scored.numbers[:, columns])).argmax(axis=1)
        )

    def _columns(self, schema: Schema) -> list[int]:
        names = [feature.name for feature in self.schema.observed]
        return [names.index(feature.name) for feature in schema.ungrouped]


class Counted(NamedTuple):
    """A store that has counted its reports: the statistics, and the campaign's file."""

    statistics: Statistics
    campaign: bytes


def run_asking(
    config: SimulationConfig, schema: Schema, split: Split, devices: int | None, asking: Asking, number: int
) -> Trial:
    """Choose what to ask, ask it, make the model and test it.

    Args:
        config: keys, parameters, randomness. ``parameters.ask`` is replaced.
        schema: of the records.
        split: people to learn from and people to test on. The pilot's people do not answer.
        devices: size of a fleet drawn with replacement; None for each person once.
        asking: how to choose.
        number: number of the trial, from 0, for the names of its documents.

    Raises:
        InputError, PolicyError: a campaign or model can not be made, or the pilot is too small.
    """
    name = f"asking-{number}"
    people, steps = split.people, []
    if asking.way == PILOT:
        order = config.rng.permutation(len(people))
        if asking.records >= len(people):
            raise InputError("setting_invalid", f"the pilot takes all of the {len(people)} people")
        pilot, people = people.iloc[order[: asking.records]], people.iloc[order[asking.records :]]
        seed = int(config.rng.integers(0, 1 << 31))
        size = len(people) if devices is None else devices
        made = design(pilot, SchemaFile(name, schema), config.parameters.epsilon_micro, size, seed=seed, judge=False)
        schema, ask = made.file.schema, made.file.ask
        crowd = Crowd.of(people, schema, devices, config.rng)
        steps.append({"step": "design", "part": 0.0, "features": list(ask), "expected": made.best.accuracy})
        stores = [_ask(config, schema, ask, None, name, crowd)]
        names = [feature.name for feature in stores[0].statistics.schema.observed]
    elif asking.way == ALL:
        crowd = Crowd.of(people, schema, devices, config.rng)
        stores = [_ask(config, schema, {}, None, name, crowd)]
        names = [feature.name for feature in stores[0].statistics.schema.observed]
    else:
        crowd = Crowd.of(people, schema, devices, config.rng)
        stores, names, steps = _refined(config, schema, crowd, name)
    joined = of_features(together([one.statistics for one in stores]).statistics, names)
    model = publish_model(
        config.workspace,
        joined,
        [one.campaign for one in stores],
        config.now,
        postprocess=config.postprocess,
        name=name,
        foretell=None,
    )
    rejected: dict[str, int] = {}
    for one in stores:
        for reason, count in one.statistics.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    return Trial(
        accuracy=classify(config, model, split.test),
        accuracy_nonprivate=fit_plain(split.people, schema).accuracy(split.test),
        accuracy_majority=fit_majority(split.people, schema).accuracy(split.test),
        devices=len(crowd.holders),
        reports=sum(one.statistics.reports for one in stores),
        rejected=rejected,
        signed=Signed(model, config.workspace.root_bytes),
        test_records=int((label_codes(split.test, schema.label) != MISSING).sum()),
        steps=(*steps, {"step": "model", "part": 0.0, "features": names}),
    )


def _refined(
    config: SimulationConfig, schema: Schema, crowd: Crowd, series: str
) -> tuple[list[Counted], list[str], list[dict[str, Any]]]:
    """Follow ``refine`` to its end. Returns the stores about features, the model's features, and the steps."""
    fleet = Fleet(len(crowd.holders), config.parameters.epsilon_micro)
    stores: list[Counted] = []
    evaluations: list[Statistics] = []
    steps: list[dict[str, Any]] = []
    while len(steps) < MOST_STEPS:
        found = (
            refine([one.statistics for one in stores], evaluations, fleet)
            if stores
            else first_step(schema, series, fleet)
        )
        steps.append(_step(found))
        if found.share is None:
            assert found.step.features is not None
            return stores, list(found.named(found.step.features)), steps
        share = SeriesShare(series, found.share.low, found.share.high)
        name = f"{series}-step-{len(steps)}"
        if found.step.kind == EVALUATE:
            models = list(
                sign_candidates(config.workspace, found, [one.campaign for one in stores], config.now).values()
            )
            parameters = EvaluationParameters(fleet.epsilon_micro, name, series=share)
            task = make_evaluation_task(config, models, parameters)
            evaluations.append(_answers(config, task, crowd, models))
        else:
            stores.append(_ask(config, schema, found.ask, share, name, crowd))
    raise AssertionError("a series does not end")


def _step(found: Refined) -> dict[str, Any]:
    """A step for the simulation's output."""
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
    """Sign a campaign that asks about features, and let the devices of its share answer."""
    parameters: CampaignParameters = config.parameters._replace(
        name=name, ask=ask, series=series, class_question=False, postprocess=config.postprocess
    )
    task = make_task(config._replace(parameters=parameters), schema)
    return Counted(_answers(config, task, crowd, ()), task.campaign_bytes)


def _answers(config: SimulationConfig, task: Task, crowd: Crowd, models: Sequence[bytes]) -> Statistics:
    """Let the devices of the campaign's share answer; ingest their reports into a store, and count them."""
    campaign = task.campaign
    low, high = (0, WHOLE) if campaign.series is None else (campaign.series.low, campaign.series.high)
    rows = crowd.holders[(crowd.places >= low) & (crowd.places < high)]
    parsed = [Model.of(parse_model(read_envelope(raw, "model").payload)) for raw in models]
    predicted = [crowd.predicted(model)[rows].take for model in parsed]
    asked = EncodedFrame(*np.empty((2, len(rows), 0), np.int64)) if models else crowd.asked(campaign.schema, rows)
    return count_files(
        config, task, lambda folder: [vector_file(config, campaign, asked, crowd.labels[rows], predicted, folder)]
    )
