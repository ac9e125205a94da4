"""A batch with very many damaged places is read in pieces, so the memory does not grow with the file.

Once, a stray byte between any two records made the reader keep a run and a stretch for each record.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from hashlib import sha256

import pytest
from support.watched import Watched, peak

from protocol.batches import batch
from protocol.batches.batch import MAX_PIECES, Batch, Damage, Header, read_batches, trailer, write_batch
from protocol.batches.report import FIXED_BYTES, Layout

CAMPAIGN = sha256(b"campaign").digest()
LAYOUT = Layout(1, 18 - 2 - FIXED_BYTES)
HEADER = Header(CAMPAIGN, 1, 18)
KNOWN = {CAMPAIGN: LAYOUT}


def records(count):
    return [LAYOUT.prefix + number.to_bytes(16, "big") for number in range(count)]


def strayed(count, *, end=b""):
    """A batch with a stray byte between every two records."""
    return HEADER.to_bytes() + b"\0".join(records(count)) + end


def damaged(rng):
    """Some batches in sequence, with changed, inserted and deleted bytes."""
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        data = bytearray(write_batch(HEADER, records(rng.randrange(30))))
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
        whole = list(read_batches(data, KNOWN))
        monkeypatch.setattr(batch, "MAX_PIECES", most)
        pieces = list(read_batches(data, KNOWN))
        assert joined(pieces) == joined(whole)
        several += len(pieces) > len(whole)
    assert several > 10


@pytest.mark.parametrize("end", [b"", trailer(7, bytes(range(32)))], ids=["cut", "with a trailer"])
def test_a_piece_is_bounded_and_knows_what_the_trailer_states(end):
    count = 3 * MAX_PIECES
    items = list(read_batches(strayed(count, end=end), KNOWN))
    batches = [item for item in items if isinstance(item, Batch)]
    assert len(batches) > 4
    assert [item.goes_on for item in batches] == [False] + [True] * (len(batches) - 1)
    assert {(item.digest, item.truncated) for item in batches} == {(end[-32:], not end)}
    assert max(len(item.spans) for item in batches) <= MAX_PIECES
    assert sum(number for item in batches for _, number in item.spans) == count
    assert sum(isinstance(item, Damage) for item in items) == count - 1


def test_the_memory_does_not_grow_with_the_file(monkeypatch):
    monkeypatch.setattr(batch, "MAX_PIECES", 1 << 11)
    few, many = (
        peak(partial(deque, read_batches(strayed(count << 11, end=trailer(1, bytes(32))), KNOWN), maxlen=0))
        for count in (1, 5)
    )
    assert many < 1.2 * few + 12_500


def test_looking_ahead_costs_the_same_work_once_more(monkeypatch):
    """For any number of pieces and batches. The work is counted as in test_batch_work."""
    monkeypatch.setattr(batch, "MAX_PIECES", 4)
    one = strayed(40, end=trailer(1, bytes(32)))
    steps = []
    for number in (20, 80):
        Watched.steps = 0
        for _ in read_batches(Watched(one * number), KNOWN):
            pass
        steps.append(Watched.steps)
    assert steps[1] < 4.4 * steps[0]
    assert steps[1] < 24 * 80 * len(one)
