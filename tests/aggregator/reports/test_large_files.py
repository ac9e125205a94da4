"""Report files of any size end in a row of the summary, never in an ingest that fails."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.publisher import NOW
from support.reports import CAMPAIGN, RAW, batch, report

from aggregator.cli.inputs import WHY_NOT
from aggregator.common.files import read_regular
from aggregator.operations import report_store as store
from aggregator.reports.decoding import content as large_file
from aggregator.reports.decoding.content import FileShortenedError, LargeFile
from aggregator.reports.decoding.decode import Decoder
from aggregator.reports.intake import sources
from aggregator.reports.storage import parts as writing


def write(path, devices):
    path.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device) for device in devices]))
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


def test_a_file_in_pieces_counts_like_one_that_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAPPED_BYTES", 1)
    made = store.create_store(tmp_path / "s", RAW)
    paths = [write(tmp_path / "a.hsr", range(100)), write(tmp_path / "b.hsr", range(50, 150))]
    assert isinstance(sources.read_source(paths[0]).data, LargeFile)
    damaged = tmp_path / "c.hsr"
    damaged.write_bytes(paths[0].read_bytes()[:-1])
    (tmp_path / "pipe").mkdir()
    found = made.ingest([*paths, damaged, paths[0], tmp_path / "pipe"], now=NOW)
    assert found[:2] == (5, 1)
    assert found[3:5] == (200, 100)
    report_of = made.tally_report()
    assert (report_of.reports, report_of.superseded, report_of.rejected["report_replayed"]) == (150, 100, 50)


SHORTENING = """
import os, sys
from aggregator.reports.decoding import decode
from aggregator.reports.decoding import content as large_file
from aggregator.reports.decoding.decode import Decoder
from aggregator.reports.intake import reader, sources
from aggregator.operations.report_store import open_store

store, large, small, where, now = sys.argv[1:]
sources.MAPPED_BYTES = reader._BLOCK = reader._SMALL_BYTES = large_file._BLOCK_BYTES = 1000
module, name = {
    "finding": (decode, "count_adjacent"),
    "digesting": (decode, "piecewise_digest"), "judging": (Decoder, "judge"),
}[where]
original, calls = getattr(module, name), []

def shortening(*arguments, **named):
    calls.append(1)
    if len(calls) == (2 if where == "judging" else 1):
        os.truncate(large, 200)
    return original(*arguments, **named)

setattr(module, name, shortening)
found = open_store(store)
found.workers = 1
print(found.ingest([large, small], now=int(now)))
"""


@pytest.mark.parametrize(
    "where", ["finding", *(pytest.param(where, marks=pytest.mark.slow) for where in ("digesting", "judging"))]
)
def test_a_file_that_becomes_shorter_while_it_is_read_ends_no_process(tmp_path, where):
    """A map would: the process then ends by SIGBUS, and nothing of the other files is stored."""
    large, small = write(tmp_path / "large.hsr", range(1100)), write(tmp_path / "small.hsr", range(2000, 2005))
    made = store.create_store(tmp_path / "s", RAW)
    command = [sys.executable, "-c", SHORTENING, made.path, large, small, where, str(NOW)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if where == "judging":  # after some of it was written
        assert "input_shortened: " in run.stderr.splitlines()[-1]
        assert made.tally_report().reports == 0
    else:
        assert run.returncode == 0, run.stderr
        assert "reason='file_shortened'" in run.stdout
        assert made.tally_report().reports == 5
    write(large, range(1100))
    made.ingest([large, small], now=NOW)
    assert made.tally_report().reports == 1105
    assert made.tally_report().rejected == {}


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


def test_a_file_is_read_as_long_as_it_was_when_it_was_opened(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"0123456789")
    stat = os.fstat

    def grown(descriptor):
        found = stat(descriptor)
        path.write_bytes(b"0123456789" * 100)
        return found

    monkeypatch.setattr(os, "fstat", grown)
    assert read_regular(path, 10) == b"0123456789"
    with pytest.raises(OSError, match="File too large"):
        read_regular(path, 999)


def test_what_becomes_a_pipe_between_two_looks_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    open_file = os.open

    def swapped(name, flags, *rest):
        path.unlink()
        os.mkfifo(path)
        return open_file(name, flags, *rest)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(OSError, match="not a plain file"):
        read_regular(path)
