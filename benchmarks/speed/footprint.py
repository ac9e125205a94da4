"""The installed device compared with three well-known clients: size, start, memory, a thousand reports.

Each client is installed from the package index into a new environment, which is removed afterwards. All clients are
measured in one run, by a new process for every figure (``probes/``). The queues of the clients give different
guarantees, stated beside the figures: only the device's reports are on the disk when the call returns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from benchmarks.shared.harness import Row

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPEATS = 7
HOURS_IN_TEN_YEARS = 24 * 3652


class Client(NamedTuple):
    """One client: its package, its import statement, its probe, and a description of its queue."""

    name: str
    package: str
    imports: str
    probe: str
    queue: str


DEVICE = Client("hearsay-edge", "", "import edge_sdk", "hearsay_edge.py", "on disk, flushed, when report() returns")
OTHERS = (
    Client("paho-mqtt", "paho-mqtt", "import paho.mqtt.client", "paho_mqtt.py", "in memory, lost with the process"),
    Client("sentry-sdk", "sentry-sdk", "import sentry_sdk", "sentry_sdk_probe.py", "in memory, the rest dropped"),
    Client(
        "opentelemetry-sdk",
        "opentelemetry-sdk",
        "import opentelemetry.sdk.trace.export",
        "opentelemetry_sdk.py",
        "in memory, 512 at a time given up if not taken",
    ),
)


class Installed(NamedTuple):
    """An environment with one client and its dependencies only."""

    client: Client
    python: Path
    size: int


def install(client: Client, folder: Path) -> Installed | None:
    """Make an environment without pip and install one client into it; None if the index does not have it."""
    home = folder / client.name
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (packages,) = (home / "lib").glob("python*/site-packages")
    wanted = client.package or str(_own_wheel(folder))
    before = _size(packages)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-warn-script-location"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{client.name} could not be installed and is left out: {last}", file=sys.stderr)
        return None
    return Installed(client, python, _size(packages) - before)


def _own_wheel(folder: Path) -> Path:
    """Build the device's wheel from this source tree."""
    command = [sys.executable, str(ROOT / "distribution" / "edge.py"), str(folder / "wheel")]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def import_seconds(clients: list[Installed], repeats: int = 15) -> list[float]:
    """Median time that an import adds to a bare interpreter, all clients in turn."""

    def taken(python: Path, code: str) -> float:
        began = time.perf_counter()
        subprocess.run([python, "-I", "-c", code], check=True)
        return time.perf_counter() - began

    runs = [
        [taken(each.python, each.client.imports) - taken(each.python, "pass") for each in clients]
        for _ in range(repeats)
    ]
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def probed(each: Installed, documents: dict[str, bytes], now: int) -> dict[str, float]:
    """Medians of a probe's figures. Each run is a new process with a new state on the disk."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            for file, content in documents.items():
                (Path(name) / file).write_bytes(content)
            command = [each.python, "-E", "-s", str(HERE / "probes" / each.client.probe), name, str(now)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def footprint(documents: dict[str, bytes], now: int, *, others: bool) -> list[Row]:
    """All figures.

    Args:
        documents: ``root.hst``, ``campaign.hsc`` and ``model.hsm``, of a campaign with hourly periods.
        now: the devices' first second.
        others: also install and measure the three clients.
    """
    with tempfile.TemporaryDirectory() as name:
        chosen = [DEVICE, *(OTHERS if others else ())]
        clients = [each for each in (install(client, Path(name)) for client in chosen) if each is not None]
        if not clients or clients[0].client is not DEVICE:
            return []
        starts = import_seconds(clients)
        figures = [probed(each, documents, now) for each in clients]
    rows = [
        row
        for each, start, found in zip(clients, starts, figures, strict=True)
        for row in _rows(each, start, found, clients[0], starts[0], figures[0])
    ]
    return [*rows, *_card(figures[0])]


def _rows(
    each: Installed,
    start: float,
    found: dict[str, float],
    own: Installed,
    own_start: float,
    own_found: dict[str, float],
) -> list[Row]:
    """One client's figures, with the device's figures as baseline."""
    name = each.client.name

    def row(what: str, value: float, unit: str, base: float) -> Row:
        return (
            Row(f"{name}: {what}", value, unit, own.client.name, value / base)
            if each is not own
            else Row(f"{name}: {what}", value, unit)
        )

    return [
        row("installed with all it needs", each.size / 1e6, "MB", own.size / 1e6),
        row("import, over a bare interpreter", start * 1e3, "ms", own_start * 1e3),
        row("resident after import", found["imported"] / 1e6, "MB", own_found["imported"] / 1e6),
        row("resident after use", found["used"] / 1e6, "MB", own_found["used"] / 1e6),
        row("a thousand reports", found["seconds"] * 1e3, "ms", own_found["seconds"] * 1e3),
        Row(f"{name}: of them waiting, {each.client.queue}", found["waiting"], "reports"),
    ]


def _card(found: dict[str, float]) -> list[Row]:
    """Bytes that reports write to the storage card of the state."""
    per_report = max(found["written"], found["disk"]) / 1000
    return [
        Row("written to disk per report", per_report / 1e3, "kB"),
        Row("in ten years of one report an hour", per_report * HOURS_IN_TEN_YEARS / 1e9, "GB"),
    ]
