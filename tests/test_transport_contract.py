"""One contract for all transports: a folder, the web, and the MQTT example with a real broker."""

from __future__ import annotations

import os

import pytest
from support.failures import failure
from support.failures import refusal as reason
from support.publisher import NOW, Publisher
from support.transports import WORLDS

from edge_sdk import Device, Policy
from edge_sdk.sync import sync
from edge_sdk.transport import Found, Transport

PLACE = "campaigns/mushrooms.hsc"
ELSEWHERE = ["", "/", "a/.", ".", "..", "../x", "/x", "a//b", "a/./b", "a/../b", "a/", "a\0b"]


@pytest.fixture(params=WORLDS)
def world(request, tmp_path):
    folder = tmp_path / "world"
    folder.mkdir()
    with WORLDS[request.param](folder) as made:
        yield made


def test_every_transport_is_a_transport_and_none_is_half_of_one(world):
    transport = world.open()
    assert Transport in type(transport).__mro__
    assert transport.address == world.open().address
    assert transport.address.isprintable()
    assert transport.address


def test_a_document_comes_whole_up_to_its_limit_and_nothing_is_none(world):
    content = os.urandom(100_000)
    world.put(PLACE, content)
    world.put("models/odd%20n%C3%A4me.hsm", b"odd")
    transport = world.open()
    assert transport.fetch(PLACE, len(content)).content == content
    assert transport.fetch(PLACE, 1 << 20).content == content
    assert reason(transport.fetch, PLACE, len(content) - 1) == "too_large"
    assert transport.fetch("models/odd%20n%C3%A4me.hsm", 100).content == b"odd"
    for absent in ("campaigns/other.hsc", "roots/2.hst", f"{PLACE}/below", "x" * 300):
        assert transport.fetch(absent, 100) is None


def test_a_tag_stands_for_what_is_known_and_for_nothing_else(world):
    world.put(PLACE, b"first")
    transport = world.open()
    first = transport.fetch(PLACE, 100)
    assert isinstance(first, Found)
    assert transport.fetch(PLACE, 100, first.tag) in (first, Found(None, first.tag))
    for wrong in ("unheard of", "x" * 5000, '"\r\nHost: x', "\0"):
        assert transport.fetch(PLACE, 100, wrong).content == b"first"
    world.put(PLACE, b"second")
    assert world.open().fetch(PLACE, 100, first.tag).content == b"second"


@pytest.mark.parametrize("place", ELSEWHERE)
def test_no_place_leads_elsewhere(world, batch, place):
    transport = world.open()
    assert reason(transport.fetch, place, 100) == "address_invalid"
    assert reason(transport.send, place, str(batch)) == "address_invalid"
    assert world.arrived() == []


def test_a_batch_has_arrived_whole_when_sending_returns_and_arrives_once(world, batch, tmp_path):
    transport = world.open()
    transport.send("reports/a.hsr", str(batch))
    assert world.arrived() == [batch.read_bytes()]
    transport.send("reports/a.hsr", str(batch))
    world.open().send("reports/a.hsr", str(batch))
    assert world.arrived() == [batch.read_bytes()]
    other = tmp_path / "other.hsr"
    other.write_bytes(b"another batch")
    transport.send("reports/b.hsr", str(other))
    assert sorted(world.arrived()) == sorted([batch.read_bytes(), b"another batch"])


def test_another_file_at_the_same_place_is_refused_or_arrives_too(world, batch, tmp_path):
    """A batch that a transport drops in silence is lost: the device forgets what was sent."""
    other = tmp_path / "other.hsr"
    other.write_bytes(b"another batch")
    transport = world.open()
    transport.send("reports/a.hsr", str(batch))
    error = failure(transport.send, "reports/a.hsr", str(other))
    kept = [batch.read_bytes()] if error else [batch.read_bytes(), b"another batch"]
    assert error is None or error.reason == "file_exists"
    assert sorted(world.arrived()) == sorted(kept)


def test_a_file_that_is_not_there_is_this_devices_trouble(world, tmp_path):
    assert reason(world.open().send, "reports/a.hsr", str(tmp_path / "absent")) == "io_failed"
    assert world.arrived() == []


def test_a_source_that_is_gone_is_unreachable_and_not_empty(world, batch):
    transport = world.open()
    world.vanish()
    assert reason(transport.fetch, PLACE, 100) == "unreachable"
    assert reason(transport.send, "reports/a.hsr", str(batch)) == "unreachable"


def test_a_device_takes_part_over_it(world, tmp_path):
    publisher = Publisher()
    world.put(PLACE, publisher.campaign())
    with Device.provision(tmp_path / "state", trust=publisher.root(), policy=Policy.of(), clock=lambda: NOW) as device:
        assert sync(device, world.open(), campaigns=["mushrooms"]).refusals == ()
        (campaign,) = device.campaigns()
        report = device.report(campaign.id, {"odor": "n", "width": 2.0}, label="e")
        assert sync(device, world.open()).refusals == ()
        assert device.status().spooled == 0
    (arrived,) = world.arrived()
    assert report in arrived
