"""``hearsay demo``: from keys and a campaign to reports, a store and a model, on real data.

The records are the breast cancer data of scikit-learn (Wolberg, Mangasarian, Street, 1993): measurements of 569
tumours. Each simulated device holds one of the training records.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd

from aggregator.cli import options
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, note, print_facts, print_json, print_table, progress
from aggregator.common.extras import missing_extra
from aggregator.models.baselines import fit_majority, fit_plain
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_file import equal_width_edges
from aggregator.publishing.workspace import Workspace, create_workspace
from edge_sdk import Device
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.epsilon import format_micro, micro_epsilon
from protocol.errors import StorageError
from protocol.features import Numeric
from protocol.schema import Label, Schema, build_schema
from simulation.fleet import device_reports, write_batches

BINS = 4
TEST_SHARE = 0.25
CUT_BYTES = 30
"""Bytes that are missing at the end of the truncated file: most of the trailer's 44 bytes."""

BOUNDS = {
    "worst radius": ("5", "40"),
    "worst texture": ("10", "50"),
    "worst concave points": ("0", "0.3"),
    "worst concavity": ("0", "1.3"),
    "worst smoothness": ("0.05", "0.25"),
    "worst symmetry": ("0.1", "0.7"),
}
"""Six of the thirty measurements, with round bounds that do not depend on the data."""


class Outcome(NamedTuple):
    """The results of the demo. Accuracies are shares of the ``test_records`` test records.

    Attributes:
        people: number of training records; several devices may hold the same one.
        seconds_of_devices: seconds in which all devices answered and the report files were written.
        rejected: reason → number of reports or damaged byte ranges that were not counted.
        accuracy: of a device with the private model; ``accuracy_nonprivate`` of Naive Bayes on the training records,
            ``accuracy_majority`` of always guessing the largest class.
        example: the first test record's ``predicted`` and ``true`` class, and ``probabilities`` of the classes.
    """

    folder: Path
    epsilon: str
    devices: int
    people: int
    test_records: int
    seconds_of_devices: float
    reports: int
    rejected: dict[str, int]
    accuracy: float
    accuracy_nonprivate: float
    accuracy_majority: float
    example: dict[str, Any]


@click.command()
@click.option("--output", type=PATH, default=Path("demo-output"), show_default=True)
@click.option("--devices", type=click.IntRange(10, 1_000_000), default=8000, show_default=True)
@click.option("--epsilon", default="1", show_default=True, help="Total that each device spends.")
@click.option("--mechanism", default="direct", show_default=True)
@options.json
def demo(output: Path, devices: int, epsilon: str, mechanism: str) -> None:
    """Learn to tell malignant from benign tumours from one private answer per device.

    Makes keys, a signed campaign, a fleet of real devices, report files (two of them sent twice, one cut
    short), a store, a signed model, and a device that verifies the model and classifies with it. The
    records come with scikit-learn. Everything stays in the output folder, which is made anew each time.

    \b
    Example:
      hearsay demo --devices 20000 --epsilon 0.5
    """  # noqa: D301
    frame, schema = load_records()
    parameters = CampaignParameters(
        "tumours", micro_epsilon(epsilon), mechanism, purpose="learn to tell malignant from benign tumours"
    )
    staging = Path(tempfile.mkdtemp(prefix=".demo-", dir=_parent_of(output)))
    try:
        with progress("devices answering", devices) as callback:
            outcome = run_demo(staging, frame, schema, parameters, devices, progress=callback)
        _replace(staging, output)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    outcome = outcome._replace(folder=output)
    if as_json():
        print_json({**outcome._asdict(), "folder": str(output)})
    else:
        _print(outcome)


def load_records() -> tuple[pd.DataFrame, Schema]:
    """Load the demo's records with their label, and make a schema that does not depend on the records.

    Raises InputError ``missing_extra``: scikit-learn, which carries the data, is not installed.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        load_breast_cancer = None
    if load_breast_cancer is None:
        raise missing_extra("the demo's data come with scikit-learn", "demo")
    data = load_breast_cancer()
    frame = pd.DataFrame(data.data, columns=[str(name) for name in data.feature_names])[list(BOUNDS)]
    frame["diagnosis"] = np.array(["malignant", "benign"], dtype=object)[data.target]
    features = [
        Numeric(name, low, high, equal_width_edges(name, low, high, BINS)) for name, (low, high) in BOUNDS.items()
    ]
    return frame, build_schema(Label("diagnosis", ["benign", "malignant"]), features)


def run_demo(
    folder: Path,
    frame: pd.DataFrame,
    schema: Schema,
    parameters: CampaignParameters,
    devices: int,
    *,
    seed: int | None = None,
    clock: Callable[[], float] = time.time,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run the demo in an empty folder, which gets all files.

    Args:
        devices: size of the fleet; each device holds a training record drawn with replacement.
        seed: decides the training records and the records on devices; None for entropy of the operating system. The
            devices' noise always comes from the operating system.
        progress: called with (devices done, devices) before every fiftieth device.

    Raises:
        InputError, PolicyError: the parameters make no campaign that devices accept, or no model.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(frame))
    test = frame.iloc[order[: int(TEST_SHARE * len(frame))]]
    train = frame.iloc[order[int(TEST_SHARE * len(frame)) :]]
    holders = train.iloc[draw.integers(0, len(train), devices)]

    now = int(clock())
    workspace = create_workspace(folder / "workspace", name="demo", now=now)
    campaign_bytes = publish_campaign(workspace, schema, parameters, now)
    (folder / "tumours.hsc").write_bytes(campaign_bytes)
    began = time.perf_counter()
    inbox = _collect(folder / "inbox", workspace, campaign_bytes, _people(holders, schema, progress), now)
    seconds = time.perf_counter() - began

    store = create_store(folder / "store", campaign_bytes)
    store.ingest(inbox, now=now)
    model_bytes = publish_model(workspace, store.statistics(), campaign_bytes, now)
    (folder / "tumours.hsm").write_bytes(model_bytes)
    accuracy, example = _classify(folder / "device", workspace, model_bytes, test, now)
    statistics = store.statistics()
    return Outcome(
        folder=folder,
        epsilon=format_micro(parameters.epsilon_micro),
        devices=devices,
        people=len(train),
        test_records=len(test),
        seconds_of_devices=round(seconds, 1),
        reports=statistics.reports,
        rejected=dict(statistics.rejected),
        accuracy=accuracy,
        accuracy_nonprivate=fit_plain(train, schema).accuracy(test),
        accuracy_majority=fit_majority(train, schema).accuracy(test),
        example=example,
    )


def _people(
    holders: pd.DataFrame, schema: Schema, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[dict[str, object], object]]:
    for done, row in enumerate(holders.to_dict("records")):
        label = row.pop(schema.label.name)
        if progress is not None and done % 50 == 0:
            progress(done, len(holders))
        yield {str(name): value for name, value in row.items()}, label


def _collect(
    inbox: Path,
    workspace: Workspace,
    campaign_bytes: bytes,
    people: Iterator[tuple[dict[str, object], object]],
    now: int,
) -> list[Path]:
    """Write the report files: one for each batch; one with the first and last batch again; the last batch truncated.

    The truncated file ends in the middle of its trailer. The rest of the trailer is too short for a report, so it
    counts as ``truncated`` for every mechanism and size of the fleet.
    """
    inbox.mkdir()
    campaign = parse_campaign(read_envelope(campaign_bytes, "campaign").payload)
    files = write_batches(inbox, campaign, device_reports(workspace.root_bytes, campaign_bytes, people, now=now))
    again = inbox / "sent-again.hsr"
    again.write_bytes(files[0].read_bytes() + files[-1].read_bytes())
    whole = files[-1].read_bytes()
    cut = inbox / "cut-short.hsr"
    cut.write_bytes(whole[:-CUT_BYTES])
    return [*files, again, cut]


def _classify(
    state: Path, workspace: Workspace, model_bytes: bytes, test: pd.DataFrame, now: int
) -> tuple[float, dict[str, Any]]:
    """Return the accuracy of a device that verifies the model, and its prediction for the first test record."""
    with Device.provision(state, trust=workspace.root_bytes, clock=lambda: now) as device:
        classifier = device.install(model_bytes)
        records = test.drop(columns="diagnosis").to_dict("records")
        predicted = [classifier.predict(record) for record in records]
        first = {name: round(p, 3) for name, p in classifier.predict_proba(records[0]).items()}
    right = sum(guess == truth for guess, truth in zip(predicted, test["diagnosis"], strict=True))
    return right / len(test), {"predicted": predicted[0], "true": test["diagnosis"].iloc[0], "probabilities": first}


def _parent_of(output: Path) -> Path:
    parent = output.absolute().parent
    if not parent.is_dir():
        raise StorageError("io_failed", f"there is no folder '{parent}' to put the output into")
    return parent


def _replace(staging: Path, output: Path) -> None:
    """Move the new output to its place. Only the output of an earlier demo is replaced."""
    if output.exists():
        if not (output / "tumours.hsc").is_file() or not (output / "workspace").is_dir():
            raise StorageError("file_exists", f"'{output}' is not the output of an earlier demo; choose another folder")
        shutil.rmtree(output)
    staging.chmod(0o755)
    staging.rename(output)


def hearsay_command() -> str:
    """Return the text that runs ``hearsay`` in a shell: the name, or the full path if the name alone is not found."""
    if shutil.which("hearsay") is not None:
        return "hearsay"
    for place in (sys.argv[0], sys.executable):
        beside = Path(place).with_name("hearsay") if Path(place).name else Path("hearsay")
        if beside.is_file():
            return _quoted(beside)
    return f"{_quoted(Path(sys.executable))} -m aggregator.entry"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _print(outcome: Outcome) -> None:
    total = sum(outcome.rejected.values())
    print_facts(
        {
            "records": f"{outcome.people} to learn from, {outcome.test_records} to test on",
            "devices": f"{outcome.devices}, each holding one record and answering one question at ε = {outcome.epsilon}"
            f" ({outcome.devices / max(outcome.seconds_of_devices, 0.1):.0f} devices per second)",
            "reports counted": outcome.reports,
            "set aside": total or "none",
        }
        | {f"  {reason}": count for reason, count in outcome.rejected.items()}
    )
    click.echo()
    print_table(
        ["accuracy on the test records", ""],
        [
            ("a device, with the private model", f"{outcome.accuracy:.1%}"),
            ("Naive Bayes that saw every record", f"{outcome.accuracy_nonprivate:.1%}"),
            ("always the most frequent class", f"{outcome.accuracy_majority:.1%}"),
        ],
        numeric=[""],
    )
    click.echo()
    click.echo(
        f"The first test record is {outcome.example['true']}; the device says {outcome.example['predicted']}"
        f" ({outcome.example['probabilities'][outcome.example['predicted']]:.0%})."
    )
    click.echo(f"Campaign, reports, store, model and keys are in {outcome.folder}; for example:")
    command, folder = hearsay_command(), outcome.folder
    click.echo(f"  {command} show {_quoted(folder / 'tumours.hsm')}")
    trust = _quoted(folder / "workspace" / "root.hst")
    click.echo(f"  {command} verify {_quoted(folder / 'tumours.hsc')} --trust {trust} --privacy")
    if outcome.devices > outcome.people:
        note(f"{outcome.devices} devices share {outcome.people} people's records, drawn with replacement")
