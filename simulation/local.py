"""``local`` trust: a fleet answers, reports are ingested, a model is signed, and a device verifies it and classifies.

All steps use the production code: report files, store and signatures. Only the ``vector`` engine replaces the code
of the devices.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import MISSING, EncodedFrame, label_codes, observe
from aggregator.models.foresight import foresee
from aggregator.models.measured_accuracy import Accuracy, evaluate
from aggregator.models.scoring import Model
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign, publish_evaluation
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import Workspace
from edge_sdk import Device
from edge_sdk.arguments import system_entropy
from protocol.batches.batch import Header, trailer
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.design import Design
from simulation.fleet import KeptAnswers, Predictor, device_reports, vector_reports, write_batches
from simulation.settings import Settings
from simulation.trust import Lab, Part, Signed, Trial, Trust, accuracies, rejections, trial_of


class SimulationConfig(NamedTuple):
    """The settings that all trials of one simulation share, and its time in seconds since 1970, ``now``.

    ``rng`` draws the reports of the engine ``vector``; ``entropy`` is for devices and workspace.
    """

    workspace: Workspace
    parameters: CampaignParameters
    engine: str
    postprocess: str
    now: int
    rng: np.random.Generator
    entropy: Callable[[int], bytes] = system_entropy


class Task(NamedTuple):
    """A signed campaign: the bytes of its file, and the parsed campaign."""

    campaign_bytes: bytes
    campaign: Campaign


def make_task(config: SimulationConfig, schema: Schema) -> Task:
    """Sign the next version of the campaign that ``config`` describes, for a schema.

    Raises InputError with those of :func:`aggregator.publishing.campaigns.publish_campaign`.
    """
    return _task(publish_campaign(config.workspace, schema, config.parameters, config.now))


def make_evaluation_task(config: SimulationConfig, models: Sequence[bytes], parameters: CampaignParameters) -> Task:
    """Sign a campaign that evaluates one signed model (its confusion matrix) or several (which is most accurate).

    Raises InputError, DocumentError, StorageError with those of
    :func:`aggregator.publishing.campaigns.publish_evaluation`.
    """
    return _task(publish_evaluation(config.workspace, models, parameters, config.now))


def _task(raw: bytes) -> Task:
    return Task(raw, parse_campaign(read_envelope(raw, "campaign").payload))


def gather(config: SimulationConfig, task: Task, fleet: pd.DataFrame, models: Sequence[bytes] = ()) -> Statistics:
    """Let the fleet report, ingest the report files into a new store, and return the store's statistics.

    ``models``: in an evaluation, the models that the devices have installed, in the order of the campaign.

    Raises:
        PolicyError, InputError: a device refuses the campaign or a record; never with the vector engine, which runs no
            device.
    """
    campaign = task.campaign
    if config.engine == "device":
        people = records_of(fleet, campaign.schema.label.name)
        root, now, entropy = config.workspace.root_bytes, config.now, config.entropy
        reports = device_reports(root, task.campaign_bytes, people, now=now, entropy=entropy, models=models)
        return count_files(config, task, lambda folder: write_batches(folder, campaign, reports))
    if campaign.evaluated:  # No answer depends on the features that the campaign lists itself.
        encoded = EncodedFrame(*np.empty((2, len(fleet), 0), np.int64))
    else:
        encoded = observe(fleet, campaign.schema)
    labels = label_codes(fleet, campaign.schema.label, substitute=True)
    predicted = [predictor(fleet, Model.of(parse_model(read_envelope(raw, "model").payload))) for raw in models]
    return count_files(config, task, lambda folder: [vector_file(config, campaign, encoded, labels, predicted, folder)])


def count_files(config: SimulationConfig, task: Task, write: Callable[[Path], list[Path]]) -> Statistics:
    """Ingest a fleet's report files into a new store, and return the store's statistics.

    ``write``: writes the report files into the folder that it is given, and returns their paths.
    """
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        store = create_store(folder / "store", task.campaign_bytes)
        store.ingest(write(folder), now=config.now)
        return store.statistics()


def records_of(frame: pd.DataFrame, label: str) -> Iterator[tuple[dict[str, object], object]]:
    """Yield record and label of every row of ``frame``: a dict of Python values, and the value of the label's column.

    ``label`` is the name of that column.
    """
    names = [str(name) for name in frame.columns if name != label]
    columns = [frame[name].tolist() for name in names]
    for label_value, *values in zip(frame[label].tolist(), *columns, strict=True):
        yield dict(zip(names, values, strict=True)), label_value


def vector_file(
    config: SimulationConfig,
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: Integers,
    predicted: Sequence[Predictor],
    folder: Path,
) -> Path:
    """Draw the reports of a fleet, and write them as one batch file into a folder. Return the file.

    Args:
        encoded: codes and numbers of each device's record, by the campaign's schema; without features in an evaluation.
        labels: shape (devices,) int64, class codes.
        predicted: in an evaluation, for each model a function from indices of M devices, (M,) int64, to the class codes
            that it predicts, (M,) int64.
    """
    path = folder / "fleet.hsr"
    with path.open("wb") as file:
        file.writelines(vector_batch(campaign, encoded, labels, campaign.period_at(config.now), config.rng, predicted))
    return path


def vector_batch(
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: Integers,
    period: int,
    rng: np.random.Generator,
    predicted: Sequence[Predictor] = (),
    kept: KeptAnswers | None = None,
) -> tuple[bytes, memoryview, bytes]:
    """Draw the reports of a fleet as one batch. Return the three parts of its file: header, reports, trailer.

    ``period`` is the number of the period of all answers, ``rng`` draws ids and noise, and ``kept`` is that of
    :func:`simulation.fleet.vector_reports`. The other arguments are those of :func:`vector_file`.
    """
    rows = vector_reports(campaign, encoded, labels, period, rng, predicted, kept)
    header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length).to_bytes()
    digest = hashlib.sha256(header)
    digest.update(rows.data)
    return header, rows.data, trailer(len(rows), digest.digest())


def predictor(fleet: pd.DataFrame, model: Model) -> Predictor:
    """Return a function from indices of M rows of ``fleet``, (M,) int64, to predicted class codes, (M,) int64."""

    def predict(rows: Integers) -> Integers:
        return np.asarray(model.scores(fleet.iloc[rows]).argmax(axis=1), np.int64)

    return predict


def classify(config: SimulationConfig, model_bytes: bytes, test: pd.DataFrame) -> float:
    """Return the share of the labelled test records that the model classifies rightly.

    A new device verifies the model. With the device engine it also classifies every test record.
    """
    root = config.workspace.root_bytes
    with Device.open(None, trust=root, clock=lambda: config.now, entropy=config.entropy) as device:
        classifier = device.install(model_bytes)
        if config.engine == "vector":
            return Model.of(classifier.model).accuracy(test)
        label = classifier.model.schema.label
        labelled = [person for person in records_of(test, label.name) if label.known_code(person[1]) is not None]
        if not labelled:
            raise InputError("no_labels", "no record of the test part has one of the classes as its label")
        right = sum(classifier.predict(record) == truth for record, truth in labelled)
    return right / len(labelled)


def told_accuracies(trials: Sequence[Trial], epsilon_micro: int | None) -> dict[str, float]:
    """Return the means of private evaluations at ε = ``epsilon_micro``/10⁶; empty if there are none (None)."""
    private = [trial.accuracy_private for trial in trials if trial.accuracy_private is not None]
    ends = {"": "estimate", "_low": "low", "_high": "high"} if private else {}
    found = {f"accuracy_private{end}": fmean(getattr(each, name) for each in private) for end, name in ends.items()}
    return found if epsilon_micro is None else {**found, "epsilon_evaluation": epsilon_micro / MICRO}


class LocalTrust(Trust):
    """Devices answer with noise, and nobody but their owners sees a record."""

    def __init__(self, settings: Settings, design: Design, parameters: CampaignParameters) -> None:
        """Store the arguments. The campaign was checked when the parameters were made."""
        self.parameters = parameters
        self._postprocess, self._one_schema = settings.postprocess, not design.needs_pilot
        self._schema = design.schema
        self._evaluation_micro = min(parameters.epsilon_micro, MAX_ANSWER_MICRO) if settings.evaluate else None

    def config(self, lab: Lab) -> SimulationConfig:
        """Return the settings of all trials of a run."""
        now, rng, entropy = lab.randomness.now, lab.randomness.noise, lab.randomness.entropy
        return SimulationConfig(
            lab.workspace, self.parameters, lab.settings.engine, self._postprocess, now, rng, entropy
        )

    def shared(self, lab: Lab) -> AbstractContextManager[Task | None]:
        """Return a context with the signed campaign if all trials have one schema, else with None."""
        return nullcontext(make_task(self.config(lab), self._schema) if self._one_schema else None)

    def collect(self, lab: Lab, part: Part, shared: Task | None) -> Trial:
        """Let a fleet answer once, make the model and let a device classify (:meth:`Trust.collect`)."""
        config = self.config(lab)
        task, fleet = shared or make_task(config, part.schema), part.fleet(lab.settings.devices)
        statistics = gather(config, task, fleet)
        model = publish_model(
            config.workspace,
            statistics,
            task.campaign_bytes,
            config.now,
            postprocess=config.postprocess,
            foretell=None if part.number else foresee,
        )
        return trial_of(
            part,
            part.split.people,
            task.campaign.schema,
            task.campaign.fit,
            accuracy=classify(config, model, part.split.test),
            devices=len(fleet),
            reports=statistics.reports,
            rejected=dict(statistics.rejected),
            accuracy_private=self._evaluated(config, model, part.split.test),
            signed=Signed(model, config.workspace.root_bytes),
        )

    def _evaluated(self, config: SimulationConfig, model: bytes, test: pd.DataFrame) -> Accuracy | None:
        """Return the model's accuracy by an evaluation campaign on the devices of the labelled test people."""
        if self._evaluation_micro is None:
            return None
        task = make_evaluation_task(config, [model], CampaignParameters("", self._evaluation_micro))
        labelled = test[label_codes(test, task.campaign.schema.label) != MISSING]
        return evaluate(gather(config, task, labelled, [model])).accuracy

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return accuracies, ε of one device, settings, report counts (:meth:`Trust.summary`).

        ``devices`` and ``test_records`` are those of the first trial. Keys that begin with ``accuracy_private`` and
        ``epsilon_evaluation``, the ε of the private evaluations, are there only if evaluations ran.
        """
        parameters = self.parameters
        return {
            **told_accuracies(trials, self._evaluation_micro),
            **accuracies(trials, settings.repeats),
            "epsilon_total": parameters.epsilon_micro / MICRO,
            "epsilon_per_answer": (parameters.epsilon_micro // parameters.answers) / MICRO,
            "devices": trials[0].devices,
            "test_records": trials[0].test_records,
            "answers_per_device": parameters.answers,
            "family": parameters.family,
            "mechanism": parameters.mechanism,
            "engine": settings.engine,
            "repeats": settings.repeats,
            "trials": len(trials),
            "reports": sum(trial.reports for trial in trials),
            "rejected": rejections(trials),
            **({"steps": [list(trial.steps) for trial in trials]} if any(trial.steps for trial in trials) else {}),
        }
