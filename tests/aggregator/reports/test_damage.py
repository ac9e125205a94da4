"""Damage to batches and to a store's files, full disks, two ingests at once: counts stay right, or it is said."""

from __future__ import annotations

import json
import multiprocessing
import os
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import invoke
from support.publisher import NOW
from support.reports import CAMPAIGN, PERIOD, RAW, batch, header, report
from support.stores import edit_manifest, files_of, kept_pieces, reports, stored
from support.watched import peak

from aggregator.cli.publishing.show import MAX_DAMAGE
from aggregator.operations import report_store as room
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.decoding.decode import MAX_PIECES, Decoder
from aggregator.reports.gateway import merge_files
from aggregator.reports.storage.manifest import read_manifest
from protocol.batches import batch as batches
from protocol.errors import StorageError

RECORDS = [report(CAMPAIGN, device, device) for device in range(4)]
WHOLE = batch(CAMPAIGN, RECORDS)
FOREIGN = b"\x00\xff\xd8not of here"


def flipped():
    """Copies of the batch with one changed bit each: one bit of every byte. The reader's tests change all bits."""
    for place in range(len(WHOLE)):
        changed = bytearray(WHOLE)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


KINDS = {
    "a changed bit": list(flipped()),
    "cut": [WHOLE[:length] for length in range(1, len(WHOLE))],
    "foreign bytes": [WHOLE[:place] + FOREIGN + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "a foreign byte": [WHOLE[:place] + b"\xd8" + WHOLE[place:] for place in range(len(WHOLE) + 1)],
    "missing bytes": [WHOLE[:place] + WHOLE[place + 5 :] for place in range(len(WHOLE))],
}


def tallied(folder, *runs):
    """The tally bytes and the report of a store that ingests the contents of each run at once."""
    folder.mkdir()
    made = create_store(folder / "store", RAW)
    for contents in runs:
        made.ingest(files_of(folder, *contents), now=NOW)
    found = made.tally_report()
    return found.tally.to_bytes(), found


@pytest.mark.parametrize("kind", [*KINDS, "all in one file"])
def test_damaged_copies_change_nothing_once_the_whole_batch_is_there(tmp_path, kind):
    expected, _ = tallied(tmp_path / "clean", [WHOLE])
    damaged = KINDS.get(kind) or [b"".join(content for contents in KINDS.values() for content in contents)]
    for name, runs in (
        ("after", [damaged, [WHOLE]]),
        ("before", [[WHOLE], damaged]),
        ("together", [[*damaged, WHOLE]]),
    ):
        found, report_of_it = tallied(tmp_path / name, *runs)
        assert found == expected
        assert (report_of_it.reports, report_of_it.unproven) == (len(RECORDS), 0)


MANY = reports(range(500))


def strayed(count, end=b""):
    return header(CAMPAIGN).to_bytes() + b"\0".join(MANY[number % 500] for number in range(count)) + end


def test_a_batch_in_pieces_is_ingested_merged_and_shown_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MAX_PIECES", 5)
    whole = batch(CAMPAIGN, MANY)
    path = tmp_path / "a.hsr"
    path.write_bytes(strayed(500, end=whole[-44:]))
    found = Decoder(CAMPAIGN).decode(path.read_bytes(), now=NOW)
    assert found.records.size == 500
    assert found.rejected == {"invalid_message": 499}
    store = create_store(tmp_path / "s", RAW)
    store.ingest([path], now=NOW)
    assert store.tally_report().reports == 500
    assert len(kept_pieces(store)) == 499
    (tmp_path / "whole.hsr").write_bytes(whole)
    store.ingest([tmp_path / "whole.hsr"], now=NOW)
    assert store.tally_report().superseded == 500, "every piece knows of which batch it is a copy"
    summary = merge_files([path], tmp_path / "m.hsr")
    assert (summary.unproven, summary.rejected) == (500, {"invalid_message": 499})
    shown = json.loads(invoke("show", path, "--json").stdout)
    assert [entry["reports"] for entry in shown["batches"] if "reports" in entry] == [500]
    assert len(shown["batches"]) == 1 + MAX_DAMAGE
    assert (shown["damaged_stretches"], shown["damaged_bytes"]) == (499, 499)
    assert "399 stretches of bytes" in invoke("show", path).stdout


@pytest.mark.slow
def test_the_memory_of_reading_and_merging_does_not_grow_with_the_strays(tmp_path, monkeypatch):
    """Memory holds one block of 1,024 records and the quarantine's entries; a merge also the file and its records."""
    monkeypatch.setattr(batches, "MAX_PIECES", 1 << 10)
    decoder = Decoder(CAMPAIGN)
    read, merged = [], []
    for number in (4, 16):
        data = strayed(number << 10, end=bytes(batch(CAMPAIGN, [])[-44:]))
        (path,) = files_of(tmp_path, data)

        def drain(data=data):
            assert sum(len(block.pieces) for block in decoder.blocks(data, now=NOW, most=1 << 10)) == MAX_PIECES

        read.append(peak(drain))
        out = tmp_path / f"{number}.out"
        merged.append(peak(lambda path=path, out=out: merge_files([path], out, memory_bytes=1 << 16)))
    assert read[1] < 1.2 * read[0]
    assert merged[1] < 1.2 * merged[0] + 1.2 * (16 - 4 << 10) * 19


@pytest.mark.parametrize("later", [1, 2])
def test_an_old_manifest_that_is_restored_alone_is_refused_and_no_newer_part_is_lost(tmp_path, later):
    """A kill leaves parts that no manifest names, too. The lock file says which manifest was committed last."""
    store = create_store(tmp_path / "s", RAW)
    states = []
    for number in range(later + 1):
        path = tmp_path / f"{number}.hsr"
        path.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 10 * number + device) for device in range(5)]))
        store.ingest([path], now=NOW)
        states.append((store.path / "manifest.json").read_bytes())
    whole = store.tally_report()
    (store.path / "manifest.json").write_bytes(states[0])
    for use in (lambda: open_store(store.path), store.tally_report, lambda: store.ingest([path], now=NOW)):
        with pytest.raises(StorageError, match=r"^store_damaged.*of generation 1, and"):
            use()
    (store.path / "manifest.json").write_bytes(states[-1])
    assert open_store(store.path).tally_report() == whole
    noted = (store.path / "lock").read_bytes()
    assert noted == b"%08d\n" % (later + 1)
    for other in (b"", b"00000001\n", b"not a number"):
        (store.path / "lock").write_bytes(other)
        assert open_store(store.path).tally_report() == whole


def test_a_store_that_lost_its_manifest_is_no_strangers_folder(tmp_path):
    """The advice was "choose a new folder": an empty store beside the reports."""
    store = stored(tmp_path, RAW, batch(CAMPAIGN, reports(range(5))))
    kept = (store.path / "manifest.json").read_bytes()
    (store.path / "manifest.json").unlink()
    for use in (lambda: open_store(store.path), lambda: create_store(store.path, RAW)):
        with pytest.raises(StorageError, match=r"^store_damaged.*manifest.json is missing; put the newest copy back"):
            use()
    (store.path / "manifest.json").write_bytes(kept)
    assert open_store(store.path).tally_report().reports == 5


def ingest(store, files):
    open_store(store).ingest(files, now=NOW)


def test_two_processes_that_ingest_into_one_store_at_once_take_turns(tmp_path):
    files = files_of(tmp_path, *(batch(CAMPAIGN, reports(range(9 * n, 9 * n + 12))) for n in range(8)))
    store = create_store(tmp_path / "s", RAW)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=ingest, args=(store.path, files[part::2] + files[:2])) for part in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert store.ingest(files, now=NOW).files_repeated == len(files)
    found = store.tally_report()
    assert (found.reports, found.rejected) == (9 * 7 + 12, {"report_replayed": 3 * 7})


def test_counting_goes_on_while_another_process_replaces_parts(tmp_path, monkeypatch):
    """A reader with the old manifest finds its parts deleted, and reads the new manifest."""
    store = stored(tmp_path, RAW, batch(CAMPAIGN, reports(range(20))))
    old = read_manifest(store.path)
    store.forget(PERIOD, now=NOW)
    assert not (store.path / old.parts[0].path).exists()
    seen = iter([old])
    monkeypatch.setattr(room, "read_manifest", lambda folder: next(seen, None) or read_manifest(folder))
    assert store.tally_report().reports == 20
    seen = iter([old, old])
    with pytest.raises(StorageError, match=r"^store_damaged: part .* is missing"):
        store.tally_report()


@pytest.fixture
def store(tmp_path):
    """A store of 320 reports."""
    return stored(tmp_path, RAW, batch(CAMPAIGN, reports(range(320))))


def paths(store):
    return [store.path / part.path for part in read_manifest(store.path).parts]


def damage(store):
    """The error of counting a damaged store. Opening the store anew leads to the same error."""
    problems = set()
    for one in (store, open_store(store.path)):
        with pytest.raises(StorageError, match=r"^store_damaged") as refused:
            one.tally_report()
        assert refused.value.__cause__ is None
        problems.add(refused.value.detail)
    (problem,) = problems
    return problem


def edited(path, **columns):
    """Rewrite a part with other columns, as a valid Parquet file with other contents."""
    table = pq.ParquetFile(path).read()
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        column = pa.array(values(table[name].to_numpy()))
        table = table.set_column(place, pa.field(name, column.type, nullable=False), column)
    pq.write_table(table, path)


def sealed_again(store, path):
    """Put a part's new digest and a new own digest into the manifest: only a check of the records finds the change."""
    parts = [part._asdict() for part in read_manifest(store.path).parts]
    for part in parts:
        if f"bucket={part['bucket']:02d}/{part['name']}" in str(path):
            part["sha256"] = sha256(path.read_bytes()).hexdigest()
    edit_manifest(store.path, parts=parts)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"answer": lambda old: np.full(len(old), 60_000, np.uint16)}, "none of its question's"),
        ({"question": lambda old: np.full(len(old), 3, np.uint16)}, "a question that the campaign does not have"),
        ({"id": lambda old: old ^ np.uint64(1)}, "of another bucket"),
        ({"period": lambda old: old.astype(np.uint64)}, "does not hold what the manifest says"),
    ],
)
def test_an_edited_part_is_noticed_by_its_digest_and_then_by_its_records(store, columns, problem):
    path = paths(store)[0]
    edited(path, **columns)
    assert "is not as it was written" in damage(store)
    sealed_again(store, path)
    assert problem in damage(store)


def test_a_part_that_is_no_parquet_file_or_no_file_is_noticed(store):
    path = paths(store)[0]
    path.write_bytes(b"PAR1 and nothing else PAR1")
    sealed_again(store, path)
    assert "is no Parquet file" in damage(store)
    path.unlink()
    os.mkfifo(path)
    assert "can not be read" in damage(store)


def test_what_others_put_into_the_folders_of_a_store_keeps_no_ingest_out(store, tmp_path):
    bucket = paths(store)[0].parent
    foreign = [bucket / ".ipynb_checkpoints", bucket / "old.parquet", bucket / "a.tmp", store.path / "b.tmp"]
    for folder in foreign:
        folder.mkdir()
    (bucket / "notes.txt").write_text("mine")
    (tmp_path / "precious.parquet").write_text("mine")
    (bucket / "link.parquet").symlink_to(tmp_path / "precious.parquet")
    (bucket / "00000009-0000.parquet").write_bytes(b"what a crash left")
    (bucket / "00000009-0001.parquet.tmp").write_bytes(b"what a crash left")
    before = store.tally_report().reports
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, reports(range(400, 410))))
    assert store.ingest([tmp_path / "b.hsr"], now=NOW).accepted == 10
    assert store.tally_report().reports == before + 10
    assert all(folder.is_dir() for folder in foreign)
    assert (bucket / "notes.txt").read_text() == "mine"
    assert (bucket / "link.parquet").is_symlink()
    assert not list(bucket.glob("00000009*"))


def test_links_in_the_folder_of_a_store_are_never_followed(store, tmp_path):
    """The store writes and deletes nothing outside its folder, for a link at every name in it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    kept = [precious / name for name in ("secret.conf", "data.parquet", "a.tmp")]
    for path in kept:
        path.write_text("mine")
    (store.path / "manifest.json.tmp").symlink_to(precious / "secret.conf")
    (store.path / "reports" / "bucket=99").symlink_to(precious)
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 400)]))
    assert store.ingest([tmp_path / "b.hsr"], now=NOW).accepted == 1
    assert not (store.path / "manifest.json").is_symlink()
    assert [path.read_text() for path in kept] == ["mine"] * 3
    (tmp_path / "c.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 401)]) + b"\0")
    for place in ("quarantine", "forgotten", "inputs", "reports/bucket=03", "reports"):
        link, real = store.path / place, tmp_path / "real"
        if link.exists():
            link.rename(real)
        link.symlink_to(precious)
        with pytest.raises(StorageError, match=f"^store_damaged: '{place}' is a link"):
            store.ingest([tmp_path / "c.hsr"], now=NOW)
        link.unlink()
        if real.exists():
            real.rename(link)
    (store.path / "lock").unlink()
    (store.path / "lock").symlink_to(precious / "new")
    with pytest.raises(StorageError, match=r"^io_failed"):
        store.ingest([tmp_path / "c.hsr"], now=NOW)
    assert sorted(precious.iterdir()) == sorted(kept)
    assert [path.read_text() for path in kept] == ["mine"] * 3


def test_a_missing_part_is_noticed_before_anything_is_added_or_deleted(store, tmp_path):
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 400)]))
    path = paths(store)[0]
    whole = path.read_bytes()
    path.unlink()
    (path.parent / "00000009-0000.parquet").write_bytes(b"of a newer manifest, perhaps")
    with pytest.raises(StorageError, match=f"^store_damaged: '{path.relative_to(store.path)}' is missing"):
        store.ingest([tmp_path / "b.hsr"], now=NOW)
    assert (path.parent / "00000009-0000.parquet").exists()
    path.write_bytes(whole)
    assert store.ingest([tmp_path / "b.hsr"], now=NOW).accepted == 1
    assert not (path.parent / "00000009-0000.parquet").exists()
