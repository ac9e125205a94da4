"""Full disks, two ingests at once, damaged copies: the store refuses or waits, and its counts stay right."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.fleets import honest, sealed
from support.publisher import NOW
from support.reports import CAMPAIGN, PERIOD, RAW, batch, report

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
    assert {str(path.relative_to(store.path)) for path in store.path.rglob("*.parquet")} == read_manifest(
        store.path
    ).paths(), "what was half written gives its space back at once"
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
    path = tmp_path / "0.hsr"
    path.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device) for device in range(5)]))
    store = create_store(tmp_path / "s", RAW)
    store.ingest([path], now=NOW)
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
    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.hsr")
        files[-1].write_bytes(
            batch(CAMPAIGN, [report(CAMPAIGN, device) for device in range(9 * number, 9 * number + 12)])
        )
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
    store = create_store(tmp_path / "s", RAW)
    path = tmp_path / "a.hsr"
    path.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device) for device in range(20)]))
    store.ingest([path], now=NOW)
    old = read_manifest(store.path)
    store.forget(PERIOD, now=NOW)
    assert not (store.path / old.parts[0].path).exists()
    seen = iter([old])
    monkeypatch.setattr(room, "read_manifest", lambda folder: next(seen, None) or read_manifest(folder))
    assert store.tally_report().reports == 20
    seen = iter([old, old])
    with pytest.raises(StorageError, match=r"^store_damaged: part .* is missing"):
        store.tally_report()


@pytest.mark.parametrize("first", ["clean", "damaged"])
@pytest.mark.parametrize("together", [True, False])
def test_a_bit_that_changed_in_an_id_leaves_no_second_report_beside_the_whole_batch(tmp_path, first, together):
    data = batch(CAMPAIGN, [report(CAMPAIGN, device, device) for device in range(20)])
    clean = create_store(tmp_path / "clean", RAW)
    (tmp_path / "clean.hsr").write_bytes(data)
    clean.ingest([tmp_path / "clean.hsr"], now=NOW)
    outcomes = Counter()
    for bit in range(8 * (44 + 18 * 5 + 2), 8 * (44 + 18 * 5 + 10), 3):  # the id of the sixth record
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "damaged.hsr").write_bytes(bytes(changed))
        store = create_store(tmp_path / f"s{bit}", RAW, buckets=1)
        files = [tmp_path / "clean.hsr", tmp_path / "damaged.hsr"]
        files = files if first == "clean" else files[::-1]
        for group in [files] if together else [[file] for file in files]:
            store.ingest(group, now=NOW)
        found = store.tally_report()
        assert found.tally.to_bytes() == clean.tally().to_bytes()
        assert found.unproven == 0
        outcomes[found.superseded] += 1
    assert set(outcomes) <= {19, 20}
    assert outcomes[20] > 10, "most such ids are in their question's interval, and were good records"


def test_the_folder_of_a_store_is_no_report_file(tmp_path):
    store = create_store(tmp_path / "s", RAW)
    found = store.ingest([store.path, Path("/dev/null"), store.path / "manifest.json"], now=NOW)
    assert [unreadable.reason for unreadable in found.unreadable] == ["is_folder", "unreadable"]
    assert found.rejected == {"invalid_message": 1}
