"""``shared`` trust: each device splits its record for two collectors, and only a noisy total of all records is made.

The engine ``device`` runs real devices, batch files, and both collectors: the leader checks the shares and asks, the
helper checks and answers, the leader signs the total, which a store takes in. ``files`` makes the bytes of the devices'
reports with arrays, and does the rest as ``device`` does. ``vector`` draws totals of the same law
(:mod:`simulation.drawn`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.collectors.campaigns import shared_evaluation, shared_terms
from aggregator.collectors.collector import PUBLIC_FILE, CollectorFolder
from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.pair import Pair, made_up_pair, read_pair
from aggregator.collectors.statistics import shared_statistics
from aggregator.collectors.totals import TotalStore
from aggregator.common.arrays import Integers
from aggregator.estimates.joining import of_features
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import MISSING, EncodedFrame, label_codes, observe
from aggregator.models.measured_accuracy import Accuracy, evaluate
from aggregator.models.scoring import Model
from aggregator.operations.models import together
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.planning.feature_selection.steps import WHOLE, SeriesFleet
from aggregator.publishing.ask_table import Ask, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.series import SeriesShare
from edge_sdk import Policy
from protocol.documents.campaign import DISCRETE, EVALUATION, Campaign, Fit
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.documents.shared_terms import SharedTerms, shared_subjects
from protocol.epsilon import MICRO, PICO, format_pico, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.questions import CHANGE
from protocol.schema import Schema
from protocol.shared.report import terms_of
from simulation.asking import Counted, Crowd, Turn, follow
from simulation.design import Design
from simulation.drawn import cells_of, collected
from simulation.fleet import device_reports, shared_reports, write_batches
from simulation.local import (
    SimulationConfig,
    Task,
    classify,
    make_evaluation_task,
    make_task,
    predictor,
    records_of,
    told_accuracies,
)
from simulation.settings import PILOT, REFINE, Asking, Settings
from simulation.trust import SIMULATED_NOW, Lab, Part, Signed, Trial, Trust, accuracies, rejections, trial_of

FEW_REPORTS = 2000
"""Up to this number of devices a trial of the engine ``device`` is not announced as slow."""
REPORT_SECONDS = 0.06
"""About how long a processor takes for a device's report, in plain Python; the engine ``files`` takes a tenth."""


class Two(NamedTuple):
    """The open folders of the two collectors, and the folder that holds them."""

    place: Path
    leader: CollectorFolder
    helper: CollectorFolder


class SharedTrust(Trust):
    """Devices share their exact records between two collectors, who add noise to the total."""

    def __init__(self, settings: Settings, design: Design, records: int, ask: Ask | None = None) -> None:
        """Check the settings, and warn of a slow engine. ``records`` is the number of devices in a trial.

        Raises:
            InputError: ``setting_invalid``: a way to choose that shared answers do not have; ``epsilon_invalid``,
                ``delta_invalid``, ``terms_invalid``, ``ask_invalid``, ``postprocess_unknown``.
        """
        self._asking = Asking("") if settings.asking is None else Asking.parse(settings.asking)
        if self._asking.counts:
            raise InputError("setting_invalid", "with shared trust a pilot chooses, and its records are not counted")
        if self._asking.way and settings.reduce != "none":
            raise InputError("setting_invalid", "a design goes with reduce none only")
        if self._asking.way == REFINE and (settings.engine != "vector" or settings.evaluate):
            raise InputError("setting_invalid", "refine goes with the engine vector, and evaluates models by itself")
        self.ask = ask or {}
        epsilon_micro = micro_epsilon(settings.epsilon)
        delta_pico = pico_delta("0" if settings.delta is None else settings.delta)
        self.noise = SharedNoise(epsilon_micro, delta_pico, settings.noise)
        self._evaluation_micro = epsilon_micro if settings.evaluate else None
        schema = resolve(design.template_schema(), self.ask).schema
        build_campaign(schema, self._parameters(settings, made_up_pair(), schema), 1, SIMULATED_NOW)
        if settings.engine == "device" and records > FEW_REPORTS:
            slow = (
                f"the engine device makes {records} reports in every trial, about {records * REPORT_SECONDS:.0f} s; "
                "the engine files takes a tenth, and vector draws totals at once"
            )
            self.warnings = (slow,)

    def _parameters(self, settings: Settings, pair: Pair, schema: Schema, part: float = 1.0) -> CampaignParameters:
        """Return the parameters of a campaign about all features of ``schema``, with a part of ε and δ."""
        noise = self.noise.of_part(part)
        blocks, delta = shared_subjects(schema), format_pico(noise.delta_pico)
        terms = shared_terms(pair, blocks, noise.epsilon_micro, delta=delta, noise=settings.noise)
        return CampaignParameters("simulation", noise.epsilon_micro, postprocess=settings.postprocess, shared=terms)

    def shared(self, lab: Lab) -> AbstractContextManager[Two | None]:
        """Return a context with the two collectors of all campaigns, or with None if numpy draws the totals."""
        return nullcontext() if lab.settings.engine == "vector" else _two(lab)

    def collect(self, lab: Lab, part: Part, shared: Two | None) -> Trial:
        """Let the devices share their records, make a model of the total, and classify (:meth:`Trust.collect`)."""
        settings, randomness = lab.settings, lab.randomness
        pair = made_up_pair() if shared is None else _paired(shared)
        now, rng, entropy = randomness.now, randomness.noise, randomness.entropy
        parameters = CampaignParameters("simulation", self.noise.epsilon_micro)
        config = SimulationConfig(lab.workspace, parameters, settings.engine, settings.postprocess, now, rng, entropy)
        if self._asking.way == REFINE:
            return self._refined(lab, part, config)
        part, ask, steps = self._chosen(lab, part)
        schema, people = resolve(part.schema, ask).schema, part.fleet(settings.devices)
        config = config._replace(parameters=self._parameters(settings, pair, schema))
        task = make_task(config, schema)
        found = _answered(config, task, people, shared)
        model = publish_model(
            lab.workspace, found, task.campaign_bytes, config.now, postprocess=settings.postprocess, foretell=None
        )
        return trial_of(
            part,
            people,
            part.schema,
            task.campaign.fit,
            accuracy=classify(config, model, part.split.test),
            devices=len(people),
            reports=found.reports,
            rejected=dict(found.rejected),
            accuracy_private=self._evaluated(lab, config, model, part.split.test, shared),
            signed=Signed(model, lab.workspace.root_bytes),
            steps=steps,
            campaign=task.campaign,
        )

    def _evaluated(
        self, lab: Lab, config: SimulationConfig, model: bytes, test: pd.DataFrame, shared: Two | None
    ) -> Accuracy | None:
        """Return the model's accuracy by an evaluation campaign on the devices of the labelled test people."""
        if self._evaluation_micro is None:
            return None
        pair = made_up_pair() if shared is None else _paired(shared)
        terms = self._evaluating(lab.settings, pair, [model], 1.0)
        task = make_evaluation_task(config, [model], CampaignParameters("", self._evaluation_micro, shared=terms))
        labelled = test[label_codes(test, task.campaign.schema.label) != MISSING]
        return evaluate(_answered(config, task, labelled, shared, [model])).accuracy

    def _evaluating(self, settings: Settings, pair: Pair, models: Sequence[bytes], part: float) -> SharedTerms:
        noise = self.noise.of_part(part)
        return shared_evaluation(pair, format_pico(noise.delta_pico), settings.noise, models, noise.epsilon_micro)

    def _refined(self, lab: Lab, part: Part, config: SimulationConfig) -> Trial:
        """Follow ``refine``: totals about all features, of candidate models, and about the chosen features."""
        settings, series = lab.settings, f"refined-{part.number}"
        crowd, is_same = Crowd.of(part.people, part.schema, settings.devices, config.rng), self._asking.is_same
        fleet = SeriesFleet(len(crowd.holders), self.noise.epsilon_micro, self.noise, is_same)

        def share_of(turn: Turn) -> SeriesShare | None:
            return None if is_same else SeriesShare(series, turn.share.low, turn.share.high)

        def counted(turn: Turn, task: Task, models: Sequence[bytes] = ()) -> Statistics:
            low, high = (0, WHOLE) if is_same else turn.share
            rows = crowd.holders[(crowd.places >= low) & (crowd.places < high)]
            parsed = [Model.of(parse_model(read_envelope(raw, "model").payload)) for raw in models]
            told = [crowd.predicted(model)[rows] for model in parsed]
            asked = EncodedFrame(*np.empty((2, len(rows), 0), np.int64))
            if not models:
                asked = crowd.asked(task.campaign.schema, rows)
            period = task.campaign.period_at(turn.now)
            return shared_statistics(collected(task.campaign, asked, crowd.labels[rows], period, config.rng, told))

        def ask(turn: Turn, asked: Ask) -> Counted:
            schema = resolve(part.schema, asked).schema
            made = self._parameters(settings, made_up_pair(), schema, turn.share.part if is_same else 1.0)
            parameters = made._replace(name=turn.name, series=share_of(turn))
            task = make_task(config._replace(parameters=parameters, now=turn.now), schema)
            return Counted(counted(turn, task), task.campaign_bytes)

        def judge(turn: Turn, models: Sequence[bytes]) -> Statistics:
            terms = self._evaluating(settings, made_up_pair(), models, turn.share.part if is_same else 1.0)
            micro = self.noise.of_part(turn.share.part).epsilon_micro if is_same else self.noise.epsilon_micro
            parameters = CampaignParameters(turn.name, micro, series=share_of(turn), shared=terms)
            return counted(turn, make_evaluation_task(config._replace(now=turn.now), models, parameters), models)

        schema = resolve(part.schema, self.ask).schema
        stores, names, steps = follow(config, schema, series, fleet, ask, judge)
        joined = of_features(together([one.statistics for one in stores], one_population=True).statistics, names)
        later = config._replace(now=config.now + len(steps))
        model = publish_model(
            lab.workspace,
            joined,
            [one.campaign for one in stores],
            later.now,
            postprocess=settings.postprocess,
            name=series,
            foretell=None,
        )
        return trial_of(
            part,
            part.people,
            part.schema,
            Fit(DISCRETE, settings.postprocess),
            accuracy=classify(later, model, part.split.test),
            devices=len(crowd.holders),
            reports=sum(one.statistics.reports for one in stores),
            rejected={},
            signed=Signed(model, lab.workspace.root_bytes),
            steps=(*steps, {"step": "model", "part": 0.0, "features": names}),
            campaign=stores[-1].statistics.campaign,
        )

    def _chosen(self, lab: Lab, part: Part) -> tuple[Part, Ask, tuple[dict[str, Any], ...]]:
        """Return the trial's records, what is asked, and the steps of the choice. People of a pilot do not answer."""
        if self._asking.way != PILOT:
            return part, self.ask, ()
        people, count, rng = part.people, self._asking.records, lab.randomness.choosing
        if count >= len(people):
            raise InputError("setting_invalid", f"the pilot takes all of the {len(people)} people")
        order, seed = rng.permutation(len(people)), int(rng.integers(0, 1 << 31))
        pilot, rest = people.iloc[order[:count]], people.iloc[order[count:]]
        made = design(
            pilot,
            SchemaFile("simulation", part.schema),
            self.noise.epsilon_micro,
            lab.settings.devices or len(rest),
            seed=seed,
            judge=False,
            noise=self.noise,
        )
        asked = made.file.ask
        step = {"step": "design", "part": 0.0, "features": list(asked), "expected": made.best.accuracy}
        return part._replace(schema=made.file.schema, people=rest), asked, (step,)

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return the means of the accuracies, the cost of one report, the noise, and the settings.

        ``features``, ``cells`` and ``noise_sd``, the standard deviation of both collectors' noise in one cell, are
        those of the first trial.
        """
        campaign = trials[0].campaign
        assert campaign is not None
        terms, schema = terms_of(campaign), campaign.schema
        blocks = len(campaign.blocks)
        noise = SharedNoise(campaign.epsilon_micro, terms.delta_pico, terms.noise)
        return {
            "trust": "shared",
            **told_accuracies(trials, self._evaluation_micro),
            **accuracies(trials, settings.repeats),
            "epsilon_total": self.noise.epsilon_micro / MICRO,
            "delta": terms.delta_pico / PICO,
            "adjacency": CHANGE,
            "noise": terms.noise,
            "noise_sd": noise.variance(blocks) ** 0.5,
            "features": blocks,
            "cells": sum(feature.size for feature in schema.observed) * len(schema.label.classes),
            "report_bytes": campaign.layout.record_length,
            "postprocess": settings.postprocess,
            "engine": settings.engine,
            "devices": trials[0].devices,
            "test_records": trials[0].test_records,
            "repeats": settings.repeats,
            "trials": len(trials),
            "reports": sum(trial.reports for trial in trials),
            "rejected": rejections(trials),
            **({"steps": [list(trial.steps) for trial in trials]} if any(trial.steps for trial in trials) else {}),
        }


@contextmanager
def _two(lab: Lab) -> Iterator[Two]:
    """Open a context with two collectors in new folders, which are deleted at the end. Their clocks are two days late.

    So every period of the simulation has ended for them.
    """
    later = lab.randomness.now + 2 * 86_400
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        made = partial(CollectorFolder.create, contact="nobody", clock=lambda: later, entropy=lab.randomness.entropy)
        with made(Path(name) / "leader", "leader") as leader, made(Path(name) / "helper", "helper") as helper:
            yield Two(Path(name), leader, helper)


def _paired(two: Two) -> Pair:
    """Return a new pair of the two collectors, for one campaign."""
    return read_pair(two.leader.pair_with((two.helper.path / PUBLIC_FILE).read_bytes()))


def _answered(
    config: SimulationConfig, task: Task, people: pd.DataFrame, two: Two | None, models: Sequence[bytes] = ()
) -> Statistics:
    """Return the statistics of a total of ``people``, made by devices and collectors, or drawn if there are none.

    ``models``: those that the campaign evaluates.
    """
    if two is not None:
        return _total(config, task, people, two, models)
    period = task.campaign.period_at(config.now)
    return shared_statistics(
        collected(task.campaign, *_read(task.campaign, people), period, config.rng, _told(people, models))
    )


def _read(campaign: Campaign, people: pd.DataFrame) -> tuple[EncodedFrame, Integers]:
    """Return codes, if the campaign asks about features, and classes of records."""
    labels = label_codes(people, campaign.schema.label, substitute=True)
    if campaign.fit.family == EVALUATION:
        return EncodedFrame(*np.empty((2, len(people), 0), np.int64)), labels
    return observe(people, campaign.schema), labels


def _told(people: pd.DataFrame, models: Sequence[bytes]) -> list[Integers]:
    """Return the class that each signed model predicts for each record: (records,) int64 for every model."""
    parsed = [Model.of(parse_model(read_envelope(raw, "model").payload)) for raw in models]
    return [predictor(people, model)(np.arange(len(people))) for model in parsed]


def _total(config: SimulationConfig, task: Task, people: pd.DataFrame, two: Two, models: Sequence[bytes]) -> Statistics:
    """Let every device share its record, and both collectors make the total. Return the statistics of its store."""
    campaign, root = task.campaign, config.workspace.root_bytes
    period = campaign.period_at(config.now)
    keys = [one.key.hex() for one in terms_of(campaign).collectors]
    # A simulated owner allows these collectors, and every ε and δ.
    allowed = {"epsilon_per_period": "100000", "epsilon_lifetime": "100000"}
    policy = Policy.of(**allowed, delta_per_period="0.01", delta_lifetime="0.01", collectors=keys)
    if config.engine == "files":
        cells = cells_of(campaign, *_read(campaign, people), _told(people, models))
        reports = shared_reports(campaign, cells, period, config.entropy)
    else:
        held = records_of(people, campaign.schema.label.name)
        reports = device_reports(
            root, task.campaign_bytes, held, now=config.now, entropy=config.entropy, models=models, policy=policy
        )
    with tempfile.TemporaryDirectory(prefix="hearsay-", dir=two.place) as name:
        folder = Path(name)
        request, answer, total = folder / "request", folder / "answer", folder / "total"
        files = write_batches(folder, campaign, reports)
        two.leader.check(task.campaign_bytes, root, period, files, request)
        two.helper.answer(task.campaign_bytes, root, request, answer)
        two.leader.finish(task.campaign_bytes, root, answer, total)
        store = TotalStore.make(folder / "store", task.campaign_bytes)
        store.ingest([total])
        return store.statistics()
