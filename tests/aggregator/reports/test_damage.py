"""Damage of every kind at every place of a batch; after the undamaged batch arrives too, the tally is complete."""

from __future__ import annotations

import pytest
from support.mixtures import mixed_payload
from support.publisher import NOW, Publisher
from support.reports import CAMPAIGN, RAW, batch, opened, report

from aggregator.operations.report_store import create_store
from aggregator.reports.decoding.decode import Decoder
from aggregator.reports.tally.tally import count, row_bytes, settle
from protocol.batches.framing import TRAILER_BYTES
from protocol.batches.report import decode_report
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


def tallied(folder, *runs, raw=RAW):
    """The tally bytes and the ingest report after these contents are ingested."""
    folder.mkdir()
    made = create_store(folder / "store", raw)
    for number, contents in enumerate(runs):
        for place, content in enumerate(contents):
            (folder / f"{number}-{place}.hsr").write_bytes(content)
        made.ingest([folder / f"{number}-{place}.hsr" for place in range(len(contents))], now=NOW)
    found = made.tally_report()
    return found.tally.to_bytes(), found


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_copies_change_nothing_once_the_whole_batch_is_there(tmp_path, kind):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    for name, runs in (("after", [KINDS[kind], [WHOLE]]), ("before", [[WHOLE], KINDS[kind]])):
        found, report_of_it = tallied(tmp_path / name, *runs)
        assert found == expected
        assert (report_of_it.reports, report_of_it.unproven) == (len(RECORDS), 0)


def test_all_damaged_copies_in_one_file_change_nothing_either(tmp_path):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    together = b"".join(content for contents in KINDS.values() for content in contents)
    for name, runs in (("after", [[together], [WHOLE]]), ("beside", [[together + WHOLE]])):
        assert tallied(tmp_path / name, *runs)[0] == expected


def mixed_campaign(*mechanisms):
    publisher = Publisher()
    return publisher.sign("campaign", mixed_payload(mechanisms, publisher=publisher))


LAYOUTS = {
    SINGLE: RAW,
    BITS: mixed_campaign("direct", "oue", "sue"),
    INTEGERS: mixed_campaign("direct", "she", "direct"),
}


def every_changed_bit(whole):
    """Copies with one changed bit, for every bit, together with the place of the byte."""
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(changed)


def check_accounts(counted, rejected, in_trailer, records):
    """Every record is counted once or has one reason; no record is lost or doubled."""
    if in_trailer:
        assert counted == records
        assert rejected in ({}, {"invalid_message": 1})
    else:
        assert counted + sum(rejected.values()) == records
        assert counted in (records, records - 1)


@pytest.mark.parametrize(
    "layout", [SINGLE, *(pytest.param(layout, marks=pytest.mark.slow) for layout in (INTEGERS, BITS))]
)
def test_every_changed_bit_costs_at_most_the_record_that_it_is_in(layout):
    """In every layout each record is counted, or set aside for one reason, and never twice."""
    campaign = opened(LAYOUTS[layout])
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
        check_accounts(settled.records.size, found.rejected, place >= trailer_at, len(records))
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


@pytest.mark.parametrize("layout", [SINGLE, BITS, pytest.param(INTEGERS, marks=pytest.mark.slow)])
def test_a_changed_bit_is_accounted_for_by_the_store_and_mended_by_the_whole_batch(tmp_path, layout):
    """In every layout, without the undamaged batch, all counted records are unproven."""
    raw = LAYOUTS[layout]
    records = [report(opened(raw), device, device) for device in range(4)]
    whole = batch(opened(raw), records)
    expected, _ = tallied(tmp_path / "clean", [whole], raw=raw)
    changed = list(every_changed_bit(whole))
    for number, (place, content) in enumerate(changed[::89]):
        _, found = tallied(tmp_path / str(number), [content], raw=raw)
        assert found.unproven == found.reports
        in_trailer = place >= len(whole) - TRAILER_BYTES
        check_accounts(found.reports, dict(found.rejected), in_trailer, len(records))
    contents = [content for _, content in changed[::9]]
    for name, runs in (("after", [contents, [whole]]), ("before", [[whole], contents])):
        mended, found = tallied(tmp_path / name, *runs, raw=raw)
        assert mended == expected
        assert (found.reports, found.unproven) == (len(records), 0)
