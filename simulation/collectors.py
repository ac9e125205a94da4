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

import pandas as pd

from aggregator.collectors.campaigns import SharedCampaignTerms, shared_terms
from aggregator.collectors.collector import PUBLIC_FILE, CollectorFolder
from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.pair import Pair, new_pair, read_pair
from aggregator.collectors.totals import TotalStore
from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import label_codes, observe
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.publishing.ask_table import Ask, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import SchemaFile
from edge_sdk import Policy
from protocol.documents.envelope import KEY_BYTES, SigningKey
from protocol.documents.shared_terms import Collector, SharedTerms
from protocol.epsilon import MICRO, PICO, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.questions import CHANGE
from protocol.schema import Schema
from protocol.shared.report import terms_of
from simulation.design import Design
from simulation.drawn import collected
from simulation.fleet import device_reports, shared_reports, write_batches
from simulation.local import SimulationConfig, Task, classify, make_task, records_of
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
        self._asking = None if settings.asking is None else Asking.parse(settings.asking)
        if self._asking is not None and self._asking.way == REFINE:
            raise InputError("setting_invalid", "shared trust tries all features, or those of a pilot (pilot:K)")
        if self._asking is not None and settings.reduce != "none":
            raise InputError("setting_invalid", "a design goes with reduce none only")
        self.ask = ask or {}
        self.epsilon_micro = micro_epsilon(settings.epsilon)
        self.delta_pico = pico_delta("0" if settings.delta is None else settings.delta)
        schema = resolve(design.template_schema(), self.ask).schema
        terms = self.terms(settings, made_up_pair(), schema)
        build_campaign(schema, self._parameters(settings, terms), 1, SIMULATED_NOW)
        if settings.engine == "device" and records > FEW_REPORTS:
            slow = (
                f"the engine device makes {records} reports in every trial, about {records * REPORT_SECONDS:.0f} s; "
                "the engine files takes a tenth, and vector draws totals at once"
            )
            self.warnings = (slow,)

    def terms(self, settings: Settings, pair: Pair, schema: Schema) -> SharedTerms:
        """Return the terms of a campaign about the asked features of ``schema``."""
        delta = "0" if settings.delta is None else settings.delta
        stated = SharedCampaignTerms(epsilon=settings.epsilon, pair=pair, delta=delta, noise=settings.noise)
        return shared_terms(stated, schema, self.epsilon_micro)

    def _parameters(self, settings: Settings, terms: SharedTerms) -> CampaignParameters:
        return CampaignParameters("simulation", self.epsilon_micro, postprocess=settings.postprocess, shared=terms)

    def shared(self, lab: Lab) -> AbstractContextManager[Two | None]:
        """Return a context with the two collectors of all campaigns, or with None if numpy draws the totals."""
        return nullcontext() if lab.settings.engine == "vector" else _two(lab)

    def collect(self, lab: Lab, part: Part, shared: Two | None) -> Trial:
        """Let the devices share their records, make a model of the total, and classify (:meth:`Trust.collect`)."""
        settings, randomness = lab.settings, lab.randomness
        part, ask, steps = self._chosen(lab, part)
        schema, people = resolve(part.schema, ask).schema, part.fleet(settings.devices)
        pair = made_up_pair() if shared is None else _paired(shared)
        parameters = self._parameters(settings, self.terms(settings, pair, schema))
        config = SimulationConfig(
            lab.workspace,
            parameters,
            settings.engine,
            settings.postprocess,
            randomness.now,
            randomness.noise,
            randomness.entropy,
        )
        task = make_task(config, schema)
        if shared is None:
            labels: Integers = label_codes(people, schema.label, substitute=True)
            period = task.campaign.period_at(config.now)
            found = collected(task.campaign, observe(people, schema), labels, period, config.rng)
        else:
            found = _total(config, task, people, shared)
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
            signed=Signed(model, lab.workspace.root_bytes),
            steps=steps,
            campaign=task.campaign,
        )

    def _chosen(self, lab: Lab, part: Part) -> tuple[Part, Ask, tuple[dict[str, Any], ...]]:
        """Return the trial's records, what is asked, and the steps of the choice. People of a pilot do not answer."""
        if self._asking is None or self._asking.way != PILOT:
            return part, self.ask, ()
        people, count, rng = part.people, self._asking.records, lab.randomness.choosing
        if count >= len(people):
            raise InputError("setting_invalid", f"the pilot takes all of the {len(people)} people")
        order, seed = rng.permutation(len(people)), int(rng.integers(0, 1 << 31))
        pilot, rest = people.iloc[order[:count]], people.iloc[order[count:]]
        made = design(
            pilot,
            SchemaFile("simulation", part.schema),
            self.epsilon_micro,
            lab.settings.devices or len(rest),
            seed=seed,
            judge=False,
            noise=SharedNoise(self.epsilon_micro, self.delta_pico, lab.settings.noise),
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
        blocks = len(schema.observed)
        noise = SharedNoise(campaign.epsilon_micro, terms.delta_pico, terms.noise)
        return {
            "trust": "shared",
            **accuracies(trials, settings.repeats),
            "epsilon_total": campaign.epsilon_micro / MICRO,
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


def made_up_pair() -> Pair:
    """Return a pair of collectors that nobody runs, for totals that numpy draws."""
    leader, helper = (SigningKey.from_seed(bytes([number]) * KEY_BYTES) for number in (1, 2))
    collectors = [Collector(name, "nobody", key.public) for name, key in (("leader", leader), ("helper", helper))]
    return new_pair(leader, collectors[0], collectors[1], bytes(32))


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


def _total(config: SimulationConfig, task: Task, people: pd.DataFrame, two: Two) -> Statistics:
    """Let every device share its record, and both collectors make the total. Return the statistics of its store."""
    campaign, root = task.campaign, config.workspace.root_bytes
    period = campaign.period_at(config.now)
    keys = [one.key.hex() for one in terms_of(campaign).collectors]
    # A simulated owner allows these collectors, and every ε and δ.
    allowed = {"epsilon_per_period": "100000", "epsilon_lifetime": "100000"}
    policy = Policy.of(**allowed, delta_per_period="0.01", delta_lifetime="0.01", collectors=keys)
    schema = campaign.schema
    if config.engine == "files":
        labels = label_codes(people, schema.label, substitute=True)
        cells = observe(people, schema).codes * len(schema.label.classes) + labels[:, None]
        reports = shared_reports(campaign, cells, period, config.entropy)
    else:
        held = records_of(people, schema.label.name)
        reports = device_reports(root, task.campaign_bytes, held, now=config.now, entropy=config.entropy, policy=policy)
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
