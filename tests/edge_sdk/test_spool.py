"""Reports wait until they are acknowledged. Beyond the limits the oldest are dropped and counted."""

from __future__ import annotations

import os
import shutil

import pytest
from support.failures import reason
from support.publisher import DAY
from support.reports import records_in

from edge_sdk import Device

RECORD = {"odor": "n"}


def sealed(path):
    """The reports in a sealed file, in order."""
    return [raw for _, raw in records_in(path.read_bytes())]


def answer(device, clock, days):
    campaign = device.campaigns()[0]
    said = []
    for _ in range(days):
        said.append(device.report(campaign.id, RECORD))
        clock.now += DAY
    return said


@pytest.fixture
def enrolled(device, publisher):
    device.enrol(publisher.campaign())
    return device


def test_what_was_not_acknowledged_is_sealed_again(enrolled, clock, tmp_path):
    said = answer(enrolled, clock, 2)
    assert enrolled.drain(tmp_path / "a.hsr") == 2
    said += answer(enrolled, clock, 1)
    assert enrolled.drain(tmp_path / "b.hsr") == 3
    assert sealed(tmp_path / "b.hsr") == said
    assert enrolled.status().spool.sealed_files == 2
    assert enrolled.ack(tmp_path / "a.hsr") == 2
    assert enrolled.drain(tmp_path / "c.hsr") == 1
    assert sealed(tmp_path / "c.hsr") == said[2:]
    assert enrolled.ack(tmp_path / "b.hsr") == 1
    assert enrolled.status().spool.sealed_files == 0
    assert enrolled.drain(tmp_path / "d.hsr") == 0


def test_an_acknowledgement_may_come_late_twice_or_for_a_file_that_moved(enrolled, clock, tmp_path):
    answer(enrolled, clock, 1)
    enrolled.drain(tmp_path / "a.hsr")
    shutil.move(tmp_path / "a.hsr", tmp_path / "sent.hsr")
    assert enrolled.ack(tmp_path / "sent.hsr") == 1
    assert enrolled.ack(tmp_path / "sent.hsr") == 0
    answer(enrolled, clock, 1)
    enrolled.drain(tmp_path / "a.hsr")
    (tmp_path / "a.hsr").unlink()
    assert enrolled.ack(tmp_path / "a.hsr") == 1
    assert enrolled.ack(tmp_path / "sent.hsr") == 0


def test_what_was_never_sealed_here_is_not_acknowledged(enrolled, clock, tmp_path):
    answer(enrolled, clock, 1)
    (tmp_path / "strange.hsr").write_bytes(b"of another device")
    os.mkfifo(tmp_path / "pipe.hsr")
    for path in ("strange.hsr", "absent.hsr", ".", "pipe.hsr", "/dev/zero"):  # what is no plain file is not read
        assert reason(enrolled.ack, tmp_path / path) == "batch_unknown"
    assert reason(enrolled.ack, 7) == "argument_invalid"
    enrolled.drain(tmp_path / "a.hsr")
    (tmp_path / "a.hsr").write_bytes(b"replaced by something else")
    assert reason(enrolled.ack, tmp_path / "a.hsr") == "batch_unknown"
    assert enrolled.status().spooled == 1


@pytest.mark.parametrize(
    ("limit", "why", "left"),
    [
        ("spool_reports = 3", "spool_reports", 3),
        ("spool_bytes = 60", "spool_bytes", 3),
        ("spool_days = 4", "spool_age", 5),
    ],
)
def test_when_the_spool_is_full_the_oldest_go_counted_and_stay_paid(tmp_path, publisher, clock, limit, why, left):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "policy.toml").write_text(limit + "\n")
    with Device.provision(tmp_path / "s", trust=publisher.root(), clock=clock) as device:
        device.enrol(publisher.campaign())
        said = answer(device, clock, 10)
        status = device.status()
        assert status.spool.dropped == {why: 10 - left}
        assert (status.spooled, status.spent_micro) == (left, 10_000_000)
        assert device.drain(tmp_path / "a.hsr") == left
        assert sealed(tmp_path / "a.hsr") == said[-left:]


def test_sealed_files_are_remembered_for_a_while_and_not_for_ever(enrolled, clock, tmp_path):
    answer(enrolled, clock, 1)
    for number in range(260):
        enrolled._reporting.spool.note_sealed(f"/{number}", b"%d" % number, 1, clock.now)
    ((count,),) = enrolled._state.run("SELECT count(*) FROM sealed")
    assert count == 256
    assert reason(enrolled.ack, "/0") == "batch_unknown"
    assert enrolled.ack("/259") == 1


def test_history_says_when_and_what_it_cost_and_never_what_was_said(enrolled, clock):
    said = answer(enrolled, clock, 3)
    lines = enrolled.history()
    assert [line.epsilon_micro for line in lines] == [1_000_000] * 3
    assert [line.answered_at for line in lines] == [clock.now - day * DAY for day in (3, 2, 1)]
    assert all(line.period_start <= line.answered_at < line.period_start + DAY for line in lines)
    assert {line.campaign for line in lines} == {"mushrooms"}
    assert not any(report[12:] in str(lines).encode() for report in said)


def test_one_wrong_clock_does_not_cost_what_waits(tmp_path, publisher):
    wall, boot, seconds = [clock_start := 1_800_000_000], ["a"], [10]
    with Device.provision(
        tmp_path, trust=publisher.root(), clock=lambda: wall[0], uptime=lambda: (boot[0], seconds[0])
    ) as device:
        campaign = device.enrol(publisher.campaign(lifetime=10_000 * DAY))
        for _ in range(20):
            device.report(campaign.id, RECORD)
            wall[0] += DAY
            seconds[0] += DAY
        boot[0], seconds[0], wall[0] = "b", 5, clock_start + 700 * DAY
        device.report(campaign.id, RECORD)
        assert device.status().spool.dropped == {}
        assert device.status().spooled == 21
