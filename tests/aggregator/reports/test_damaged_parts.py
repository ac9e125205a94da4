"""Damage to a store's files is found; foreign files and links in its folder are left alone."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.publisher import NOW
from support.reports import CAMPAIGN, RAW, batch, report

from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.storage.manifest import read_manifest, sealed
from protocol.errors import StorageError


@pytest.fixture
def store(tmp_path):
    """A store of 320 reports."""
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device, device) for device in range(320)]))
    made = create_store(tmp_path / "s", RAW)
    made.ingest([tmp_path / "a.hsr"], now=NOW)
    return made


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
    file = store.path / "manifest.json"
    body = json.loads(file.read_text())
    for part in body["parts"]:
        if store.path / f"reports/bucket={part['bucket']:02d}" / part["name"] == path:
            part["sha256"] = sha256(path.read_bytes()).hexdigest()
    del body["sha256"]
    file.write_bytes(sealed(body))


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
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device) for device in range(400, 410)]))
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
