"""``hearsay serve``: a published tree over HTTP, with the real ``sync``, and what strangers may do to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.commands import run
from support.failures import reason_of
from support.masked import book_of, masked_payload
from support.nodes import NODE_KEYS
from support.publisher import DAY, Publisher
from support.watched import wait_for

from aggregator import serving
from aggregator.publishing.tree import file_name
from aggregator.serving import Limits, TreeServer
from edge_sdk import Device, Node, Policy
from edge_sdk.carriers import open_transport
from edge_sdk.sync import sync
from edge_sdk.transport.http import RetryPolicy, Web
from protocol.documents.campaign import DISCRETE
from protocol.errors import InputError, StorageError

RECORD = {"odor": "n", "width": 2}
NAME = "0a" * 16 + ".hsr"


@pytest.fixture(scope="module")
def publisher():
    return Publisher(now=int(time.time()) - DAY)


@pytest.fixture
def tree(tmp_path, publisher):
    folder = tmp_path / "tree"
    (folder / "reports").mkdir(parents=True)
    documents = {
        "roots/1.hst": publisher.root(),
        "roots/2.hst": publisher.root(2),
        "campaigns/mushrooms.hsc": publisher.campaign(),
        "models/mushrooms.hsm": publisher.model(),
        "campaigns/odd%2Fname.hsc": publisher.campaign(name="odd/name"),
    }
    for place, content in documents.items():
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_bytes(content)
    return folder


@contextlib.contextmanager
def serving_of(tree, **options):
    log = []
    with TreeServer(tree, log=lambda *told: log.append(told), **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, log
        finally:
            server.shutdown()
            thread.join()


def ask(server, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


def raw(server, data, wait=True):
    """What comes back to these bytes."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as plain:
        plain.sendall(data)
        if wait:
            plain.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := plain.recv(65536):
                parts.append(part)
        return b"".join(parts)


def files_of(tree):
    return sorted(path.name for path in (tree / "reports").iterdir())


def test_the_real_sync_there_and_back(tree, tmp_path, publisher):
    with (
        serving_of(tree, token="word") as (server, log),
        Device.provision(tmp_path / "s", trust=publisher.root()) as device,
    ):
        transport = open_transport(server.url, token="word")
        first = sync(device, transport, campaigns=["mushrooms", "odd/name"])
        assert ([taken.name for taken in first.campaigns], first.refusals) == (["mushrooms", "odd/name"], ())
        assert (first.root_version, [taken.name for taken in first.models]) == (2, ["mushrooms"])
        for campaign in device.campaigns():
            device.report(campaign.id, RECORD, label="e")
        second = sync(device, transport)
        assert (second.unchanged, second.sent, second.released, second.refusals) == (3, 1, 2, ())
        assert second.absent == first.absent
    (name,) = files_of(tree)
    assert (tree / "reports" / name).stat().st_mode & 0o777 == 0o600
    assert {status for method, _, status in log if method == "GET"} == {200, 304, 404}
    assert ("PUT", f"reports/{name}", 201) in log


def test_a_key_book_is_fetched_and_summaries_and_messages_are_sent(tree, tmp_path, publisher):
    """The keeper of the folder puts the dealer's book there; anything else in ``keys`` is not served."""
    (tree / "campaigns" / "clinics.hsc").write_bytes(publisher.node_campaign())
    (tree / "campaigns" / "wards.hsc").write_bytes(publisher.sign("campaign", masked_payload(publisher, DISCRETE)))
    (tree / "keys").mkdir()
    (tree / "keys" / "dealer.key").write_bytes(b"secret")
    policy = Policy.of(allow_masked=True)
    node = Node.provision(tmp_path / "s", trust=publisher.root(), policy=policy)
    with serving_of(tree) as (server, log), node:
        transport = open_transport(server.url)
        sync(node, transport, campaigns=["wards", "clinics"])
        book = book_of(node.campaign("wards"), keys=[*NODE_KEYS, SimpleNamespace(public=node.public_key)])
        (tree / "keys" / "wards.hsk").write_bytes(book)
        assert sync(node, transport).key_books
        assert ask(server, "GET", "/keys/dealer.key")[0] == 404
        made = {".hsn": node.summarise("clinics", [RECORD], "e").raw, ".hse": node.encrypt("wards", [RECORD], "e").raw}
        done = sync(node, transport)
        assert (done.sent, done.released, done.refusals) == (2, 2, ())
    assert {path.suffix: path.read_bytes() for path in (tree / "reports").iterdir()} == made
    assert {("PUT", f"reports/{name}", 201) for name in files_of(tree)} <= set(log)


def test_a_token_is_asked_for_only_where_something_comes_in(tree, tmp_path, publisher):
    with (
        serving_of(tree, token="word") as (server, _),
        Device.provision(tmp_path / "s", trust=publisher.root()) as device,
    ):
        sync(device, open_transport(server.url), campaigns=["mushrooms"])
        device.report(device.campaigns()[0].id, RECORD, label="e")
        for token in (None, "words", "Word", ""):
            assert [each.step for each in sync(device, open_transport(server.url, token=token)).refusals] == ["outbox"]
        assert device.status().spooled == 1
        assert files_of(tree) == []
        assert sync(device, open_transport(server.url, token="word")).released == 1


def test_a_batch_may_come_again_and_is_never_replaced(tree):
    with serving_of(tree) as (server, _):
        for method, content, status in (("PUT", b"one", 201), ("POST", b"one", 204), ("PUT", b"two", 409)):
            assert ask(server, method, f"/reports/{NAME}", content)[0] == status
        for content in (b"on", b"one1", b""):
            assert ask(server, "PUT", f"/reports/{NAME}", content)[0] == 409
    assert (tree / "reports" / NAME).read_bytes() == b"one"


def test_only_what_devices_ask_for_is_there_and_nothing_but_reports_can_be_put(tree, tmp_path):
    (tmp_path / "secret.hsc").write_bytes(b"secret")
    (tree / "campaigns" / "link.hsc").symlink_to(tmp_path / "secret.hsc")
    (tree / "campaigns" / "folder.hsc").mkdir()
    (tree / "campaigns" / "huge.hsc").write_bytes(bytes((1 << 20) + 1))
    hidden = ("campaigns/.mushrooms.hsc.0a.tmp", "campaigns/notes.txt", f"reports/{NAME}")
    for name in hidden:
        (tree / name).write_bytes(b"secret")
    places = (
        "roots roots/ reports/ campaigns/link.hsc campaigns/folder.hsc campaigns/huge.hsc campaigns/%2e%2e%2fx.hsc "
        "campaigns/..%2f..%2fsecret.hsc ../secret.hsc campaigns/../../secret.hsc campaigns/a%00.hsc campaigns/%ff.hsc "
        "campaigns/mushrooms.hsc?x models/mushrooms.hsc a/b/c/d.hsc"
    )
    with serving_of(tree) as (server, log):
        for place in ("", *hidden, *places.split()):
            for method in ("GET", "HEAD"):
                status, content, _ = ask(server, method, f"/{place}")
                assert (status, content) == (404, b""), place
        assert ask(server, "GET", "/campaigns/mushrooms.hsc")[0] == 200
    assert {place for _, place, _ in log if "\n" in place or " " in place} == set()
    (tree / "reports" / NAME).unlink()  # and nothing else can be put, nor through a link
    before = (tree / "campaigns" / "mushrooms.hsc").read_bytes()
    places = "reports/a.txt reports/.hsr reports/..hsr reports/A.hsr reports/a/b.hsr campaigns/mushrooms.hsc a.hsr"
    places += f" reports/%2e%2e%2fa.hsr reports/%ff.hsr %ff/a.hsr reports/{'a' * 65}.hsr reports/a.hsr%0a"
    with serving_of(tree) as (server, _):
        for place in places.split():
            assert ask(server, "PUT", f"/{place}", b"x")[0] == 404, place
        assert (files_of(tree), (tree / "campaigns" / "mushrooms.hsc").read_bytes()) == ([], before)
        (tree / "reports" / NAME).symlink_to(tmp_path / "elsewhere")
        assert ask(server, "PUT", f"/reports/{NAME}", b"x")[0] == 409
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_and_all_files_are_bounded_and_taking_away_makes_room(tree):
    with serving_of(tree, limits=Limits(file_bytes=10_000, all_bytes=25_000)) as (server, _):
        put = [
            ask(server, "PUT", f"/reports/{n}.hsr", bytes(size))[0] for n, size in enumerate((10_001, 10_000, 10_000))
        ]
        assert put == [413, 201, 201]
        assert [ask(server, "PUT", f"/reports/a{n}.hsr", b"")[0] for n in range(3)] == [201, 507, 507]
        (tree / "reports" / "1.hsr").unlink()
        assert ask(server, "PUT", "/reports/b.hsr", bytes(10_000))[0] == 201
    with serving_of(tree, limits=Limits(file_bytes=10_000, all_bytes=25_000)) as (server, _):
        assert ask(server, "PUT", "/reports/c.hsr", bytes(1000))[0] == 507  # what lay there counts from the start


def test_what_a_killed_server_left_is_removed_and_uploads_under_way_are_not(tree):
    """25 kills left 65 hidden files, which counted nowhere."""
    for name, age in ((f".{NAME}.{'5' * 16}.tmp", 601), (f".{NAME[:9]}.{'6' * 16}.tmp", 0), (".keep", 9999)):
        (tree / "reports" / name).write_bytes(bytes(20_000))
        os.utime(tree / "reports" / name, (time.time() - age,) * 2)
    with serving_of(tree) as (server, _):
        assert ask(server, "PUT", f"/reports/{NAME}", b"x")[0] == 201
    assert files_of(tree) == [f".{NAME[:9]}.{'6' * 16}.tmp", ".keep", NAME]


def test_a_folder_of_reports_that_is_gone_is_made_again_or_the_operator_is_told(tree):
    """The answer was 503 for ever, without a cause."""
    told = []
    with serving_of(tree, problem=told.append) as (server, _):
        (tree / "reports").rmdir()
        assert ask(server, "PUT", f"/reports/{NAME}", b"x")[0] == 201
        shutil.rmtree(tree)
        assert ask(server, "PUT", f"/reports/{NAME}", b"x")[0] == 503
    assert told == [f"'{tree / 'reports'}' can not be written: No such file or directory"]


def test_many_at_once_get_no_more_room_than_there_is(tree):
    with (
        serving_of(tree, limits=Limits(file_bytes=10_000, all_bytes=50_000)) as (server, _),
        ThreadPoolExecutor(20) as pool,
    ):
        put = [pool.submit(ask, server, "PUT", f"/reports/{n}.hsr", bytes(10_000)) for n in range(20)]
        assert sorted(one.result()[0] for one in put) == [201] * 5 + [507] * 15
    assert len(files_of(tree)) == 5


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"PUT /reports/a.hsr HTTP/1.1\r\n\r\n", 411),
        (b"PUT /reports/a.hsr HTTP/1.1\r\nContent-Length: -5\r\n\r\nabcde", 411),
        (b"PUT /reports/a.hsr HTTP/1.1\r\nContent-Length: x\r\n\r\n", 411),
        (b"PUT /reports/a.hsr HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", 411),
        (b"PUT /reports/a.hsr HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc", 400),
        (b"\x1b[2J\r\n\r\n", 400),
        (b"GET /\x1b[2J HTTP/1.1\r\n\r\n", 404),
        (b"DELETE /campaigns/mushrooms.hsc HTTP/1.1\r\n\r\n", 501),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_malformed_requests_are_answered_and_leave_nothing(tree, request_bytes, status):
    with serving_of(tree) as (server, log):
        answer = raw(server, request_bytes)
        assert int(answer.split()[1]) == status
        assert b"\x1b" not in answer
        assert ask(server, "GET", "/roots/1.hst")[0] == 200
    assert files_of(tree) == []
    assert all(place.isprintable() for _, place, _ in log)


def test_slow_and_silent_clients_are_ended_and_others_served(tree):
    with serving_of(tree, seconds=0.3) as (server, _):
        slow = [socket.create_connection(("127.0.0.1", server.server_port), timeout=10) for _ in range(3)]
        slow[1].sendall(b"GET /roots/1.hst HTT")
        slow[2].sendall(b"PUT /reports/a.hsr HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc")
        assert ask(server, "GET", "/roots/1.hst")[0] == 200
        for connection in slow:
            with contextlib.closing(connection), contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
    assert files_of(tree) == []


def test_too_many_at_once_are_told_to_come_again(tree, monkeypatch):
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 2)
    with serving_of(tree) as (server, log):
        first = [socket.create_connection(("127.0.0.1", server.server_port), timeout=10) for _ in range(2)]
        for _ in range(5):  # more than the refused connections that are kept open
            status, content, headers = ask(server, "PUT", "/reports/aa.hsr", b"x" * 1000)
            assert (status, content, headers["Retry-After"]) == (503, b"", str(serving.RETRY_SECONDS))
        assert (log.count(("-", "-", 503)), files_of(tree)) == (5, [])
        for connection in first:
            connection.close()

        def serves():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return ask(server, "GET", "/roots/1.hst")[0] == 200

        wait_for(serves)


def refusing(error):
    """A function that raises an error, in the place of the one that opens a file."""

    def refuse(*_, **__):
        raise error

    return refuse


def test_a_disk_that_refuses_is_said_and_the_device_keeps_its_reports(tree, tmp_path, publisher, monkeypatch):
    with serving_of(tree) as (server, _), Device.provision(tmp_path / "s", trust=publisher.root()) as device:
        sync(device, open_transport(server.url), campaigns=["mushrooms"])
        device.report(device.campaigns()[0].id, RECORD, label="e")
        for error, status in (
            (StorageError("disk_full", ""), 507),
            (StorageError("io_failed", ""), 503),
            (InputError("output_exists", ""), 503),
            (OSError(5, ""), 503),
        ):
            monkeypatch.setattr(serving, "open_output", refusing(error))
            assert ask(server, "PUT", f"/reports/{NAME}", b"x")[0] == status
        done = sync(device, Web(server.url, retry=RetryPolicy(attempts=1)))
        assert ([each.step for each in done.refusals], device.status().spooled) == (["outbox"], 1)


def test_what_is_no_tree_or_no_address_is_refused(tree, tmp_path):
    assert reason_of(InputError, TreeServer, tmp_path) == "not_a_tree"
    with TreeServer(tree) as server:
        for host, port in (("127.0.0.1", server.server_port), ("203.0.113.7", 0), ("nowhere.invalid", 0)):
            assert reason_of(StorageError, TreeServer, tree, host, port) == "io_failed"


def test_the_command_serves_until_it_is_stopped(tree, tmp_path, publisher):
    (tmp_path / "token").write_text("word\n", "utf-8")
    command = [sys.executable, "-m", "aggregator.entry", "serve", tree, "--port", "0", "--token", tmp_path / "token"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = ""
        while "}" not in printed:
            printed += process.stdout.readline()
        address = json.loads(printed)["address"]
        assert address.startswith("http://127.0.0.1:")
        with Device.provision(tmp_path / "s", trust=publisher.root()) as device:
            transport = open_transport(address, token="word")
            sync(device, transport, campaigns=["mushrooms"])
            device.report(device.campaigns()[0].id, RECORD, label="e")
            assert sync(device, transport).released == 1
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "200 GET roots/2.hst" in err.splitlines()  # a line may come after that of the next request
    assert "word" not in err
    assert "127.0.0.1" not in err


def test_others_are_let_in_only_with_a_warning(tree, monkeypatch):
    monkeypatch.setattr(TreeServer, "serve_forever", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True), ("localhost", False)):
        result = run("serve", tree, "--host", host, "--port", "0")
        assert ("not for the internet" in result.stderr) == warned


def test_a_campaign_of_any_name_is_served(tree, tmp_path, publisher):
    names = [".", "..", ".hidden", "a..b", "%2e", "é"]
    for name in names:
        (tree / file_name("campaign", name)).write_bytes(publisher.campaign(name=name))
    with serving_of(tree) as (server, _), Device.provision(tmp_path / "s", trust=publisher.root()) as device:
        found = sync(device, open_transport(server.url), campaigns=names)
        assert {each.header.name for each in device.campaigns()} == set(names), found.refusals


def test_files_that_vanish_or_can_not_be_listed_do_not_open_the_quota(tree, monkeypatch):
    (tree / "reports" / "a.hsr").write_bytes(bytes(20_000))
    (tree / "reports" / "b.hsr").write_bytes(bytes(10_000))
    scandir = os.scandir
    gone = SimpleNamespace(name="0.hsr", stat=refusing(FileNotFoundError()))

    @contextlib.contextmanager
    def vanishing(folder):
        with scandir(folder) as entries:
            yield [gone, *entries]

    for listing, limits in ((vanishing, Limits(all_bytes=35_000)), (refusing(PermissionError(13, "")), Limits())):
        monkeypatch.setattr(serving.os, "scandir", listing)
        with serving_of(tree, limits=limits) as (server, _):
            assert ask(server, "PUT", f"/reports/{NAME}", bytes(6000))[0] == 507
    monkeypatch.undo()
