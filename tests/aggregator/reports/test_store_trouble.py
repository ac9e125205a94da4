"""Full disks, two ingests at once, damaged copies: the store refuses or waits, and its counts stay right."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
from collections import Counter
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.fleets import honest, sealed
from support.publisher import NOW
from support.reports import CAMPAIGN, PERIOD, RAW, batch, report
from support.stores import check_whole, edit_manifest, files_of, reports, stored

from aggregator.operations import report_store as room
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.storage.manifest import read_manifest
from protocol.errors import StorageError


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_gets_full_in_mid_ingest_leaves_the_store_as_it_was(small_disk, tmp_path):
    first, second = tmp_path / "first.hsr", tmp_path / "second.hsr"
    first.write_bytes(sealed(CAMPAIGN, honest(CAMPAIGN, 10_000, PERIOD, 1)))
    second.write_bytes(sealed(CAMPAIGN, honest(CAMPAIGN, 400_000, PERIOD, 2)))
    store = create_store(small_disk / "s", RAW)
    store.ingest([first], now=NOW)
    before = store.tally_report()
    with pytest.raises(StorageError, match=r"^disk_full"):
        store.ingest([second], now=NOW)
    assert open_store(store.path).tally_report() == before
    check_whole(store)  # what was half written gives its space back at once
    assert store.ingest([first], now=NOW).files_repeated == 1
    third = tmp_path / "third.hsr"
    third.write_bytes(sealed(CAMPAIGN, honest(CAMPAIGN, 5_000, PERIOD, 3)))
    assert store.ingest([third], now=NOW).accepted == 5_000


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
    context = multiprocessing.get_context("spawn")
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


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("together", [True, False])
def test_a_bit_that_changed_in_an_id_leaves_no_second_report_beside_the_whole_batch(tmp_path, first, together):
    data = batch(CAMPAIGN, reports(range(20)))
    clean = stored(tmp_path, RAW, data)
    outcomes = Counter()
    for bit in range(8 * (44 + 18 * 5 + 2), 8 * (44 + 18 * 5 + 10), 5):  # the id of the sixth record
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        files = files_of(tmp_path, *(data, bytes(changed))[:: 1 - 2 * first])
        store = create_store(tmp_path / f"s{bit}", RAW, buckets=1)
        for group in [files] if together else [[file] for file in files]:
            store.ingest(group, now=NOW)
        found = store.tally_report()
        assert (found.tally.to_bytes(), found.unproven) == (clean.tally().to_bytes(), 0)
        outcomes[found.superseded] += 1
    assert set(outcomes) <= {19, 20}
    assert outcomes[20] > 6, "most such ids are in their question's interval, and were good records"


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


def test_a_part_in_the_place_of_another_is_noticed(store):
    by_size = {}
    for part in read_manifest(store.path).parts:
        by_size.setdefault(part.records, []).append(store.path / part.path)
    one, other = next(found for found in by_size.values() if len(found) > 1)[:2]
    shutil.copy(one, other)
    assert "is not as it was written" in damage(store)


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
