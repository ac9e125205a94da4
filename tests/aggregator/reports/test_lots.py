"""Repeats that do not fit into memory are counted equally, and every part is read twice."""

from __future__ import annotations

import errno
import tempfile

import numpy as np
import pytest
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator.operations.report_store import create_store
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally import counting
from aggregator.reports.tally.counting import Partition, count_partition
from aggregator.reports.tally.duplicates import Lots
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.errors import StorageError

RAW = {name: Publisher().campaign(mechanism=name) for name in ("direct", "oue", "she")}


def twice(folder, raw, copies=300):
    """A store of 400 reports, with most or few of them repeated, in three files, one of them damaged."""
    campaign = opened(raw)
    made = [report(campaign, device) for device in range(400)]
    folder.mkdir()
    files = []
    for name, some in (("a", made), ("b", made[:copies]), ("c", made[200:250])):
        files.append(folder / f"{name}.hsr")
        files[-1].write_bytes(batch(campaign, some))
    files[-1].write_bytes(files[-1].read_bytes()[:-1])
    store = create_store(folder / "s", raw, buckets=2)
    store.ingest(files, now=NOW)
    return store


def counted(store, most, divisions=1, scope=EVERYTHING):
    """The counts of all buckets, with this limit of records in memory."""
    manifest = read_manifest(store.path)
    return [
        count_partition(
            store.path, store.campaign, manifest, Partition(bucket, divisions, number, most), scope or Scope()
        )
        for bucket in range(2)
        for number in range(divisions)
    ]


@pytest.fixture(params=sorted(RAW))
def store(request, tmp_path):
    return twice(tmp_path / "in", RAW[request.param])


@pytest.mark.parametrize("scope", [Scope(), Scope(proven_only=True), Scope(last=1)])
def test_counts_are_the_same_however_little_fits(store, scope):
    assert counted(store, 1 << 20, scope=scope) == counted(store, 10, scope=scope)
    assert sum(found.replayed for found in counted(store, 10)) == 300


@pytest.mark.parametrize("copies", [30, 300])
def test_repeats_taken_for_few_that_do_not_fit_are_read_once_more_as_well(tmp_path, monkeypatch, copies):
    store = twice(tmp_path / "in", RAW["direct"], copies)
    expected = counted(store, 1 << 20)
    assert sum(found.replayed for found in expected) == copies
    monkeypatch.setattr(counting.IdSet, "has_many", lambda _: False)
    read = []
    read_part = counting.read_part
    monkeypatch.setattr(counting, "read_part", lambda path, *more: read.append(path) or read_part(path, *more))
    assert counted(store, 4) == expected
    assert {read.count(path) for path in read} == {2}


@pytest.mark.parametrize("divisions", [1, 2])
def test_every_part_is_read_twice_for_a_partition_however_many_lots_it_has(store, divisions, monkeypatch):
    read = []

    def reading(path, *more):
        read.append(path)
        return read_part(path, *more)

    read_part = counting.read_part
    monkeypatch.setattr(counting, "read_part", reading)
    counted(store, 10, divisions)
    assert {read.count(path) for path in read} == {2 * divisions}


def test_a_full_temporary_folder_is_said(store, monkeypatch):
    def refuse():
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StorageError) as caught:
        counted(store, 10)
    assert caught.value.reason == "disk_full"
    assert "TMPDIR" in caught.value.detail
    counted(store, 1 << 20)  # needs no temporary file


def test_a_temporary_file_that_was_cut_is_noticed():
    ids = np.arange(100, dtype=np.uint64)
    zeros = np.zeros(100, np.uint8)
    records = Columns(ids, zeros.astype(np.uint32), zeros.astype(np.uint16), zeros[:, None], zeros.astype(np.bool_))
    with Lots(4, 0, 1) as lots:
        lots.add(records)
        assert [found.id.tolist() for found in lots] == [list(range(lot, 100, 4)) for lot in range(4)]
        lots._file.truncate(1000)
        with pytest.raises(StorageError, match="shorter"):
            list(lots)
