"""Every record is judged by docs/formats.md: arrays agree with a reader of one record at a time, in every layout."""

from __future__ import annotations

import mmap
import os
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.mixtures import mixed_payload
from support.publisher import DAY, NOW
from support.reports import Row, batch, counts_of, digest, header, made, mixed, report

from aggregator.estimates.debias import debias
from aggregator.reports.decoding import columns as matrix
from aggregator.reports.decoding import content as large_file
from aggregator.reports.decoding import rules
from aggregator.reports.decoding.content import LargeFile
from aggregator.reports.decoding.decode import MAX_KEPT_BYTES, MAX_PIECES, Decoded, Decoder, decode_batches
from aggregator.reports.tally.tally import TallyBuilder, count
from benchmarks.speed.raw_counts import count_batches
from protocol import mechanisms
from protocol.batches import framing as scan
from protocol.batches.batch import Batch, Header, read_batches, write_batch
from protocol.batches.report import Layout, decode_answer, decode_report, encode_report, report_id
from protocol.mechanisms import BITS, INTEGERS, SINGLE
from protocol.mechanisms.subset import Subset

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
        for start, records in item.spans:
            for place in range(start, start + records * length, length):
                reason = fault(campaign, data[place : place + length])
                if item.header != header(campaign):
                    other = item.header.campaign != campaign.id
                    reason = "unrecognized_campaign" if other else "invalid_message"
                if reason is None:
                    good.append((place, item.proven, b"" if item.proven else item.digest))
                else:
                    reasons[reason] += 1
    return good, dict(reasons)


def rows(found):
    return [
        (int(i).to_bytes(8, "big"), int(p), int(q), a.tobytes())
        for i, p, q, a in zip(found.id, found.period, found.question, found.answer, strict=True)
    ]


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
    if draw(st.booleans()):
        width = campaign.layout.answer_bytes
        few = st.lists(st.sampled_from([0, 0, 0, 1, 128, 255]), min_size=width, max_size=width).map(bytes)
        record = record[:-width] + draw(few | st.binary(min_size=width, max_size=width))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(record) - 1))
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
        kind = draw(st.sampled_from(["whole", "whole", "cut", "flip", "no trailer", "other", "bytes", "noise"]))
        place = draw(st.integers(0, len(whole) - 1))
        if kind == "cut":
            whole = whole[:place]
        elif kind == "flip":
            whole = whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :]
        elif kind == "no trailer":
            whole = whole[:-44]
        elif kind == "other":
            whole = batch(other, [report(other, 1), report(other, 2)])
        elif kind == "noise":
            whole = draw(st.binary(max_size=40))
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

    n, counts = counts_of(campaign, kept)
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
        campaign, sums = CAMPAIGNS[name], TallyBuilder(CAMPAIGNS[name])
        head = 4 if campaign.layout.kind == INTEGERS else 2
        for number in range(len(campaign.questions)):
            good = np.zeros((2, campaign.layout.answer_bytes), np.uint8)
            bad = good.copy()
            bad[1, -1] = 255
            asked, before = np.full(2, number), sums.tally()
            first = np.array([int.from_bytes(row[:head].tobytes(), "big") for row in bad])
            if answer_of(campaign, number, bad[1].tobytes()) is None:
                assert not sums.count(asked, bad, first)
                assert sums.tally() == before
            assert sums.count(asked, good, np.zeros(2, np.int64))
            assert sums.tally().n[number] == before.n[number] + 2


# --- the rules, one by one ---


DIRECT, UNARY = CAMPAIGNS["direct"], CAMPAIGNS["oue"]
PRESENT = DIRECT.period_at(NOW)


def decode(data, campaign=DIRECT, now=NOW) -> Decoded:
    return decode_batches(data, campaign, now=now)


def edited(record: bytes, offset: int, value: bytes) -> bytes:
    return record[:offset] + value + record[offset + len(value) :]


def alone(record: bytes, campaign=DIRECT, now=NOW) -> str | None:
    """The reason for setting aside a record between two good records."""
    neighbours = [report(campaign, 1), report(campaign, 2)]
    found = decode(batch(campaign, [neighbours[0], record, neighbours[1]]), campaign, now)
    assert found.records.size == 3 - len(found.pieces)
    if not found.pieces:
        return None
    (piece,) = found.pieces
    assert found.rejected == {piece.reason: 1}
    assert piece.offset == len(header(campaign).to_bytes()) + len(record)
    assert (piece.length, piece.data) == (len(record), record)
    assert rows(found.records) == [decode_report(campaign.layout, record) for record in neighbours]
    return piece.reason


@pytest.mark.parametrize("question", range(3))
def test_the_ends_of_a_question_interval(question):
    low, high = DIRECT.assignment.interval(question, 0)
    for u, good in ((low, True), (high - 1, True), (low - 1, False), (high, False)):
        if 0 <= u < 1 << 32:
            record = encode_report(DIRECT.layout, u.to_bytes(4, "big") + bytes(4), PRESENT, question, b"\0\0")
            assert alone(record) == (None if good else "question_not_assigned")


def test_sets_of_another_size_are_no_answers_and_few_answers_are_unpacked_at_once(monkeypatch):
    campaign, sizes, impossible = made(mechanism="subset"), [], Subset.impossible
    monkeypatch.setattr(rules, "_AT_ONCE", 20)
    monkeypatch.setattr(Subset, "impossible", lambda self, rows: sizes.append(rows.size) or impossible(self, rows))
    good = [report(campaign, number) for number in range(40)]
    width = campaign.layout.answer_bytes
    empty = [record[:-width] + bytes(width) for record in good]
    found = decode(batch(campaign, good + empty), campaign)
    assert len(found.records.id) == found.rejected["value_out_of_domain"] == 40
    assert max(sizes) <= 20


def test_value_out_of_domain_direct():
    record = report(DIRECT, 5)
    size = DIRECT.questions[record[15]].size
    assert alone(edited(record, 16, (size - 1).to_bytes(2, "big"))) is None
    assert alone(edited(record, 16, size.to_bytes(2, "big"))) == "value_out_of_domain"
    assert alone(edited(record, 16, b"\xff\xff")) == "value_out_of_domain"
    assert alone(edited(record, 14, b"\0\3")) == "question_unknown"


@pytest.mark.parametrize("precision", [1, 7, DAY, 1 << 31])
def test_dates_agree_with_the_definition_at_every_precision(precision):
    campaign = made(time_precision=precision)
    now = NOW + 200 * DAY
    edges = [campaign.header.not_before // precision, campaign.header.expires // precision, now // precision]
    periods = {min(max(edge + step, 0), (1 << 32) - 1) for edge in edges for step in range(-2, 3)}
    for period in periods:
        expected = None
        if period * precision >= campaign.header.expires:
            expected = "report_too_late"
        elif (period + 1) * precision <= campaign.header.not_before or period > now // precision:
            expected = "report_too_early"
        found = decode(batch(campaign, [report(campaign, 9, period=period)]), campaign, now)
        assert found.rejected == ({expected: 1} if expected else {})


@pytest.mark.parametrize("layout", [Layout(BITS, 1), Layout(BITS, 2), Layout(SINGLE, 3), Layout(INTEGERS, 4)])
def test_invalid_message_for_a_header_of_another_layout_or_length(layout):
    records = [encode_report(layout, digest(i)[:8], PRESENT, 0, bytes(layout.answer_bytes)) for i in range(2)]
    changed = Header(DIRECT.id, layout.kind, layout.record_length)
    found = decode(write_batch(changed, records) + batch(DIRECT, [report(DIRECT, 2)]))
    assert found.rejected == {"invalid_message": 2}
    assert found.records.size == 1


def test_all_bad_pieces_are_counted_and_few_are_kept_with_their_heads():
    noise = b"\xc1" * 500
    found = decode(noise + batch(DIRECT, [report(DIRECT, 2)]))
    assert found.rejected == {"invalid_message": 1}
    assert found.pieces[0][:3] == ("invalid_message", 0, 500)
    assert found.pieces[0].data == noise[:MAX_KEPT_BYTES]
    assert found.records.size == 1
    bad = edited(report(DIRECT, 9), 14, b"\xff\xff")
    found = decode(batch(DIRECT, [bad] * (MAX_PIECES + 50)))
    assert found.rejected == {"question_unknown": MAX_PIECES + 50}
    assert len(found.pieces) == MAX_PIECES


def test_two_layouts_of_one_length_are_told_apart_even_if_the_first_record_is_damaged():
    narrow, wide = UNARY, mixed(*(mechanisms.from_epsilon("oue", "1", 12) for _ in range(2)))
    assert narrow.layout.record_length == wide.layout.record_length == 18
    for campaign in (narrow, wide):
        records = [encode_report(campaign.layout, digest(i)[:8], PRESENT, 0, b"") for i in range(3)]
        records = [record + bytes(campaign.layout.answer_bytes) for record in records]
        data = bytearray(batch(campaign, records))
        data[44] ^= 0x10
        found = decode(bytes(data), campaign)
        assert found.records.size + found.rejected.get("question_not_assigned", 0) == 2


def test_precedence_is_fixed_when_several_reasons_apply():
    campaign, late = DIRECT, -(-DIRECT.header.expires // DAY)
    record = report(campaign, 5, period=late)
    wrong_value = edited(record, 16, b"\xff\xff")
    wrong_place = edited(wrong_value, 2, b"\xff" * 8 if record[15] != 2 else bytes(8))
    wrong_question = edited(wrong_place, 14, b"\xff\xff")
    reasons = [alone(r) for r in (wrong_question, wrong_place, wrong_value, record)]
    assert reasons == ["question_unknown", "question_not_assigned", "value_out_of_domain", "report_too_late"]


# --- layouts that mix values, bits and integers ---


@pytest.mark.parametrize("names", [("oue", "she", "direct"), ("she", "sue", "she"), ("direct", "she", "the")])
def test_bits_and_integers_do_not_share_a_campaign(names):
    assert refusal(mixed_payload, names) == "layout_invalid"


# --- one dishonest report with integers: refused beyond the bounds, of small effect within them ---


LARGEST, SMALLEST = (1 << 31) - 1, -(1 << 31)
KINDS = {
    "she": CAMPAIGNS["she"],
    "laplace": mixed(*(mechanisms.from_epsilon("laplace", "1", 3, delta=delta) for delta in (2, 6, 4))),
    "she beside values": mixed(mechanisms.from_epsilon("direct", "1", 4), mechanisms.from_epsilon("she", "0.5", 3)),
}


def lie(campaign, device, number):
    """A report that repeats one integer in every coordinate of its answer."""
    period = campaign.period_at(NOW)
    index = campaign.questions[-1].stratum
    identifier = report_id(digest("liar", device), campaign.id, period, index)
    asked = campaign.assignment.question_for(identifier, index)
    size = campaign.questions[asked].mechanism.answers
    field = (number.to_bytes(4, "big", signed=True) * size).ljust(campaign.layout.answer_bytes, b"\0")
    return encode_report(campaign.layout, identifier, period, asked, field)


def question_of(campaign, record):
    start = len(campaign.layout.prefix) + 12
    return campaign.questions[int.from_bytes(record[start : start + 2], "big")]


@pytest.mark.parametrize("kind", KINDS)
def test_integers_beyond_the_bounds_are_no_answers_and_the_ends_are(kind):
    campaign = KINDS[kind]
    least, most = question_of(campaign, lie(campaign, 0, 0)).mechanism.bounds
    wrong = [lie(campaign, 0, number) for number in (LARGEST, SMALLEST, most + 1, least - 1)]
    right = [lie(campaign, 0, number) for number in (most, least, 0)]
    for record in right + wrong:
        data = batch(campaign, [record])
        for verify in (True, False):
            counted = count_batches(data, campaign, now=NOW, verify=verify)
            assert sum(counted.n) == (record in right)
            assert counted.rejected == ({} if record in right else {"value_out_of_domain": 1})
        found = decode_batches(data, campaign, now=NOW)
        assert found.rejected == counted.rejected
        assert [piece.data for piece in found.pieces] == ([] if record in right else [record])
        if record in right:
            assert count(campaign, found.records).counts == counted.counts


def test_records_that_older_software_took_are_counted_within_the_bounds():
    """Records already in a store are not refused, because a refusal would block the whole store."""
    for kind, campaign in KINDS.items():
        record = lie(campaign, 0, 0)
        question = question_of(campaign, record)
        found = decode_batches(batch(campaign, [record]), campaign, now=NOW).records
        for number, end in ((LARGEST, 1), (SMALLEST, 0)):
            size = question.mechanism.answers
            found.answer[0, : 4 * size] = list(number.to_bytes(4, "big", signed=True) * size)
            sums = count(campaign, found).counts[campaign.questions.index(question)]
            least, most = (0, 1024) if "she" in kind else question.mechanism.bounds
            assert sums == ((least, most)[end],) * size
            estimated = debias(question.mechanism, 1, sums).estimate
            assert (abs(estimated) < (9 if "she" in kind else 1 + 64 * 6)).all()
