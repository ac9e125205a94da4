"""Speed of two collectors: checks per second of processor time beside plain integers, and the whole way to a model.

    python -m benchmarks.speed.collectors [--reports 8192] [--whole]

Reports have 240 cells in 30 blocks, and are those of devices (:func:`simulation.fleet.shared_reports`). The baselines
are the code of devices, and the opening of one box of libsodium (X25519) for each report. One thread works, and its
processor time counts, so other programs disturb little.

``--whole`` then lets both collectors' folders, a store and a workspace go from report files to a signed model, with two
threads, each step in a process of its own: for a tenth of the reports, and for all; for a tenth also with one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nacl import bindings

from aggregator.collectors.campaigns import shared_terms
from aggregator.collectors.collector import PUBLIC_FILE, CollectorFolder
from aggregator.collectors.exchange import RequestRow
from aggregator.collectors.helping import Judge
from aggregator.collectors.intake import Reports, Task, open_shares
from aggregator.collectors.leading import check_all, kept_length, total_of
from aggregator.collectors.pair import read_pair
from aggregator.collectors.totals import TotalStore
from aggregator.collectors.verification import Workers
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import create_workspace, open_workspace
from benchmarks.shared.harness import machine
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.shared_terms import shared_subjects
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from protocol.shared.report import make_field
from simulation.fleet import shared_reports, write_batches

FEATURES, CODES, FEW, DAY, MICRO = 30, 4, 16, 86_400, 10**6
CELLS = 2 * FEATURES * CODES
NOW = 1_780_000_000
PERIOD = NOW // DAY
PER_FILE = 1000


class Place(NamedTuple):
    """A folder with workspace, leader and helper, and the campaign that they share."""

    path: Path
    raw: bytes
    root: bytes

    @classmethod
    def make(cls, path: Path) -> Place:
        """Make all of it: 30 features of three values and *missing*, a label of two classes, ε = 1."""
        schema = build_schema(
            Label("l", ["a", "b"]), [Categorical(f"f{at}", ["x", "y", "z"]) for at in range(FEATURES)]
        )
        for name in ("leader", "helper"):
            CollectorFolder.create(path / name, name, "nobody").close()
        with CollectorFolder.open(path / "leader") as leader:
            pair = read_pair(leader.pair_with((path / "helper" / PUBLIC_FILE).read_bytes()))
        terms = shared_terms(pair, shared_subjects(schema), MICRO)
        workspace = create_workspace(path / "work", name="bench", now=NOW)
        raw = publish_campaign(workspace, schema, CampaignParameters("bench", MICRO, shared=terms), NOW)
        return cls(path, raw, workspace.root_bytes)

    @property
    def campaign(self) -> Campaign:
        """The campaign."""
        return parse_campaign(read_envelope(self.raw, "campaign").payload)

    def open(self, name: str) -> CollectorFolder:
        """Open a collector for which the period has ended."""
        return CollectorFolder.open(self.path / name, clock=lambda: NOW + 2 * DAY)

    def task(self, name: str) -> Task:
        """Return what a collector does."""
        with self.open(name) as opened:
            return opened._task(self.raw, self.root)  # noqa: SLF001 - steps are measured one by one

    def write(self, count: int) -> list[Path]:
        """Write the reports of so many devices, with random records."""
        cells = np.random.default_rng(count).integers(0, 2 * CODES, (count, FEATURES))
        inbox = self.path / f"inbox{count}"
        inbox.mkdir()
        return write_batches(inbox, self.campaign, shared_reports(self.campaign, cells, PERIOD), PER_FILE)


Seconds = dict[str, float]


@contextmanager
def clocked(took: Seconds, name: str) -> Iterator[None]:
    """Note the processor time of a step."""
    started = time.process_time()
    yield
    took[name] = time.process_time() - started


def threads_gain(task: Task, reports: Reports) -> float:
    """Return how many times as fast two threads check as one, by the clock: the best of three tries each, in turns."""
    best = {1: inf, 2: inf}
    for threads in (1, 2) * 3:
        with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as kept:
            began = time.perf_counter()
            check_all(task, PERIOD, reports, (sent, kept), Workers(threads), lambda _: None)
            best[threads] = min(best[threads], time.perf_counter() - began)
    return best[1] / best[2]


def steps(place: Place, count: int) -> tuple[Seconds, float]:
    """Return the processor time of every step for so many reports, and the gain of a second thread."""
    leader, helper = place.task("leader"), place.task("helper")
    prio3, took = leader.prio3, Seconds()
    with clocked(took, "device, plain integers"):
        for number in range(FEW):
            identifier, seed = number.to_bytes(8, "big"), os.urandom(32)
            make_field(leader.campaign, [number % (2 * CODES)] * FEATURES, identifier, PERIOD, seed)
    with clocked(took, "devices, arrays"):
        files = place.write(count)
    with (
        Reports(leader.campaign, PERIOD, place.path) as reports,
        (place.path / "s").open("w+b") as sent,
        (place.path / "k").open("w+b") as kept,
    ):
        with clocked(took, "read"):
            reports.read(files)
        fields = reports.fields(reports.ids())
        with clocked(took, "X25519 alone"):
            for one in fields:
                bindings.crypto_box_beforenm(one[1].sender, leader.private)
        with clocked(took, "leader, plain integers"):
            for found in open_shares(leader, PERIOD, fields[:FEW]):
                assert not isinstance(found, str)
                share = prio3.share(leader.terms.context, 0, found.share)
                nonce, public = found.field.nonce, found.field.public
                prio3.prepared(leader.verify_key, leader.terms.context, 0, nonce, public, share)
        del fields
        gain = threads_gain(leader, reports)
        with clocked(took, "leader checks"):
            rows, refused = check_all(leader, PERIOD, reports, (sent, kept), Workers(1), lambda _: None)
        assert (rows, refused) == (count, Counter())
        sent.seek(0)
        length, judge = RequestRow.length(prio3), Judge(helper, PERIOD)
        with clocked(took, "helper checks"):
            judge.read(iter(lambda: sent.read(length * 4096), b""), Workers(1), lambda _: None)
        assert judge.accepted == count
        kept.flush()
        end = prio3.circuit.field.encode(judge.sums()) + judge.accepted.to_bytes(4, "big") + judge.ids()
        mapped = np.memmap(place.path / "k", np.uint8, "r").reshape(count, kept_length(prio3))
        with clocked(took, "leader adds"):
            total_of(leader, PERIOD, mapped, (b"".join(judge.verdicts), end), Counter(), bytes(32))
    return {name: seconds / (FEW if "plain" in name else count) for name, seconds in took.items()}, gain


class Used(NamedTuple):
    """What a step used: seconds by the clock, of processors, and of the first thread; peak memory in megabytes."""

    clock: float
    processors: float
    first: float
    peak: float


def used(action: Callable[..., object], *given: Any) -> Used:
    """Call an action, and return what it used; in a process of its own."""
    began = time.perf_counter(), time.process_time(), time.thread_time()
    action(*given)
    ended = time.perf_counter(), time.process_time(), time.thread_time()
    # Not getrusage, whose peak a new process takes over from the one that started it.
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return Used(*(end - begin for begin, end in zip(began, ended, strict=True)), peak)


def checks(place: Place, files: list[Path], threads: int) -> None:
    """Leader: check."""
    with place.open("leader") as leader:
        leader.threads = threads
        assert leader.check(place.raw, place.root, PERIOD, files, place.path / "request").refused == {}


def answers(place: Place, threads: int) -> None:
    """Helper: answer."""
    with place.open("helper") as helper:
        helper.threads = threads
        helper.answer(place.raw, place.root, place.path / "request", place.path / "answer")


def finishes(place: Place) -> None:
    """Leader: finish. A store takes the total, and a workspace signs a model."""
    with place.open("leader") as leader:
        leader.finish(place.raw, place.root, place.path / "answer", place.path / "total")
    store = TotalStore.make(place.path / "store", place.raw)
    store.ingest([place.path / "total"])
    publish_model(open_workspace(place.path / "work"), store.statistics(), place.raw, NOW)


def whole(count: int, threads: int) -> list[Used]:
    """Go from report files to a model; return what the three steps used. Files are made before."""
    with tempfile.TemporaryDirectory() as name:
        place = Place.make(Path(name))
        files = place.write(count)
        todo = (checks, place, files, threads), (answers, place, threads), (finishes, place)
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            return [pool.submit(used, *one).result() for one in todo]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="speed of two collectors")
    parser.add_argument("--reports", type=int, default=8192)
    parser.add_argument("--whole", action="store_true", help="also from files to a model")
    options = parser.parse_args()
    count = min(options.reports, 8192)
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        place = Place.make(Path(name))
        print(f"{count} reports of {CELLS} cells, {place.campaign.layout.record_length} bytes each; processor time")
        took, gain = steps(place, count)
    for what, seconds in took.items():
        base = "device" if what.startswith("device") else "leader"
        ratio = took[f"{base}, plain integers"] / seconds
        print(f"{what:24} {1e6 * seconds:8.0f} µs a report {1 / seconds:8.0f} a second {ratio:8.1f} × plain {base}")
    print(
        f"two threads check {gain:.2f} times as fast as one, by the clock; load of the machine {os.getloadavg()[0]:.1f}"
    )
    if not options.whole:
        return
    runs = (options.reports // 10, 1), (options.reports // 10, 2), (options.reports, 2)
    each = {}
    for reports, threads in runs:
        found = whole(reports, threads)
        each[reports, threads] = sum(one.processors for one in found) / reports
        for what, one in zip(("check", "answer", "finish to model"), found, strict=True):
            print(
                f"{reports:7} reports, {threads} threads, {what:15} {one.clock:6.1f} s by the clock,"
                f" {one.processors:6.1f} s of processors, {one.first:6.1f} s of the first thread, {one.peak:5.0f} MB"
            )
        print(f"{'':26} together {sum(one.clock for one in found):6.1f} s by the clock")
    print(f"processor time of a report, all against a tenth: {each[runs[2]] / each[runs[1]]:.2f}")


if __name__ == "__main__":
    main()
