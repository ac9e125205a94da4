"""Every record is judged by docs/formats.md, and damage costs no more than the damaged records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import DAY, NOW
from support.reports import Row, batch, digest, header, made, mixed, report

from aggregator.reports.decoding.decode import MAX_KEPT_BYTES, MAX_PIECES, Decoded, decode_batches
from aggregator.reports.tally.tally import count, settle
from protocol import mechanisms
from protocol.batches.batch import Header, trailer, write_batch
from protocol.batches.report import Layout, decode_answer, decode_report, encode_answer, encode_report
from protocol.mechanisms import BITS, INTEGERS, SINGLE

if TYPE_CHECKING:
    from aggregator.reports.decoding.columns import Columns

DIRECT = made()
UNARY = made(mechanism="oue")
ALL = made(mechanism="oue", answers=3, epsilon_micro=3_000_000)
WIDE = mixed(mechanisms.from_epsilon("oue", "1", 344))
"""Records of 60 bytes: longer than a header, so that a cut one could swallow it."""
CAMPAIGNS = [DIRECT, UNARY, ALL]
PRESENT = DIRECT.period_at(NOW)


def decode(data, campaign=DIRECT, now=NOW) -> Decoded:
    return decode_batches(data, campaign, now=now)


def rows(records: Columns) -> list[tuple]:
    """The records as (id, period, question, answer field, proven)."""
    return [
        (int(i).to_bytes(8, "big"), int(p), int(q), a.tobytes(), bool(s))
        for i, p, q, a, s in zip(
            records.id, records.period, records.question, records.answer, records.proven, strict=True
        )
    ]


def reference(campaign, records, *, proven) -> list[tuple]:
    return [(*decode_report(campaign.layout, record), proven) for record in records]


def edited(record: bytes, offset: int, value: bytes) -> bytes:
    return record[:offset] + value + record[offset + len(value) :]


# --- good records ---


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_good_records_become_the_columns_that_the_scalar_reader_sees(campaign):
    records = [report(campaign, device, device) for device in range(300)]
    found = decode(batch(campaign, records[:100]) + batch(campaign, records[100:]), campaign)
    assert rows(found.records) == reference(campaign, records, proven=True)
    assert found.rejected == {}
    assert found.pieces == ()
    first = len(header(campaign).to_bytes())
    length = campaign.layout.record_length
    assert found.positions[:100].tolist() == [first + length * i for i in range(100)]


def test_a_device_that_answers_every_question_is_accepted_at_every_index():
    records = [report(ALL, device, 1, index=index) for device in range(20) for index in range(3)]
    assert decode(batch(ALL, records), ALL).records.size == 60


def test_an_empty_batch_and_an_empty_file_hold_nothing_and_no_fault():
    for data in (b"", batch(DIRECT, [])):
        found = decode(data)
        assert (found.records.size, found.rejected) == (0, {})


def test_more_records_than_one_block():
    wide = made(mechanism="oue")
    record = report(wide, 1)
    many = 5 + (1 << 22) // len(record)
    found = decode(batch(wide, [record] * many), wide)
    assert (found.records.size, found.rejected) == (many, {})
    assert found.positions[-1] - found.positions[0] == (many - 1) * len(record)


# --- one reason each ---


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
    assert rows(found.records) == reference(campaign, neighbours, proven=True)
    return piece.reason


def test_question_unknown():
    assert alone(edited(report(DIRECT, 9), 14, b"\0\3")) == "question_unknown"
    assert alone(edited(report(DIRECT, 9), 14, b"\xff\xff")) == "question_unknown"


@pytest.mark.parametrize("device", range(12))
def test_question_not_assigned(device):
    record = report(DIRECT, device)
    own = record[15]
    for question in range(3):
        changed = edited(edited(record, 14, bytes([0, question])), 16, b"\0\0")
        assert alone(changed) == (None if question == own else "question_not_assigned")


@pytest.mark.parametrize("question", range(3))
def test_the_ends_of_a_question_interval(question):
    low, high = DIRECT.assignment.interval(question, 0)
    for u, good in ((low, True), (high - 1, True), (low - 1, False), (high, False)):
        if 0 <= u < 1 << 32:
            record = encode_report(DIRECT.layout, u.to_bytes(4, "big") + bytes(4), PRESENT, question, b"\0\0")
            assert alone(record) == (None if good else "question_not_assigned")


def test_value_out_of_domain_direct():
    record = report(DIRECT, 5)
    size = DIRECT.questions[record[15]].size
    assert alone(edited(record, 16, (size - 1).to_bytes(2, "big"))) is None
    assert alone(edited(record, 16, size.to_bytes(2, "big"))) == "value_out_of_domain"
    assert alone(edited(record, 16, b"\xff\xff")) == "value_out_of_domain"


def test_value_out_of_domain_padding_of_a_bitmap():
    record = next(
        record for record in (report(UNARY, device) for device in range(50)) if UNARY.questions[record[16]].size < 8
    )
    assert alone(edited(record, len(record) - 1, bytes([record[-1] | 1])), UNARY) == "value_out_of_domain"


def test_report_too_early_and_too_late():
    first = DIRECT.header.not_before // DAY
    end = -(-DIRECT.header.expires // DAY)
    late_now = NOW + 1000 * DAY
    assert alone(report(DIRECT, 9, period=PRESENT)) is None
    assert alone(report(DIRECT, 9, period=PRESENT + 1)) == "report_too_early"
    assert alone(report(DIRECT, 9, period=PRESENT + 1), now=NOW + DAY) is None
    assert alone(report(DIRECT, 9, period=first)) is None
    assert alone(report(DIRECT, 9, period=first - 1)) == "report_too_early"
    assert alone(report(DIRECT, 9, period=end - 1), now=late_now) is None
    assert alone(report(DIRECT, 9, period=end), now=late_now) == "report_too_late"
    assert alone(report(DIRECT, 9, period=(1 << 32) - 1), now=late_now) == "report_too_late"


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


def test_unrecognized_campaign_sets_all_its_records_aside_and_none_beside_it():
    other = made(version=2)
    data = batch(DIRECT, [report(DIRECT, 1)]) + batch(other, [report(other, d) for d in range(3)])
    found = decode(data + batch(DIRECT, [report(DIRECT, 2)]))
    assert found.rejected == {"unrecognized_campaign": 3}
    assert found.records.size == 2


@pytest.mark.parametrize("layout", [Layout(BITS, 1), Layout(BITS, 2), Layout(SINGLE, 3), Layout(INTEGERS, 4)])
def test_invalid_message_for_a_header_of_another_layout_or_length(layout):
    records = [encode_report(layout, digest(i)[:8], PRESENT, 0, bytes(layout.answer_bytes)) for i in range(2)]
    changed = Header(DIRECT.id, layout.kind, layout.record_length)
    found = decode(write_batch(changed, records) + batch(DIRECT, [report(DIRECT, 2)]))
    assert found.rejected == {"invalid_message": 2}
    assert found.records.size == 1


def test_a_stretch_of_foreign_bytes_is_one_invalid_message_and_its_head_is_kept():
    noise = b"\xc1" * 500
    found = decode(noise + batch(DIRECT, [report(DIRECT, 2)]))
    assert found.rejected == {"invalid_message": 1}
    assert found.pieces[0][:3] == ("invalid_message", 0, 500)
    assert found.pieces[0].data == noise[:MAX_KEPT_BYTES]
    assert found.records.size == 1


def test_truncated():
    found = decode(batch(DIRECT, [report(DIRECT, 1), report(DIRECT, 2)])[: 44 + 18 + 5])
    assert found.rejected == {"truncated": 1}
    assert rows(found.records) == reference(DIRECT, [report(DIRECT, 1)], proven=False)
    assert decode(batch(DIRECT, [])[:20]).rejected == {"truncated": 1}


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


def test_all_are_counted_and_a_bounded_number_of_pieces_is_kept():
    bad = edited(report(DIRECT, 9), 14, b"\xff\xff")
    found = decode(batch(DIRECT, [bad] * (MAX_PIECES + 50)))
    assert found.rejected == {"question_unknown": MAX_PIECES + 50}
    assert len(found.pieces) == MAX_PIECES


# --- damage ---


def small(campaign) -> tuple[list[bytes], bytes]:
    records = [report(campaign, device, device) for device in range(4)]
    return records, batch(campaign, records)


@pytest.mark.parametrize("campaign", [*CAMPAIGNS, WIDE])
def test_cut_at_every_byte_keeps_every_whole_record_but_the_last(campaign):
    records, data = small(campaign)
    after = [report(campaign, 77)]
    head, length = len(header(campaign).to_bytes()), campaign.layout.record_length
    for cut in range(len(data)):
        found = decode(data[:cut] + batch(campaign, after), campaign)
        kept = rows(found.records)
        assert kept[-1] == reference(campaign, after, proven=True)[0]
        whole = max(0, min((cut - head) // length, len(records)))
        assert kept[:-1] == reference(campaign, records, proven=False)[: len(kept) - 1]
        assert len(kept) - 1 >= whole - 1
        if 0 < cut < head:
            assert sum(found.rejected.values()) == 1


@pytest.mark.parametrize("campaign", [DIRECT, UNARY])
def test_one_flipped_bit_costs_the_record_it_hits_and_none_in_another_batch(campaign):
    records, data = small(campaign)
    head, length = len(header(campaign).to_bytes()), campaign.layout.record_length
    before, after = batch(campaign, [report(campaign, 70)]), batch(campaign, [report(campaign, 71)])
    all_rows = reference(campaign, records, proven=False)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found = decode(before + bytes(changed) + after, campaign)
        kept = rows(found.records)
        assert kept[0] == reference(campaign, [report(campaign, 70)], proven=True)[0]
        assert kept[-1] == reference(campaign, [report(campaign, 71)], proven=True)[0]
        assert not any(row[-1] for row in kept[1:-1]), "nothing in a damaged batch is proven"
        hit = (bit // 8 - head) // length
        assert {row for place, row in enumerate(all_rows) if place != hit} <= set(kept)
        assert len(set(kept[1:-1]) - set(all_rows)) <= 1


def test_a_header_with_one_wrong_bit_costs_its_batch_its_standing_and_one_with_two_the_batch():
    records, data = small(DIRECT)
    for bit in range(8 * 44):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found = decode(bytes(changed))
        assert rows(found.records) == reference(DIRECT, records, proven=False)
        assert found.rejected == {}
        other = (bit + 77) % (8 * 44)
        changed[other // 8] ^= 1 << other % 8
        found = decode(bytes(changed))
        assert found.records.size == 0
        assert sum(found.rejected.values()) >= 1


@examples(200)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from([batch(DIRECT, [report(DIRECT, d)]) for d in range(5)]),
            st.sampled_from([header(DIRECT).to_bytes(), report(DIRECT, 1), trailer(1, bytes(32)), b"\xd8\x01"]),
        ),
        max_size=8,
    )
)
def test_no_bytes_raise_and_every_kept_record_is_one_that_was_there(pieces):
    data = b"".join(pieces)
    found = decode(data)
    for row, position in zip(rows(found.records), found.positions.tolist(), strict=True):
        assert row[:4] == decode_report(DIRECT.layout, data[position : position + 18])


# --- all three layouts, mixed ---


MIXTURES = {
    "bits of several widths": mixed(*(mechanisms.from_epsilon("oue", "1", size) for size in (2, 9, 40))),
    "bits and values": mixed(mechanisms.from_epsilon("direct", "1", 300), mechanisms.from_epsilon("oue", "1", 3)),
    "long bits and values": mixed(mechanisms.from_epsilon("direct", "1", 6), mechanisms.from_epsilon("oue", "1", 30)),
    "integers of several widths": mixed(Row(1), Row(3)),
    "integers and values": mixed(mechanisms.from_epsilon("direct", "1", 65536), Row(2)),
    "all sizes of value": mixed(*(mechanisms.from_epsilon("direct", "1", size) for size in (2, 300, 65536))),
}


@pytest.mark.parametrize("name", MIXTURES)
@examples(60)
@given(data=st.data())
def test_the_domain_rule_is_that_of_the_scalar_decoder_in_every_layout(name, data):
    campaign = MIXTURES[name]
    width = campaign.layout.answer_bytes
    sparse = st.lists(st.sampled_from([0, 0, 0, 1, 128, 255]), min_size=width, max_size=width).map(bytes)
    fields = data.draw(st.lists(st.one_of(sparse, st.binary(min_size=width, max_size=width)), min_size=1, max_size=20))
    numbers = [data.draw(st.integers(0, len(campaign.questions) - 1)) for _ in fields]
    records = [
        encode_report(campaign.layout, digest(i)[:8], PRESENT, number, field)
        for i, (number, field) in enumerate(zip(numbers, fields, strict=True))
    ]
    found = decode(batch(campaign, records), campaign)
    answers = [
        decode_answer(campaign.questions[number].mechanism, field, campaign.layout)
        for number, field in zip(numbers, fields, strict=True)
    ]
    assert found.records.size == sum(answer is not None for answer in answers)
    assert found.rejected.get("value_out_of_domain", 0) == sum(answer is None for answer in answers)
    assert sum(found.rejected.values()) == found.rejected.get("value_out_of_domain", 0)
    tally = count(campaign, settle(found.records).records)
    for index, question in enumerate(campaign.questions):
        mine = [a for a, number in zip(answers, numbers, strict=True) if number == index and a is not None]
        assert tally.n[index] == len(mine)
        if question.mechanism.layout == SINGLE:
            assert tally.counts[index] == tuple(mine.count(v) for v in range(question.mechanism.answers))
        else:
            zero = (0,) * question.mechanism.answers
            assert tally.counts[index] == tuple(map(sum, zip(zero, *mine, strict=True)))


def test_integers_of_both_signs_are_summed_exactly():
    campaign = MIXTURES["integers of several widths"]
    least, most = -(1 << 31), (1 << 31) - 1
    answers = [(least, most, -1), (least, most, 2), (least, 0, -3)]
    records = [
        encode_report(campaign.layout, digest(i)[:8], PRESENT, 1, encode_answer(Row(3), answer, campaign.layout))
        for i, answer in enumerate(answers)
    ]
    found = decode(batch(campaign, records), campaign)
    assert count(campaign, found.records).counts == ((0,), (3 * least, 2 * most, -2))


def test_the_mixtures_cover_all_layouts():
    assert {campaign.layout.kind for campaign in MIXTURES.values()} == {SINGLE, BITS, INTEGERS}
