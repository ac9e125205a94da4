"""One record per id is counted, for every order and repetition of input and however little fits into memory."""

from __future__ import annotations

import errno
import tempfile
from collections import defaultdict
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW
from support.reports import CAMPAIGN, CAMPAIGNS, RAWS, batch, moved, opened
from support.stores import reports, stored

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally import counting
from aggregator.reports.tally.counting import Partition, count_partition
from aggregator.reports.tally.duplicates import IdSet, Lots, Members, repeated_rows
from aggregator.reports.tally.scope import EVERYTHING, Scope
from aggregator.reports.tally.tally import Tally, count, settle
from protocol import canonical
from protocol.errors import StorageError

UNARY = CAMPAIGNS["oue"]

row = st.tuples(
    st.integers(0, 3).map(lambda i: i * ((1 << 64) - 1) // 3),  # few ids, including the smallest and the largest
    st.integers(0, 1),
    st.integers(0, 1),
    st.sampled_from([b"\0\0", b"\0\1", b"\1\0"]),
    st.booleans(),
)


def columns(rows) -> Columns:
    return Columns(
        np.array([r[0] for r in rows], np.uint64),
        np.array([r[1] for r in rows], np.uint32),
        np.array([r[2] for r in rows], np.uint16),
        np.frombuffer(b"".join(r[3] for r in rows), np.uint8).reshape(-1, 2),
        np.array([r[4] for r in rows], np.bool_),
    )


def slow_settle(rows):
    """The rule of docs/formats.md, section 4, with dictionaries: kept records, replays, conflicts, superseded."""
    by_id = defaultdict(list)
    for r in rows:
        by_id[r[0]].append(r)
    kept, replayed, conflicting, superseded = set(), 0, 0, 0
    for group in by_id.values():
        best = [r for r in group if r[4]] or group
        superseded += len(group) - len(best)
        distinct = {r[:4] for r in best}
        if len(distinct) == 1:
            kept.add(best[0])
            replayed += len(best) - 1
        else:
            conflicting += len(best)
    return kept, replayed, conflicting, superseded


def as_rows(records: Columns) -> list[tuple]:
    return [(int(i), int(p), int(q), a.tobytes(), bool(s)) for i, p, q, a, s in zip(*records, strict=True)]


@examples(200)
@given(st.lists(row, max_size=14))
def test_settling_is_the_rule_and_loses_no_record_unaccounted(rows):
    found = settle(columns(rows))
    kept = as_rows(found.records)
    assert (set(kept), found.replayed, found.conflicting, found.superseded) == slow_settle(rows)
    assert len(kept) == len(set(kept))
    assert len(kept) + found.replayed + found.conflicting + found.superseded == len(rows)


@examples(50)
@given(st.lists(st.integers(0, 50), unique=True, max_size=20), st.data())
def test_tallies_of_disjoint_reports_add_up_in_any_grouping(devices, data):
    cuts = sorted(data.draw(st.tuples(st.integers(0, len(devices)), st.integers(0, len(devices)))))
    parts = (devices[: cuts[0]], devices[cuts[0] : cuts[1]], devices[cuts[1] :], devices)
    a, b, c, whole = (
        count(CAMPAIGN, decode_batches(batch(CAMPAIGN, reports(part)), CAMPAIGN, now=NOW).records) for part in parts
    )
    assert a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(a).merge(b) == whole
    assert Tally.zero(CAMPAIGN).merge(whole) == whole


def test_tallies_of_two_campaigns_and_questions_of_another_are_refused():
    assert refusal(Tally.zero(CAMPAIGN).merge, Tally.zero(UNARY)) == "other_campaign"
    assert refusal(count, CAMPAIGN, columns([(1, 0, 3, b"\0\0", True)])) == "question_unknown"


def test_tally_bytes_are_the_canonical_map_of_the_format():
    tally = Tally(bytes(range(32)), (3, 0), ((1, 2), (0, 0, 0)))
    expected = (
        b"\x84"
         b"\xa8campaign\xc4\x20" + bytes(range(32))
        + b"\xa6counts\x92\x92\x01\x02\x93\x00\x00\x00"
        + b"\xa1n\x92\x03\x00"
        + b"\xa4spec\xa31.0"
    )  # fmt: skip
    assert tally.to_bytes() == expected
    assert tally.statistics_id == sha256(expected).digest()
    assert canonical.unpack(expected)["counts"] == [[1, 2], [0, 0, 0]]


def repeated_slowly(ids):
    """Rows whose id occurs more than once."""
    values, place, times = np.unique(ids, return_inverse=True, return_counts=True)
    return np.flatnonzero(times[place] > 1), values[times > 1]


corners = st.sampled_from([0, 1, (1 << 64) - 1, 1 << 63, 1 << 48, (1 << 48) - 1, 0xABCD << 48])


@examples(300)
@given(st.lists(corners | st.integers(0, (1 << 64) - 1), max_size=60), st.integers(0, 20), st.data())
def test_rows_and_ids_are_those_of_a_plain_search(numbers, known_bits, data):
    ids = np.array(numbers, np.uint64)
    rows, values = repeated_slowly(ids)
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
    rows, values = repeated_slowly(ids)
    assert gathered.repeated().tolist() == values.tolist()
    assert Members(gathered.repeated()).rows(ids).tolist() == rows.tolist()


@pytest.mark.parametrize(("copies", "many"), [(0, False), (100, False), (10_000, True)])
def test_it_is_told_early_whether_most_ids_repeat(copies, many):
    ids = np.random.default_rng(3).integers(0, 1 << 64, 10_000, np.uint64)
    gathered = IdSet(20_000, 0)
    assert not gathered.has_many()
    gathered.add(ids)
    gathered.add(ids[:copies])
    assert gathered.has_many() is many


def twice(folder, raw, copies=300):
    """A store of 400 reports and a conflict, with most or few of them repeated, in three files, one of them damaged."""
    campaign = opened(raw)
    made = reports(range(400), campaign)
    other = [moved(campaign, made[-1], 1)]
    folder.mkdir()
    files = batch(campaign, made), batch(campaign, made[:copies] + other), batch(campaign, made[200:250])[:-1]
    return stored(folder, raw, *files, now=NOW + DAY, buckets=2)


def counted(store, most, divisions=1, scope=EVERYTHING):
    """The counts of all buckets, with this limit of records in memory."""
    manifest = read_manifest(store.path)
    return [
        count_partition(
            store.path, store.campaign, manifest, Partition(bucket, divisions, number, most), scope or Scope()
        )
        for bucket in range(2)
        for number in range(divisions)
    ]


@pytest.fixture(params=sorted(RAWS))
def store(request, tmp_path):
    return twice(tmp_path / "in", RAWS[request.param])


@pytest.mark.parametrize("scope", [Scope(), Scope(proven_only=True), Scope(last=1)])
def test_counts_are_the_same_however_little_fits(store, scope):
    assert counted(store, 1 << 20, scope=scope) == counted(store, 10, scope=scope)
    assert sum(found.replayed for found in counted(store, 10)) == 300


@pytest.mark.parametrize("copies", [30, 300])
def test_repeats_taken_for_few_that_do_not_fit_are_read_once_more_as_well(tmp_path, monkeypatch, copies):
    store = twice(tmp_path / "in", RAWS["direct"], copies)
    expected = counted(store, 1 << 20)
    assert sum(found.replayed for found in expected) == copies
    monkeypatch.setattr(counting.IdSet, "has_many", lambda _: False)
    read = []
    read_part = counting.read_part
    monkeypatch.setattr(counting, "read_part", lambda path, *more: read.append(path) or read_part(path, *more))
    assert counted(store, 4) == expected
    assert {read.count(path) for path in read} == {2}


@pytest.mark.parametrize("divisions", [1, 2])
def test_every_part_is_read_twice_for_a_partition_however_many_lots_it_has(store, divisions, monkeypatch):
    read = []

    def reading(path, *more):
        read.append(path)
        return read_part(path, *more)

    read_part = counting.read_part
    monkeypatch.setattr(counting, "read_part", reading)
    counted(store, 10, divisions)
    assert {read.count(path) for path in read} == {2 * divisions}


def test_a_full_temporary_folder_is_said(store, monkeypatch):
    def refuse():
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StorageError) as caught:
        counted(store, 10)
    assert caught.value.reason == "disk_full"
    assert "TMPDIR" in caught.value.detail
    counted(store, 1 << 20)  # needs no temporary file


def test_a_temporary_file_that_was_cut_is_noticed():
    ids = np.arange(100, dtype=np.uint64)
    zeros = np.zeros(100, np.uint8)
    records = Columns(ids, zeros.astype(np.uint32), zeros.astype(np.uint16), zeros[:, None], zeros.astype(np.bool_))
    with Lots(4, 0, 1) as lots:
        lots.add(records)
        assert [found.id.tolist() for found in lots] == [list(range(lot, 100, 4)) for lot in range(4)]
        lots._file.truncate(1000)
        with pytest.raises(StorageError, match="shorter"):
            list(lots)
