"""A gateway's merged file gives the counts of its inputs, and does not show the origin of a report."""

from __future__ import annotations

import errno
import sys
import tracemalloc
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.publisher import NOW
from support.reports import CAMPAIGN, CAMPAIGNS, RAW, RAWS, batch, header, moved, report
from support.stores import files_of, reports

from aggregator.operations.report_store import create_store
from aggregator.reports import gateway as merge
from aggregator.reports import gateway as sorting
from aggregator.reports.gateway import merge_files
from protocol.batches.batch import Batch, Header, read_batches, trailer, write_batch
from protocol.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

RAW_UNARY, UNARY = RAWS["oue"], CAMPAIGNS["oue"]


def tally_of(folder: Path, paths, raw=RAW) -> bytes:
    store = create_store(folder, raw)
    store.ingest(paths, now=NOW)
    return store.tally().to_bytes()


def records_in(path: Path, *, proven: bool) -> list[bytes]:
    data = path.read_bytes()
    return [
        data[at : at + item.header.record_length]
        for item in read_batches(data)
        if isinstance(item, Batch) and item.proven == proven
        for start, count in item.spans
        for at in range(start, start + count * item.header.record_length, item.header.record_length)
    ]


def test_neither_order_nor_division_nor_names_of_the_inputs_are_in_the_output(tmp_path):
    records = reports(range(100))
    outputs = set()
    for number, size in enumerate((1, 7, 100)):
        (tmp_path / str(number)).mkdir()
        pieces = [batch(CAMPAIGN, records[at : at + size]) for at in range(0, 100, size)]
        paths = files_of(tmp_path / str(number), *(pieces if number % 2 else reversed(pieces)))
        summary = merge_files(paths, tmp_path / f"out{number}")
        assert summary == (len(paths), 1, 100, 0, 0, 0, {})
        outputs.add((tmp_path / f"out{number}").read_bytes())
    assert outputs == {batch(CAMPAIGN, sorted(records))}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "out0", "out1", "out2"]


def test_a_gateway_keeps_conflicts_leaves_copies_out_and_makes_nothing_proven_that_was_not(tmp_path):
    whole, damaged = reports(range(20)), reports(range(15, 40))
    other = moved(CAMPAIGN, whole[3], 1)
    contents = batch(CAMPAIGN, whole), batch(CAMPAIGN, [*whole[5:], other, other]), batch(CAMPAIGN, damaged)[:-44]
    summary = merge_files(files_of(tmp_path, *contents), tmp_path / "out")
    assert (summary.proven, summary.unproven, summary.repeated) == (21, 20, 16 + 5)
    assert records_in(tmp_path / "out", proven=True) == sorted([*whole, other])
    assert records_in(tmp_path / "out", proven=False) == sorted(damaged[5:])
    assert refusal(merge_files, [tmp_path / "out"], tmp_path / "out") == "output_exists"
    before = (tmp_path / "out").read_bytes()
    again = merge_files([tmp_path / "out"], tmp_path / "out", force=True)
    assert (again.proven, again.unproven) == (21, 20)
    assert (tmp_path / "out").read_bytes() == before


@pytest.mark.parametrize("place", [None, -1, -25, -32])
def test_a_damaged_copy_of_a_whole_batch_is_left_out_even_where_an_id_changed(tmp_path, place):
    """By itself it is merged. ``place`` is of another changed byte: a store compares 8 of the digest's 32 bytes."""
    whole = batch(CAMPAIGN, reports(range(20)))
    damaged = bytearray(whole)
    damaged[44 + 18 * 5 + 9] ^= 1  # the last byte of an id
    if place is not None:
        damaged[place] ^= 1
    paths = files_of(tmp_path, bytes(damaged), whole)
    summary = merge_files(paths, tmp_path / "out")
    assert (summary.proven, place in (-25, -32) or (summary.unproven, summary.superseded) == (0, 20)) == (20, True)
    assert tally_of(tmp_path / "merged", [tmp_path / "out"]) == tally_of(tmp_path / "direct", paths)
    alone = merge_files(paths[:1], tmp_path / "alone")
    assert (alone.proven, alone.unproven, alone.superseded) == (0, 20, 0)


def test_every_campaign_has_batches_of_its_own_and_one_can_be_kept_alone(tmp_path):
    mine, theirs = reports(range(20)), reports(range(20), UNARY)
    paths = files_of(tmp_path, batch(CAMPAIGN, mine) + batch(UNARY, theirs)[:-1])
    assert merge_files(paths, tmp_path / "both")[1:4] == (2, 20, 20)
    for campaign, raw in ((CAMPAIGN, RAW), (UNARY, RAW_UNARY)):
        name = campaign.id.hex()[:4]
        assert tally_of(tmp_path / f"a{name}", [tmp_path / "both"], raw) == tally_of(tmp_path / f"b{name}", paths, raw)
    summary = merge_files(paths, tmp_path / "mine", campaign=CAMPAIGN)
    assert summary[1:] == (1, 20, 0, 0, 0, {"truncated": 1, "unrecognized_campaign": 20})
    assert (tmp_path / "mine").read_bytes() == batch(CAMPAIGN, sorted(mine))
    wrong = write_batch(Header(CAMPAIGN.id, 3, 25), [b"\xc7\x16\3" + bytes(22)] * 2)
    paths = files_of(tmp_path, wrong + batch(CAMPAIGN, mine))
    assert merge_files(paths, tmp_path / "o", campaign=CAMPAIGN).rejected == {"invalid_message": 2}


damage = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(["flip", "cut", "insert"])), max_size=3)
contents = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=8), damage), min_size=1, max_size=6)


def damaged(data: bytes, changes) -> bytes:
    for place, how in changes:
        at = place % max(1, len(data))
        if how == "flip" and data:
            data = data[:at] + bytes([data[at] ^ 1 << place % 8]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
        else:
            data = data[:at] + b"\xd8\1foreign"[: place % 9] + data[at:]
    return data


@examples(30)
@given(files=contents, memory=st.sampled_from([1, 200, 1 << 20]), again=st.booleans(), data=st.data())
@pytest.mark.parametrize(("raw", "campaign"), [(RAW, CAMPAIGN), (RAW_UNARY, UNARY)])
def test_the_tally_of_the_merged_is_that_of_the_inputs_byte_for_byte(
    tmp_path_factory, raw, campaign, files, memory, again, data
):
    """Inputs with repeats, damage of every kind, and conflicts: device 7 answers differently in every file."""
    folder = tmp_path_factory.mktemp("merge")
    sent = ([report(campaign, d, n if d == 7 else d) for d in devices] for n, (devices, _) in enumerate(files))
    paths = files_of(folder, *(damaged(batch(campaign, r), how) for r, (_, how) in zip(sent, files, strict=True)))
    try:
        merge_files(data.draw(st.permutations(paths)), folder / "out", campaign=campaign, memory_bytes=memory)
    except InputError as error:
        assert error.reason == "no_reports"  # noqa: PT017 - it need not be raised
        (folder / "out").write_bytes(b"\0")
    else:
        merge_files(paths, folder / "same", campaign=campaign)
        assert (folder / "same").read_bytes() == (folder / "out").read_bytes()  # whatever the order and the memory
    merged = [folder / "out"]
    if again:  # a second gateway's file, together with the original files
        merged = [*data.draw(st.permutations(merged + merged)), *paths]
    assert tally_of(folder / "a", merged, raw) == tally_of(folder / "b", paths, raw)


@given(
    rows=st.lists(st.tuples(st.binary(min_size=8, max_size=8), st.integers(0, 3)), max_size=30),
    narrow=st.booleans(),
    memory=st.sampled_from([1, 40, 1000]),
    spill=st.lists(st.integers(1, 5), max_size=6),
)
def test_sorting_on_the_disk_is_sorting(tmp_path_factory, rows, narrow, memory, spill):
    """Ids may share their first bytes, so that a part is divided many times."""
    folder = tmp_path_factory.mktemp("sort") / "sorter"
    sorter = sorting.Sorter(folder, 12, 2)
    made = [(b"ab" + (bytes(7) + identifier[:1] if narrow else identifier) + b"xy", tag) for identifier, tag in rows]
    for number, (record, tag) in enumerate(made):
        sorter.add(np.frombuffer(record, np.uint8).reshape(1, 12), tag)
        if number in spill:
            sorter.spill()
    found = []
    for part, tags in sorter.pieces(memory):
        found += [(row.tobytes(), tag) for row, tag in zip(part, tags.tolist(), strict=True)]
    assert found == sorted(made)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_unproven_records_that_spell_a_header_where_they_meet_take_no_other_along(tmp_path):
    """Two hostile records of a damaged batch are neighbours after sorting, and together contain a readable header."""
    length = 80
    prefix = b"\xc7\x4d\x02"
    fill = length - 3 - 14
    foreign = Header(bytes(32), 1, 18).to_bytes()

    def record(identifier, answer):
        return prefix + identifier + bytes(6) + answer.ljust(fill, b"\0")

    low, high = bytes(7) + b"\1", bytes(7) + b"\2"
    tail = foreign[:9]
    first = record(low, bytes(fill - 9) + tail)
    second = bytearray(record(high, b""))
    second[32:35] = foreign[41:44]  # the place of that header's layout, length and empty map
    others = [record(bytes([n]) * 8, b"honest") for n in range(3, 9)]
    head = Header(bytes([9]) * 32, 2, length)
    # In the input the two records are apart, so every record is read. Next to each other they would be cut.
    data = head.to_bytes() + b"".join([first, *others, bytes(second)])
    assert [item.spans for item in read_batches(data)] == [((44, 8),)]
    joined = head.to_bytes() + b"".join([first, bytes(second), *others])
    assert [getattr(item, "spans", None) for item in read_batches(joined)] != [((44, 8),)]
    merge_files(files_of(tmp_path, data), tmp_path / "out")
    assert records_in(tmp_path / "out", proven=False) == sorted([first, bytes(second), *others])


# --- bad input ---


def test_nothing_is_written_if_a_file_can_not_be_read(tmp_path):
    paths = files_of(tmp_path, batch(CAMPAIGN, reports(range(3))))
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    for path, reason in ((tmp_path / "absent", "file_not_found"), (tmp_path / "folder", "is_folder")):
        with pytest.raises(InputError, match=f"^{reason}"):
            merge_files([*paths, path], tmp_path / "out")
    for content in (b"", b"foreign bytes", batch(CAMPAIGN, [])):
        paths[0].write_bytes(content)
        assert refusal(merge_files, paths, tmp_path / "out") == "no_reports"
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    paths = files_of(tmp_path, batch(CAMPAIGN, reports(range(50))))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for where, what in ((sorting.Sorter, "_divide"), (merge._BatchWriter, "_put")):
        with monkeypatch.context() as patch:
            patch.setattr(where, what, full)
            assert refusal(merge_files, paths, tmp_path / "out", memory_bytes=1) == "disk_full"
    assert sorted(tmp_path.iterdir()) == paths


def test_memory_follows_the_limit_and_not_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "_MAPPED_BYTES", 1)
    ids = np.random.default_rng(1).integers(0, 1 << 63, 600_000, np.uint64)
    rows = np.tile(np.frombuffer(report(CAMPAIGN, 1), np.uint8), (len(ids), 1))
    rows[:, 2:10] = ids.astype(">u8").view(np.uint8).reshape(-1, 8)
    peaks = []
    for count in (200_000, 600_000):
        data = header(CAMPAIGN).to_bytes() + rows[:count].tobytes()
        paths = files_of(tmp_path, data + trailer(count, sha256(data).digest()))
        del data
        tracemalloc.start()
        summary = merge_files(paths, tmp_path / "out", memory_bytes=1 << 20, force=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.proven == count
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < rows.nbytes / 2


def test_large_files_are_read_in_pieces_and_batches_end_before_a_trailer_is_too_small(tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "_MAPPED_BYTES", 100)
    monkeypatch.setattr(merge, "_CHUNK_BYTES", 50)
    paths = files_of(tmp_path, batch(CAMPAIGN, reports(range(30))), batch(CAMPAIGN, reports(range(20, 60)))[:-5])
    summary = merge_files(paths, tmp_path / "out")
    assert (summary.proven, summary.unproven, summary.repeated) == (30, 30, 10)
    assert header(CAMPAIGN).to_bytes() == (tmp_path / "out").read_bytes()[:44]
    monkeypatch.setattr(merge, "MAX_BATCH_RECORDS", 7)
    records = sorted(reports(range(20)))
    merge_files(files_of(tmp_path, batch(CAMPAIGN, records)), tmp_path / "ended")
    expected = b"".join(batch(CAMPAIGN, records[at : at + 7]) for at in (0, 7, 14))
    assert (tmp_path / "ended").read_bytes() == expected


def test_a_url_without_its_library_names_the_extra_and_an_unknown_one_is_named(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    assert refusal(merge_files, ["nope://bucket/a.hsr"], tmp_path / "out") == "protocol_unknown"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"^missing_extra.*install .*\[cluster\]"):
        merge_files(["s3://bucket/a.hsr"], tmp_path / "out")
