"""Workers of a cluster make the same store and the same counts as one process, also when one of them is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import distributed
import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import stores
from support.commands import run
from support.dying import Replacing, count_partition_and_die, read_share_and_die
from support.failures import refusal
from support.fleets import honest, sealed
from support.publisher import DAY, NOW, Publisher
from support.reports import CAMPAIGN, PERIOD, RAW, batch, opened, report
from support.stores import check_whole

from aggregator.operations.report_store import create_store, open_store
from aggregator.operations.status import status
from aggregator.reports import cluster as cluster_room
from aggregator.reports.cluster import Cluster, check_address, open_cluster
from aggregator.reports.fleet import Roster
from aggregator.reports.intake import remote as tasks
from aggregator.reports.intake.enrolment import enrolled_from_rosters
from aggregator.reports.intake.remote import Ends, Job, ListedFile, _balanced, all_unreadable, read_share
from aggregator.reports.intake.sources import ahead
from aggregator.reports.storage.input_index import Inputs
from aggregator.reports.storage.manifest import fingerprint, read_manifest
from aggregator.reports.tally.counting import count_partition
from aggregator.reports.tally.scope import EVERYTHING, scope_of
from protocol.errors import InputError, PolicyError, StorageError

TODAY = NOW + 3 * DAY
NO_PORT = "127.0.0.1:0"
"""For Dask's pages: any port, since a fixed one may be taken."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def workers():
    """Two processes."""
    with open_cluster("local:2") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def threads():
    """Two threads of this process, which see its memory."""
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=NO_PORT, set_as_default=False
    ) as client:
        yield Cluster(client)


def on(store, cluster):
    store.cluster = cluster
    return store


def trouble(folder):
    """Files of every kind that an ingest meets, in the order in which they are given."""
    folder.mkdir()
    clean = [sealed(CAMPAIGN, honest(CAMPAIGN, 3000, PERIOD + k, k)) for k in range(4)]
    conflict = honest(CAMPAIGN, 500, PERIOD, 0)
    conflict["value"] = (conflict["value"] + 1) % 2
    damaged = bytearray(clean[1])
    damaged[70] ^= 4  # the end stays: at first sight it is the same file as the whole one
    early = sealed(CAMPAIGN, honest(CAMPAIGN, 50, PERIOD + 4, 9))
    contents = {
        "damaged": bytes(damaged), "a": clean[0], "b": clean[1], "copy": clean[0], "joined": clean[2] + clean[0],
        "cut": clean[3][:20_000], "conflict": sealed(CAMPAIGN, conflict), "foreign": b"no batch at all" * 9,
        "empty": b"", "early": early, "copy2": clean[0], "damaged2": bytes(damaged), "early2": early,
        **{f"small{n}": batch(CAMPAIGN, [report(CAMPAIGN, n, n)]) for n in range(40)},
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return [folder / name for name in (*contents, "folder", "missing", "a", "zero\0byte")]


def state(store):
    """All that must not depend on who did the work."""
    manifest = read_manifest(store.path)
    found = store.tally_report()
    entries = sorted(Inputs(store.path, manifest.inputs).entries())
    quarantine = {path.name: path.read_bytes() for path in (store.path / "quarantine").glob("*")}
    counted = manifest.records, dict(manifest.rejected), manifest.claims, manifest.superseded, manifest.closed
    return found.tally.to_bytes(), found, entries, quarantine, counted


def ingested(path, files, cluster=None, **options):
    store = on(create_store(path, RAW), cluster)
    return store, store.ingest(files, now=TODAY, **options)


# --- the same bytes ---


def test_two_workers_make_what_one_process_makes(tmp_path, workers):
    files = trouble(tmp_path / "in")
    alone, expected = ingested(tmp_path / "alone", files)
    together, summary = ingested(tmp_path / "together", files, workers)
    assert summary == expected
    assert summary.files_repeated == 5
    assert {found.reason for found in summary.unreadable} == {"empty_file", "is_folder", "file_not_found", "unreadable"}
    assert state(together) == state(on(alone, None))
    assert state(on(together, None)) == state(on(alone, workers))
    assert json.dumps(status(together).to_json(), default=bytes.hex) == json.dumps(
        status(on(alone, None)).to_json(), default=bytes.hex
    )
    check_whole(on(together, workers))
    urls = [file.as_uri() if "\0" not in str(file) else file for file in files]
    by_url, summary = ingested(tmp_path / "urls", urls, workers)
    assert (summary.proven, summary.unproven) == (expected.proven, expected.unproven)
    assert state(by_url) == state(alone)
    # Later, one of them once more: only what has begun since is added.
    again = together.ingest(files, now=TODAY + DAY)
    assert again == alone.ingest(files, now=TODAY + DAY)
    assert (again.files_repeated, again.proven) == (len(files) - 5, 50)
    assert state(together) == state(alone)
    scope = scope_of(range(PERIOD + 1, PERIOD + 3), proven_only=True)
    assert together.tally_report(scope) == alone.tally_report(scope)


def test_the_parts_of_many_tasks_are_joined(tmp_path, workers):
    files = stores.files_of(tmp_path, *(sealed(CAMPAIGN, honest(CAMPAIGN, 300, PERIOD, n)) for n in range(40)))
    for some in (files[:30], files[30:]):
        store, _ = ingested(tmp_path / "s", some, workers)
        check_whole(store)
    parts = read_manifest(store.path).parts
    assert len(parts) == 2 * len({part.bucket for part in parts}) == 32
    assert sum(store.tally().n) == 12_000


# --- lost workers ---


def many(folder, number=8, records=40_000):
    folder.mkdir()
    for n in range(number):
        (folder / f"{n}.hsr").write_bytes(sealed(CAMPAIGN, honest(CAMPAIGN, records, PERIOD, n)))
    return sorted(folder.iterdir())


def test_a_worker_killed_after_it_wrote_parts_and_before_it_said_so(tmp_path, workers):
    files = many(tmp_path / "in")
    alone, expected = ingested(tmp_path / "alone", files)
    marker = tmp_path / "killed"
    dying = Replacing(workers, read_share, partial(read_share_and_die, marker))
    together, summary = ingested(tmp_path / "together", files, dying)
    assert marker.exists()
    assert summary == expected
    assert state(together) == state(alone)
    check_whole(together)


def test_a_worker_killed_while_it_counts(tmp_path, workers):
    store, _ = ingested(tmp_path / "s", many(tmp_path / "in", 3, 5000))
    expected = store.tally_report()
    marker = tmp_path / "killed"
    dying = Replacing(workers, count_partition, partial(count_partition_and_die, marker=marker))
    assert on(store, dying).tally_report() == expected
    assert marker.exists()


def test_a_failing_disk_on_a_worker_leaves_the_store_as_it_was(tmp_path, threads, monkeypatch):
    files = trouble(tmp_path / "in")
    store, _ = ingested(tmp_path / "s", files[:3], threads)
    before = state(store)

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "PartWriter", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert refusal(store.ingest, files, now=TODAY) == "disk_full"
    assert state(store) == before
    assert store.ingest(files, now=TODAY).proven
    check_whole(store)


def test_a_file_that_changes_while_it_is_ingested_is_taken_as_it_is_at_last(tmp_path, threads):
    files = trouble(tmp_path / "in")[1:3]

    def change_first(job, chosen, *rest):
        if not rest[-1] and chosen[0].number == 0:
            files[0].write_bytes(files[1].read_bytes())
        return read_share(job, chosen, *rest)

    _, summary = ingested(tmp_path / "s", files, Replacing(threads, read_share, change_first))
    assert (summary.files, summary.files_repeated, summary.proven, summary.rejected) == (2, 1, 3000, {})


def test_a_cluster_without_workers_is_waited_for_and_then_given_up(tmp_path):
    store, _ = ingested(tmp_path / "s", many(tmp_path / "in", 1, 100))
    cluster = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=NO_PORT)
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        store.cluster = Cluster(client, patience_seconds=0)
        with pytest.raises(StorageError, match="it has no workers"):
            store.tally()


def test_a_scheduler_that_ends(tmp_path):
    store, _ = ingested(tmp_path / "s", many(tmp_path / "in", 1, 100))
    cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=NO_PORT)
    with cluster, distributed.Client(cluster, timeout=1, set_as_default=False) as client:
        store.cluster = Cluster(client)
        cluster.close()
        assert refusal(store.tally) == "cluster_lost"


# --- workers that do not see the store, or differ ---


def test_a_worker_that_sees_another_store_refuses(tmp_path):
    store, _ = ingested(tmp_path / "s", trouble(tmp_path / "in")[:2])
    right = fingerprint(read_manifest(store.path))
    campaign, manifest = tasks.opened(Job(str(store.path), right))
    assert (campaign.id, manifest) == (CAMPAIGN.id, read_manifest(store.path))
    for job in (Job(str(store.path), bytes(32)), Job(str(tmp_path), right)):
        assert refusal(tasks.opened, job) == "store_not_shared"
    assert refusal(tasks.opened, Job(str(store.path), right, "0.0.1")) == "cluster_differs"


def test_parts_written_elsewhere_are_not_committed(tmp_path, threads):
    def elsewhere(job, *rest):
        found = read_share(job, *rest)
        for part in found.parts:
            (tmp_path / "s" / part.path).unlink()
        return found

    store = on(create_store(tmp_path / "s", RAW), Replacing(threads, read_share, elsewhere))
    assert refusal(store.ingest, trouble(tmp_path / "in"), now=TODAY) == "store_not_shared"
    assert read_manifest(store.path).generation == 0


def test_software_that_a_worker_lacks_is_told_from_a_fault_of_ours(threads):
    def lacking():
        raise RuntimeError("deserialization") from ModuleNotFoundError("aggregator.reports.intake.remote")

    def faulty():
        raise RuntimeError("ours")

    assert refusal(list, threads.run(lacking, [()])) == "cluster_differs"
    with pytest.raises(RuntimeError, match="ours"):
        list(threads.run(faulty, [()]))


def test_secrets_do_not_go_over_an_open_line(tmp_path):
    enrolled = enrolled_from_rosters(CAMPAIGN, [Roster("f", ("a",), bytes(32))])
    with (
        distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=NO_PORT) as made,
        distributed.Client(made, set_as_default=False) as client,
        pytest.raises(PolicyError, match="cluster_open"),
    ):
        ingested(tmp_path / "s", [], Cluster(client), enrolled=enrolled)


# --- addresses ---


def test_addresses_of_clusters_and_other_words():
    for address in ("local:1", "local:16", "tcp://10.0.0.1:8786", "tls://head.example:8786"):
        check_address(address)
    for none in ("local", "local:0", "local:1025", "local:-1", "udp://a:1", "a:8786", "tcp://a", "tcp://a:65536"):
        assert refusal(check_address, none) == "cluster_invalid", none


def test_a_port_where_nobody_listens_is_not_asked_for_half_a_minute():
    times = iter(range(100))
    with pytest.raises(StorageError, match="Connection refused"):
        cluster_room.check_scheduler("tcp://127.0.0.1:9", 30.0, clock=lambda: float(next(times)))
    assert next(times) < 10


def test_without_dask_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"missing_extra: .*install .*\[cluster\]"), open_cluster("local:1"):
        pass


def test_dasks_logs_are_silent_whatever_levels_they_have():
    import logging

    names = ("distributed", "distributed.client", "distributed.core", "tornado.application", "asyncio")
    before = [logging.getLogger(name).level for name in names]
    with cluster_room._quiet():
        assert not any(logging.getLogger(name).isEnabledFor(logging.CRITICAL) for name in names)
    assert [logging.getLogger(name).level for name in names] == before


def test_one_machine_needs_no_dask(tmp_path):
    files = trouble(tmp_path / "in")
    script = f"""
import sys
sys.modules["distributed"] = sys.modules["dask"] = sys.modules["fsspec"] = None
import aggregator.cli.app
from aggregator.operations.report_store import create_store
store = create_store({str(tmp_path / "s")!r}, bytes.fromhex({RAW.hex()!r}))
print(store.ingest([{str(files[1])!r}], now={TODAY}).proven, sum(store.tally().n))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3000", "3000"]


# --- files by URL ---


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def put(memory, names):
    for number, name in enumerate(names):
        memory.pipe(name, sealed(CAMPAIGN, honest(CAMPAIGN, 100, PERIOD, number)))


@pytest.mark.parametrize("on_cluster", [False, True])
def test_files_by_url(tmp_path, memory, threads, monkeypatch, on_cluster):
    monkeypatch.setattr("aggregator.reports.intake.sources._MAPPED_BYTES", 1500)  # 100 reports go through a file
    put(memory, ["/in/a.hsr", "/in/b.hsr", "/in/deep/c.hsr"])
    memory.pipe("/in/copy.hsr", memory.cat("/in/a.hsr"))
    memory.pipe("/in/one.hsr", batch(CAMPAIGN, [report(CAMPAIGN, 1)]))
    memory.pipe("/in/empty.hsr", b"")
    (tmp_path / "x.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 2)]))
    given_ = ["memory://in/*.hsr", f"file://{tmp_path}/x.hsr", "memory://in/deep/c.hsr", tmp_path / "x.hsr",
              "memory://in/deep", "memory://no/*.hsr", "memory://no.hsr"]  # fmt: skip
    store, summary = ingested(tmp_path / "s", given_, threads if on_cluster else None)
    assert (summary.files, summary.files_repeated, summary.proven, summary.rejected) == (11, 2, 302, {})
    assert [(found.file.rsplit("/", 1)[-1], found.reason) for found in summary.unreadable] == [
        ("empty.hsr", "empty_file"), ("deep", "is_folder"), ("*.hsr", "file_not_found"), ("no.hsr", "file_not_found"),
    ]  # fmt: skip
    names = {entry.name for entry in Inputs(store.path, read_manifest(store.path).inputs).entries()}
    assert {"b.hsr", "c.hsr", "one.hsr", "x.hsr"} < names
    assert sum(store.tally().n) == 302


def test_a_file_system_that_fails_keeps_no_other_file_out(tmp_path, memory, monkeypatch):
    put(memory, ["/in/a.hsr", "/in/b.hsr"])
    found = type(memory).info

    def info(self, path, **options):
        if path.endswith("b.hsr"):
            raise RuntimeError("a secret of the bucket")
        return found(self, path, **options)

    monkeypatch.setattr(type(memory), "info", info)
    _, summary = ingested(tmp_path / "s", ["memory://in/a.hsr", "memory://in/b.hsr"])
    assert (summary.proven, [bad.reason for bad in summary.unreadable]) == (100, ["unreadable"])


EndpointConnectionError = type("EndpointConnectionError", (Exception,), {})  # as botocore's is called


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError(), EndpointConnectionError("s3")])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_server_that_does_not_answer_is_not_called_a_missing_file(tmp_path, memory, monkeypatch, error, hidden):
    def info(self, path, **options):
        if hidden:
            raise FileNotFoundError(path) from error  # as fsspec does for https://
        raise error

    monkeypatch.setattr(type(memory), "info", info)
    _, summary = ingested(tmp_path / "s", ["memory://in/a.hsr"])
    assert [bad.reason for bad in summary.unreadable] == ["not_reached"]


@given(st.lists(st.booleans(), max_size=30))
def test_results_that_come_from_far_keep_their_order(far):
    names = [f"{'memory://' if is_far else ''}{number}" for number, is_far in enumerate(far)]
    assert list(ahead(str.upper, names)) == [name.upper() for name in names]


# --- shares ---


@given(st.lists(st.integers(0, 1 << 33), max_size=60), st.integers(1, 50))
def test_every_file_is_in_one_share_and_none_is_much_heavier(sizes, threads):
    chosen = [ListedFile(n, str(n), Ends(size, b"") if size else None) for n, size in enumerate(sizes)]
    shares = _balanced(chosen, threads, 16 * 18)
    assert sorted(one for share in shares for one in share) == chosen
    assert all(share == sorted(share) for share in shares)
    loads = [sum(sizes[one.number] for one in share) for share in shares]
    if sizes:
        assert max(loads) <= sum(sizes) / len(shares) + max(sizes) + (1 << 14) * len(sizes)


# --- the command line ---


def test_commands_on_a_cluster_print_the_same_and_make_no_store_in_vain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [str(file) for file in many(tmp_path / "in", 3, 2000)]
    (tmp_path / "c.hsc").write_bytes(RAW)
    (tmp_path / "empty.hsr").write_bytes(b"")
    bad = ["absent.hsr", "empty.hsr", f"file://{tmp_path}/no*.hsr"]
    outputs = []
    for extra in ([], ["--cluster", "local:1"]):
        store = str(tmp_path / f"s{len(extra)}")
        made = run("ingest", "c.hsc", *files, "--store", store, "--json", *extra)
        outputs.append((made.stdout, run("estimate", "--store", store, "--json", *extra).stdout))
        vain = run("ingest", "c.hsc", *bad, "--store", "vain", "--json", *extra, status=1)
        assert vain.stderr.splitlines()[-1].startswith("unreadable: none of 3 files")
        found = [(each["file"], each["reason"]) for each in json.loads(vain.stdout)["unreadable"]]
        assert found == list(zip(bad, ["file_not_found", "empty_file", "file_not_found"], strict=True))
    assert outputs[0] == outputs[1]
    assert run("estimate", "--store", store, "--cluster", "nowhere", status=2).stderr.startswith("usage:")
    named = ("ingest", "c.hsc", *files, "--store", "vain", "--cluster", "tls://127.0.0.1:1")
    assert run(*named, status=1).stderr.splitlines()[-1].startswith("cluster_unreachable")
    assert not (tmp_path / "vain").exists()


@pytest.mark.parametrize("readable", [0, 5000])
def test_one_readable_file_among_many_is_found(tmp_path, threads, readable):
    files = [str(tmp_path / f"{number}.hsr") for number in range(5001)]
    assert [each.file for each in all_unreadable(files, threads)] == files
    (tmp_path / f"{readable}.hsr").write_bytes(b"1")
    assert all_unreadable(files, threads) == ()


@pytest.fixture
def interruptible():
    """Processes started meanwhile hear an interrupt, also if this one was started in the background and does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_command_in_one_line(tmp_path):
    raw = Publisher(now=int(time.time()) - DAY).campaign()
    campaign = opened(raw)
    (tmp_path / "c.hsc").write_bytes(raw)
    files = [tmp_path / f"{number}.hsr" for number in range(4)]  # when the first is written, most work is left
    for seed, file in enumerate(files):
        file.write_bytes(sealed(campaign, honest(campaign, 400_000, campaign.period_at(time.time()), seed)))
    for attempt in range(8):  # an ingest that ended before the signal came is tried again
        folder = tmp_path / f"s{attempt}"
        command = [sys.executable, "-m", "aggregator.entry", "ingest", tmp_path / "c.hsc", *files,
                   "--store", folder, "--cluster", "local:1"]  # fmt: skip
        with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
            while not list(folder.glob("reports/*/*")):
                assert process.poll() is None
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: client and workers
            output, errors = process.communicate(timeout=60)
        if process.returncode:
            break
    assert (process.returncode, output, errors.strip()) == (130, "", "interrupted: nothing more was written")
    assert read_manifest(folder).generation == 0


def test_a_tally_sees_an_ingest_that_ends_meanwhile(tmp_path, threads):
    files = many(tmp_path / "in", 2, 500)
    store, _ = ingested(tmp_path / "s", files[:1], threads)
    old = read_manifest(store.path)
    open_store(store.path).ingest(files[1:], now=TODAY)
    tasks._opened.cache_clear()
    assert refusal(store._tally_report, old, EVERYTHING) == "store_not_shared"
    assert sum(store.tally().n) == 1000
    assert np.sum(on(store, None).tally().n) == 1000
