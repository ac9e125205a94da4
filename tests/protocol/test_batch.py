"""Batch files: all written records are read, also between damaged bytes, and no other records are read."""

from hashlib import sha256
from typing import NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.batches import account
from support.examples import examples
from support.failures import reason
from support.hostile import every_bit
from vectors import runner

from protocol.batches.batch import (
    END,
    MARK,
    TRAILER_BYTES,
    Batch,
    Damage,
    Header,
    read_batches,
    write_batch,
)
from protocol.batches.framing import count_adjacent
from protocol.batches.report import Layout

CAMPAIGN, OTHER = sha256(b"campaign").digest(), sha256(b"other").digest()
DIRECT = Header(CAMPAIGN, 1, 18)


def prefixes(header):
    """The possible first bytes of records of this layout and length, by a general msgpack writer.

    There is one possibility, except for rows of bits of length 18: sixteen bytes have a shorter header than fifteen.
    """
    sizes = range(header.record_length - 2, max(14, header.record_length - 6), -1)
    packed = ((size, msgpack.packb(msgpack.ExtType(header.layout, bytes(size)))) for size in sizes)
    return [each[: len(each) - size] for size, each in packed if len(each) == header.record_length]


def record(header, payload, prefix=None):
    prefix = prefix or prefixes(header)[0]
    return prefix + (payload * header.record_length)[: header.record_length - len(prefix)]


SHAPES = {
    (1, 18): Layout(1, 2),
    (2, 18): Layout(2, 2),
    (2, 20): Layout(2, 3),
    (2, 23): Layout(2, 6),
    (3, 30): Layout(3, 13),
    (2, 260): Layout(2, 243),
}
LAYOUTS = {Header(campaign, *shape): layout for campaign in (CAMPAIGN, OTHER) for shape, layout in SHAPES.items()}
shapes = st.sampled_from(list(SHAPES))
headers = st.builds(lambda campaign, shape: Header(campaign, *shape), st.sampled_from([CAMPAIGN, OTHER]), shapes)
payloads = st.binary(min_size=1, max_size=24) | st.sampled_from([MARK, END, b"\xd8\x01", MARK + b"\x01\xc4\x20"])


@st.composite
def batches(draw):
    header = draw(headers)
    prefix = draw(st.sampled_from(prefixes(header)))
    return header, [record(header, payload, prefix) for payload in draw(st.lists(payloads, max_size=5))]


class Found(NamedTuple):
    header: Header
    records: tuple[bytes, ...]
    proven: bool
    truncated: bool


def plain_header(data, position):
    """A header, read by a general msgpack reader and accepted only in canonical form."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
    unpacker.feed(data[position : position + 64])
    try:
        value = unpacker.unpack()
    except Exception:  # noqa: BLE001 - any bytes at all may stand here
        return None
    if type(value) is not list or len(value) != 6:
        return None
    mark, version, campaign, layout, length, extensions = value
    right = (
        (mark, version, extensions) == ("hsyb", 1, {})
        and type(campaign) is bytes
        and len(campaign) == 32
        and type(layout) is int
        and layout in (1, 2, 3)
        and type(length) is int
        and 0 < length <= 65540
    )
    spelled = msgpack.packb(value)
    if not right or data[position : position + len(spelled)] != spelled:
        return None
    return Header(campaign, layout, length), position + len(spelled)


def plain_prefixes(header, known):
    """The possible first bytes of a batch's records; one possibility for a known campaign."""
    if header not in known:
        return prefixes(header)
    payload = bytes(14 + LAYOUTS[header].answer_bytes)
    return [msgpack.packb(msgpack.ExtType(header.layout, payload))[: -len(payload)]]


def plain_near(data, position, known):
    """A header of a known campaign with one wrong bit."""
    for header in known:
        whole = header.to_bytes()
        piece = data[position : position + len(whole)]
        wrong = int.from_bytes(piece, "big") ^ int.from_bytes(whole, "big")
        if len(piece) == len(whole) and wrong.bit_count() == 1:
            return header, position + len(whole)
    return None


def plain_proven(data, start, length, prefix, begun):
    """The records of a run that ends at its right trailer, and the end of the batch."""
    position, records = start, []
    while prefix is not None and data.startswith(prefix, position) and position + length <= len(data):
        records.append(data[position : position + length])
        position += length
    digest = sha256(data[begun:position]).digest()
    right = END + b"\xce" + len(records).to_bytes(4, "big") + b"\xc4\x20" + digest
    return (records, position + len(right)) if data.startswith(right, position) else None


def plain_salvage(data, start, length, prefix, h):
    """The four rules for unproven batches. Returns the records, whether a trailer ended the batch, and its end."""
    signs = (MARK, END) if prefix is None else (prefix, MARK, END)
    position, grid, records = start, start, []

    def fits(at):
        return prefix is not None and data.startswith(prefix, at) and at + length <= h

    def is_held(at):
        return fits(at) and any(q == h or (q < h and data.startswith(signs, q)) for q in (at + length, at + 2 * length))

    def is_cut_short(at):
        inside = range(at + 1, at + length)
        return any(is_held(q) or (data.startswith(END, q) and q + TRAILER_BYTES <= h) for q in inside)

    while position < len(data):
        on_grid = next(q for q in range(position, position + length) if (q - grid) % length == 0)
        kept = fits(position) and (is_held(position) or not is_cut_short(position))
        in_record = on_grid != position and on_grid < h and data.startswith(signs, on_grid)
        if on_grid != position and data.startswith(signs, on_grid):
            kept = False
        if kept:
            records.append(data[position : position + length])
            position = grid = position + length
        elif position == h or (data.startswith(MARK, position) and not in_record):
            break
        elif data.startswith(END, position) and position + TRAILER_BYTES <= h and not in_record:
            return records, True, position + TRAILER_BYTES
        else:
            position += 1
    return records, False, position


def plain_read(data, known=()):
    """Section 4 of docs/formats.md, sentence by sentence and byte by byte: slow, and easy to check."""
    near = {at: found for at in range(len(data)) if (found := plain_near(data, at, known))}
    readable = {at: found for at in range(len(data)) if data.startswith(MARK, at) and (found := plain_header(data, at))}
    found, position = [], 0
    while position < len(data):
        if position not in near and position not in readable:
            position += 1
            continue
        for shape, start in filter(None, (readable.get(position), near.get(position))):
            length, possible = shape.record_length, plain_prefixes(shape, known)
            prefix = next(
                (each for each in possible if data.startswith(each, start)), possible[0] if possible else None
            )
            whole = (
                plain_proven(data, start, length, prefix, position)
                if (shape, start) == readable.get(position)
                else None
            )
            if whole is not None:
                break
        if whole is not None:
            records, position = whole
            found.append(Found(shape, tuple(records), proven=True, truncated=False))
            continue
        h = min((at for at in (*near, *readable) if at >= start), default=len(data))
        records, ended, position = plain_salvage(data, start, length, prefix, h)
        found.append(Found(shape, tuple(records), proven=False, truncated=not ended))
    return found


def as_found(data, item):
    length = item.header.record_length
    records = [data[start + n * length : start + (n + 1) * length] for start, count in item.spans for n in range(count)]
    return Found(item.header, tuple(records), item.proven, item.truncated)


def read(data, known=()):
    items = read_batches(data, {header.campaign: LAYOUTS[header] for header in known})
    return [as_found(data, item) for item in items if isinstance(item, Batch)]


def check(data, known=()):
    """Check that the reader agrees with the plain reader and covers every byte once. Returns the batches."""
    layouts = {header.campaign: LAYOUTS[header] for header in known}
    items = list(read_batches(data, layouts))
    account(data, items, layouts)
    found = [as_found(data, item) for item in items if isinstance(item, Batch)]
    assert found == plain_read(data, known)
    return found


@given(st.lists(batches(), max_size=4))
def test_what_is_written_is_read(written):
    data = b"".join(write_batch(header, records) for header, records in written)
    assert check(data) == [Found(header, tuple(records), proven=True, truncated=False) for header, records in written]


garbage = st.binary(max_size=30) | st.sampled_from([MARK, END, MARK[:3], END[:4], b"\xd8\x01" * 9, b"\xc7\x0f\x02"])
pieces = st.one_of(
    batches().map(lambda pair: write_batch(*pair)),
    batches().map(lambda pair: write_batch(*pair)[:-TRAILER_BYTES]),
    batches().map(lambda pair: pair[0].to_bytes()),
    batches().map(lambda pair: b"".join(pair[1])),
    garbage,
)


knowledge = st.sampled_from([(), (Header(CAMPAIGN, 1, 18),), (Header(CAMPAIGN, 2, 23), Header(OTHER, 1, 18))])


@examples(500)
@given(st.lists(pieces, max_size=6).map(b"".join), knowledge, st.data())
def test_any_file_is_read_as_the_text_says(data, known, draw):
    if data:
        position = draw.draw(st.integers(0, len(data) - 1))
        begin, end = data[:position], data[position:]
        bit, count, foreign = draw.draw(st.tuples(st.integers(0, 7), st.integers(1, 20), garbage))
        turned = begin + bytes([end[0] ^ 1 << bit]) + end[1:]
        data = draw.draw(st.sampled_from([data, turned, begin, begin + foreign + end, begin + end[count:]]))
    check(data, known)


RECORDS = [record(DIRECT, sha256(bytes([number])).digest()) for number in range(5)]
WHOLE = write_batch(DIRECT, RECORDS)
BODY = range(len(DIRECT.to_bytes()), len(WHOLE) - TRAILER_BYTES)


def test_a_flipped_bit_costs_at_most_the_touched_record_and_the_one_before_it():
    """A record counts only if a sign follows, so a damaged sign costs the record before it, too."""
    for position in range(BODY.start, len(WHOLE)):
        touched, offset = divmod(position - BODY.start, 18)
        neighbours = set(RECORDS[max(0, touched - (offset < 2)) : touched + 1])
        if position >= BODY.stop:
            neighbours = {RECORDS[-1]} if position < BODY.stop + len(END) else set()
        for data in every_bit(WHOLE, [position]):
            (batch,) = check(data)
            assert not batch.proven
            assert set(RECORDS) - set(batch.records) <= neighbours
            assert batch.truncated == (BODY.stop <= position < BODY.stop + len(END))


def test_a_file_cut_anywhere_keeps_what_is_surely_whole():
    for length in range(len(WHOLE)):
        found = check(WHOLE[:length])
        kept = [each for batch in found for each in batch.records]
        whole = max(0, (length - BODY.start) // 18)
        assert kept == RECORDS[: len(kept)]
        assert min(whole, 5) - 1 <= len(kept) <= min(whole, 5)
        assert all(batch.truncated and not batch.proven for batch in found)
        if length >= BODY.stop:  # a damaged trailer costs no record
            assert kept == RECORDS
        if BODY.start <= length < len(WHOLE) - TRAILER_BYTES and (length - BODY.start) % 18:
            damage = [item for item in read_batches(WHOLE[:length]) if isinstance(item, Damage)]
            assert [item.position + item.length for item in damage] == [length]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] < 100])
def test_a_changed_bit_anywhere_costs_at_most_the_record_that_it_is_in(shape):
    """Also in header and trailer, between two complete batches. A wrong digest proves no record."""
    header = Header(CAMPAIGN, *shape)
    records = [record(header, sha256(bytes([number])).digest()) for number in range(5)]
    whole, clean = write_batch(header, records), write_batch(header, records[:2])
    start = len(header.to_bytes())
    for position in range(len(whole)):
        hit = (position - start) // header.record_length
        for data in every_bit(whole, [position], [position % 8]):
            first, batch, last = check(clean + data + clean, [header])
            assert first.proven
            assert last.proven
            assert (batch.header, batch.proven) == (header, False)
            others = [each for number, each in enumerate(records) if number != hit]
            assert [each for each in batch.records if each in others] == others
            assert len(batch.records) - len(others) in ((0, 1) if 0 <= hit < 5 else (0,))


@pytest.mark.parametrize("place", [2, 4])
@pytest.mark.parametrize("begin", [END, MARK, b"\x01" + END, END + MARK[:3], b"\xd8\x01" * 4, MARK[:2] + MARK])
def test_what_a_sender_writes_into_an_id_costs_nobody_else_a_record(begin, place):
    """Once, a trailer's marker in the id of a damaged record ended the batch; all later records were lost."""
    records = [record(DIRECT, sha256(bytes([number])).digest()) for number in range(5)]
    records[place] = record(DIRECT, begin[:8].ljust(8, b"\0") + bytes(range(8)))
    whole, clean = write_batch(DIRECT, records), write_batch(DIRECT, RECORDS[:2])
    start = len(DIRECT.to_bytes())
    for position in range(len(whole)):
        hit = (position - start) // 18
        for data in every_bit(whole, [position], [position % 8]):
            batches = read(clean + data + clean, [DIRECT])
            assert [batch.proven for batch in batches] == [True, False, True]
            lost = {hit} if hit < 5 else {4} & {place}  # the sender's own record, if the trailer's marker is damaged
            others = [each for number, each in enumerate(records) if number not in lost]
            assert [each for each in batches[1].records if each in others] == others


@examples(200)
@given(st.integers(len(DIRECT.to_bytes()), len(WHOLE)), st.binary(min_size=1, max_size=60))
def test_foreign_bytes_cost_at_most_the_record_that_they_are_in(position, foreign):
    if any(sign[:2] in foreign + WHOLE[position : position + 2] for sign in (MARK, END, b"\xd8\x01")):
        foreign = bytes(len(foreign))
    found = check(WHOLE[:position] + foreign + WHOLE[position:], [DIRECT])
    hit, inside = divmod(position - BODY.start, 18)
    others = [each for number, each in enumerate(RECORDS) if number != hit or not inside]
    assert [each for batch in found for each in batch.records if each in others] == others


@given(st.integers(BODY.start, BODY.stop - 1), st.integers(1, 17))
def test_missing_bytes_cost_at_most_the_records_that_they_are_missing_in(position, length):
    stop = min(position + length, BODY.stop)
    (batch,) = check(WHOLE[:position] + WHOLE[stop:], [DIRECT])
    hit = range((position - BODY.start) // 18, (stop - 1 - BODY.start) // 18 + 1)
    others = [each for number, each in enumerate(RECORDS) if number not in hit]
    assert [each for each in batch.records if each in others] == others


def test_what_looks_like_a_record_in_every_record_does_not_move_the_reader_off_the_grid():
    """The period holds a record's first bytes: a second grid, which differs only in its start from the true grid."""
    records = [b"\xd8\x01" + sha256(bytes([n])).digest()[:8] + b"\0\0\xd8\x01" + bytes([0, n, 0, 0]) for n in range(9)]
    whole = write_batch(DIRECT, records)
    for hit in range(9):
        for data in every_bit(whole, [len(DIRECT.to_bytes()) + 18 * hit]):
            (batch,) = check(data, [DIRECT])
            assert batch.records == tuple(records[:hit] + records[hit + 1 :])


def test_a_batch_whose_header_is_near_that_of_a_known_campaign_is_still_proven_for_its_own():
    near = Header(bytes([CAMPAIGN[0] ^ 1]) + CAMPAIGN[1:], 1, 18)
    (batch,) = check(write_batch(near, RECORDS), [DIRECT])
    assert (batch.header, batch.proven) == (near, True)
    (batch,) = check(write_batch(near, RECORDS)[:-1], [DIRECT])
    assert (batch.header, batch.proven) == (DIRECT, False)


@pytest.mark.parametrize("name", [name for name, case in runner.load_all() if case["kind"].startswith("batch_read")])
def test_the_plain_reader_agrees_with_the_vectors(name):
    case = dict(runner.load_all())[name]
    stated = [Header(bytes.fromhex(each["campaign"]), each["layout"], 18) for each in case.get("known", ())]
    found = plain_read(bytes.fromhex("".join(case["parts"])), stated)
    expected = [each for each in case["expect"] if "records" in each]
    assert [([record.hex() for record in batch.records], batch.proven, batch.truncated) for batch in found] == [
        (each["records"], each["proven"], each["truncated"]) for each in expected
    ]


def test_a_batch_states_the_digest_of_its_trailer():
    start = len(WHOLE) - TRAILER_BYTES
    digest = WHOLE[-32:]
    assert [item.digest for item in read_batches(WHOLE)] == [digest]
    assert [item.digest for item in read_batches(WHOLE[:50] + b"\1" + WHOLE[51:])] == [digest]
    assert [item.digest for item in read_batches(WHOLE[:start])] == [b""]


@examples(60)
@given(st.integers(1, 90), st.integers(0, 40_000), st.integers(0, 3), st.integers(1, 4))
def test_adjacent_records_are_counted_as_they_stand(length, count, start, width):
    prefix = b"\xc7\x1e\x02\x00"[: min(width, length)]
    data = bytes(start) + prefix.ljust(length, b"\1") * count
    assert count_adjacent(data, start, length, prefix) == count
    if count:
        at = start + length * (count // 3) + len(prefix) - 1
        assert count_adjacent(data[:at] + b"\xff" + data[at + 1 :], start, length, prefix) == count // 3


def test_a_header_of_any_length_is_read_and_harms_nothing():
    """Headers may state lengths that no record has, for example 65540 bytes."""
    for layout in (1, 2, 3, 4):
        for length in (*range(1, 300), *range(65500, 65541)):
            header = Header(CAMPAIGN, layout, length)
            batch, *_ = read_batches(header.to_bytes() + bytes(100) + END)
            assert isinstance(batch, Batch)
            assert (batch.header, batch.spans) == (header, ())
        for length in (0, 65541, 1 << 24, (1 << 32) - 1):
            (damage,) = read_batches(Header(CAMPAIGN, layout, length).to_bytes())
            assert damage.reason == "invalid_message"


def test_the_longest_records_are_read():
    header = Header(CAMPAIGN, 2, 65539)
    records = [record(header, bytes([number])) for number in (1, 2)]
    assert check(write_batch(header, records)) == [Found(header, tuple(records), proven=True, truncated=False)]


def test_a_header_that_ends_with_the_file_is_cut_only_if_more_bytes_could_mend_it():
    for length in (18, 127, 128, 300, 65536, 65540):
        whole = Header(CAMPAIGN, 3, length).to_bytes()
        for cut in range(1, len(whole)):
            assert [item.reason for item in read_batches(whole[:cut])] == ["truncated"]
    for changed in (b"\x96\xa4hsyc", DIRECT.to_bytes()[:9] + CAMPAIGN + b"\x05", b"\x96\xa4hsyb\x02", b"x\x96\xa4hsyb"):
        assert [item.reason for item in read_batches(changed)] == ["invalid_message"]


def test_records_of_a_batch_that_is_not_understood_are_not_given_to_the_one_before():
    newer = WHOLE.replace(MARK + b"\x01", MARK + b"\x02", 1)
    found = check(WHOLE[:-TRAILER_BYTES] + newer + WHOLE)
    assert [len(batch.records) for batch in found] == [5, 5]
    assert [batch.proven for batch in found] == [False, True]


def test_rows_of_bits_of_length_18_are_told_apart_by_the_campaign_or_else_by_the_first_record():
    header = Header(CAMPAIGN, 2, 18)
    for layout in (Layout(2, 1), Layout(2, 2)):
        assert layout.record_length == 18
        assert layout.prefix in prefixes(header)
        records = [record(header, bytes([number]), layout.prefix) for number in range(3)]
        whole = write_batch(header, records)
        assert check(whole) == [Found(header, tuple(records), proven=True, truncated=False)]
        start = len(header.to_bytes())
        damaged = whole[:start] + b"\0" + whole[start + 1 :]
        (batch,) = [item for item in read_batches(damaged, {CAMPAIGN: layout}) if isinstance(item, Batch)]
        assert as_found(damaged, batch).records == tuple(records[1:])


def test_records_of_another_length_are_not_written():
    assert reason(write_batch, DIRECT, [RECORDS[0], RECORDS[1] + b"\0"]) == "batch_invalid"
