"""Array decoding agrees with a reader of one record at a time, in every layout."""

from __future__ import annotations

import mmap
import os
import pickle
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import NOW
from support.reports import Row, batch, digest, header, made, mixed, report, summand

from aggregator.reports.decoding import columns as matrix
from aggregator.reports.decoding import content as large_file
from aggregator.reports.decoding.content import LargeFile
from aggregator.reports.decoding.decode import Decoder
from aggregator.reports.tally.tally import TallyBuilder
from benchmarks.speed.raw_counts import count_batches
from protocol import mechanisms
from protocol.batches import framing as scan
from protocol.batches.batch import Batch, read_batches
from protocol.batches.report import decode_answer, decode_report
from protocol.mechanisms import INTEGERS, SINGLE

if TYPE_CHECKING:
    from aggregator.reports.decoding.columns import Columns

oue, direct, she, laplace = (
    lambda size, name=name: mechanisms.from_epsilon(name, "1", size) for name in ("oue", "direct", "she", "laplace")
)
CAMPAIGNS = {
    "direct": made(),
    "oue": made(mechanism="oue"),
    "she": made(mechanism="she"),
    "two strata": made(answers=2, epsilon_micro=2_000_000),
    "every question": made(mechanism="oue", answers=3, epsilon_micro=3_000_000),
    "values of many sizes": mixed(direct(2), direct(65536), direct(300)),
    "rows of bits": mixed(oue(2), oue(9), oue(70)),
    "one byte of bits": mixed(oue(3), oue(8)),
    "bits and values": mixed(direct(300), oue(3), oue(40), direct(65536)),
    "integers and values": mixed(direct(5), Row(2), Row(5)),
    "integers alone": mixed(Row(1), Row(3)),
    "a prefix of four bytes": mixed(oue(2100)),
    "noisy integers of two kinds and values": mixed(laplace(3), she(2), direct(300)),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """A few records fill a block."""
    monkeypatch.setattr(matrix, "BLOCK_RECORDS", 3)
    monkeypatch.setattr(matrix, "SHORT", 2)


def answer_of(campaign, number, field):
    return decode_answer(campaign.questions[number].mechanism, field, campaign.layout)


def fault(campaign, record, now=NOW):
    """The reason for refusing one record, by the rules in order; None for a good record."""
    identifier, period, number, field = decode_report(campaign.layout, record)
    if number >= len(campaign.questions):
        return "question_unknown"
    low, high = campaign.assignment.interval(number, campaign.questions[number].stratum)
    if not low <= int.from_bytes(identifier[:4], "big") < high:
        return "question_not_assigned"
    if answer_of(campaign, number, field) is None:
        return "value_out_of_domain"
    if period * campaign.time_precision >= campaign.header.expires:
        return "report_too_late"
    if (period + 1) * campaign.time_precision <= campaign.header.not_before or period > now // campaign.time_precision:
        return "report_too_early"
    return None


def slowly(campaign, data):
    """Good records as (position, standing, claimed digest) in file order, and the number of refusals by reason."""
    good, reasons = [], Counter()
    for item in read_batches(data, {campaign.id: campaign.layout}):
        if not isinstance(item, Batch):
            reasons[item.reason] += 1
            continue
        length = item.header.record_length
        for start, count in item.spans:
            for place in range(start, start + count * length, length):
                reason = fault(campaign, data[place : place + length])
                if item.header != header(campaign):
                    other = item.header.campaign != campaign.id
                    reason = "unrecognized_campaign" if other else "invalid_message"
                if reason is None:
                    good.append((place, item.proven, b"" if item.proven else item.digest))
                else:
                    reasons[reason] += 1
    return good, dict(reasons)


def rows(found: Columns):
    return [
        (int(i).to_bytes(8, "big"), int(p), int(q), a.tobytes())
        for i, p, q, a in zip(found.id, found.period, found.question, found.answer, strict=True)
    ]


def summed(campaign, records):
    """For each question, the number of answers and their sums, computed by plain loops."""
    sums = [[0] * question.mechanism.answers for question in campaign.questions]
    n = [0] * len(sums)
    for record in records:
        _, _, number, field = decode_report(campaign.layout, record)
        answer = answer_of(campaign, number, field)
        n[number] += 1
        if campaign.questions[number].mechanism.layout == SINGLE:
            sums[number][answer] += 1
        else:
            parts = summand(campaign.questions[number].mechanism, answer)
            sums[number] = [a + b for a, b in zip(sums[number], parts, strict=True)]
    return tuple(n), tuple(map(tuple, sums))


@st.composite
def records_of(draw, campaign):
    """A report, with some bytes changed or none."""
    if campaign.questions[0].stratum == campaign.questions[-1].stratum:
        index = 0
    else:
        index = draw(st.integers(0, len({question.stratum for question in campaign.questions}) - 1))
    if any(question.mechanism.name in ("row", "laplace") for question in campaign.questions):
        number = draw(st.integers(0, len(campaign.questions) - 1))
        field = bytes(campaign.layout.answer_bytes)
        period = campaign.period_at(NOW)
        record = campaign.layout.prefix + digest(number)[:8] + period.to_bytes(4, "big") + number.to_bytes(2, "big")
        record += field
    else:
        record = report(campaign, draw(st.integers(0, 40)), draw(st.integers(0, 9)), index=index)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(len(campaign.layout.prefix), len(record) - 1))
        value = draw(st.sampled_from([0, 1, 2, 3, 128, 255]))
        record = record[:place] + bytes([value]) + record[place + 1 :]
    return record


@st.composite
def files_of(draw, campaign):
    """Batches, complete, damaged or of another campaign, with bytes between them."""
    other = CAMPAIGNS["direct"] if campaign is not CAMPAIGNS["direct"] else CAMPAIGNS["oue"]
    pieces = []
    for _ in range(draw(st.integers(1, 4))):
        whole = batch(campaign, draw(st.lists(records_of(campaign), max_size=12)))
        kind = draw(st.sampled_from(["whole", "whole", "cut", "flip", "no trailer", "other", "bytes"]))
        place = draw(st.integers(0, len(whole) - 1))
        if kind == "cut":
            whole = whole[:place]
        elif kind == "flip":
            whole = whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]
        elif kind == "no trailer":
            whole = whole[:-44]
        elif kind == "other":
            whole = batch(other, [report(other, 1), report(other, 2)])
        elif kind == "bytes":
            whole = b"\xd8\x01\x93\xa3end\x96\xa4hsyb"[: place % 13]
        pieces.append(whole)
    return b"".join(pieces)


@pytest.mark.parametrize("name", CAMPAIGNS)
@examples(40)
@given(data=st.data(), most=st.integers(1, 20))
def test_arrays_and_loops_agree(name, data, most):
    campaign = CAMPAIGNS[name]
    file = data.draw(files_of(campaign))
    length = campaign.layout.record_length
    good, reasons = slowly(campaign, file)
    kept = [file[place : place + length] for place, _, _ in good]
    decoder = Decoder(campaign)

    found = decoder.decode(file, now=NOW)
    assert rows(found.records) == [decode_report(campaign.layout, record) for record in kept]
    assert found.records.proven.tolist() == [proven for _, proven, _ in good]
    assert found.positions.tolist() == [place for place, _, _ in good]
    assert found.rejected == reasons
    assert len(found.pieces) == sum(reasons.values())
    assert all(file[piece.offset :].startswith(piece.data) and piece.data for piece in found.pieces)

    blocks = list(decoder.blocks(file, now=NOW, most=most))
    assert all(block.records.size <= most for block in blocks)
    told = [
        (place, *block.standings[batch])
        for block in blocks
        for place, batch in zip(block.positions.tolist(), block.batch.tolist(), strict=True)
    ]
    assert told == good
    assert sum((Counter(block.rejected) for block in blocks), Counter()) == Counter(reasons)
    items = list(read_batches(file, {campaign.id: campaign.layout}))
    batches = [item for item in items if isinstance(item, Batch) and item.header == header(campaign)]
    assert [each for block in blocks for each in block.digests] == [item.digest for item in batches if item.proven]

    n, counts = summed(campaign, kept)
    for verify in (True, False):
        counted = count_batches(file, campaign, now=NOW, verify=verify)
        proven = sum(proven for _, proven, _ in good) if verify else 0
        if verify or all(item.proven for item in items if isinstance(item, Batch)):
            assert (counted.n, counted.counts) == (n, counts)
            assert counted.rejected == reasons
        assert (counted.proven, counted.proven + counted.unproven) == (proven, sum(counted.n))


@pytest.mark.parametrize("name", ["direct", "bits and values", "she"])
@examples(30)
@given(data=st.data())
def test_whole_files_are_those_of_one_proven_batch_of_good_records(name, data):
    campaign = CAMPAIGNS[name]
    files = data.draw(st.lists(files_of(campaign), max_size=6))
    found = Decoder(campaign).whole_files(files, now=NOW)
    expected = []
    for index, file in enumerate(files):
        blocks = list(Decoder(campaign).blocks(file, now=NOW))
        items = list(read_batches(file, {campaign.id: campaign.layout}))
        is_whole = len(items) == len(blocks) == 1 and getattr(items[0], "proven", False) and not blocks[0].rejected
        assert (index not in found.left_over) == is_whole
        assert found.digests[index] == (blocks[0].digests if is_whole else ())
        if is_whole:
            expected += [(index, row) for row in rows(blocks[0].records)]
    assert list(zip(found.file.tolist(), rows(found.records), strict=True)) == expected
    assert found.records.proven.all()


@pytest.mark.parametrize("block", [0, 64, 100, 1 << 18])
def test_a_map_and_pieces_of_a_file_are_read_like_its_bytes(tmp_path, monkeypatch, block):
    monkeypatch.setattr(large_file, "_BLOCK_BYTES", block)
    campaign = CAMPAIGNS["direct"]
    data = batch(campaign, [report(campaign, device) for device in range(50)])
    data += b"\0" + data[:300] + b"\1" + data[300:]
    (tmp_path / "x.hsr").write_bytes(data)
    with (tmp_path / "x.hsr").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        in_pieces = LargeFile(os.dup(file.fileno()), len(data))
        for each in (mapped, in_pieces) if block else (mapped,):
            found, expected = (Decoder(campaign).decode(one, now=NOW) for one in (each, data))
            assert rows(found.records) == rows(expected.records)
            assert (found.rejected, found.pieces) == (expected.rejected, expected.pieces)
        assert count_batches(mapped, campaign, now=NOW) == count_batches(data, campaign, now=NOW)


@examples(150)
@given(
    data=st.binary(max_size=200).map(lambda some: (some + b"\1\2\1\1\2") * 3),
    block=st.integers(16, 300),
    places=st.lists(st.tuples(st.integers(-250, 700), st.integers(-250, 700)), max_size=20),
    what=st.sampled_from([b"\1", b"\1\2", b"\1\1\2", b"\2\1\2"]),
)
def test_a_file_in_pieces_gives_the_slices_and_places_of_its_bytes(tmp_path_factory, data, block, places, what):
    path = tmp_path_factory.mktemp("pieces") / "a"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_file, "_BLOCK_BYTES", block)
        pieces = LargeFile(os.open(path, os.O_RDONLY), len(data))
        for start, stop in places:
            assert pieces[start:stop] == data[start:stop]
            assert pieces[start:stop:3] == data[start:stop:3]
            first = max(0, start)
            assert pieces.find(what, first) == data.find(what, first)
            assert pieces.find(what, first, max(0, stop)) == data.find(what, first, max(0, stop))
        assert len(pieces) == len(data)


def test_a_record_that_begins_otherwise_is_seen_though_the_batch_looks_whole():
    """The batch's digest is right, but its writer put another kind of record into it."""
    campaign = CAMPAIGNS["direct"]
    records = [report(campaign, device) for device in range(8)]
    records[5] = b"\xd8\x02" + records[5][2:]
    data = batch(campaign, records)
    good, reasons = slowly(campaign, data)
    counted = count_batches(data, campaign, now=NOW)
    assert (counted.proven, counted.unproven, counted.rejected) == (0, len(good), reasons)
    assert len(good) == 7


def test_a_decoder_can_be_sent_to_another_process():
    campaign = CAMPAIGNS["oue"]
    data = batch(campaign, [report(campaign, 3)])
    decoder = pickle.loads(pickle.dumps(Decoder(campaign)))
    assert rows(decoder.decode(data, now=NOW).records) == rows(Decoder(campaign).decode(data, now=NOW).records)


@given(st.integers(1, 90), st.integers(0, 3000), st.integers(0, 3), st.integers(1, 4))
def test_adjacent_records_are_counted_as_the_plain_counter_does(length, count, start, width):
    prefix = b"\xc7\x1e\x02\x00"[: min(width, length)]
    data = bytes(start) + prefix.ljust(length, b"\1") * count + b"\xc7"
    for place in {start + length * (count // 3) + len(prefix) - 1, len(data) - 1}:
        changed = data[:place] + b"\xff" + data[place + 1 :]
        for each in (data, changed):
            expected = scan.count_adjacent(each, start, length, prefix)
            assert matrix.count_adjacent(each, start, length, prefix) == expected


def test_sums_refuse_what_is_no_answer_and_count_nothing_of_its_block():
    for name in ("direct", "values of many sizes", "rows of bits", "bits and values", "integers and values"):
        campaign = CAMPAIGNS[name]
        width = campaign.layout.answer_bytes
        single = [i for i, each in enumerate(campaign.questions) if each.mechanism.layout == SINGLE]
        sums = TallyBuilder(campaign)
        for number, question in enumerate(campaign.questions):
            good, bad = np.zeros((2, width), np.uint8), np.zeros((2, width), np.uint8)
            bad[1, -1] = 255
            head = 4 if campaign.layout.kind == INTEGERS else 2
            values = [np.array([int.from_bytes(row[:head].tobytes(), "big") for row in each]) for each in (good, bad)]
            asked = np.full(2, number)
            before = sums.tally()
            spare = answer_of(campaign, number, bad[1].tobytes()) is None
            if spare:
                assert not sums.count(asked, bad, values[1])
                assert sums.tally() == before
            assert sums.count(asked, good, values[0])
            assert sums.tally().n[number] == before.n[number] + 2
            assert question.mechanism.answers == len(sums.tally().counts[number])
        assert set(single) <= set(range(len(campaign.questions)))
