"""A loop of sensors: windows of measurements become records, with one report per period and restarts in between.

    python examples/sensor/run.py [FILE.csv[.gz]] [--label COLUMN] [--folder FOLDER]

The rows of the file stand for the measurements of an accelerometer: columns of numbers and one column of labels, in the
order of time. Without a file, the breast cancer records of scikit-learn are used.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.tables import check_label, numbers_of, read_table
from aggregator.models.baselines import fit_plain_gaussian
from aggregator.models.reduction import Directions, fit_projection
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.schemas.schema_draft import outward
from aggregator.publishing.schemas.schema_file import equal_width_edges
from aggregator.publishing.workspace import Workspace, create_workspace
from edge_sdk import Device, Policy
from protocol.errors import HearsayError, InputError
from protocol.features import Numeric
from protocol.schema import Label, Schema, build_schema

SENSORS, PERIODS, PERIODS_BETWEEN_RESTARTS = 150, 15, 5
PERIOD_SECONDS = 3600
ON_DISK = 15  # sensors with a folder; the others are in memory and never restart, which saves 2,000 flushes
COMPONENTS, EPSILON_MICRO = 1, 4_000_000
WINDOWS = 1500
"""Most windows, so that a small board needs little time; longer files have longer windows."""

CHANNELS = 10  # of scikit-learn's thirty columns
VARIANCE_FLOOR = 0.01  # what campaigns state unless told otherwise

Record = dict[str, float]


class Window(NamedTuple):
    """A window of measurements: mean and spread of every channel, and the state of the machine."""

    record: Record
    label: str


class Sensor:
    """A device with a clock and a list of windows to measure. :meth:`run` is its loop.

    Attributes:
        name: name of its file of reports.
        state: state folder with keys, spent ε and unsent reports. None keeps the state in memory, for sensors that
            never restart.
        windows: the windows that it measures, one after another.
        restarts: number of restarts.
    """

    def __init__(self, name: str, state: Path | None, windows: list[Window], start: int) -> None:
        self.name = name
        self.state = state
        self.windows = windows
        self.now = start
        self.restarts = 0
        self.said = b""

    def open(self, root: bytes | None = None) -> Device:
        """Open the device; with a trust root, make it, which an installation does once."""
        # 15 periods at ε = 4 are 60: this owner allows it, for these 15 hours and no more.
        policy = Policy.of(epsilon_per_period=4, epsilon_per_day=60, epsilon_lifetime=60)
        if root is not None:
            return Device.provision(self.state, root, policy=policy, clock=lambda: self.now)
        return Device.open(self.state, policy=policy, clock=lambda: self.now)

    def run(self, root: bytes, campaign_bytes: bytes, inbox: Path) -> None:
        """Measure and report once per period, with restarts in between; write the file of reports at the end."""
        device = self.open(root)
        campaign = device.enrol(campaign_bytes)
        for period, window in enumerate(self.windows):
            if self.state and period and period % PERIODS_BETWEEN_RESTARTS == 0:
                device.close()  # a power cut: from here on only the state on disk is known
                device = self.open()
                self.restarts += 1
                last = self.windows[period - 1]
                if device.report(campaign.id, last.record, last.label) != self.said:
                    raise AssertionError("a period's report is the same after a restart")
            self.now += PERIOD_SECONDS
            self.said = device.report(campaign.id, window.record, window.label)
        sealed = inbox / f"{self.name}.hsr"
        device.drain(sealed)
        device.ack(sealed)  # the file has arrived: the inbox belongs to the aggregator
        device.close()


def windows_of(frame: pd.DataFrame, label: str) -> list[Window]:
    """Cut the rows into windows, described by mean and spread of every column. A window has one label.

    Raises:
        InputError: ``label_missing``, no such column; ``one_class``, fewer than two labels; ``value_invalid``, a cell
            of another column is no number.
    """
    check_label(frame, label)
    channels = [str(name) for name in frame.columns if name != label]
    length = max(2, len(frame) // WINDOWS)
    numbers = np.column_stack([channel(frame, name) for name in channels] or [np.empty((len(frame), 0))])
    labels = frame[label].astype(str).tolist()
    windows = []
    for start in range(0, len(frame) - length + 1, length):
        rows = slice(start, start + length)
        if len(set(labels[rows])) == 1:
            record = {}
            for name, values in zip(channels, numbers[rows].T.tolist(), strict=True):
                record[f"{name} mean"] = fmean(values)
                record[f"{name} spread"] = math.log1p(pstdev(values))
            windows.append(Window(record, labels[start]))
    return windows


def channel(frame: pd.DataFrame, name: str) -> pd.Series:
    """The numbers of a column, as float64.

    Raises:
        InputError: ``value_invalid``, with the line of the first cell that is no number.
    """
    numbers = numbers_of(frame[name])
    wrong = frame.index[~np.isfinite(numbers)]
    if len(wrong):
        raise InputError(
            "value_invalid",
            f"column '{name}': the cell in line {wrong[0]} is no number; fill empty cells or remove their lines, write "
            "3.5 and not 3,5, and remove columns of text other than the label (--label)",
        )
    return numbers


def frame_of(windows: list[Window]) -> pd.DataFrame:
    """The windows as a table, for the analyst."""
    return pd.DataFrame([{**window.record, "state": window.label} for window in windows])


def design(pilot: list[Window]) -> tuple[Schema, Directions]:
    """The analyst chooses bounds of every number and a projection by PCA, from windows of volunteers."""
    frame = frame_of(pilot)
    features = []
    for name in pilot[0].record:
        low, high = (Decimal(repr(float(bound))) for bound in (frame[name].min(), frame[name].max()))
        if low < high:  # a constant number tells nothing
            bounds = outward(low, high)
            features.append(Numeric(name, *bounds, equal_width_edges(name, *bounds, 4)))
    schema = build_schema(Label("state", sorted(set(frame["state"]))), features)
    fitted = fit_projection(frame, schema, "pca", COMPONENTS, quantile=0.01)
    return fitted.schema, fitted.directions


def ask(folder: Path, schema: Schema, now: int) -> tuple[Workspace, bytes]:
    """The analyst makes keys and a signed campaign with hourly periods and one number per answer."""
    workspace = create_workspace(folder / "work", name="sensors", now=now)
    parameters = CampaignParameters(
        "sensors",
        EPSILON_MICRO,
        "hybrid",
        family="gaussian",
        period_seconds=PERIOD_SECONDS,
        purpose="know the state of a machine from how it shakes",
    )
    return workspace, publish_campaign(workspace, schema, parameters, now)


def fleet(folder: Path, root: bytes, campaign_bytes: bytes, windows: list[Window], now: int) -> list[Sensor]:
    """Run the loop of every sensor, one after another. On real hardware each sensor runs its own process."""
    draw = random.Random(3)  # noqa: S311 - it deals out windows; the noise is the device's own
    (folder / "inbox").mkdir()
    sensors = []
    for number in range(SENSORS):
        name = f"sensor{number:03d}"
        state = folder / name if number < ON_DISK else None
        sensor = Sensor(name, state, draw.choices(windows, k=PERIODS), now)
        sensor.run(root, campaign_bytes, folder / "inbox")
        sensors.append(sensor)
    return sensors


def learn(folder: Path, workspace: Workspace, campaign_bytes: bytes, now: int) -> bytes:
    """The operator counts the reports and signs a model that is fitted to them."""
    store = create_store(folder / "store", campaign_bytes)
    summary = store.ingest(sorted((folder / "inbox").iterdir()), now=now)
    print(f"{summary.accepted} reports read from {summary.files} files")
    return publish_model(workspace, store.statistics(), campaign_bytes, now)


def classify(sensor: Sensor, model_bytes: bytes, unseen: list[Window]) -> float:
    """One sensor starts again, installs the model and classifies new windows; returns the share of correct ones."""
    with sensor.open() as device:
        model = device.install(model_bytes)
        for window in unseen[:3]:
            chances = model.predict_proba(window.record)
            best = max(chances, key=lambda name: chances[name])
            print(f"live: state {best} ({chances[best]:.0%} sure), it was {window.label}")
        return sum(model.predict(window.record) == window.label for window in unseen) / len(unseen)


def main(frame: pd.DataFrame, label: str, folder: Path) -> None:
    """Run all parts in an empty folder."""
    now = int(time.time())
    windows = windows_of(frame, label)
    random.Random(2).shuffle(windows)  # noqa: S311 - the choice of the pilot is no secret
    fifth = len(windows) // 5
    pilot, unseen, rest = windows[:fifth], windows[fifth : 2 * fifth], windows[2 * fifth :]
    if len({window.label for window in pilot}) < 2:
        raise InputError(
            "one_class", "a fifth of the windows is the pilot, and has fewer than two states: give more rows"
        )
    schema, directions = design(pilot)
    print(f"{len(windows)} windows, {len(schema.features)} numbers each; {fifth} of them are the pilot")
    shares = ", ".join(f"{share:.0%}" for share in directions.explained)
    print(f"PCA keeps {COMPONENTS} of {len(schema.features)} dimensions, with {shares} of the pilot's variance")
    workspace, campaign_bytes = ask(folder, schema, now)
    sensors = fleet(folder, workspace.root_bytes, campaign_bytes, rest, now)
    restarts = sum(sensor.restarts for sensor in sensors)
    print(f"{len(sensors)} sensors, {PERIODS} periods each, {restarts} restarts of the {ON_DISK} on disk")
    later = now + (PERIODS + 1) * PERIOD_SECONDS
    model_bytes = learn(folder, workspace, campaign_bytes, later)
    (folder / "sensors.hsm").write_bytes(model_bytes)
    sensors[0].now = later
    accuracy = classify(sensors[0], model_bytes, unseen)
    common = max(sum(window.label == name for window in unseen) for name in schema.label.classes) / len(unseen)
    without_noise = fit_plain_gaussian(frame_of(rest), schema, VARIANCE_FLOOR).accuracy(frame_of(unseen))
    print(f"accuracy on windows never seen: {accuracy:.1%}")
    print(f"the same model without noise: {without_noise:.1%}; always the most frequent state: {common:.1%}")


def _measurements(path: Path | None) -> pd.DataFrame:
    if path is not None:
        return read_table(path)
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    frame = found.frame.rename(columns={"target": "label"})
    frame = frame[[*frame.columns[:CHANNELS], "label"]]
    return frame.sort_values("label", kind="stable", ignore_index=True)  # a window has one label


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--label", default="label")
    parser.add_argument("--folder", type=Path, help="where everything stays; empty, or not there yet")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.folder or Path(temporary)
        place.mkdir(exist_ok=True, parents=True)
        try:
            main(_measurements(given.file), given.label, place)
        except (HearsayError, FileExistsError) as error:
            sys.exit(str(error))
