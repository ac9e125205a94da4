"""One trial: a fleet answers, the reports are ingested, a model is signed, a device verifies it and classifies.

All steps use the production code: report files, store and signatures. Only the ``vector`` engine replaces the code
of the devices.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.estimates.statistics import Statistics
from aggregator.models.baselines import fit_majority, fit_plain_family
from aggregator.models.encoding import MISSING, EncodedFrame, label_codes, observe
from aggregator.models.foresight import Foresight
from aggregator.models.scoring import Model
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.evaluations import EvaluationParameters, publish_evaluation
from aggregator.publishing.mechanisms.evaluation import Accuracy, evaluate
from aggregator.publishing.mechanisms.ranking import Ranking, rank
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import Workspace
from edge_sdk import Device
from edge_sdk.arguments import system_entropy
from protocol.batches.batch import Header, trailer
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.design import Split
from simulation.fleet import device_reports, vector_reports, write_batches

Predictor = Callable[[NDArray[np.int64]], NDArray[np.int64]]


ENGINES = ("device", "vector")


class Signed(NamedTuple):
    """The bytes of a signed model and of the root that verifies it. The simulation deletes the keys at its end."""

    model: bytes
    root: bytes


class Trial(NamedTuple):
    """The results of one split. Accuracies are shares of the test records with a known label.

    Attributes:
        accuracy: of the private model.
        accuracy_nonprivate: of Naive Bayes on the records of the split's people, without privacy.
        accuracy_majority: of always guessing the largest class.
        devices: size of the fleet that answered.
        reports: number of counted reports.
        rejected: reason → number of reports that were not counted.
        accuracy_private: the estimate of an evaluation campaign on the devices of the test people; None without one.
        signed: the model and its root; None if the simulation dropped them, or a curator fitted the model.
        test_records: number of test records with a known label.
        steps: of a trial that chose what to ask, each step with its share of the devices and what it decided.
    """

    accuracy: float
    accuracy_nonprivate: float
    accuracy_majority: float
    devices: int
    reports: int
    rejected: Mapping[str, int]
    accuracy_private: Accuracy | None = None
    signed: Signed | None = None
    test_records: int = 0
    steps: tuple[Mapping[str, Any], ...] = ()


class SimulationConfig(NamedTuple):
    """The settings that all trials of one simulation share.

    Attributes:
        workspace: signs campaigns and models.
        parameters: of the campaigns.
        engine: ``device`` runs the device code for every person; ``vector`` draws all reports by numpy.
        postprocess: name of the method that turns estimates into probabilities.
        now: the time of all steps, in seconds since 1970.
        rng: randomness of the vector engine.
        entropy: randomness of devices and workspace.
        evaluation_micro: ε of a private evaluation on the test part, in millionths; None for no evaluation.
    """

    workspace: Workspace
    parameters: CampaignParameters
    engine: str
    postprocess: str
    now: int
    rng: np.random.Generator
    entropy: Callable[[int], bytes] = system_entropy
    evaluation_micro: int | None = None


class Task(NamedTuple):
    """A signed campaign: the bytes of its file, and the parsed campaign."""

    campaign_bytes: bytes
    campaign: Campaign


def make_task(config: SimulationConfig, schema: Schema) -> Task:
    """Sign the next version of the campaign that ``config`` describes, for a schema.

    Raises:
        InputError: the schema and the parameters make no valid campaign
            (:func:`aggregator.publishing.campaigns.publish_campaign`).
    """
    raw = publish_campaign(config.workspace, schema, config.parameters, config.now)
    return Task(raw, parse_campaign(read_envelope(raw, "campaign").payload))


def run_trial(
    config: SimulationConfig,
    task: Task,
    split: Split,
    fleet: pd.DataFrame,
    *,
    foretell: Callable[[Statistics, str], Foresight] | None = None,
) -> Trial:
    """Let a fleet answer once, make the model and test it.

    Args:
        config: keys, engine, randomness.
        task: the campaign.
        split: people to learn from and people to test on, as typed frames.
        fleet: the records on devices: the split's people, or a sample of them.
        foretell: (statistics, post-processing) → the expected accuracy for the model's card
            (:func:`aggregator.models.foresight.foresee`), which takes long; None leaves it out.

    Raises:
        InputError: ``no_labels``: no test record has a known label; or no model can be made of the reports
            (:func:`aggregator.publishing.models.publish_model`).
        PolicyError: a device refuses the campaign; not with the vector engine, which runs no device.
    """
    schema = task.campaign.schema
    statistics = gather(config, task, fleet)
    model_bytes = publish_model(
        config.workspace,
        statistics,
        task.campaign_bytes,
        config.now,
        postprocess=config.postprocess,
        foretell=foretell,
    )
    micro = config.evaluation_micro
    return Trial(
        accuracy=classify(config, model_bytes, split.test),
        accuracy_nonprivate=fit_plain_family(split.people, schema, task.campaign.fit).accuracy(split.test),
        accuracy_majority=fit_majority(split.people, schema).accuracy(split.test),
        devices=len(fleet),
        reports=statistics.reports,
        rejected=dict(statistics.rejected),
        accuracy_private=None if micro is None else _evaluate(config, micro, model_bytes, split.test),
        signed=Signed(model_bytes, config.workspace.root_bytes),
        test_records=int((label_codes(split.test, schema.label) != MISSING).sum()),
    )


def _evaluate(config: SimulationConfig, epsilon_micro: int, model_bytes: bytes, test: pd.DataFrame) -> Accuracy:
    """Estimate the model's accuracy by an evaluation campaign on the devices of the labelled test people."""
    task = make_evaluation_task(config, [model_bytes], EvaluationParameters(epsilon_micro))
    labelled = test[label_codes(test, task.campaign.schema.label) != MISSING]
    return evaluate(gather(config, task, labelled, [model_bytes])).accuracy


def make_evaluation_task(config: SimulationConfig, models: Sequence[bytes], parameters: EvaluationParameters) -> Task:
    """Sign an evaluation campaign.

    Args:
        config: has the workspace that signs, and the time.
        models: signed models: one, for its confusion matrix, or several, to compare.
        parameters: of the campaign.

    Raises:
        InputError, DocumentError, StorageError: the campaign can not be made or signed
            (:func:`aggregator.publishing.evaluations.publish_evaluation`).
    """
    raw = publish_evaluation(config.workspace, models, parameters, config.now)
    return Task(raw, parse_campaign(read_envelope(raw, "campaign").payload))


def compare(
    config: SimulationConfig, models: Sequence[bytes], parameters: EvaluationParameters, fleet: pd.DataFrame
) -> Ranking:
    """Let a fleet that has all models tell which is right, and rank them: through signed campaign, bytes and store.

    Args:
        config: workspace, engine and randomness.
        models: signed models, at least two, with distinct names.
        parameters: of the evaluation campaign.
        fleet: the records on devices. A record without a known label counts as the label's substitute class.

    Raises:
        InputError, DocumentError, PolicyError, StorageError: the models can not be compared, or a device refuses them.
    """
    task = make_evaluation_task(config, models, parameters)
    return rank(gather(config, task, fleet, models))


def gather(config: SimulationConfig, task: Task, fleet: pd.DataFrame, models: Sequence[bytes] = ()) -> Statistics:
    """Let the fleet report, ingest the report files into a new store, and return the store's statistics.

    Args:
        config: engine and randomness.
        task: the campaign.
        fleet: the records on devices.
        models: in an evaluation, the models that the devices have installed, in the order of the campaign.

    Raises:
        PolicyError, InputError: a device refuses the campaign or a record; not with the vector engine, which runs no
            device.
    """
    inbox = _device_inbox if config.engine == "device" else _vector_inbox
    return count_files(config, task, lambda folder: inbox(config, task, fleet, folder, models))


def count_files(config: SimulationConfig, task: Task, write: Callable[[Path], list[Path]]) -> Statistics:
    """Ingest a fleet's report files into a new store, and return the store's statistics.

    Args:
        config: has the time.
        task: the campaign.
        write: writes the report files into the folder that it is given, and returns their paths.
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


def _device_inbox(
    config: SimulationConfig, task: Task, fleet: pd.DataFrame, folder: Path, models: Sequence[bytes]
) -> list[Path]:
    people = records_of(fleet, task.campaign.schema.label.name)
    root = config.workspace.root_bytes
    reports = device_reports(root, task.campaign_bytes, people, now=config.now, entropy=config.entropy, models=models)
    return write_batches(folder, task.campaign, reports)


def _vector_inbox(
    config: SimulationConfig, task: Task, fleet: pd.DataFrame, folder: Path, models: Sequence[bytes]
) -> list[Path]:
    campaign = task.campaign
    if campaign.evaluated:  # No answer depends on the features that the campaign lists itself.
        encoded = EncodedFrame(*np.empty((2, len(fleet), 0), np.int64))
    else:
        encoded = observe(fleet, campaign.schema)
    labels = label_codes(fleet, campaign.schema.label, substitute=True)
    predicted = [predictor(fleet, Model.of(parse_model(read_envelope(raw, "model").payload))) for raw in models]
    return [vector_file(config, campaign, encoded, labels, predicted, folder)]


def vector_file(
    config: SimulationConfig,
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: NDArray[np.int64],
    predicted: Sequence[Predictor],
    folder: Path,
) -> Path:
    """Draw the reports of a fleet, and write them as one batch file into a folder. Returns the file.

    Args:
        config: randomness and time.
        campaign: the campaign.
        encoded: codes and numbers of each device's record, by the campaign's schema; without features in an evaluation.
        labels: shape (devices,) int64, class codes.
        predicted: in an evaluation, for each model a function: indices of devices, (M,) int64 → class codes that the
            model predicts, (M,) int64.
        folder: an existing folder.
    """
    path = folder / "fleet.hsr"
    with path.open("wb") as file:
        file.writelines(vector_batch(campaign, encoded, labels, campaign.period_at(config.now), config.rng, predicted))
    return path


def vector_batch(
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: NDArray[np.int64],
    period: int,
    rng: np.random.Generator,
    predicted: Sequence[Predictor] = (),
) -> tuple[bytes, memoryview, bytes]:
    """Draw the reports of a fleet as one batch. Returns the three parts of its file: header, reports, trailer.

    ``period`` is the number of the period of all answers, and ``rng`` draws ids and noise. The other arguments are
    those of :func:`vector_file`.
    """
    rows = vector_reports(campaign, encoded, labels, period, rng, predicted)
    header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length).to_bytes()
    digest = hashlib.sha256(header)
    digest.update(rows.data)
    return header, rows.data, trailer(len(rows), digest.digest())


def predictor(fleet: pd.DataFrame, model: Model) -> Predictor:
    """A function: indices of rows of ``fleet``, (M,) int64 → class codes that the model predicts, (M,) int64."""

    def predict(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(model.scores(fleet.iloc[rows]).argmax(axis=1), np.int64)

    return predict


def classify(config: SimulationConfig, model_bytes: bytes, test: pd.DataFrame) -> float:
    """Share of the labelled test records that the model classifies rightly.

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


def seeded_entropy(seed: bytes) -> Callable[[int], bytes]:
    """Make a repeatable source of randomness for simulated devices: a function that returns a given number of bytes.

    The bytes are SHA-256(seed ‖ counter) for counter 0, 1, …; every call begins with a new counter. Never use it on
    real devices: whoever knows the seed can remove the noise.
    """
    counter = 0

    def entropy(count: int) -> bytes:
        nonlocal counter
        out = b""
        while len(out) < count:
            out += hashlib.sha256(seed + counter.to_bytes(8, "big")).digest()
            counter += 1
        return out[:count]

    return entropy
