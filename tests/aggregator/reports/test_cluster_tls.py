"""Who answers at a cluster's address: the certificates of docs/how-to/cluster.md, and everybody else in one line."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed  # noqa: F401 - brings the defaults of its configuration
import pytest
import yaml
from click.testing import CliRunner
from support.commands import invoke, mushrooms, run
from support.publisher import NOW
from support.reports import CAMPAIGN, RAW, batch, report

from aggregator.cli.app import hearsay
from aggregator.reports.cluster import open_cluster
from protocol.errors import StorageError

pytestmark = pytest.mark.slow

TEXT = (Path(__file__).parents[3] / "docs" / "how-to" / "cluster.md").read_text()
COMMANDS, AUTHORITY, MEMBER = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
START_SECONDS = 90
ALLOCATOR, CONFIGURATION = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Dask's configuration as the documentation has it, with certificates that its commands made."""
    folder = tmp_path_factory.mktemp("tls")
    for commands in (AUTHORITY, MEMBER):
        subprocess.run(["sh", "-e", "-c", commands], cwd=folder, check=True, capture_output=True)
    assert (folder / "key.pem").stat().st_mode & 0o77 == 0
    (folder / "dask").mkdir()
    (folder / "dask" / "tls.yaml").write_text(CONFIGURATION.replace("/etc/hearsay", str(folder)))
    return folder / "dask"


@contextmanager
def dask_process(folder, configuration, *command, until):
    """A process of Dask, once its log says this; gives the words that it matched."""
    log = folder / f"{command[0]}.log"
    environment = {"DASK_CONFIG": str(configuration), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command], stdout=sink, stderr=sink, env=environment, cwd=folder
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while (found := re.search(until, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def tls(certificates, tmp_path_factory):
    """Port of a scheduler with a worker, both run as the documentation says."""
    folder = tmp_path_factory.mktemp("cluster")
    scheduler = ["scheduler", "--protocol", "tls", "--port", "0", "--host", "127.0.0.1", "--no-dashboard"]
    with dask_process(folder, certificates, *scheduler, until=r"Scheduler at: +tls://127.0.0.1:([0-9]+)") as found:
        # Without a nanny, which goes on when its worker could not start; in a folder, and with a lock, of its own.
        worker = ["worker", f"tls://127.0.0.1:{found[1]}", "--no-nanny", "--nthreads", "1", "--no-dashboard",
                  "--local-directory", str(folder), "--death-timeout", str(START_SECONDS)]  # fmt: skip
        with dask_process(folder, certificates, *worker, until="Starting established connection"):
            yield found[1]


def configured(text):
    """Dask's configuration with this file beside its defaults."""
    return dask.config.set(dask.config.merge({"distributed": dask.config.get("distributed")}, yaml.safe_load(text)))


def refused(address):
    opening = open_cluster(address, connect_seconds=5.0, silence_seconds=1.0)
    with pytest.raises(StorageError) as caught, opening:
        pass
    assert caught.value.reason == "cluster_unreachable"
    return caught.value.detail.partition(f"{address}: ")[2]


def test_the_certificates_of_the_documentation_let_in_their_holders(tls, certificates, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    (tmp_path / "c.hsc").write_bytes(RAW)
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device) for device in range(20)]))
    command = ["ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / "s",
               "--cluster", f"tls://127.0.0.1:{tls}"]  # fmt: skip
    with configured((certificates / "tls.yaml").read_text()):
        done = CliRunner().invoke(hearsay, [str(word) for word in command])
    assert done.exit_code == 0, done.output
    assert "reports read                20\n" in done.stdout
    assert "warning" not in done.stderr


def test_the_commands_of_the_documentation_work(tls, certificates, tmp_path, monkeypatch):
    """With another address, files in place of an object store, and a workspace that signed the campaign."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(mushrooms(), "utf-8")
    run("init", "work", "--no-passphrase")
    run("campaign", "schema.toml", "--workspace", "work", "--epsilon", 4, "--mechanism", "direct", "-o", "c.hsc")
    (tmp_path / "pilot.csv").write_text("odor,class\n" + "a,e\nn,p\n" * 100, "utf-8")
    (tmp_path / "inbox").mkdir()
    run("rehearse", "c.hsc", "pilot.csv", "-o", "inbox/a.hsr")
    (tmp_path / "root.hst").write_bytes((tmp_path / "work" / "root.hst").read_bytes())
    for shown, here in (
        ("tls://head:8786", f"tls://127.0.0.1:{tls}"),
        ("s3://inbox/2026-11/", f"file://{tmp_path}/inbox/"),
        ("/mnt/fleet/store", f"{tmp_path}/store"),
    ):
        assert shown in COMMANDS
        monkeypatch.setitem(globals(), "COMMANDS", COMMANDS.replace(shown, here))
    with configured((certificates / "tls.yaml").read_text()):
        for line in COMMANDS.splitlines():
            run(*shlex.split(line)[1:])
    assert (tmp_path / "m.hsm").is_file()


def test_the_allocators_settings_are_those_of_workers():
    with configured(ALLOCATOR):
        there = dask.config.get("distributed.nanny.pre-spawn-environ")
    assert {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} <= set(there)
    assert "MALLOC_TRIM_THRESHOLD_" in dask.config.get("distributed.nanny.pre-spawn-environ")


def test_what_answers_otherwise_is_named(tls, tmp_path):
    assert refused(f"tcp://127.0.0.1:{tls}").startswith("it speaks TLS; write tls://, not tcp://")
    assert "names no certificates" in refused(f"tls://127.0.0.1:{tls}")
    for commands in (AUTHORITY, MEMBER):
        subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    with configured(CONFIGURATION.replace("/etc/hearsay", str(tmp_path))):
        assert refused(f"tls://127.0.0.1:{tls}").startswith("TLS was refused")
        (tmp_path / "certificate.pem").unlink()
        assert "can not be read" in refused(f"tls://127.0.0.1:{tls}")


@contextmanager
def server(says: bytes):
    """A port that is no scheduler's: it says this to whoever comes, and nothing more."""
    listening = socket.create_server(("127.0.0.1", 0))
    came = []

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            came.append(connection)
            connection.sendall(says)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for connection in came:
            connection.close()


@pytest.mark.parametrize(
    ("says", "why"),
    [(b"", "it says nothing"), (b"SSH-2.0-OpenSSH_9.2\r\n", "what answers there is no Dask scheduler")],
)
def test_a_server_that_is_none_is_not_waited_for_without_end(says, why):
    with server(says) as port:
        assert refused(f"tcp://127.0.0.1:{port}") == why


def test_an_open_cluster_is_said_to_be_open(tmp_path):
    with server(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        command = ["estimate", "--store", str(tmp_path / "s"), "--cluster", f"tcp://127.0.0.1:{port}"]
        (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 1)]))
        (tmp_path / "c.hsc").write_bytes(RAW)
        invoke("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", *command[1:3])
        done = CliRunner().invoke(hearsay, command)
    first, second = done.stderr.splitlines()
    assert first.startswith("warning: anybody who reaches tcp://127.0.0.1:")
    assert (done.exit_code, second.partition(":")[0]) == (5, "cluster_unreachable")
