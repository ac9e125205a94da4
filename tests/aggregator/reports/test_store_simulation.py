"""Random operations and crashes on a store in which every report has its own cell.

A cell with the count 2 shows that a report was counted twice; the count 0 shows that a report was lost. Time passes
between operations: reports of future periods are set aside, and added later by another ingest or from the quarantine.
The method follows the simulation tests of Janus's collection jobs.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.examples import examples
from support.failures import refusal
from support.fleets import records, sealed
from support.publisher import DAY, NOW, Publisher
from support.reports import opened
from support.sources import Cut
from support.stores import Broken

from aggregator.operations.report_store import create_store, open_store
from aggregator.operations.retry import retry as judge_again
from aggregator.reports.storage import parts as compaction
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally.scope import Scope
from protocol.features import Categorical
from protocol.schema import Label, build_schema

SCHEMA = build_schema(
    Label("label", ["a", "b"]), [Categorical("one", [str(number) for number in range(200)], substitute=0)]
)
RAW = Publisher(schema=SCHEMA).campaign()
CAMPAIGN = opened(RAW)
QUESTION = next(i for i, question in enumerate(CAMPAIGN.questions) if question.mechanism.answers >= 400)
CELLS, PERIODS = 400, 4
FIRST = CAMPAIGN.period_at(NOW)
CUTS = st.sampled_from([0, 0, 44])
SETS = st.lists(st.sets(st.integers(0, CELLS - 1), max_size=30), max_size=4)


def reports(numbers):
    """Report i: cell i, period i mod 4, and a unique id for the cell's question."""
    numbers = np.array(sorted(numbers), np.int64)
    low, high = CAMPAIGN.assignment.interval(QUESTION, 0)
    first_four = low + numbers * 7_919_777 % (high - low)
    ids = (first_four.astype(np.uint64) << np.uint64(32)) | (numbers.astype(np.uint64) * np.uint64(0x9E3779B1))
    return records(CAMPAIGN, ids, FIRST + numbers % PERIODS, QUESTION, numbers)


class Operator(RuleBasedStateMachine):
    """Operations of an operator on a store, and the expected contents after each operation."""

    @initialize(buckets=st.sampled_from([1, 4]), day=st.sampled_from([0, 0, PERIODS]))
    def begin(self, buckets, day):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda _: None)
        self.patch.setattr(compaction, "MOST_SMALL", 3)
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.store = create_store(self.folder / "s", RAW, buckets=buckets)
        self.day = day
        self.files = 0
        self.here: set[int] = set()
        self.forgotten = FIRST
        self.known: dict[Path, set[int]] = {}
        self.early: dict[bytes, set[int]] = {}  # of each content in the store (reports by number)
        self.doubtful: set[Path] = set()

    def teardown(self):
        self.patch.undo()
        self.home.cleanup()

    @property
    def now(self):
        return NOW + self.day * DAY

    def _file(self, numbers, cut):
        self.files += 1
        path = self.folder / f"{self.files}.hsr"
        data = sealed(CAMPAIGN, reports(numbers))
        path.write_bytes(data[: len(data) - cut])
        self.known[path] = numbers
        return path

    def _known_files(self, data):
        return data.draw(st.lists(st.sampled_from(sorted(self.known)), max_size=3)) if self.known else []

    def _begun(self, numbers):
        return {number for number in numbers if number % PERIODS <= self.day}

    def _add(self, numbers):
        self.here |= {number for number in self._begun(numbers) if FIRST + number % PERIODS >= self.forgotten}

    def _taken(self, paths):
        for path in paths:
            self._add(self.known[path])
            self.early[path.read_bytes()] = self.known[path] - self._begun(self.known[path])
        self.doubtful -= set(paths)

    def _judged(self):
        """The state after a retry: of every file in the store only reports of future periods are still set aside."""
        for content, numbers in self.early.items():
            self._add(numbers)
            self.early[content] = numbers - self._begun(numbers)

    @rule(sets=SETS, cut=CUTS)
    def ingest(self, sets, cut):
        paths = [self._file(numbers, cut) for numbers in sets]
        self.store.ingest(paths, now=self.now)
        self._taken(paths)

    @rule(data=st.data(), days=st.integers(0, 2))
    def ingest_again(self, data, days):
        self.day += days
        paths = self._known_files(data)
        settled = all(self.early.get(path.read_bytes(), {None}) == set() for path in paths)
        assert self.store.ingest(paths, now=self.now).files_repeated == len(paths) or not settled
        self._taken(paths)

    @rule(sets=SETS, at=st.integers(1, 40), data=st.data())
    def ingest_and_crash(self, sets, at, data):
        paths = [self._file(numbers, 0) for numbers in sets] + self._known_files(data)
        generation = read_manifest(self.store.path).generation
        with Broken(at, Cut()) as crash:
            self.store.ingest(paths, now=self.now)
        self.store = open_store(self.store.path)
        if read_manifest(self.store.path).generation > generation or len(crash.steps) < at:
            self._taken(paths)
        else:  # their records in the quarantine may be lost; retry then tells which files to ingest again
            contents = {path.read_bytes() for path in paths}
            self.doubtful |= {path for path in self.known if path.read_bytes() in contents}

    @rule(days=st.integers(0, 2))
    def retry(self, days):
        self.day += days
        self.store.ingest(self.doubtful, now=self.now)
        self._taken(self.doubtful.copy())
        judge_again(self.store, now=self.now)
        self._judged()

    @rule(at=st.integers(1, 40), days=st.integers(0, 2))
    def retry_and_crash(self, at, days):
        self.day += days
        self.store.ingest(self.doubtful, now=self.now)
        self._taken(self.doubtful.copy())
        generation = read_manifest(self.store.path).generation
        with Broken(at, Cut()) as crash:
            judge_again(self.store, now=self.now)
        self.store = open_store(self.store.path)
        if read_manifest(self.store.path).generation > generation or len(crash.steps) < at:
            self._judged()

    @rule(before=st.integers(0, PERIODS), at=st.integers(1, 60))
    def forget_and_crash(self, before, at):
        with Broken(at, Cut()):
            self.store.forget(FIRST + min(before, self.day), now=self.now)
        self.store = open_store(self.store.path)
        found = read_manifest(self.store.path).first_period
        assert found in {0, *range(self.forgotten, FIRST + self.day + 1)}
        self.forgotten = max(self.forgotten, found)

    @rule(before=st.integers(0, PERIODS))
    def forget(self, before):
        before = FIRST + min(before, self.day)
        self.store.forget(before, now=self.now)
        self.forgotten = max(self.forgotten, before)

    @rule()
    def damage_is_noticed_and_mended(self):
        parts = sorted(self.store.path.glob("reports/*/*.parquet"))
        if parts and parts[0].name in {part.name for part in read_manifest(self.store.path).parts}:
            content = parts[0].read_bytes()
            parts[0].write_bytes(content[:-1])
            named = {part.path for part in read_manifest(self.store.path).parts}
            if str(parts[0].relative_to(self.store.path)) in named:
                assert refusal(self.store.tally) == "store_damaged"
            parts[0].write_bytes(content)

    @invariant()
    def every_report_counts_once(self):
        if not hasattr(self, "store"):
            return
        cells = self.store.tally().counts[QUESTION]
        assert {cell for cell, count in enumerate(cells) if count} == self.here
        assert set(cells) <= {0, 1}
        for period in range(PERIODS):
            cells = self.store.tally(Scope(FIRST + period, FIRST + period)).counts[QUESTION]
            assert {cell for cell, count in enumerate(cells) if count} == {
                i for i in self.here if i % PERIODS == period
            }
        # A report that is forgotten before its period begins for a file may stay counted as too early.
        if self.forgotten == FIRST:
            early = read_manifest(self.store.path).rejected.get("report_too_early", 0)
            assert early == sum(map(len, self.early.values()))


@pytest.mark.slow
class TestOperator(Operator.TestCase):
    """Run by pytest."""

    settings = examples(40, stateful_step_count=20)
