"""The command ``hearsay-edge sync``."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from support.commands import edge
from support.publisher import DAY, Publisher
from support.servers import reply, scripted, tree_server

from edge_sdk import Device
from edge_sdk.carriers import open_transport
from edge_sdk.cli.main import main
from edge_sdk.storage.outbox import FETCHED_FILE
from edge_sdk.sync import sync
from protocol.errors import DocumentError

RECORD = '{"odor": "n", "label": "e"}'


@pytest.fixture
def now_publisher():
    """The command line has the real clock."""
    return Publisher(now=int(time.time()) - DAY)


@pytest.fixture
def state(tmp_path, now_publisher):
    root = tmp_path / "root.hst"
    root.write_bytes(now_publisher.root())
    assert main(["--state", str(tmp_path / "state"), "provision", str(root)]) == 0
    return str(tmp_path / "state")


@pytest.fixture
def tree(tmp_path, now_publisher):
    folder = tmp_path / "tree"
    for place, content in (
        ("campaigns/mushrooms.hsc", now_publisher.campaign()),
        ("roots/2.hst", now_publisher.root(2)),
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder


def test_a_whole_life_over_the_web(state, tree, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    record = tmp_path / "record.json"
    record.write_text(RECORD)
    with tree_server(tree) as (url, log):
        status, out, err = edge("--state", state, "sync", url, "--campaign", "mushrooms", "--json")
        assert (status, err) == (0, "")
        first = json.loads(out)
        assert first["campaigns"] == [{"name": "mushrooms", "version": 1}]
        assert (first["root_version"], first["sent"], first["refusals"]) == (2, 0, [])
        assert edge("--state", state, "report", "--campaign", "mushrooms", record)[0] == 0
        status, out, err = edge("--state", state, "sync", url, "--post", "--token", token, "--seconds", "20")
        assert (status, err) == (0, "")
        assert "released      1" in out
    assert [method for method, _, _ in log].count("POST") == 1
    assert len(list((tree / "reports").iterdir())) == 1


def test_refusals_are_listed_and_the_status_is_the_firsts(state, tree):
    (tree / "campaigns" / "mushrooms.hsc").write_bytes(b"damaged")
    arguments = ("--state", state, "sync", tree, "--campaign", "mushrooms", "--campaign", "nowhere")
    status, out, err = edge(*arguments, "--json")
    assert status == DocumentError.status == 3
    assert [line.split(":")[:2] for line in err.splitlines()] == [
        ["malformed", " campaigns/mushrooms.hsc"],
        ["not_published", " campaigns/nowhere.hsc"],
    ]
    assert [each["reason"] for each in json.loads(out)["refusals"]] == ["malformed", "not_published"]
    assert json.loads(out)["root_version"] == 2
    status, out, err = edge(*arguments)
    assert (status, "refusals" in out, len(err.splitlines())) == (3, False, 2)
    with scripted(reply(403, b"\x1b[2J")) as server:  # what a server says is not repeated
        assert edge("--state", state, "sync", server.url)[2] == (
            "refused_by_server: roots/3.hst: the server answers with status 403\n"
        )


def test_the_status_is_the_first_that_is_not_0(state, tree, now_publisher):
    """A document of yesterday has status 0, and hides no other refusal."""
    (tree / "campaigns" / "mushrooms.hsc").write_bytes(
        Publisher(now=now_publisher.now - 10 * DAY).campaign(lifetime=5 * DAY)
    )
    arguments = ("--state", state, "sync", tree, "--campaign", "mushrooms")
    assert edge(*arguments)[0] == 0
    status, out, _ = edge(*arguments, "--campaign", "nowhere", "--json")
    refusals = {each["reason"]: each["status"] for each in json.loads(out)["refusals"]}
    assert (refusals, status) == ({"expired": 0, "not_published": 1}, 1)


@pytest.mark.parametrize("way", ["folder", "web"])
def test_an_unchanged_source_under_an_expired_root_is_refused_too(tmp_path, way):
    """As a changed one is. The device takes nothing more, so somebody has to look."""
    long_ago = Publisher(now=int(time.time()) - 30 * DAY)
    state, tree = tmp_path / "state", tmp_path / "tree"
    (tree / "campaigns").mkdir(parents=True)
    (tree / "campaigns" / "mushrooms.hsc").write_bytes(long_ago.campaign())
    with contextlib.ExitStack() as stack:
        source = str(tree) if way == "folder" else stack.enter_context(tree_server(tree))[0]
        with Device.provision(state, long_ago.root(lifetime=20 * DAY), clock=lambda: long_ago.now + DAY) as device:
            assert sync(device, open_transport(source), campaigns=["mushrooms"]).refusals == ()
        told = []
        for _ in ("unchanged", "not known"):
            status, out, _ = edge("--state", state, "sync", source, "--json")
            told.append((status, json.loads(out)["refusals"], json.loads(out)["unchanged"]))
            (state / FETCHED_FILE).unlink(missing_ok=True)
    assert told[0] == told[1]
    status, refusals, unchanged = told[0]
    assert (status, unchanged) == (3, 0)
    assert [(each["step"], each["reason"]) for each in refusals] == [("campaigns/mushrooms.hsc", "expired")]


@pytest.mark.parametrize(
    ("more", "reason", "status"),
    [
        (["ftp://example.org"], "address_invalid", 1),
        (["http://example.org", "--token", "TOKEN"], "token_invalid", 1),
        (["https://example.org", "--token", "NONE"], "file_unreadable", 1),
        (["https://example.org", "--token", "EMPTY"], "token_invalid", 1),
        (["TREE", "--campaign", ""], "argument_invalid", 1),
        (["STICK"], "unreachable", 5),
        (["SLOW", "--seconds", "0.3"], "unreachable", 5),
    ],
)
def test_what_can_not_be_begun(state, tree, tmp_path, more, reason, status):
    (tmp_path / "TOKEN").write_text("secret")
    (tmp_path / "EMPTY").write_text("")
    places = {name: str(tmp_path / name) for name in ("TOKEN", "NONE", "EMPTY", "STICK")} | {"TREE": str(tree)}
    with scripted(lambda connection, _: connection.recv(1)) as server:
        began = time.monotonic()
        places["SLOW"] = server.url
        found, out, err = edge("--state", state, "sync", *(places.get(each, each) for each in more))
        assert time.monotonic() - began < 9  # the server waits for 10
    assert (found, {line.split(":")[0] for line in err.splitlines()}) == (status, {reason})
    assert (out == "", "secret" in err) == (status == 1, False)


def test_wrong_usage(state, tree):
    for seconds in ("0", "-1", "nan", "inf", "x", "1e9", "1_0", "\u0663"):
        assert edge("--state", state, "sync", tree, "--seconds", seconds)[0] == 2
