"""A file with a stray byte between all records needs memory for one block, and is reported by numbers."""

from __future__ import annotations

import json

import pytest
from support.commands import invoke
from support.publisher import NOW
from support.reports import CAMPAIGN, RAW, batch, header, report
from support.watched import peak

from aggregator.cli.publishing.show import MAX_DAMAGE
from aggregator.operations.report_store import create_store
from aggregator.reports.decoding.decode import MAX_PIECES, Decoder
from aggregator.reports.gateway import merge_files
from aggregator.reports.storage.quarantine import Quarantine
from protocol.batches import batch as batches

RECORDS = [report(CAMPAIGN, device, device) for device in range(500)]


def strayed(count, end=b""):
    return header(CAMPAIGN).to_bytes() + b"\0".join(RECORDS[number % 500] for number in range(count)) + end


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(batches, "MAX_PIECES", 5)


@pytest.mark.usefixtures("small_pieces")
def test_a_batch_in_pieces_is_ingested_merged_and_shown_as_one(tmp_path):
    whole = batch(CAMPAIGN, RECORDS)
    path = tmp_path / "a.hsr"
    path.write_bytes(strayed(500, end=whole[-44:]))
    found = Decoder(CAMPAIGN).decode(path.read_bytes(), now=NOW)
    assert found.records.size == 500
    assert found.rejected == {"invalid_message": 499}
    store = create_store(tmp_path / "s", RAW)
    store.ingest([path], now=NOW)
    assert store.tally_report().reports == 500
    assert len([piece for kept in Quarantine(store.path / "quarantine").files() for piece in kept.pieces]) == 499
    (tmp_path / "whole.hsr").write_bytes(whole)
    store.ingest([tmp_path / "whole.hsr"], now=NOW)
    assert store.tally_report().superseded == 500, "every piece knows of which batch it is a copy"
    summary = merge_files([path], tmp_path / "m.hsr")
    assert (summary.unproven, summary.rejected) == (500, {"invalid_message": 499})
    shown = json.loads(invoke("show", path, "--json").stdout)
    assert [entry["reports"] for entry in shown["batches"] if "reports" in entry] == [500]
    assert len(shown["batches"]) == 1 + MAX_DAMAGE
    assert (shown["damaged_stretches"], shown["damaged_bytes"]) == (499, 499)
    assert "399 stretches of bytes" in invoke("show", path).stdout


@pytest.mark.slow
def test_the_memory_of_reading_does_not_grow_with_the_strays(monkeypatch):
    """With blocks of 1,024 records, memory holds one block and the quarantine's entries."""
    monkeypatch.setattr(batches, "MAX_PIECES", 1 << 10)
    decoder = Decoder(CAMPAIGN)
    datas = [strayed(number << 10, end=bytes(batch(CAMPAIGN, [])[-44:])) for number in (4, 16)]
    few, many = (peak(lambda data=data: _drain(decoder.blocks(data, now=NOW, most=1 << 10))) for data in datas)
    assert many < 1.2 * few


def _drain(blocks):
    kept = 0
    for block in blocks:
        kept += len(block.pieces)
    assert kept == MAX_PIECES


@pytest.mark.slow
def test_the_memory_of_merging_does_not_grow_with_the_strays_but_for_the_records(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MAX_PIECES", 1 << 10)
    peaks = []
    for number in (4, 16):
        path = tmp_path / f"{number}.hsr"
        path.write_bytes(strayed(number << 10))
        out = tmp_path / f"{number}.out"
        peaks.append(peak(lambda path=path, out=out: merge_files([path], out, memory_bytes=1 << 16)))
    more = (16 - 4 << 10) * 19  # the file itself is in memory
    assert peaks[1] < 1.2 * peaks[0] + 1.2 * more
