"""Damage of every kind at every place of a batch; after the undamaged batch arrives too, the tally is complete."""

from __future__ import annotations

import json

import pytest
from support.commands import invoke
from support.mixtures import mixed_payload
from support.publisher import NOW
from support.reports import CAMPAIGN, RAW, batch, header, report
from support.stores import files_of, kept_pieces, reports
from support.watched import peak

from aggregator.cli.publishing.show import MAX_DAMAGE
from aggregator.operations.report_store import create_store
from aggregator.reports.decoding.decode import MAX_PIECES, Decoder
from aggregator.reports.gateway import merge_files
from aggregator.reports.tally.tally import count, row_bytes, settle
from protocol.batches import batch as batches
from protocol.batches.framing import TRAILER_BYTES
from protocol.batches.report import decode_report
from protocol.documents.campaign import parse_campaign
from protocol.mechanisms import BITS, INTEGERS, SINGLE

RECORDS = [report(CAMPAIGN, device, device) for device in range(4)]
WHOLE = batch(CAMPAIGN, RECORDS)
FOREIGN = b"\x00\xff\xd8not of here"


def flipped():
    """Copies of the batch with one changed bit each: one bit of every byte. The reader's tests change all bits."""
    for place in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


KINDS = {
    "a changed bit": list(flipped()),
    "cut": [WHOLE[:length] for length in range(1, len(WHOLE))],
    "foreign bytes": [WHOLE[:place] + FOREIGN + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "a foreign byte": [WHOLE[:place] + b"\xd8" + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "missing bytes": [WHOLE[:place] + WHOLE[place + 5 :] for place in range(len(WHOLE))],
}


def tallied(folder, *runs):
    """The tally bytes and the report of a store that ingests the contents of each run at once."""
    folder.mkdir()
    made = create_store(folder / "store", RAW)
    for contents in runs:
        made.ingest(files_of(folder, *contents), now=NOW)
    found = made.tally_report()
    return found.tally.to_bytes(), found


@pytest.mark.parametrize("kind", [*KINDS, "all in one file"])
def test_damaged_copies_change_nothing_once_the_whole_batch_is_there(tmp_path, kind):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    damaged = KINDS.get(kind) or [b"".join(content for contents in KINDS.values() for content in contents)]
    for name, runs in (("after", [damaged, [WHOLE]]), ("before", [[WHOLE], damaged])):
        found, report_of_it = tallied(tmp_path / name, *runs)
        assert found == expected
        assert (report_of_it.reports, report_of_it.unproven) == (len(RECORDS), 0)


LAYOUTS = {
    SINGLE: CAMPAIGN,
    BITS: parse_campaign(mixed_payload(("direct", "oue", "sue"))),
    INTEGERS: parse_campaign(mixed_payload(("direct", "she", "direct"))),
}


def every_changed_bit(whole):
    """Copies with one changed bit, for every bit, together with the place of the byte."""
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(changed)


@pytest.mark.parametrize(
    "layout", [SINGLE, *(pytest.param(layout, marks=pytest.mark.slow) for layout in (INTEGERS, BITS))]
)
def test_every_changed_bit_costs_at_most_the_record_that_it_is_in(layout):
    """In every layout each record is counted, or set aside for one reason, and never twice."""
    campaign = LAYOUTS[layout]
    assert campaign.layout.kind == layout
    records = [report(campaign, device, device) for device in range(3)]
    decoder, whole = Decoder(campaign), batch(campaign, records)
    trailer_at, length = len(whole) - TRAILER_BYTES, len(records[0])
    first = trailer_at - len(records) * length
    tallies = set()
    for place, content in every_changed_bit(whole):
        found = decoder.decode(content, now=NOW)
        settled = settle(found.records)
        assert not found.records.proven.any()
        assert (settled.replayed, settled.conflicting, settled.superseded) == (0, 0, 0)
        counted, refused = settled.records.size, sum(found.rejected.values())
        if place >= trailer_at:
            assert (counted, found.rejected in ({}, {"invalid_message": 1})) == (len(records), True)
        else:
            assert (counted + refused, counted >= len(records) - 1) == (len(records), True)
        others = [record for i, record in enumerate(records) if not 0 <= place - first - i * length < length]
        good = {bytes(row) for row in row_bytes(settled.records)}
        assert good >= {b"".join(columns_of(campaign, record)).rstrip(b"\0") for record in others}
        if len(others) == len(records):
            assert settled.records.size == len(records)
        tallies.add(count(campaign, settled.records).to_bytes())
    assert len(tallies) > 1


def columns_of(campaign, record):
    """The record read by the scalar reader, in the bytes of ``row_bytes``."""
    identifier, period, question, field = decode_report(campaign.layout, record)
    return identifier, period.to_bytes(4, "big"), question.to_bytes(2, "big"), field


MANY = reports(range(500))


def strayed(count, end=b""):
    return header(CAMPAIGN).to_bytes() + b"\0".join(MANY[number % 500] for number in range(count)) + end


def test_a_batch_in_pieces_is_ingested_merged_and_shown_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MAX_PIECES", 5)
    whole = batch(CAMPAIGN, MANY)
    path = tmp_path / "a.hsr"
    path.write_bytes(strayed(500, end=whole[-44:]))
    found = Decoder(CAMPAIGN).decode(path.read_bytes(), now=NOW)
    assert found.records.size == 500
    assert found.rejected == {"invalid_message": 499}
    store = create_store(tmp_path / "s", RAW)
    store.ingest([path], now=NOW)
    assert store.tally_report().reports == 500
    assert len(kept_pieces(store)) == 499
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
def test_the_memory_of_reading_and_merging_does_not_grow_with_the_strays(tmp_path, monkeypatch):
    """Memory holds one block of 1,024 records and the quarantine's entries; a merge also the file and its records."""
    monkeypatch.setattr(batches, "MAX_PIECES", 1 << 10)
    decoder = Decoder(CAMPAIGN)
    read, merged = [], []
    for number in (4, 16):
        data = strayed(number << 10, end=bytes(batch(CAMPAIGN, [])[-44:]))
        (path,) = files_of(tmp_path, data)

        def drain(data=data):
            assert sum(len(block.pieces) for block in decoder.blocks(data, now=NOW, most=1 << 10)) == MAX_PIECES

        read.append(peak(drain))
        out = tmp_path / f"{number}.out"
        merged.append(peak(lambda path=path, out=out: merge_files([path], out, memory_bytes=1 << 16)))
    assert read[1] < 1.2 * read[0]
    assert merged[1] < 1.2 * merged[0] + 1.2 * (16 - 4 << 10) * 19
