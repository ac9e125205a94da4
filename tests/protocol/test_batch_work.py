"""Reading a batch file takes a bounded amount of work per byte, also for files made to be slow.

The tests count the work instead of timing it: bytes hashed, searched and copied, and comparisons.
"""

from __future__ import annotations

from hashlib import sha256

import pytest
from support.watched import Watched

from protocol.batches import batch
from protocol.batches import framing as scan
from protocol.batches.batch import END, MARK, Batch, Damage, Header, read_batches, trailer, write_batch
from protocol.batches.framing import MAX_WASTED
from protocol.batches.report import FIXED_BYTES, Layout

CAMPAIGN = sha256(b"campaign").digest()
SIZE = 200_000
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
    """Complete batches in sequence, all with a wrong digest."""
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


def test_records_with_headers_in_them_are_records_of_a_whole_batch():
    header, prefix = rows(62)
    records = [prefix + bytes([number]) + header.rjust(61 - len(prefix), b"\0") for number in range(50)]
    whole = write_batch(Header(CAMPAIGN, 2, 62), records)
    (found,) = read_batches(whole)
    assert found == Batch(Header(CAMPAIGN, 2, 62), ((44, 50),), proven=True, truncated=False, digest=whole[-32:])


def test_hostile_bytes_do_not_keep_later_batches_from_being_proven():
    records = [b"\xd8\x01" + bytes([number]) * 16 for number in range(3)]
    honest = write_batch(Header(CAMPAIGN, 1, 18), records)
    found = [
        item
        for item in read_batches(HOSTILE["batches that end alike"] * 2 + honest * 3)
        if isinstance(item, Batch) and item.header.record_length == 18
    ]
    assert [item.proven for item in found] == [True] * 3
    assert [count for item in found for _, count in item.spans] == [3] * 3


def test_a_digest_that_is_not_looked_at_leaves_records_unproven_and_loses_none(monkeypatch):
    records = [b"\xd8\x01" + bytes([number]) * 16 for number in range(3)]
    monkeypatch.setattr(scan, "MAX_WASTED", 0)
    whole = write_batch(Header(CAMPAIGN, 1, 18), records)
    (found,) = read_batches(whole)
    assert found == Batch(Header(CAMPAIGN, 1, 18), ((44, 3),), proven=False, truncated=False, digest=whole[-32:])
