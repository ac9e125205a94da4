"""Random operations on a store, crashes among them, where every report has a cell of its own.

A cell that counts 2 proves that a report was counted twice, one that counts 0 that one was lost. After the
manner of the simulations that Janus's collection jobs are tested with.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.fleets import records, sealed
from support.publisher import DAY, NOW, Publisher
from support.reports import opened

from aggregator.intake import compaction
from aggregator.intake.counting import Scope
from aggregator.intake.manifest import read_manifest
from aggregator.intake.store import create_store, open_store
from aggregator.intake.writing import _Sink
from protocol.errors import StorageError
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
LATER = NOW + (PERIODS + 1) * DAY


class Crash(BaseException):
    """The process ends here."""


def reports(numbers):
    """Report i: cell i, period i mod 4, an id of the cell's question that nobody else has."""
    numbers = np.array(sorted(numbers), np.int64)
    low, high = CAMPAIGN.assignment.interval(QUESTION, 0)
    first_four = low + numbers * 7_919_777 % (high - low)
    ids = (first_four.astype(np.uint64) << np.uint64(32)) | (numbers.astype(np.uint64) * np.uint64(0x9E3779B1))
    return records(CAMPAIGN, ids, FIRST + numbers % PERIODS, QUESTION, numbers)


class crashing:  # noqa: N801 - used as a with
    """The operating system's ``at``-th step is the last one. Attribute ``happened``: whether it came to it."""

    def __init__(self, at):
        self.at, self.steps, self.happened = at, 0, False

    def _wrap(self, original, counts=lambda *_: True):
        def step(*args, **kwargs):
            self.steps += bool(counts(*args))
            if self.steps >= self.at and counts(*args):
                self.happened = True
                raise Crash
            return original(*args, **kwargs)

        return step

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        for name in ("replace", "mkdir", "unlink"):
            self._patch.setattr(Path, name, self._wrap(getattr(Path, name)))
        self._patch.setattr(os, "fsync", self._wrap(os.fsync))
        self._patch.setattr(_Sink, "write", self._wrap(_Sink.write, lambda sink, _: not sink.closed))
        return self

    def __exit__(self, kind, error, traceback):
        self._patch.undo()
        return kind is Crash


class Operator(RuleBasedStateMachine):
    """What an operator does to a store, and what he must find in it afterwards."""

    @initialize(buckets=st.sampled_from([1, 4]))
    def begin(self, buckets):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda _: None)
        self.patch.setattr(compaction, "MOST_SMALL", 3)
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.store = create_store(self.folder / "s", RAW, buckets=buckets)
        self.files = 0
        self.here: set[int] = set()
        self.forgotten = 0
        self.known: dict[Path, set[int]] = {}

    def teardown(self):
        self.patch.undo()
        self.home.cleanup()

    def _file(self, numbers, cut):
        self.files += 1
        path = self.folder / f"{self.files}.hsr"
        data = sealed(CAMPAIGN, reports(numbers))
        path.write_bytes(data[: len(data) - cut])
        self.known[path] = numbers
        return path

    def _taken(self, paths):
        numbers = set().union(*(self.known[path] for path in paths))
        self.here |= {number for number in numbers if FIRST + number % PERIODS >= self.forgotten}

    @rule(sets=st.lists(st.sets(st.integers(0, CELLS - 1), max_size=30), max_size=4), cut=st.sampled_from([0, 0, 44]))
    def ingest(self, sets, cut):
        paths = [self._file(numbers, cut) for numbers in sets]
        self.store.ingest(paths, now=LATER)
        self._taken(paths)

    @rule(data=st.data())
    def ingest_again(self, data):
        paths = data.draw(st.lists(st.sampled_from(sorted(self.known)), max_size=5)) if self.known else []
        assert self.store.ingest(paths, now=LATER).files_repeated == len(paths) or not set(paths) <= self.read
        self._taken(paths)

    @property
    def read(self):
        """Files that the store has surely read."""
        return {path for path, numbers in self.known.items() if numbers and numbers <= self.here}

    @rule(sets=st.lists(st.sets(st.integers(0, CELLS - 1), min_size=1, max_size=30), max_size=3), at=st.integers(1, 40))
    def ingest_and_crash(self, sets, at):
        paths = [self._file(numbers, 0) for numbers in sets]
        generation = read_manifest(self.store.path).generation
        with crashing(at):
            self.store.ingest(paths, now=LATER)
        self.store = open_store(self.store.path)
        if read_manifest(self.store.path).generation > generation:
            self._taken(paths)

    @rule(before=st.integers(0, PERIODS), at=st.integers(1, 60))
    def forget_and_crash(self, before, at):
        with crashing(at):
            self.store.forget(FIRST + before, now=LATER)
        self.store = open_store(self.store.path)
        self.forgotten = read_manifest(self.store.path).first_period
        assert self.forgotten in {0, *range(FIRST, FIRST + PERIODS + 1)}

    @rule(before=st.integers(0, PERIODS))
    def forget(self, before):
        self.store.forget(FIRST + before, now=LATER)
        self.forgotten = max(self.forgotten, FIRST + before)

    @rule()
    def damage_is_noticed_and_mended(self):
        parts = sorted(self.store.path.glob("reports/*/*.parquet"))
        if parts and parts[0].name in {part.name for part in read_manifest(self.store.path).parts}:
            content = parts[0].read_bytes()
            parts[0].write_bytes(content[:-1])
            named = {part.path for part in read_manifest(self.store.path).parts}
            if str(parts[0].relative_to(self.store.path)) in named:
                with pytest.raises(StorageError, match="store_damaged"):
                    self.store.tally()
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


class TestOperator(Operator.TestCase):
    """Run by pytest."""

    settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
