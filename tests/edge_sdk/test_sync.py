"""Sync: one restartable command that fetches, sends and acknowledges."""

from __future__ import annotations

import errno
import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW, Publisher, key
from support.servers import tree_server
from support.sources import Cut, Source

import edge_sdk.storage.outbox
from edge_sdk import Device
from edge_sdk.carriers import open_transport
from edge_sdk.policy import Policy
from edge_sdk.storage.outbox import FETCHED_FILE, Fetched, FetchNote
from edge_sdk.sync import MAX_ROOTS, sync
from edge_sdk.transport.base import Found
from edge_sdk.transport.folder import Folder
from protocol.batches import batch
from protocol.documents import trust
from protocol.errors import DocumentError, StorageError

RECORD = {"odor": "n", "width": 3.2}
CAMPAIGN = "campaigns/mushrooms.hsc"
MODEL = "models/mushrooms.hsm"


@pytest.fixture
def source(publisher):
    return Source({CAMPAIGN: publisher.campaign(), MODEL: publisher.model()})


@pytest.fixture
def enrolled(device, source):
    """A device that has synced with its source."""
    assert sync(device, source, campaigns=["mushrooms"]).refusals == ()
    source.calls.clear()
    return device


def reasons(outcome):
    return {refusal.step: refusal.reason for refusal in outcome.refusals}


def records(files):
    """Every record in batch files, proven ones only."""
    found = []
    for raw in files:
        for part in batch.read_batches(raw):
            assert part.proven
            for position, count in part.spans:
                found += [raw[start : start + 18] for start in range(position, position + 18 * count, 18)]
    return found


def answer(device, clock, number=1):
    """Make the reports of as many periods."""
    made = []
    for _ in range(number):
        made.append(device.report(device.campaigns()[0].id, RECORD, label="e"))
        clock.now += DAY
    return made


def outbox(device):
    return sorted(path.name for path in Path(device.folder, "outbox").glob("*"))


def test_the_first_run_takes_what_is_named_and_the_second_what_is_new(device, source, publisher):
    for name in ("", "x" * 1025, "\udc80", "a\nb", 7):
        assert refusal(sync, device, source, campaigns=[name]) == "argument_invalid"
    assert source.calls == []
    outcome = sync(device, source)
    assert source.calls == [("fetch", "roots/2.hst")], "nothing is taken that nobody named"
    assert (outcome.campaigns, device.campaigns()) == ((), [])
    source.places["models/other%20one.hsm"] = publisher.model(name="other one")
    assert sync(device, source, models=["other one"]).models == (("other one", 1),)
    first = sync(device, source, campaigns=["mushrooms"])
    assert (first.campaigns, first.models) == ((("mushrooms", 1),), (("mushrooms", 1),))
    assert (first.unchanged, first.refusals, first.sent, first.root_version) == (1, (), 0, 1)
    assert device.model("mushrooms").predict(RECORD) == "e"
    second = sync(device, source)
    assert (second.campaigns, second.models, second.unchanged, second.refusals) == ((), (), 3, ())
    Path(device.folder, FETCHED_FILE).write_bytes(b"[" * 100_000)  # losing the memory costs a fetch
    assert sync(device, source)[:3] == second[:3]
    source.places[CAMPAIGN] = publisher.campaign(version=2)
    source.places[MODEL] = publisher.model(version=3)
    third = sync(device, source)
    assert (third.campaigns, third.models, third.unchanged) == ((("mushrooms", 2),), (("mushrooms", 3),), 1)


def test_the_policys_names_are_taken_unless_they_have_a_star(tmp_path, publisher):
    policy = Policy.of(campaigns=["mushrooms", "forest-*", "absent"])
    source = Source({CAMPAIGN: publisher.campaign(), "campaigns/forest-1.hsc": publisher.campaign(name="forest-1")})
    with Device.provision(tmp_path / "state", trust=publisher.root(), policy=policy, clock=lambda: NOW) as device:
        outcome = sync(device, source)
    assert outcome.campaigns == (("mushrooms", 1),)
    assert outcome.absent == ("campaigns/absent.hsc", MODEL)
    assert outcome.refusals == ()


@pytest.mark.parametrize("name", ["a/b", "..", "ü%41", "a b?c#d"])
def test_names_become_places_as_publish_writes_them(tmp_path, device, publisher, name):
    path = tmp_path / "tree" / "campaigns" / f"{quote(name, safe='')}.hsc"
    path.parent.mkdir(parents=True)
    path.write_bytes(publisher.campaign(name=name))
    assert sync(device, Folder(tmp_path / "tree"), campaigns=[name]).campaigns == ((name, 1),)
    with tree_server(tmp_path / "tree") as (url, _), Device.open(None, publisher.root(), clock=lambda: NOW) as other:
        assert sync(other, open_transport(url), campaigns=[name], folder=tmp_path).campaigns == ((name, 1),)


def test_one_refused_document_does_not_keep_the_rest_from_happening(enrolled, source, publisher, clock):
    made = answer(enrolled, clock)
    source.places["roots/2.hst"] = publisher.campaign()
    source.places[CAMPAIGN] = b"damaged"
    source.places[MODEL] = publisher.model(version=2)
    source.places["campaigns/late.hsc"] = Publisher(now=NOW - 9 * DAY).campaign(name="late", lifetime=2 * DAY)
    source.places["campaigns/large.hsc"] = DocumentError("too_large", "made so by a test")
    outcome = sync(enrolled, source, campaigns=["late", "nowhere", "large"])
    assert reasons(outcome) == {
        "roots/2.hst": "wrong_role",
        CAMPAIGN: "malformed",
        "campaigns/late.hsc": "expired",
        "campaigns/nowhere.hsc": "not_published",
        "campaigns/large.hsc": "too_large",
    }
    assert outcome.models == (("mushrooms", 2),)
    assert records(source.reports.values()) == made
    assert json.loads(json.dumps(outcome.to_json()))["refusals"][0]["reason"] == "wrong_role"


def test_a_document_of_another_name_is_refused_wherever_it_lies(device, source, publisher):
    """The server's operator can not choose the campaign in which a device takes part."""
    source.places[CAMPAIGN] = publisher.campaign(name="others")
    source.places[MODEL] = publisher.model(name="others")
    outcome = sync(device, source, campaigns=["mushrooms"], models=["mushrooms"])
    assert reasons(outcome) == {CAMPAIGN: "other_name", MODEL: "other_name"}
    assert device.campaigns() == []
    assert device.enrol(publisher.campaign(name="others", version=1)).header.name == "others"


def test_what_was_refused_is_asked_for_again_and_what_the_device_lost_too(device, source, publisher):
    source.places[CAMPAIGN] = publisher.campaign(epsilon_micro=9_000_000)
    assert reasons(sync(device, source, campaigns=["mushrooms"])) == {CAMPAIGN: "policy_refused"}
    assert reasons(sync(device, source, campaigns=["mushrooms"])) == {CAMPAIGN: "policy_refused"}
    folder = device.folder
    source.places[CAMPAIGN] = publisher.campaign()
    assert sync(device, source, campaigns=["mushrooms"]).refusals == ()
    device.close()
    Device.reset(folder, publisher.root(), clock=lambda: NOW)
    with Device.open(folder, clock=lambda: NOW) as fresh:
        assert sync(fresh, source, campaigns=["mushrooms"]).campaigns == (("mushrooms", 1),)


OLD, NEW = Publisher(now=NOW - 400 * DAY), Publisher()
LAST = MAX_ROOTS + 20


def chain(last, **places):
    """Expired roots from the second to the last, except those given by their number after ``v``."""
    found = {number: OLD.root(number, lifetime=10 * DAY) for number in range(2, last + 1)}
    return found | {int(number[1:]): raw for number, raw in places.items()}


@pytest.mark.parametrize(
    ("roots", "version", "refused"),
    [
        (chain(4, v5=NEW.root(5)), 5, {}),
        # Else every run would stop at the same expired roots, and a device that was long away would never recover.
        (chain(LAST, **{f"v{LAST}": NEW.root(LAST)}), LAST, {}),
        (chain(41), 1, {"roots/2.hst": "expired"}),
        (chain(3, v2=NEW.root(2)), 2, {"roots/3.hst": "expired"}),
        (chain(3, v2=NEW.root(2), v3=NEW.root(4)), 2, {"roots/3.hst": "bad_signature"}),
        (
            chain(4, v2=NEW.root(2), v3=NEW.root(3), v4=NEW.sign("root", b"\x80", key(9))),
            3,
            {"roots/4.hst": "bad_signature"},
        ),
    ],
)
def test_roots_are_followed_one_by_one_as_far_as_they_are_good(device, source, monkeypatch, roots, version, refused):
    """Only the last root's dates count, so all are fetched first. Each is verified by its predecessor and by itself."""
    verified, plain = [], trust.verified_by
    monkeypatch.setattr(trust, "verified_by", lambda *given: (verified.append(1), plain(*given))[1])
    source.places |= {f"roots/{number}.hst": raw for number, raw in roots.items()}
    outcome = sync(device, source)
    assert (outcome.root_version, outcome.rotated, reasons(outcome)) == (version, version - 1, refused)
    assert source.calls == [("fetch", f"roots/{number}.hst") for number in range(2, len(source.calls) + 2)]
    assert refused or len(source.calls) == version
    assert len(verified) <= 2 * len(roots) + 5


def test_a_page_for_everything_is_asked_for_one_root_only(enrolled):
    """A server that answers every request with one page, such as the login page of a public network."""
    portal = Source()
    portal.fetch = lambda place, *_: portal.calls.append(place) or Found(b"<html>Log in</html>")
    assert reasons(sync(enrolled, portal)) == {"roots/2.hst": "malformed", CAMPAIGN: "malformed", MODEL: "malformed"}
    assert len(portal.calls) == 3


def test_a_run_follows_a_bounded_number_of_roots_and_the_next_goes_on(device, source, publisher):
    source.places |= {f"roots/{number}.hst": publisher.root(number) for number in range(2, MAX_ROOTS + 5)}
    assert sync(device, source).root_version == MAX_ROOTS + 1
    assert len(source.calls) == MAX_ROOTS
    assert sync(device, source).root_version == MAX_ROOTS + 4


def test_a_full_disk_does_not_keep_what_has_arrived(enrolled, source, clock, monkeypatch):
    """The acknowledgement needs the space of the file."""
    answer(enrolled, clock)
    plain = Device.ack

    def ack(self, path):
        if Path(path).exists():
            raise StorageError("disk_full", "made so by a test")
        return plain(self, path)

    monkeypatch.setattr(Device, "ack", ack)
    outcome = sync(enrolled, source)
    assert (outcome.released, outcome.refusals, outbox(enrolled)) == (1, (), [])


def test_a_source_that_keeps_documents_waiting_does_not_keep_reports(enrolled, source, clock):
    """A service manager ends a run that takes too long, every time: here at the first document."""
    made = answer(enrolled, clock)
    source.failures = dict.fromkeys(range(1, 100), "cut")
    with pytest.raises(Cut):
        sync(enrolled, source)
    assert records(source.reports.values()) == made
    assert enrolled.status().spooled == 0


def test_a_file_that_the_card_has_lost_is_sealed_anew(enrolled, source, clock, monkeypatch):
    """An unreadable file must not stop a device for ever: its reports are still in the spool."""
    made = answer(enrolled, clock)
    source.failures = {0: "before"}
    sync(enrolled, source)
    (lost,) = outbox(enrolled)
    plain = Path.read_bytes

    def read_bytes(path):
        if path.name == lost:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return plain(path)

    def open_it(path, *arguments, **options):
        if str(path).endswith(lost):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return Path(path).open(*arguments, **options)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(edge_sdk.storage.outbox, "open", open_it, raising=False)
    outcome = sync(enrolled, source)
    assert (outcome.sent, outcome.released, outcome.refusals, outbox(enrolled)) == (1, 1, (), [])
    assert records(source.reports.values()) == made


def test_what_was_not_sent_before_a_reset_is_forgotten(enrolled, source, publisher, clock):
    answer(enrolled, clock)
    source.failures = {0: "before"}
    sync(enrolled, source)
    folder = enrolled.folder
    assert len(outbox(enrolled)) == 1
    assert (Path(folder) / FETCHED_FILE).exists()
    enrolled.close()
    Device.reset(folder, publisher.root(), clock=clock)
    assert not (Path(folder) / FETCHED_FILE).exists()
    with Device.open(folder, clock=clock) as fresh:
        assert outbox(fresh) == []
        outcome = sync(fresh, source)
        assert (outcome.sent, outcome.released, outcome.refusals, outbox(fresh)) == (0, 0, (), [])
    assert source.reports == {}


def test_other_files_in_the_outbox_are_left_alone(enrolled, source, tmp_path):
    folder = tmp_path / "state" / "outbox"
    folder.mkdir(exist_ok=True)
    (folder / "notes.hsr").write_bytes(b"not sealed by sync")
    (folder / ("0" * 32 + ".hsr")).symlink_to("/etc/passwd")
    (folder / ("1" * 32 + ".hsr")).mkdir()
    assert sync(enrolled, source).sent == 0
    assert source.reports == {}
    for path in folder.iterdir():
        (path.unlink if path.is_symlink() or path.is_file() else path.rmdir)()
    folder.rmdir()
    folder.write_bytes(b"")
    assert reasons(sync(enrolled, source)) == {"outbox": "io_failed"}


def test_who_has_opted_out_sends_nothing_and_nothing_of_before_either(enrolled, source, publisher, clock):
    answer(enrolled, clock)
    source.failures = {0: "before"}
    sync(enrolled, source)
    assert len(outbox(enrolled)) == 1
    enrolled.disable()
    assert outbox(enrolled) == []
    assert not (Path(enrolled.folder) / FETCHED_FILE).exists()
    source.places |= {"roots/2.hst": publisher.root(2), MODEL: publisher.model(version=2)}
    outcome = sync(enrolled, source)
    assert (outcome.disabled, outcome.root_version, outcome.models) == (True, 2, (("mushrooms", 2),))
    assert outcome.refusals == ()
    enrolled.enable()
    assert sync(enrolled, source).sent == 0
    assert source.reports == {}


def test_a_device_in_memory_needs_a_folder(publisher, source, tmp_path):
    with Device.open(None, publisher.root(), clock=lambda: NOW) as device:
        assert refusal(sync, device, source) == "argument_invalid"
        sync(device, source, campaigns=["mushrooms"], folder=tmp_path)
        device.report(device.campaigns()[0].id, RECORD)
        assert sync(device, source, folder=tmp_path).released == 1


def test_two_runs_at_once_lose_nothing(tmp_path, publisher, clock, source):
    with Device.provision(tmp_path / "state", trust=publisher.root(), clock=clock) as device:
        sync(device, source, campaigns=["mushrooms"])
        made = []
        for _ in range(5):
            made += answer(device, clock, 2)
            with Device.open(tmp_path / "state", clock=clock) as other:
                runs = [threading.Thread(target=sync, args=(one, source)) for one in (device, other, other)]
                for run in runs:
                    run.start()
                for run in runs:
                    run.join()
        sync(device, source)
        assert device.status().spooled == 0
        assert outbox(device) == []
    assert set(records(source.reports.values())) == set(made)


STEPS = st.lists(
    st.one_of(
        st.just("report"),
        st.dictionaries(st.integers(0, 8), st.sampled_from(["before", "after", "cut", "cut after"]), max_size=3),
        st.just("publish"),
    ),
    max_size=12,
)


@examples(30)
@given(STEPS)
def test_whatever_fails_nothing_is_lost_and_nothing_is_made_twice(tmp_path_factory, steps):
    tmp_path = tmp_path_factory.mktemp("sync")
    now = [NOW]
    publisher = Publisher()
    source = Source({CAMPAIGN: publisher.campaign(), MODEL: publisher.model()})
    made = []
    version = 1
    with Device.provision(tmp_path / "state", trust=publisher.root(), clock=lambda: now[0]) as device:
        sync(device, source, campaigns=["mushrooms"])
        for step in steps:
            if step == "report":
                made.append(device.report(device.campaigns()[0].id, RECORD, label="e"))
                now[0] += DAY
            elif step == "publish":
                version += 1
                source.places[MODEL] = publisher.model(version=version)
            else:
                source.calls.clear()
                source.failures = step
                with suppress(Cut):
                    sync(device, source)
                assert len(outbox(device)) <= 1
            assert set(records(source.reports.values())) <= set(made)
        source.failures = {}
        assert sync(device, source).refusals == ()
        assert device.status().spooled == 0
        assert outbox(device) == []
        assert (sync(device, source).sent, device.model().version) == (0, version)
    arrived = records(source.reports.values())
    assert set(arrived) == set(made)
    assert len(arrived) == len(made)  # a file is sent again under the same name, so no report is there twice


def test_in_step_costs_one_conditional_request_per_document(device, publisher, tmp_path, clock):
    tree = tmp_path / "tree"
    for place, content in ((CAMPAIGN, publisher.campaign()), (MODEL, publisher.model())):
        (tree / place).parent.mkdir(parents=True)
        (tree / place).write_bytes(content)
        os.utime(tree / place, (NOW - DAY, 1_700_000_000))
    with tree_server(tree) as (url, log):
        sync(device, open_transport(url), campaigns=["mushrooms"])
        made = answer(device, clock)
        log.clear()
        assert sync(device, open_transport(url)).refusals == ()
        name = next((tree / "reports").iterdir()).name
        assert log == [
            ("PUT", f"/reports/{name}", 201),
            ("GET", "/roots/2.hst", 404),
            ("GET", f"/{MODEL}", 304),
            ("GET", f"/{CAMPAIGN}", 304),
        ]
        assert records([(tree / "reports" / name).read_bytes()]) == made
        state = (tmp_path / "state" / "state.db").read_bytes()
        sync(device, open_transport(url))
        assert (tmp_path / "state" / "state.db").read_bytes() == state  # no write without news


@pytest.mark.parametrize(
    "error", [ValueError("\x1b[2J"), UnicodeError(), KeyError(1), RecursionError(), MemoryError(), None]
)
def test_whatever_a_transport_raises_is_a_refusal_of_that_place(enrolled, source, clock, error):
    """And what brings more than was asked for."""
    made = answer(enrolled, clock)
    fetch = source.fetch

    def fail(place, limit, tag=""):
        if place != CAMPAIGN:
            return fetch(place, limit, tag)
        if error is None:
            return Found(bytes(limit + 1))
        raise error

    source.fetch = fail
    outcome = sync(enrolled, source)
    assert reasons(outcome) == {CAMPAIGN: "transport_failed" if error else "too_large"}
    assert "\x1b" not in repr(outcome.refusals[0].detail)
    assert records(source.reports.values()) == made


def test_what_was_fetched_is_remembered_for_one_address(tmp_path):
    memory = Fetched(str(tmp_path), "a")
    memory.put("x", FetchNote(2, "digest", "tag"))
    memory.save()
    assert Fetched(str(tmp_path), "a").get("x", 2) == (2, "digest", "tag")
    assert Fetched(str(tmp_path), "a").get("x", 1) is None
    assert Fetched(str(tmp_path), "b").get("x", 2) is None
    assert [path.name for path in tmp_path.iterdir()] == [FETCHED_FILE]


PLACES = ("7", "[]", '{"x": 1}', '{"x": [1, "d"]}', '{"x": ["1", "d", "t"]}', '{"x": [true, "", ""]}')
DAMAGED = (b"", b"\xff", b"[]", b'{"places": {}}', b'{"address": "b", "places": {"x": [1, "d", "t"]}}')


@pytest.mark.parametrize("content", [*DAMAGED, *(f'{{"address": "a", "places": {each}}}'.encode() for each in PLACES)])
def test_a_damaged_memory_counts_as_none(tmp_path, content):
    (tmp_path / FETCHED_FILE).write_bytes(content)
    assert Fetched(str(tmp_path), "a").get("x", 1) is None
