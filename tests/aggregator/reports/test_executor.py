"""An engine for remote work is one class: here threads in place of a cluster, with the five members of Executor."""

from __future__ import annotations

import pytest
from support.engine import Engine
from support.failures import refusal
from support.fleets import honest, sealed
from support.publisher import DAY, NOW
from support.reports import CAMPAIGN, PERIOD, RAW, digest

from aggregator.operations.report_store import create_store
from aggregator.reports.fleet import Roster
from aggregator.reports.intake.enrolment import enrolled_from_rosters
from aggregator.reports.storage.input_index import Inputs
from aggregator.reports.storage.manifest import read_manifest


@pytest.fixture
def files(tmp_path):
    """A file, its copy, a file with the same end, a damaged file that claims to be the first, and an early one."""
    contents = [sealed(CAMPAIGN, honest(CAMPAIGN, 400, PERIOD + day, day)) for day in (0, 1, 9)]
    damaged = bytearray(contents[0])
    damaged[70] ^= 4
    contents += [contents[0], bytes(damaged), b"", contents[1][:3000]]
    paths = [tmp_path / f"{number}.hsr" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [*paths, tmp_path / "absent.hsr", paths[0]]


def content(store):
    manifest = read_manifest(store.path)
    kept = {path.name: path.read_bytes() for path in (store.path / "quarantine").glob("*")}
    entries = sorted(Inputs(store.path, manifest.inputs).entries())
    return entries, kept, dict(manifest.rejected), manifest.claims, manifest.superseded, store.tally_report()


@pytest.mark.parametrize("closed", [False, True])
def test_an_engine_of_five_members_makes_the_store_that_threads_make(tmp_path, files, closed):
    secrets = b"".join(digest("secret", device) for device in range(30))
    roster = Roster("f", tuple(map(str, range(30))), secrets)
    enrolled = enrolled_from_rosters(CAMPAIGN, [roster]) if closed else None
    local, remote = (create_store(tmp_path / name, RAW) for name in ("local", "remote"))
    remote.cluster = Engine()
    for now in (NOW + 2 * DAY, NOW + 12 * DAY):
        calls = []
        found = remote.ingest(files, now=now, enrolled=enrolled, progress=lambda *call, calls=calls: calls.append(call))
        assert found == local.ingest(files, now=now, enrolled=enrolled)
        assert calls == [(number, len(files)) for number in range(1, len(files) + 1)]
        assert content(remote) == content(local)
    assert found.files_repeated >= 5
    parts = {str(path.relative_to(remote.path)) for path in remote.path.glob("reports/*/*")}
    assert parts == {part.path for part in read_manifest(remote.path).parts}


def test_secrets_are_not_given_to_an_engine_that_sends_them_in_the_clear(tmp_path, files):
    enrolled = enrolled_from_rosters(CAMPAIGN, [Roster("f", ("a",), bytes(32))])
    store = create_store(tmp_path / "s", RAW)
    store.cluster = Engine()
    store.cluster.is_private = False
    assert refusal(store.ingest, files, now=NOW, enrolled=enrolled) == "cluster_open"


def test_what_a_task_raises_reaches_the_caller(tmp_path):
    store = create_store(tmp_path / "s", RAW)
    store.cluster = Engine()
    assert refusal(store.ingest, ["nothing-like-it://a/b"], now=NOW) == "protocol_unknown"
    assert read_manifest(store.path).generation == 0
