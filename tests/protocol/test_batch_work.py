"""Reading a batch file takes a bounded amount of work per byte and of memory, also for files made to be slow.

The tests count the work instead of timing it: bytes hashed, searched and copied, and comparisons. A batch with very
many damaged places is read in pieces. Once, a stray byte between any two records made the reader keep a run and a
stretch for each record.
"""

import random
from collections import deque
from functools import partial
from hashlib import sha256

import pytest
from support.watched import Watched, peak

from protocol.batches import batch
from protocol.batches import framing as scan
from protocol.batches.batch import END, MARK, Batch, Damage, Header, read_batches, trailer, write_batch
from protocol.batches.framing import MAX_WASTED
from protocol.batches.report import FIXED_BYTES, Layout

CAMPAIGN = sha256(b"campaign").digest()
SIZE = 50_000
PER_BYTE = 12
"""Allowed steps per byte of the file. An earlier reader took thousands for most of these files."""


def rows(length):
    """A header of rows of bits of this length, and the first bytes of its records (empty for impossible lengths)."""
    return Header(CAMPAIGN, 2, length).to_bytes(), (*batch.prefixes(2, length), b"")[0]


def headers_in_records():
    """Every record ends in a complete header, whose records are the records that follow."""
    header, prefix = rows(62)
    return header + (prefix + header.rjust(62 - len(prefix), b"\0")) * (SIZE // 62)


def batches_that_end_alike():
    """Headers of many lengths. Each has one record that ends at the same trailer of another batch."""
    step, count = 50, 1200
    cells = []
    for place in range(count):
        rest = step * (count - place)
        header, _ = rows(rest - 46)
        header, prefix = rows(rest - len(header))
        cells.append((header + prefix).ljust(step, b"\0"))
    return (b"".join(cells) + trailer(1, bytes(32))) * (SIZE // (step * count) + 1)


def records_everywhere():
    """The first bytes of a record at every fourth byte, and a header near the end of each such record."""
    header, prefix = rows(20_000)
    return (header + prefix * 4_500) * (SIZE // 18_000)


def runs_with_wrong_digests():
    header, prefix = rows(40)
    return (header + (prefix + bytes(40 - len(prefix))) * 9 + trailer(9, bytes(32))) * (SIZE // 450)


def near_headers(length):
    """A header of a known campaign with one wrong bit in the campaign id."""
    header, _ = rows(length)
    return header[:20] + bytes([header[20] ^ 4]) + header[21:]


HOSTILE = {
    "headers in records": headers_in_records(),
    "batches that end alike": batches_that_end_alike(),
    "records everywhere": records_everywhere(),
    "runs with wrong digests": runs_with_wrong_digests(),
    "records that are followed by nothing": rows(65_000)[0] + (rows(65_000)[1] + b"\0") * (SIZE // 5),
    "marks": MARK * (SIZE // 6),
    "trailers alone": END * (SIZE // 5),
    "beginnings of records": Header(CAMPAIGN, 1, 18).to_bytes() + b"\xd8\x01" * (SIZE // 2),
    "trailers": rows(62)[0] + END * (SIZE // 5),
    "headers": rows(62)[0] * (SIZE // 44),
    "headers of every length": b"".join(rows(20 + number)[0] for number in range(SIZE // 46)),
    "headers and trailers": (rows(62)[0] + END) * (SIZE // 49),
    "headers with a wrong bit": near_headers(62) * (SIZE // 44),
    "headers with a wrong bit that can not be read": (rows(62)[0][:-1] + b"\x81") * (SIZE // 44),
    "halves of headers": rows(62)[0][:22] * (SIZE // 44) + rows(62)[0][22:] * (SIZE // 44),
    "records that hold headers with a wrong bit": near_headers(62)
    + (rows(62)[1] + near_headers(62).rjust(62 - len(rows(62)[1]), b"\0")) * (SIZE // 62),
    "records that end nowhere": rows(500)[0] + (rows(500)[1] + bytes(11)) * (SIZE // 15),
    "two grids": rows(62)[0] + (rows(62)[1].ljust(31, b"\0") * 3 + b"\0") * (SIZE // 94),
}
KNOWN = {CAMPAIGN: Layout(2, 62 - 3 - FIXED_BYTES)}


@pytest.mark.parametrize("known", [{}, KNOWN], ids=["a stranger", "a reader that knows the campaign"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_work_is_proportional_to_the_file(kind, known, monkeypatch):
    data = Watched(HOSTILE[kind])
    hashed = []
    monkeypatch.setattr(scan, "sha256", lambda part: hashed.append(len(part)) or sha256(part))
    Watched.steps = 0
    items = list(read_batches(data, known))
    assert sum(hashed) <= (1 + MAX_WASTED) * len(data)
    assert Watched.steps <= PER_BYTE * len(data)
    assert sum(item.length for item in items if isinstance(item, Damage)) <= len(data)


def test_the_count_sees_a_reader_that_looks_twice_at_everything():
    """The count grows with the work, so the test above can fail."""
    data = Watched(HOSTILE["headers in records"])
    Watched.steps = 0
    for position in range(0, len(data), 620):
        data.find(b"not there", position)
    assert Watched.steps > PER_BYTE * len(data)


DIRECT = Header(CAMPAIGN, 1, 18)
LAYOUT = Layout(1, 18 - 2 - FIXED_BYTES)
OF_DIRECT = {CAMPAIGN: LAYOUT}


def records(count):
    return [LAYOUT.prefix + number.to_bytes(16, "big") for number in range(count)]


def test_records_with_headers_in_them_are_records_of_a_whole_batch():
    header, prefix = rows(62)
    full = [prefix + bytes([number]) + header.rjust(61 - len(prefix), b"\0") for number in range(50)]
    whole = write_batch(Header(CAMPAIGN, 2, 62), full)
    (found,) = read_batches(whole)
    assert found == Batch(Header(CAMPAIGN, 2, 62), ((44, 50),), proven=True, truncated=False, digest=whole[-32:])


def test_hostile_bytes_do_not_keep_later_batches_from_being_proven():
    honest = write_batch(DIRECT, records(3))
    found = [
        item
        for item in read_batches(HOSTILE["batches that end alike"] * 2 + honest * 3)
        if isinstance(item, Batch) and item.header.record_length == 18
    ]
    assert [item.proven for item in found] == [True] * 3
    assert [count for item in found for _, count in item.spans] == [3] * 3


def test_a_digest_that_is_not_looked_at_leaves_records_unproven_and_loses_none(monkeypatch):
    monkeypatch.setattr(scan, "MAX_WASTED", 0)
    whole = write_batch(DIRECT, records(3))
    (found,) = read_batches(whole)
    assert found == Batch(DIRECT, ((44, 3),), proven=False, truncated=False, digest=whole[-32:])


# In pieces -------------------------------------------------------------------------------------------------


def strayed(count, *, end=b""):
    return DIRECT.to_bytes() + b"\0".join(records(count)) + end


def damaged(rng):
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        data = bytearray(write_batch(DIRECT, records(rng.randrange(30))))
        for _ in range(rng.choice((0, 1, 3, 20))):
            place = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[place:place] = rng.choice((b"\0", b"\xd8", LAYOUT.prefix, batch.MARK, batch.END, bytes(25)))
            else:
                del data[place : place + rng.choice((1, 5, 18))]
        pieces.append(bytes(data))
    return b"".join(pieces)


def joined(items):
    """Join the pieces of each batch: adjacent spans become one, damage is collected."""
    found = []
    for item in items:
        if isinstance(item, Batch) and item.goes_on:
            start = found[-1]
            assert (item.header, item.proven, item.truncated, item.digest) == start[:4]
        elif isinstance(item, Batch):
            found.append((item.header, item.proven, item.truncated, item.digest, [], []))
        else:
            found = found or [(None, None, None, None, [], [])]
        if isinstance(item, Damage):
            found[-1][5].append(item)
            continue
        for start, count in item.spans:
            found[-1][4].extend(range(start, start + count * item.header.record_length, item.header.record_length))
    return found


@pytest.mark.parametrize("most", [1, 2, 7])
def test_pieces_add_up_to_what_is_read_at_once(most, monkeypatch):
    rng = random.Random(most)
    several = 0
    for _ in range(300):
        data = damaged(rng)
        monkeypatch.setattr(batch, "MAX_PIECES", 1 << 30)
        whole = list(read_batches(data, OF_DIRECT))
        monkeypatch.setattr(batch, "MAX_PIECES", most)
        pieces = list(read_batches(data, OF_DIRECT))
        assert joined(pieces) == joined(whole)
        several += len(pieces) > len(whole)
    assert several > 10


@pytest.mark.parametrize("end", [b"", trailer(7, bytes(range(32)))], ids=["cut", "with a trailer"])
def test_a_piece_is_bounded_and_knows_what_the_trailer_states(end, monkeypatch):
    most = 1 << 10
    monkeypatch.setattr(batch, "MAX_PIECES", most)
    count = 3 * most
    items = list(read_batches(strayed(count, end=end), OF_DIRECT))
    batches = [item for item in items if isinstance(item, Batch)]
    assert len(batches) > 4
    assert [item.goes_on for item in batches] == [False] + [True] * (len(batches) - 1)
    assert {(item.digest, item.truncated) for item in batches} == {(end[-32:], not end)}
    assert max(len(item.spans) for item in batches) <= most
    assert sum(number for item in batches for _, number in item.spans) == count
    assert sum(isinstance(item, Damage) for item in items) == count - 1


def test_the_memory_does_not_grow_with_the_file(monkeypatch):
    monkeypatch.setattr(batch, "MAX_PIECES", 1 << 11)
    few, many = (
        peak(partial(deque, read_batches(strayed(count << 11, end=trailer(1, bytes(32))), OF_DIRECT), maxlen=0))
        for count in (1, 5)
    )
    assert many < 1.2 * few + 12_500


def test_looking_ahead_costs_the_same_work_once_more(monkeypatch):
    monkeypatch.setattr(batch, "MAX_PIECES", 4)
    one = strayed(40, end=trailer(1, bytes(32)))
    steps = []
    for number in (20, 80):
        Watched.steps = 0
        for _ in read_batches(Watched(one * number), OF_DIRECT):
            pass
        steps.append(Watched.steps)
    assert steps[1] < 4.4 * steps[0]
    assert steps[1] < 24 * 80 * len(one)
