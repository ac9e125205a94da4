"""Repeated ids are found for all bit patterns, and few other ids are compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from aggregator.reports.tally.duplicates import IdSet, Members, repeated_rows


def slow(ids):
    """Rows whose id occurs more than once."""
    values, place, times = np.unique(ids, return_inverse=True, return_counts=True)
    return np.flatnonzero(times[place] > 1), values[times > 1]


corners = st.sampled_from([0, 1, (1 << 64) - 1, 1 << 63, 1 << 48, (1 << 48) - 1, 0xABCD << 48])


@examples(300)
@given(st.lists(corners | st.integers(0, (1 << 64) - 1), max_size=60), st.integers(0, 20), st.data())
def test_rows_and_ids_are_those_of_a_plain_search(numbers, known_bits, data):
    ids = np.array(numbers, np.uint64)
    rows, values = slow(ids)
    assert repeated_rows(ids, known_bits).tolist() == rows.tolist()
    gathered = IdSet(data.draw(st.integers(0, 1 << 18)), known_bits)
    cut = data.draw(st.integers(0, len(ids)))
    gathered.add(ids[:cut])
    gathered.add(ids[cut:])
    assert gathered.repeated().tolist() == values.tolist()


@pytest.mark.parametrize("groups", [1, 4, 256])
@pytest.mark.parametrize("chosen", ["random", "same high bits", "same low bits", "one group", "all the same"])
def test_ids_that_somebody_chose_are_found_like_others(groups, chosen):
    gathered = IdSet({1: 20_000, 4: 100_000, 256: 5_000_000}[groups], 0)
    assert len(gathered._ids) == groups
    rng = np.random.default_rng(7)
    ids = rng.integers(0, 1 << 64, 20_000, np.uint64)
    if chosen == "same high bits":
        ids >>= np.uint64(16)
    elif chosen == "same low bits":
        ids <<= np.uint64(16)
    elif chosen == "one group":
        ids |= np.uint64(0xFF)
    elif chosen == "all the same":
        ids[:] = 5
    ids[rng.integers(0, 20_000, 500)] = ids[rng.integers(0, 20_000, 500)]
    gathered.add(ids)
    rows, values = slow(ids)
    assert gathered.repeated().tolist() == values.tolist()
    assert Members(gathered.repeated()).rows(ids).tolist() == rows.tolist()


def test_members_are_told_from_others_that_share_their_high_bits():
    few = np.array([5, 1 << 60, (1 << 60) + 1], np.uint64)
    some = np.array([4, 5, 6, 1 << 60, (1 << 60) + 2, (1 << 64) - 1], np.uint64)
    assert Members(few).rows(some).tolist() == [1, 3]
    assert Members(few[:0]).rows(some).tolist() == []
    assert Members(few).rows(some[:0]).tolist() == []


@pytest.mark.parametrize(("copies", "many"), [(0, False), (100, False), (10_000, True)])
def test_it_is_told_early_whether_most_ids_repeat(copies, many):
    ids = np.random.default_rng(3).integers(0, 1 << 64, 10_000, np.uint64)
    gathered = IdSet(20_000, 0)
    assert not gathered.has_many()
    gathered.add(ids)
    gathered.add(ids[:copies])
    assert gathered.has_many() is many
