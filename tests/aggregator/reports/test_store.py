"""The store keeps every valid report once, through repeats, damage and crashes at every step."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
from hashlib import sha256
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.commands import invoke
from support.examples import examples
from support.failures import failure, refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import CAMPAIGN, CAMPAIGNS, PERIOD, RAW, RAWS, batch, counts_of, header, moved, opened, report
from support.sources import Cut
from support.stores import Broken, check_whole, edit_manifest, files_of, kept_pieces, reports, stored
from support.watched import peak

import aggregator
from aggregator.cli.publishing.show import MAX_DAMAGE
from aggregator.operations import report_store as room
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.decoding.decode import MAX_PIECES, Decoder
from aggregator.reports.gateway import merge_files
from aggregator.reports.intake import sources
from aggregator.reports.storage import input_index as inputs
from aggregator.reports.storage import locking
from aggregator.reports.storage import parts as compaction
from aggregator.reports.storage.input_index import Inputs
from aggregator.reports.storage.manifest import MAX_GENERATION, read_manifest
from protocol.batches import batch as batches
from protocol.errors import StorageError

RAW_UNARY, UNARY = RAWS["oue"], CAMPAIGNS["oue"]


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture
def made_store(tmp_path):
    """An empty store."""
    return create_store(tmp_path / "s", RAW)


# --- contents ---


@pytest.mark.parametrize(("raw", "campaign"), [(RAW, CAMPAIGN), (RAW_UNARY, UNARY)])
def test_counts_are_exact_survive_reopening_and_say_what_is_not_in_them(tmp_path, raw, campaign):
    records = reports(range(500), campaign)
    other = moved(campaign, records[3], 1)
    made_store = create_store(tmp_path / "s", raw)
    first = write(tmp_path, "a.hsr", batch(campaign, records[:-1]))
    assert made_store.ingest([first], now=NOW) == (1, 0, (), 499, 0, {})
    rest = batch(campaign, [*records[5:10], other]), batch(campaign, records[-1:])[:-1]
    summary = made_store.ingest([write(tmp_path, str(i), data) for i, data in enumerate(rest)], now=NOW + DAY)
    assert (summary, summary.accepted) == ((2, 0, (), 6, 1, {"truncated": 1}), 7)
    again = aggregator.open_store(tmp_path / "s")
    assert (again.campaign.id, again.campaign_bytes) == (campaign.id, raw)
    assert (again.tally().n, again.tally().counts) == counts_of(campaign, records[:3] + records[4:])
    found, statistics = again.tally_report(), again.statistics()
    assert (found.reports, found.unproven, found.superseded) == (499, 1, 0)
    assert found.rejected == {"report_conflict": 2, "report_replayed": 5, "truncated": 1}
    assert (statistics.reports, statistics.source.unproven) == (499, 1)
    assert (dict(statistics.source.rejected), statistics.statistics_id) == (found.rejected, again.tally().statistics_id)


def test_many_small_ingests_leave_few_parts_and_the_same_counts(tmp_path):
    """Below ``MOST_SMALL`` parts of a bucket nothing is joined; at the limit all its small parts are joined."""
    made_store = create_store(tmp_path / "s", RAW, buckets=2)
    most = 0
    for i in range(20):
        made_store.ingest([write(tmp_path, f"{i}.hsr", batch(CAMPAIGN, reports(range(9 * i, 9 * i + 12))))], now=NOW)
        manifest = read_manifest(tmp_path / "s")
        most = max(most, *(len(manifest.bucket_parts(bucket)) for bucket in range(2)))
        check_whole(made_store)
    assert most == compaction.MOST_SMALL
    assert len(manifest.inputs) <= inputs.MAX_FILES
    found = made_store.tally_report()
    assert (found.tally.n, found.tally.counts) == counts_of(CAMPAIGN, reports(range(9 * 19 + 12)))
    assert found.rejected == {"report_replayed": 3 * 19}
    again = made_store.ingest([tmp_path / f"{i}.hsr" for i in range(20)], now=NOW)
    assert again[:2] == (20, 20), "the joined index still knows every file"


# --- repeats ---


def test_a_trailer_behind_a_cut_file_erases_it_only_where_files_were_joined(tmp_path):
    """The third exception of docs/formats.md 4: a sender puts the trailer of a batch of its own before its file."""
    cut = batch(CAMPAIGN, reports(range(100)))[:-44]
    own = batch(CAMPAIGN, reports([200]))
    crafted = own[-44:] + own
    joined = create_store(tmp_path / "joined", RAW)
    joined.ingest([write(tmp_path, "joined.hsr", cut + crafted)], now=NOW)
    assert (joined.tally_report().reports, joined.tally_report().superseded) == (1, 100)
    apart = [write(tmp_path, "cut.hsr", cut), write(tmp_path, "crafted.hsr", crafted)]
    kept = create_store(tmp_path / "apart", RAW)
    kept.ingest(apart, now=NOW)
    assert (kept.tally_report().reports, kept.tally_report().superseded) == (101, 0)
    merge_files(apart, tmp_path / "merged.hsr")
    merged = create_store(tmp_path / "merged", RAW)
    merged.ingest([tmp_path / "merged.hsr"], now=NOW)
    assert merged.tally().to_bytes() == kept.tally().to_bytes()


records_of_fleet = st.lists(st.integers(0, 25), max_size=12)


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.tuples(records_of_fleet, st.sampled_from([0, 0, 1, 50])), min_size=1, max_size=5), data=st.data()
)
def test_any_order_split_and_repetition_ends_in_the_same_tally_bytes(tmp_path_factory, files, data):
    """Files are (devices, bytes cut off the end); device 7 lies: its reports differ between files."""
    folder = tmp_path_factory.mktemp("fleet")
    paths = []
    for number, (devices, cut) in enumerate(files):
        content = batch(CAMPAIGN, [report(CAMPAIGN, d, number if d == 7 else d) for d in devices])
        paths.append(write(folder, f"{number}.hsr", content[: len(content) - cut]))
    tallies = set()
    for attempt in range(2):
        made_store = create_store(folder / f"s{attempt}", RAW)
        order = data.draw(st.permutations(paths + data.draw(st.lists(st.sampled_from(paths), max_size=2))))
        cut = data.draw(st.integers(0, len(order)))
        for part in (order[:cut], order[cut:]):
            made_store.ingest(part, now=NOW)
        tallies.add(made_store.tally().to_bytes())
    joined = write(folder, "joined.hsr", b"".join(path.read_bytes() for path in paths))
    if all(cut == 0 for _, cut in files):
        made_store = create_store(folder / "joined", RAW)
        made_store.ingest([joined], now=NOW)
        tallies.add(made_store.tally().to_bytes())
    assert len(tallies) == 1


# --- reports from periods that have not begun ---


# --- bad files and quarantine ---


def in_steps(made_store, each):
    """Let every step of an ingest end after its first share of files, as if each share took a minute."""
    made_store.step_seconds = 60
    made_store.monotonic = count(0, each).__next__
    return made_store


def test_a_long_ingest_is_committed_in_steps_that_a_kill_does_not_undo(tmp_path, monkeypatch):
    """An ingest was all or nothing: whoever made it slow enough kept it from ever ending."""
    monkeypatch.setattr(sources, "_SHARE_FILES", 3)
    paths = [write(tmp_path, f"{i}.hsr", batch(CAMPAIGN, reports([i, i + 1]))) for i in range(10)]
    paths += [paths[0], write(tmp_path, "copy.hsr", paths[1].read_bytes()), tmp_path / "absent.hsr"]
    whole = create_store(tmp_path / "whole", RAW)
    expected = whole.ingest(paths, now=NOW)
    stepped = in_steps(create_store(tmp_path / "stepped", RAW), 100)
    seen = []
    assert stepped.ingest(paths, now=NOW, progress=lambda done, total: seen.append((done, total))) == expected
    assert seen == [(done, 13) for done in range(1, 14)]
    assert (read_manifest(whole.path).generation, read_manifest(stepped.path).generation) == (1, 4)
    assert stepped.tally().to_bytes() == whole.tally().to_bytes()

    killed = in_steps(create_store(tmp_path / "killed", RAW), 100)
    commits = []

    def commit(manifest):
        commits.append(manifest)
        if len(commits) == 3:
            raise Cut
        type(killed).commit(killed, manifest)

    killed.commit = commit
    with pytest.raises(Cut):
        killed.ingest(paths, now=NOW)
    assert open_store(killed.path).tally_report().reports == 7
    again = open_store(killed.path).ingest(paths, now=NOW)
    assert (again.files, again.files_repeated, again.accepted) == (13, 8, 8)
    assert open_store(killed.path).tally().to_bytes() == whole.tally().to_bytes()


def test_files_that_can_not_be_read_do_not_keep_their_neighbours_out(tmp_path, made_store):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    paths = [
        tmp_path / "folder",
        tmp_path / "absent",
        write(tmp_path, "empty", b""),
        tmp_path / "pipe",
        "bad\0name",
        write(tmp_path, "good.hsr", batch(CAMPAIGN, reports(range(3)))),
    ]
    seen = []
    summary = made_store.ingest(paths, now=NOW, progress=lambda done, total: seen.append((done, total)))
    reasons = ("is_folder", "file_not_found", "empty_file", "unreadable", "unreadable")
    unreadable = tuple((str(path), reason) for path, reason in zip(paths, reasons, strict=False))
    assert summary == (6, 0, unreadable, 3, 0, {})
    assert seen == [(i, 6) for i in range(1, 7)]


def test_a_file_that_may_not_be_read_is_told_from_one_that_is_not_there(tmp_path, monkeypatch, made_store):
    path = write(tmp_path, "a.hsr", batch(CAMPAIGN, reports(range(3))))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))
        assert sources.read_source(path) == (str(path), "permission_denied")
    assert made_store.ingest([path], now=NOW).unreadable == ()


def test_what_is_set_aside_is_kept_with_reason_file_offset_and_bytes(tmp_path, made_store):
    bad = report(CAMPAIGN, 1)[:14] + b"\xff\xff\0\0"
    data = batch(CAMPAIGN, [report(CAMPAIGN, 2), bad]) + b"foreign"
    path = write(tmp_path, "a.hsr", data)
    assert made_store.ingest([path], now=NOW).rejected == {"invalid_message": 1, "question_unknown": 1}
    made_store.ingest([path], now=NOW)
    (kept,) = (made_store.path / "quarantine").iterdir()
    assert [json.loads(line) for line in kept.read_text().splitlines()] == [
        {"reason": "question_unknown", "file": "a.hsr", "offset": 62, "length": 18, "bytes": bad.hex(), "proven": True},
        {"reason": "invalid_message", "file": "a.hsr", "offset": 124, "length": 7, "bytes": b"foreign".hex()},
    ]
    assert made_store.tally_report().rejected == {"invalid_message": 1, "question_unknown": 1}


def test_the_quarantine_is_bounded_and_all_is_counted(tmp_path, made_store):
    made_store.quarantine_bytes = 1000
    bad = report(CAMPAIGN, 1)[:14] + b"\xff\xff\0\0"
    files = [write(tmp_path, f"{i}.hsr", batch(CAMPAIGN, [bad] * (5 + i))) for i in range(4)]
    assert made_store.ingest(files, now=NOW).rejected == {"question_unknown": 26}
    sizes = [path.stat().st_size for path in (made_store.path / "quarantine").iterdir()]
    assert 800 < sum(sizes) <= 1000


def test_pieces_are_private_and_flushed_together_before_the_manifest(tmp_path, monkeypatch, made_store):
    folder = made_store.path / "quarantine"
    files = [write(tmp_path, f"{i}.hsr", b"foreign %d" % i) for i in range(20)]
    flushed = []
    with monkeypatch.context() as patch:
        patch.setattr(
            locking, "sync_folder", lambda path: flushed.append((path.name, read_manifest(tmp_path / "s").inputs))
        )
        made_store.ingest(files, now=NOW)
    assert [named for name, named in flushed if name == "quarantine"] == [()]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len(list(folder.iterdir())) == 20


# --- making and opening ---


def test_making_a_store_again_opens_it_and_folders_of_others_are_left_alone(tmp_path, made_store):
    made_store.ingest([write(tmp_path, "a", batch(CAMPAIGN, reports([1])))], now=NOW)
    again = create_store(tmp_path / "s", RAW)
    assert sum(again.tally().n) == 1
    assert repr(again) == f"Store({str(tmp_path / 's')!r}, campaign 'mushrooms')"
    assert refusal(create_store, tmp_path / "s", RAW_UNARY) == "other_campaign"
    assert refusal(create_store, tmp_path / "t", b"not a campaign") == "malformed"
    for path in (tmp_path, tmp_path / "a"):
        assert refusal(create_store, path, RAW) == "not_a_store"
    for path in (tmp_path, tmp_path / "absent", tmp_path / "a"):
        assert refusal(open_store, path) == "not_a_store"
    for name in ("s3://bucket/store", "file:///store", Path("s3://bucket/store"), "a\0b"):
        assert refusal(create_store, name, RAW) == refusal(open_store, name) == "store_not_folder"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "s"]


PART = {"bucket": 0, "name": "a.parquet", "records": 1, "sha256": "ab" * 32}
FILE = {"name": "b.parquet", "rows": 1, "sha256": "ab" * 32}
FORGOTTEN = {"before": 5, "counts": {**FILE}, "replayed": 0, "conflicting": 0, "superseded": 0, "way": 2}


@pytest.mark.parametrize(("number", "reason"), [(0, "store_older"), (1, "store_older"), (3, "store_newer")])
def test_a_store_of_other_software_is_refused_and_not_touched(tmp_path, made_store, number, reason):
    edit_manifest(tmp_path / "s", format=number)
    before = (tmp_path / "s" / "manifest.json").read_bytes()
    for action in (lambda: open_store(tmp_path / "s"), made_store.tally, lambda: made_store.ingest([], now=NOW)):
        assert refusal(action) == reason
    assert (tmp_path / "s" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"format": -1},
        {"format": "1"},
        {"format": True},
        {"buckets": 3},
        {"buckets": 0},
        {"buckets": 1 << 13},
        {"campaign": "00"},
        {"campaign": bytes(32).hex()},
        {"generation": -1},
        {"generation": MAX_GENERATION + 1},
        {"parts": [{**PART, "bucket": 16}]},
        {"parts": [{**PART, "name": "../../a.parquet"}]},
        {"parts": [{**PART, "name": "a\0.parquet"}]},
        {"parts": [{**PART, "name": "\ud800.parquet"}]},
        {"claims": ["ff" * 40]},
        {"claims": ["FF" * 8]},
        {"superseded": ["ff" * 7]},
        {"superseded": ["ff" * 8] * 2},
        {"parts": [{**PART, "sha256": "AB" * 32}]},
        {"parts": [{**PART, "sha256": "ab" * 31}]},
        {"parts": [{**PART, "sha256": None}]},
        {"parts": [PART, {**PART, "sha256": "cd" * 32}]},
        {"parts": [{"bucket": 0}]},
        {"parts": [{name: PART[name] for name in ("bucket", "name", "records")}]},
        {"inputs": [FILE, FILE]},
        {"inputs": [{**FILE, "rows": True}]},
        {"inputs": [{**FILE, "rows": float("inf")}]},
        {"inputs": [{**FILE, "name": "../b.parquet"}]},
        {"rejected": {"truncated": "1"}},
        {"claims": ["xy"]},
        {"superseded": [1]},
        {"forgotten": {**FORGOTTEN, "before": -1}},
        {"forgotten": {**FORGOTTEN, "before": (1 << 32) + 1}},
        {"forgotten": {**FORGOTTEN, "counts": None}},
        {"forgotten": 5},
    ],
)
def test_a_manifest_that_does_not_fit_is_store_damaged(tmp_path, changes):
    create_store(tmp_path / "s", RAW)
    edit_manifest(tmp_path / "s", parts=[PART], inputs=[FILE], forgotten=FORGOTTEN)
    open_store(tmp_path / "s")
    edit_manifest(tmp_path / "s", **changes)
    assert refusal(open_store, tmp_path / "s") == "store_damaged"


def test_a_manifest_that_can_not_be_counted_up_stays_readable(tmp_path, made_store):
    path = write(tmp_path, "a", batch(CAMPAIGN, reports(range(3))))
    edit_manifest(made_store.path, generation=MAX_GENERATION)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"^store_damaged: its manifest can not be replaced more"):
            made_store.ingest([path], now=NOW)
        assert open_store(made_store.path).tally_report().reports == 0
    edit_manifest(made_store.path, generation=MAX_GENERATION - 1)
    made_store.ingest([path], now=NOW)
    assert open_store(made_store.path).tally_report().reports == 3


def test_a_changed_bit_in_any_byte_of_a_manifest_is_noticed(tmp_path):
    made_store = create_store(tmp_path / "s", RAW, buckets=1)
    made_store.ingest([write(tmp_path, "a", batch(CAMPAIGN, reports(range(3))))], now=NOW)
    path = tmp_path / "s" / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(StorageError, match=r"^store_(damaged|newer|older)"):
            read_manifest(tmp_path / "s")
    unsealed = json.dumps({name: value for name, value in json.loads(whole).items() if name != "sha256"}, indent=1)
    for content in (b"[]", unsealed.encode(), *(whole[:length] for length in range(0, len(whole), 5))):
        path.write_bytes(content)
        assert refusal(read_manifest, tmp_path / "s") == "store_damaged"


@pytest.mark.parametrize("content", [None, b"", b"x", RAW_UNARY, RAW[:-1]])
def test_a_damaged_campaign_file_is_store_damaged(tmp_path, content):
    create_store(tmp_path / "s", RAW)
    path = tmp_path / "s" / "campaign.hsc"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert refusal(open_store, tmp_path / "s") == "store_damaged"


class Counted(bytes):
    """Bytes that count the number of slices taken from them."""

    taken = 0

    def __getitem__(self, place):
        self.taken += 1
        return super().__getitem__(place)


def test_finding_a_known_file_takes_no_longer_if_many_files_end_alike(tmp_path, made_store):
    """Many files may have equal ends: a power cut fills files with zeros, and a sender chooses a file's end."""
    datas = [batch(CAMPAIGN, [report(CAMPAIGN, device)]) + bytes(16) for device in range(200)]
    made_store.ingest([write(tmp_path, f"{number}.hsr", data) for number, data in enumerate(datas)], now=NOW)
    index = Inputs(made_store.path, read_manifest(made_store.path).inputs)
    index._identities = looked_at = Counted(index._identities)
    assert index.may_know(bytes(8))
    assert not index.may_know(bytes(7) + b"\1")
    assert [index.get(inputs.identity(data)).name for data in datas] == [f"{number}.hsr" for number in range(200)]
    assert looked_at.taken == len(datas)
    assert index.get(bytes(32)) is None


# --- two at once ---


def test_a_second_ingest_waits_and_is_refused_after_its_time(tmp_path, made_store):
    made_store.lock_timeout_seconds = 0.1
    with (tmp_path / "s" / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refusal(made_store.ingest, [], now=NOW) == "store_busy"
        assert made_store.tally().n == (0, 0, 0), "reading needs no lock"
    made_store.ingest([], now=NOW)


def test_waiting_ends_when_the_other_is_done(tmp_path):
    naps = []
    with (tmp_path / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def sleep(seconds):
            naps.append(seconds)
            if len(naps) == 3:
                fcntl.flock(held, fcntl.LOCK_UN)

        with locking.exclusive(tmp_path / "lock", 100, clock=lambda: 0.0, sleep=sleep):
            assert len(naps) == 3


# --- crashes ---


def filled(folder: Path) -> tuple[Path, Path]:
    """A store with one ingested file and orphans in its folder, and a second file to ingest."""
    first = write(folder, "first.hsr", batch(CAMPAIGN, reports(range(40))))
    bad = report(CAMPAIGN, 1)[:14] + b"\xff\xff\0\0"
    second = write(folder, "second.hsr", batch(CAMPAIGN, [*reports(range(30, 60)), bad]))
    create_store(folder / "template", RAW, buckets=4).ingest([first], now=NOW)
    (folder / "template" / "reports" / "bucket=00" / "00000002-0-0000.parquet").write_bytes(b"half a part")
    (folder / "template" / "inputs" / "00000002.parquet").write_bytes(b"half an index")
    (folder / "template" / "manifest.json.tmp").write_bytes(b"{")
    return folder / "template", second


@pytest.mark.slow
@pytest.mark.parametrize("error", [Cut(), OSError(errno.ENOSPC, "no space")], ids=["crash", "full"])
def test_an_ingest_that_ends_at_any_step_leaves_the_old_store_or_the_new_one(tmp_path, error):
    """A step without free space fails with the reason ``disk_full``, and is never skipped."""
    template, second = filled(tmp_path)
    old = open_store(template).tally().to_bytes()
    shutil.copytree(template, tmp_path / "whole")
    whole = open_store(tmp_path / "whole")
    whole.ingest([second], now=NOW)
    expected = whole.tally_report()
    outcomes = []
    for at in count(1):
        shutil.copytree(template, tmp_path / f"s{at}")
        made_store = open_store(tmp_path / f"s{at}")
        with Broken(at, error) as broken:
            found = failure(made_store.ingest, [second], now=NOW)
        if len(broken.steps) < at:
            break
        assert isinstance(error, Cut) or found.reason == "disk_full"
        outcomes.append(made_store.tally().to_bytes())
        committed = outcomes[-1] == expected.tally.to_bytes()
        assert made_store.ingest([second], now=NOW).files_repeated == int(committed)
        assert made_store.tally_report() == expected
        check_whole(made_store)
        shutil.rmtree(made_store.path)
    assert set(outcomes) == {old, expected.tally.to_bytes()}
    assert outcomes == sorted(outcomes, key=lambda tally: tally != old), "once committed, always committed"
    assert len(outcomes) > 40


def test_a_store_whose_making_was_interrupted_is_made_by_the_next_attempt(tmp_path):
    for at in count(1):
        with Broken(at, Cut()) as broken:
            create_store(tmp_path / f"s{at}", RAW)
        assert create_store(tmp_path / f"s{at}", RAW).campaign.id == CAMPAIGN.id
        if len(broken.steps) < at:
            break
    assert at > 5


def test_everything_that_is_committed_was_flushed_before(tmp_path, monkeypatch):
    """Order: each part and its folder, the index of input files, the manifest; each file's content and name."""
    made_store = create_store(tmp_path / "s", RAW, buckets=2)
    path = write(tmp_path, "a", batch(CAMPAIGN, reports(range(9))))
    with (
        Broken(3, OSError(errno.EIO, "Input/output error")),
        pytest.raises(StorageError, match=r"^io_failed: .*Input/"),
    ):
        made_store.ingest([path], now=NOW)
    flushed = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: flushed.append(Path(f"/proc/self/fd/{number}").readlink()))
        with Broken(0, Cut()) as watched:
            made_store.ingest([path], now=NOW)
    manifest = read_manifest(made_store.path)
    names = [path.relative_to(made_store.path).as_posix() for path in flushed]
    for part in manifest.parts:
        folder = part.path.rpartition("/")[0]
        assert names.index(part.path) < len(names) - 1 - names[::-1].index(folder)
    index = "inputs/00000001.parquet"
    assert names[-5:] == [f"{index}.tmp", "inputs", "manifest.json.tmp", ".", "lock"]
    assert {*manifest.paths()} == {part.path for part in manifest.parts} | {index}
    assert watched.steps[-4:] == ["fsync", "replace", "fsync", "fsync"], "the last one is that of the lock file"


# --- estimates ---


def test_estimates_wait_for_the_smallest_batch(tmp_path):
    raw = Publisher().campaign(min_batch_size=50)
    records = reports(range(50), opened(raw))
    made_store = stored(tmp_path, raw, batch(opened(raw), records[:49]))
    assert refusal(made_store.estimates) == "batch_too_small"
    made_store.ingest([write(tmp_path, "a", batch(opened(raw), records[49:]))], now=NOW)
    assert len(made_store.estimates()) == 2 + 8 + 4 + 2, "and the pooled shares of two classes"


# Damage to batches and to a store's files, full disks, two ingests at once: counts stay right, or it is said


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
    for use in (
        lambda: open_store(store.path),
        store.tally_report,
        lambda: store.ingest([path], now=NOW),
    ):
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


def parts_of(store):
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
    path = parts_of(store)[0]
    edited(path, **columns)
    assert "is not as it was written" in damage(store)
    sealed_again(store, path)
    assert problem in damage(store)


def test_a_part_that_is_no_parquet_file_or_no_file_is_noticed(store):
    path = parts_of(store)[0]
    path.write_bytes(b"PAR1 and nothing else PAR1")
    sealed_again(store, path)
    assert "is no Parquet file" in damage(store)
    path.unlink()
    os.mkfifo(path)
    assert "can not be read" in damage(store)


def test_what_others_put_into_the_folders_of_a_store_keeps_no_ingest_out(store, tmp_path):
    bucket = parts_of(store)[0].parent
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
    assert refusal(store.ingest, [tmp_path / "c.hsr"], now=NOW) == "io_failed"
    assert sorted(precious.iterdir()) == sorted(kept)
    assert [path.read_text() for path in kept] == ["mine"] * 3


def test_a_missing_part_is_noticed_before_anything_is_added_or_deleted(store, tmp_path):
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 400)]))
    path = parts_of(store)[0]
    whole = path.read_bytes()
    path.unlink()
    (path.parent / "00000009-0000.parquet").write_bytes(b"of a newer manifest, perhaps")
    with pytest.raises(StorageError, match=f"^store_damaged: '{path.relative_to(store.path)}' is missing"):
        store.ingest([tmp_path / "b.hsr"], now=NOW)
    assert (path.parent / "00000009-0000.parquet").exists()
    path.write_bytes(whole)
    assert store.ingest([tmp_path / "b.hsr"], now=NOW).accepted == 1
    assert not (path.parent / "00000009-0000.parquet").exists()
