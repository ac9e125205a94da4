"""Costs of the device: size, start, memory, answers, durable reports; the time from a file of reports to counts.

    python -m benchmarks.speed.device [--json]

Every figure is a median. The baselines are plain ``import``, ``hashlib`` or ``numpy`` in the same run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregator.operations.report_store import create_store
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, median_seconds, show
from edge_sdk import Device, Policy
from edge_sdk.arguments import system_entropy
from protocol import mechanisms
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import encode_answer, encode_report, layout_for, report_id
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.shared.field import FIELD128
from protocol.shared.report import make_field
from protocol.stream import SEED_BYTES
from simulation.fleet import device_reports

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.publisher import DAY, NOW, Publisher
from support.shared import of_cells, shared_campaign

from protocol.documents.campaign import Campaign

ANSWERS = [("direct", 8), ("oue", 32), ("sue", 32), ("the", 32), ("she", 8)]
HOUR = 3600
YEAR = 365 * DAY
BARE = "import msgpack, sqlite3, nacl.bindings"
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPEATS = 7
HOURS_IN_TEN_YEARS = 24 * 3652


def start(repeats: int = 21) -> list[Row]:
    """Measure import time beyond a bare interpreter, in new processes; baseline: import of the dependencies alone."""

    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-I", "-c", code], check=True)

    bare, dependencies, sdk = interleaved_seconds([run("pass"), run(BARE), run("import edge_sdk")], repeats)
    taken = sdk - bare
    return [Row("import edge_sdk, over a bare interpreter", taken * 1e3, "ms", BARE, taken / (dependencies - bare))]


class Installed(NamedTuple):
    """An environment with the device and its dependencies only."""

    python: Path
    size: int


def install(folder: Path) -> Installed | None:
    """Make an environment without pip and install the device's wheel into it; None if the index lacks a dependency."""
    home = folder / "device"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (packages,) = (home / "lib").glob("python*/site-packages")
    before = _size(packages)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-warn-script-location"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", str(_own_wheel(folder))], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"the device could not be installed and is left out: {last}", file=sys.stderr)
        return None
    return Installed(python, _size(packages) - before)


def _own_wheel(folder: Path) -> Path:
    command = [sys.executable, str(ROOT / "distribution" / "edge.py"), str(folder / "wheel")]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def import_seconds(python: Path, repeats: int = 15) -> float:
    """Return the median time that the import adds to a bare interpreter."""

    def taken(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([python, "-I", "-c", code], check=True)
        return time.perf_counter() - began

    return statistics.median(taken("import edge_sdk") - taken("pass") for _ in range(repeats))


def probed(python: Path, documents: dict[str, bytes], now: int) -> dict[str, float]:
    """Return the medians of the probe's figures. Each run is a new process with a new state on the disk."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            for file, content in documents.items():
                (Path(name) / file).write_bytes(content)
            command = [python, "-E", "-s", str(HERE / "probes" / "hearsay_edge.py"), name, str(now)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def installed() -> list[Row]:
    """Measure the device's wheel, installed into a new environment: size, start, memory, a thousand reports.

    The environment is removed afterwards. Every figure is measured by a new process (``probes/``).
    """
    publisher = Publisher()
    documents = {
        "root.hst": publisher.root(),
        "campaign.hsc": publisher.campaign(time_precision=HOUR),
        "model.hsm": publisher.model(),
    }
    with tempfile.TemporaryDirectory() as name:
        device = install(Path(name))
        if device is None:
            return []
        start, found = import_seconds(device.python), probed(device.python, documents, NOW)
    per_report = max(found["written"], found["disk"]) / 1000
    return [
        Row("installed with all it needs", device.size / 1e6, "MB"),
        Row("import, over a bare interpreter", start * 1e3, "ms"),
        Row("resident after import", found["imported"] / 1e6, "MB"),
        Row("resident after use", found["used"] / 1e6, "MB"),
        Row("a thousand reports", found["seconds"] * 1e3, "ms"),
        Row("of them waiting, on disk, flushed, when report() returns", found["waiting"], "reports"),
        Row("written to disk per report", per_report / 1e3, "kB"),
        Row("in ten years of one report an hour", per_report * HOURS_IN_TEN_YEARS / 1e9, "GB"),
    ]


def answers(repeats: int = 9) -> list[Row]:
    """Measure the time from a value and new entropy to a report in memory, with the check of the input."""
    secret, campaign_id = bytes(32), bytes(32)
    floor = median_seconds(lambda: hashlib.sha256(os.urandom(SEED_BYTES)).digest(), number=20_000, repeats=repeats)
    rows = []
    for name, size in ANSWERS:
        mechanism = mechanisms.from_epsilon(name, epsilon="1", size=size)
        layout = layout_for([mechanism])

        def answer(mechanism: mechanisms.Mechanism = mechanism, layout=layout, value: int = size - 1) -> bytes:  # noqa: ANN001
            identifier = report_id(secret, campaign_id, 7, 0)
            field = encode_answer(mechanism, mechanism.perturb(value, system_entropy(SEED_BYTES)), layout)
            return encode_report(layout, identifier, 7, 0, field)

        taken = median_seconds(answer, number=5000, repeats=repeats)
        rows.append(Row(f"answer by {name} of {size}", taken * 1e6, "µs", "sha256 of fresh entropy", taken / floor))
    return rows


def shared_answers(repeats: int = 21) -> list[Row]:
    """Measure processor time from a record's cells to a sealed shared report of 240 cells in 20 blocks of 12.

    Baseline: as many products modulo p in a plain loop as the report has bytes.
    """
    campaign, modulus = shared_campaign(of_cells(20, 5)), FIELD128.modulus
    cells, length = [number % 12 for number in range(20)], campaign.layout.record_length

    def answer() -> None:
        make_field(campaign, cells, bytes(8), 7, system_entropy(SEED_BYTES))

    def products() -> None:
        found = 3
        for _ in range(length):
            found = found * found % modulus

    taken, floor = interleaved_seconds([answer, products], repeats, time.process_time)
    return [
        Row("shared answer of 240 cells, processor", taken * 1e3, "ms", f"{length:,} products mod p", taken / floor),
        Row("shared report of 240 cells", length, "bytes", "its 240 elements of 16 bytes", length / (240 * 16)),
    ]


def durable_reports(count: int = 200) -> list[Row]:
    """Measure one report in a durable transaction on disk; baseline: a flushed write of as many bytes."""
    publisher = Publisher()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        now = [NOW]
        policy = Policy.of(epsilon_lifetime="100000")
        with Device.provision(folder / "state", trust=publisher.root(), clock=lambda: now[0], policy=policy) as device:
            campaign = device.enrol(publisher.campaign(lifetime=3650 * DAY))

            def report() -> None:
                now[0] += DAY
                device.report(campaign.id, {"odor": "n", "width": 3}, label="e")

            taken = median_seconds(report, number=count // 5, repeats=5)
        with (folder / "plain").open("wb") as plain:

            def flushed() -> None:
                plain.write(bytes(18))
                plain.flush()
                os.fsync(plain.fileno())

            floor = median_seconds(flushed, number=count // 5, repeats=5)
    return [Row("durable report on disk", taken * 1e6, "µs", "one flushed write", taken / floor)]


def reports_in_memory(waiting: int = 6000, versions: int = 300, repeats: int = 300) -> list[Row]:
    """Measure a report without the disk; then with many unsent reports, many versions, a jump of the clock."""
    fresh = InMemory()
    plain = sqlite3.connect(":memory:", isolation_level=None)
    for name in "abc":
        plain.execute(f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, value)")

    def insert() -> None:
        """Do SQLite's own work for one report: one ledger line, one campaign, one spooled report."""
        plain.execute("BEGIN IMMEDIATE")
        for name in "abc":
            plain.execute(f"INSERT INTO {name} VALUES (NULL, ?)", (bytes(60),))  # the names are constants
        plain.execute("COMMIT")

    first, floor = interleaved_seconds([fresh.report, insert], repeats)
    plain.close()
    rows = [Row("report in memory", first * 1e6, "µs", "three inserts of SQLite", first / floor)]

    def compare(what: str) -> None:
        taken, beside = interleaved_seconds([old.report, InMemory().report], repeats)
        rows.append(Row(f"report in memory, {what}", taken * 1e6, "µs", "of a new device", taken / beside))

    old = InMemory()
    old.report(waiting)
    compare(f"{waiting:,} unsent")
    for version in range(2, 2 + versions):
        old.campaign = old.enrol("steady", version)
        old.report()
    compare(f"{versions} versions answered too")
    steady, old.campaign = old.campaign, old.enrol("leapt", 1)
    old.now += 10 * YEAR
    old.report()
    old.now, old.campaign = old.now - 10 * YEAR, steady
    old.report(500)
    compare("500 lines after a leap of years too")
    return rows


class InMemory:
    """A device without a disk that answers every hour."""

    def __init__(self) -> None:
        self._publisher = Publisher()
        self.now = NOW
        policy = Policy.of(epsilon_lifetime="100000", epsilon_per_day="100")
        self._device = Device.open(None, trust=self._publisher.root(), clock=lambda: self.now, policy=policy)
        self.campaign = self.enrol("steady", 1)

    def enrol(self, name: str, version: int) -> Campaign:
        """Enrol in a campaign with a period of one hour."""
        raw = self._publisher.campaign(name=name, version=version, lifetime=20 * YEAR, time_precision=HOUR)
        return self._device.enrol(raw)

    def report(self, times: int = 1) -> None:
        """Answer in each of the next hours."""
        for _ in range(times):
            self.now += HOUR
            self._device.report(self.campaign.id, {"odor": "n", "width": 3}, label="e")


def simulated_devices(count: int = 1500) -> list[Row]:
    """Measure how many devices in memory per second are opened, enrolled and answer once."""
    publisher = Publisher()
    root, campaign = publisher.root(), publisher.campaign()
    people = [({"odor": "n", "width": 3.2}, "e")] * count
    taken = median_seconds(lambda: list(device_reports(root, campaign, people, now=NOW)), number=1, repeats=5)
    return [Row("simulated devices", count / taken, "devices/s")]


def file_to_counts(reports: int = 200_000, repeats: int = 5) -> list[Row]:
    """Measure a file of layout 1 → counts through decoding, store and tally; baseline: bincount of the codes."""
    publisher = Publisher()
    raw = publisher.campaign()
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    now = NOW + DAY
    records = []
    for number in range(reports):
        identifier = hashlib.sha256(b"%d" % number).digest()[:8]
        question = campaign.assignment.question_for(identifier, 0)
        records.append(encode_report(campaign.layout, identifier, campaign.period_at(NOW), question, bytes(2)))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "reports.hsr"
        path.write_bytes(write_batch(Header(campaign.id, 1, campaign.layout.record_length), records))
        stores = iter(range(repeats + 1))

        def ingest_and_tally() -> None:
            store = create_store(Path(name) / f"store{next(stores)}", raw)
            store.ingest([path], now=now)
            assert store.tally_report().reports == reports

        def plain() -> None:
            data = path.read_bytes()
            hashlib.sha256(data).digest()
            matrix = np.frombuffer(data, np.uint8, 18 * reports, 44).reshape(-1, 18)
            np.bincount(matrix[:, 15].astype(np.int64) * 256 + matrix[:, 17])

        taken, floor = interleaved_seconds([ingest_and_tally, plain], repeats)
    baseline = "time of sha256 and bincount"
    return [Row("reports from file to counts", reports / taken, "reports/s", baseline, taken / floor)]


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    options = parser.parse_args()
    began = time.perf_counter()
    rows = [
        *installed(),
        *start(),
        *answers(),
        *shared_answers(),
        *durable_reports(),
        *reports_in_memory(),
        *simulated_devices(),
        *file_to_counts(),
    ]
    show("Device side", rows, as_json=options.json)
    if not options.json:
        print(f"\n{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
