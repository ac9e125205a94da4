"""Report files of any size end in a row of the summary, never in an ingest that fails."""

from __future__ import annotations

import mmap
import os
import stat
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.fleets import honest, sealed
from support.publisher import DAY, NOW
from support.reports import CAMPAIGN, PERIOD, RAW, batch
from support.stores import check_whole, files_of, reports

from aggregator.cli.inputs import WHY_NOT
from aggregator.common.files import read_regular
from aggregator.operations import report_store as store
from aggregator.reports.decoding import content as large_file
from aggregator.reports.decoding import decode, rules
from aggregator.reports.decoding.content import FileShortenedError, give_back, piecewise_digest
from aggregator.reports.decoding.decode import Decoder
from aggregator.reports.intake import reader, sources
from aggregator.reports.intake.reader import WorkSharingPool
from aggregator.reports.storage import parts as writing
from aggregator.reports.storage.input_index import Inputs
from aggregator.reports.storage.manifest import Part, read_manifest
from aggregator.reports.storage.parts import Stored, read_part
from aggregator.reports.tally.counting import partitions
from protocol.batches.framing import digest_of


def write(path, devices):
    path.write_bytes(batch(CAMPAIGN, reports(devices)))
    return path


def test_a_file_above_the_limit_is_not_read_and_keeps_no_other_out(tmp_path):
    """A sparse file: it says that it is large and takes no room."""
    large = write(tmp_path / "large.hsr", range(3))
    os.truncate(large, sources.MAX_FILE_BYTES + 1)
    small = write(tmp_path / "small.hsr", range(3, 8))
    made = store.create_store(tmp_path / "s", RAW)
    assert made.ingest([large, small], now=NOW) == (2, 0, ((str(large), "too_large"),), 5, 0, {})
    assert WHY_NOT["too_large"].startswith("it has more than 1 TiB")


@pytest.mark.parametrize("where", ["reading", "judging"])
def test_a_file_that_does_not_fit_into_memory_keeps_no_other_out(tmp_path, monkeypatch, where):
    large, small = write(tmp_path / "large.hsr", range(30)), write(tmp_path / "small.hsr", range(30, 35))
    limit = large.stat().st_size

    def reading(path, most):
        if Path(path).stat().st_size >= limit:
            raise MemoryError
        return read_regular(path, most)

    def judging(decoder, data, *, most):
        if len(data) >= limit:
            raise MemoryError
        return spans(decoder, data, most=most)

    def judging_many(decoder, datas, *, now):
        raise MemoryError

    spans = Decoder.spans
    if where == "reading":
        monkeypatch.setattr(sources, "read_regular", reading)
    else:
        monkeypatch.setattr(Decoder, "spans", judging)
        monkeypatch.setattr(Decoder, "whole_files", judging_many)
    made = store.create_store(tmp_path / "s", RAW)
    assert made.ingest([small, large, small], now=NOW) == (3, 1, ((str(large), "too_large"),), 5, 0, {})
    assert made.tally_report().reports == 5
    monkeypatch.undo()
    assert made.ingest([large], now=NOW).accepted == 30, "it was not taken for known"


def test_one_large_file_is_written_in_parts_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "ROW_GROUP", 10)
    monkeypatch.setattr(writing, "PART_BYTES", 20 * 17)
    made = store.create_store(tmp_path / "s", RAW, buckets=4)
    made.ingest([write(tmp_path / "a.hsr", range(250))], now=NOW)
    parts = store.read_manifest(made.path).parts
    assert {part.records for part in parts} <= set(range(1, 21))
    assert sum(part.records == 20 for part in parts) >= 8
    assert made.tally_report().reports == 250


@pytest.mark.parametrize(
    ("owner", "name", "call"), [(decode, "count_adjacent", 1), (decode, "piecewise_digest", 1), (Decoder, "judge", 2)]
)
def test_a_file_that_becomes_shorter_while_it_is_read_ends_no_process(tmp_path, monkeypatch, owner, name, call):
    """A map would: the process then ends by SIGBUS, and nothing of the other files is stored."""
    large, small = write(tmp_path / "large.hsr", range(1100)), write(tmp_path / "small.hsr", range(2000, 2005))
    made = store.create_store(tmp_path / "s", RAW)
    made.workers = 1
    original, calls = getattr(owner, name), []

    def shortening(*arguments, **named):
        calls.append(1)
        if len(calls) == call:
            os.truncate(large, 200)
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        for place, limit in ((sources, "MAPPED_BYTES"), (reader, "_BLOCK"), (reader, "_SMALL_BYTES"),
                             (large_file, "_BLOCK_BYTES")):  # fmt: skip
            patch.setattr(place, limit, 1000)
        patch.setattr(owner, name, shortening)
        if name == "judge":  # after some of it was written
            with pytest.raises(store.StorageError, match=r"^input_shortened"):
                made.ingest([large, small], now=NOW)
        else:
            assert [bad.reason for bad in made.ingest([large, small], now=NOW).unreadable] == ["file_shortened"]
    assert made.tally_report().reports == (0 if name == "judge" else 5)
    write(large, range(1100))
    made.ingest([large, small], now=NOW)
    assert (made.tally_report().reports, made.tally_report().rejected) == (1105, {})


def test_a_file_that_is_shorter_than_it_was_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAPPED_BYTES", 1)
    monkeypatch.setattr(large_file, "_BLOCK_BYTES", 1000)
    path = write(tmp_path / "large.hsr", range(300))
    data = sources.read_source(path).data
    os.truncate(path, 2000)
    assert data[:2] == path.read_bytes()[:2]
    with pytest.raises(FileShortenedError):
        data.find(b"no such bytes")
    size = os.fstat

    def longer(descriptor):
        found = list(size(descriptor))
        found[stat.ST_SIZE] += 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", longer)
    assert sources.read_source(path) == (str(path), "file_shortened")


def test_a_file_is_read_as_long_as_it_was_and_what_becomes_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"0123456789")
    fstat, open_file = os.fstat, os.open

    def grown(descriptor):
        found = fstat(descriptor)
        path.write_bytes(b"0123456789" * 100)
        return found

    def swapped(name, flags, *rest):
        path.unlink()
        os.mkfifo(path)
        return open_file(name, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", grown)
        assert read_regular(path, 10) == b"0123456789"
        with pytest.raises(OSError, match="File too large"):
            read_regular(path, 999)
    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match="not a plain file"):
        read_regular(path)


LENGTH = CAMPAIGN.layout.record_length


def whole(count, seed):
    return sealed(CAMPAIGN, honest(CAMPAIGN, count, PERIOD, seed))


@pytest.fixture
def everything_is_large(monkeypatch):
    """Files of a few records are shared and read in many blocks; some records are set aside."""
    monkeypatch.setattr(reader, "SHARED_BYTES", 1)
    monkeypatch.setattr(reader, "_SMALL_BYTES", 0)
    monkeypatch.setattr(reader, "_BLOCK", 17)
    monkeypatch.setattr(decode, "MAX_PIECES", 40)
    monkeypatch.setattr(reader, "MAX_PIECES", 40)


def content(made):
    """All that a store knows, whatever the order in which its threads wrote it."""
    manifest = read_manifest(made.path)
    pieces = [
        stored
        for part in manifest.parts
        for stored in read_part(made.path / part.path, part, CAMPAIGN.layout, manifest.buckets)
    ]
    stored = Stored.join(pieces, CAMPAIGN.layout.answer_bytes)
    records, claim = stored.records, stored.claim
    columns = [records.id, records.period, records.question, *records.answer.T, records.proven]
    rows = sorted(zip(*columns, claim if claim is not None else np.zeros(records.size), strict=True))
    kept = {path.name: path.read_bytes() for path in (made.path / "quarantine").glob("*")}
    inputs = sorted(Inputs(made.path, manifest.inputs).entries(), key=lambda entry: entry.identity)
    return rows, kept, inputs, manifest.rejected, manifest.claims, manifest.superseded, made.tally().to_bytes()


def damaged(kind, data):
    middle = len(data) // 2
    place = 43 + (middle // LENGTH) * LENGTH  # the first byte of a record
    return {
        "bit": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
        "prefix": data[:place] + b"\xff" + data[place + 1 :],
        "digest": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[:-100],
        "foreign": data[:middle] + os.urandom(333) + data[middle:],
    }.get(kind, data)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("kind", ["whole", "bit", "prefix", "digest", "cut", "foreign", "stream", "early"])
def test_a_shared_file_makes_the_same_store_as_one_thread(tmp_path, kind):
    data = whole(900, 1)
    if kind == "stream":
        data = b"".join([whole(300, 2), damaged("bit", whole(250, 3)), whole(99, 4), damaged("cut", whole(210, 5))])
    if kind == "early":
        late = honest(CAMPAIGN, 300, PERIOD + 1, 6)
        data = sealed(CAMPAIGN, np.concatenate([honest(CAMPAIGN, 300, PERIOD, 7), late]))
    path = tmp_path / "a.hsr"
    path.write_bytes(damaged(kind, data))
    found = []
    for workers in (1, 4):
        made = store.create_store(tmp_path / str(workers), RAW)
        made.workers = workers
        summaries = [made.ingest([path], now=NOW), made.ingest([path], now=NOW), made.ingest([path], now=NOW + DAY)]
        found.append((summaries, *content(made)))
        check_whole(made)  # what was not wanted is gone
    assert found[0] == found[1]
    assert found[0][0][0][1] == 0
    assert found[0][0][1][1] == 1


def small_batches(kinds, seed=0):
    """One record each, proven or not, some with a claim, some with a record that is set aside."""
    records = honest(CAMPAIGN, len(kinds), PERIOD, seed)
    made = []
    for place, kind in enumerate(kinds):
        rows = records[place : place + 1].copy()
        if kind == "unknown":
            rows["question"] = 0xFFFF  # the campaign has none of this number
        data = sealed(CAMPAIGN, rows)
        made.append(data[:-44] if kind in {"bare", "unknown"} else damaged(kind, data))
    return b"".join(made)


@pytest.mark.parametrize("kinds", [["bare"], ["digest"], ["whole", "bare"], ["digest", "whole", "unknown"]])
def test_many_tiny_batches_are_judged_together_be_they_proven_or_not(kinds, monkeypatch):
    """One by one a file of 15 MB with 241,935 of them took 97 s."""
    calls, judge = [], rules.Rules.is_sound
    monkeypatch.setattr(rules.Rules, "is_sound", lambda *given: calls.append(1) or judge(*given))
    found = decode.decode_batches(small_batches(kinds * 500), CAMPAIGN, now=NOW)
    assert len(calls) <= 2
    assert found.records.size + sum(found.rejected.values()) == 500 * len(kinds)


@given(st.lists(st.sampled_from(["whole", "bare", "digest", "unknown", "prefix", "cut", "bit"]), max_size=30))
@examples(15)
@example(["digest", "bare", "whole", "digest", "unknown", "whole", "bare"] * 4)
def test_batches_that_are_judged_together_make_the_store_of_those_judged_one_by_one(kinds):
    data = small_batches(kinds) or whole(1, 0)
    found = []
    for block in (1, 7, 1 << 16):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "_BLOCK", block)
            patch.setattr(reader, "_SMALL_BYTES", 0)
            path = Path(folder) / "a.hsr"
            path.write_bytes(data)
            made = store.create_store(Path(folder) / "s", RAW)
            found.append((made.ingest([path], now=NOW), *content(made)))
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("everything_is_large")
def test_a_disk_that_fails_under_a_shared_file_leaves_nothing(tmp_path, monkeypatch):
    (path,) = files_of(tmp_path, whole(900, 1))
    made = store.create_store(tmp_path / "s", RAW)
    made.workers = 3
    written = []
    write = writing._OpenPart.write

    def full(sink, data):
        written.append(len(data))
        if len(written) > 30:
            raise OSError(28, "No space left on device")
        return write(sink, data)

    monkeypatch.setattr(writing, "ROW_GROUP", 8)
    monkeypatch.setattr(writing._OpenPart, "write", full)
    with pytest.raises(store.StorageError, match=r"^disk_full"):
        made.ingest([path], now=NOW)
    assert not list(made.path.rglob("*.parquet"))
    monkeypatch.undo()
    assert made.ingest([path], now=NOW).proven == 900


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9), st.integers(1, 4), st.integers(1, 3))
@examples(40)
@example([0] * 20, 3, 1, 3)
def test_a_team_gives_results_in_order_and_pools_whose_threads_all_offer_work_go_on(delays, offered, threads, pieces):
    def slow(item):
        place, delay = item
        time.sleep(delay / 5000)
        return place

    with ThreadPoolExecutor(threads) as pool:
        team = WorkSharingPool(pool, offered)
        work = list(enumerate(delays))
        begun = [pool.submit(lambda: list(team.each(slow, iter(work)))) for _ in range(pieces + threads)]
        named = [team.begin(slow, (number, 1)) for number in range(threads + 1)]
        assert [each() for each in named] == list(range(threads + 1))
        assert all(each.result(timeout=60) == list(range(len(delays))) for each in begun)


def test_an_error_ends_a_teams_work_and_nothing_of_it_goes_on():
    running, ended = threading.Semaphore(0), []

    def work(item):
        if item == 3:
            raise MemoryError
        running.release()
        time.sleep(0.01)
        ended.append(item)

    with ThreadPoolExecutor(3) as pool:
        with pytest.raises(MemoryError):
            list(WorkSharingPool(pool, 6).each(work, range(100)))
        many = len(ended)
        time.sleep(0.05)
        assert len(ended) == many < 20


def test_a_mapped_file_is_the_same_after_its_memory_was_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.reports.decoding.content._STEP", 5000)
    raw = os.urandom(1 << 20)
    path = tmp_path / "a"
    path.write_bytes(raw)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    give_back(data, 4097, 777_777)
    assert data[:] == raw
    assert piecewise_digest(data, 3, 999_999) == digest_of(raw, 3, 999_999) == digest_of(data, 3, 999_999)
    give_back(raw, 0, len(raw))
    give_back(data, 5, 5)


def test_slices_for_ids_alone_are_fewer(tmp_path):
    made = store.create_store(tmp_path / "s", RAW, buckets=1)
    part = Part(0, "a.parquet", 20_000_000, "")
    manifest = read_manifest(made.path)._replace(parts=(part,))
    whole, ids = (partitions(manifest, 2, 1 << 30, 2, ids_only=ids_only) for ids_only in (False, True))
    assert (len(whole), len(ids)) == (4, 1)
    assert ids[0].most * (2 * 17 + 36) <= (1 << 29) - writing.PART_BYTES
