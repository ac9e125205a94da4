"""Expiry is said a week ahead by every command that meets a document, and one command renews what is about to end."""

from __future__ import annotations

import json
import time

import pytest
from support.commands import mushrooms, run, told
from support.nodes import NODE_KEYS
from support.reports import opened

from aggregator.publishing import endings as endings_module
from aggregator.publishing.endings import renew
from aggregator.publishing.keys import PUBLIC_WORD
from aggregator.publishing.tree import endings_in
from aggregator.publishing.workspace import open_workspace
from aggregator.serving import TreeServer
from edge_sdk import Device
from edge_sdk.carriers import open_transport
from edge_sdk.sync import sync
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import read_payload

DAY = 86_400
TERMS = ("--epsilon", "1", "--mechanism", "direct")


@pytest.fixture
def later(monkeypatch):
    """Move the clock of the commands: a function of days."""
    begin = int(time.time())

    def move(days):
        monkeypatch.setattr(time, "time", lambda: begin + days * DAY)
        return begin + days * DAY

    return move


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workspace with a campaign of 30 days and a node list of 40, and a published folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(mushrooms())
    run("init", "work", "--no-passphrase")
    run("campaign", "s.toml", "--workspace", "work", *TERMS, "-o", "c.hsc")
    (tmp_path / "n.key.pub").write_text(f"{PUBLIC_WORD} node {NODE_KEYS[0].public.hex()}\n")
    run("nodes", "new", "wards", "n.key.pub", "--workspace", "work", "--days", "40", "-o", "l.hsl")
    run("publish", "--to", "www", "--workspace", "work")
    return tmp_path


def warned(result):
    return [line for line in result.stderr.splitlines() if line.startswith("warning: ")]


def renewed(*more, status=0):
    result = run("renew", "--workspace", "work", "--json", *more, status=status)
    return json.loads(result.stdout)


def test_publish_says_from_a_week_before_to_a_month_after(place, later):
    for day, said in ((22, ""), (24, "expires at"), (31, "expired at"), (61, "")):
        later(day)
        found = [line for line in warned(run("publish", "--to", "www", "--workspace", "work")) if "campaign" in line]
        assert len(found) == bool(said), (day, found)
        assert all(said in line and "hearsay renew" in line for line in found)
    later(3649)
    assert "the trust root" in warned(run("publish", "--to", "www", "--workspace", "work"))[0]
    later(5000)
    assert "the trust root" in warned(run("publish", "--to", "www", "--workspace", "work"))[0]


def test_status_of_a_store_says_when_its_campaign_ends(place, later):
    (place / "pilot.csv").write_text("odor,class\n" + "a,e\nn,e\nf,p\n" * 10)
    run("rehearse", "c.hsc", "pilot.csv", "--devices", "20", "-o", "r.hsr")
    run("ingest", "c.hsc", "r.hsr", "--store", "store", "--workspace", "work")
    assert warned(run("status", "--store", "store")) == []
    later(25)
    assert "expires at" in warned(run("status", "--store", "store"))[0]
    later(31)
    assert "expired at" in warned(run("status", "--store", "store", "--json"))[0]


def test_a_server_says_it_when_it_begins_and_every_day(place, later):
    said = []
    with TreeServer(place / "www", daily=lambda: said.append(endings_in(place / "www", int(time.time())))) as server:
        for wait in (0, 0, DAY):
            server._next_day -= wait
            later(29 if wait else 0)
            server.service_actions()
    assert [[each.role for each in day] for day in said] == [[], ["campaign"]]


def test_a_dry_run_signs_nothing_and_a_run_renews_once(place, later):
    assert renewed() == {"documents": [], "dry_run": False, "files_changed": []}
    later(24)
    (would,) = renewed("--dry-run")["documents"]
    assert (would["kind"], would["would_renew"], would["renewed"]) == ("campaign", True, False)
    assert open_workspace(place / "work").latest("campaign", "mushrooms").version == 1
    found = renewed("--to", "www")
    (done,) = found["documents"]
    assert (done["kind"], done["new_version"], done["renewed"]) == ("campaign", 2, True)
    assert found["files_changed"] == ["campaigns/mushrooms.hsc"]
    assert renewed()["documents"] == []
    before, after = (
        read_payload(read_envelope((place / name).read_bytes(), "campaign").payload)
        for name in ("c.hsc", "www/campaigns/mushrooms.hsc")
    )
    assert after[1].expires - after[1].issued_at == before[1].expires - before[1].issued_at
    dates = ("version", "issued_at", "not_before", "expires")
    assert {key for key in before[0] if before[0][key] != after[0][key]} == set(dates)


def test_a_device_goes_on_under_the_renewed_root_and_campaign(place, later):
    now = later(0)
    root = (place / "work" / "root.hst").read_bytes()
    clock = {"now": now}
    with Device.provision(place / "state", trust=root, clock=lambda: clock["now"]) as device:
        assert sync(device, open_transport(str(place / "www")), campaigns=["mushrooms"]).refusals == ()
        assert device.status().warnings == ()
        clock["now"] = later(25)
        (said,) = device.status().warnings
        assert "'mushrooms'" in said
        clock["now"] = later(31)
        assert "expired at" in device.status().warnings[0]
        renewed("--to", "www", "--expired")
        assert sync(device, open_transport(str(place / "www"))).campaigns[0].version == 2
        assert device.report("mushrooms", {"odor": "n", "class": "e"})
        clock["now"] = later(3645)
        renewed("--ahead", "30", "--only", "root", "--to", "www")
        assert sync(device, open_transport(str(place / "www"))).root_version == 2


def test_what_is_over_or_ended_is_left_unless_that_is_said(place, later):
    later(31)
    (left,) = renewed("--only", "campaign")["documents"]
    assert left["problem"].startswith("it has expired already")
    assert renewed("--only", "campaign", "--expired")["documents"][0]["new_version"] == 2
    run("campaign", "--end", "mushrooms", "--workspace", "work", "-o", "end.hsc")
    later(58)
    assert renewed("--only", "campaign")["documents"] == []


def test_what_can_not_be_renewed_fails_and_the_rest_is_done(place, later):
    later(36)
    (done,) = renewed("--only", "nodes")["documents"]
    assert (done["kind"], done["new_version"]) == ("nodes", 2)
    assert len(told("nodes", "show", "wards", "--workspace", "work")["nodes"]) == 1
    later(3645)
    (key,) = (place / "work" / "keys").glob("root*.key")
    key.rename(place / "elsewhere.key")
    run("campaign", "s.toml", "--workspace", "work", *TERMS, "-o", "d.hsc", "--days", "3")
    found = renewed(status=1)
    assert {each["kind"]: each["renewed"] for each in found["documents"]} == {"root": False, "campaign": True}
    assert "--sign-with" in found["documents"][0]["problem"]


@pytest.mark.parametrize("change", ["end", "renew"])
def test_what_was_signed_meanwhile_is_not_undone(place, later, monkeypatch, change):
    """A campaign that was ended between listing and signing was signed anew with its questions, and asked again."""
    now = later(25)
    listed = endings_module.endings

    def overtaken(*arguments):
        found = listed(*arguments)
        if change == "end":
            run("campaign", "--end", "mushrooms", "--workspace", "work", "-o", "end.hsc")
        else:
            monkeypatch.setattr(endings_module, "endings", listed)
            assert [each.version for each in renew(open_workspace("work"), now)] == [2]
        return found

    monkeypatch.setattr(endings_module, "endings", overtaken)
    (done,) = renew(open_workspace("work"), now)
    assert (done.version, "meanwhile" in done.problem) == (None, True)
    last = open_workspace("work").latest("campaign", "mushrooms")
    assert last.version == 2
    asked = opened(open_workspace("work").copy(last))
    assert asked.ended == (change == "end")
