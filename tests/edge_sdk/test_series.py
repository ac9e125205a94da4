"""A device answers once in a series, whatever campaigns, versions and periods the series has, and whatever happens."""

from __future__ import annotations

import random

import pytest
from support.failures import reason
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy
from protocol.documents.campaign import WHOLE, Series

RECORD = {"odor": "n", "width": 2, "label": "e"}
SERIES = Series("pilot", NOW)
GENEROUS = Policy(lifetime_micro=1_000_000_000)


def campaign(publisher, name="mushrooms", version=1, **changes):
    return publisher.campaign(name=name, version=version, series=SERIES._replace(**changes))


def answers(device):
    """How often a device answered, without the line of a reset."""
    return sum(1 for line in device.history() if line.id)


def seeded(number):
    """A source of the same bytes each time, as an argument of ``Device.open``."""
    return random.Random(number).randbytes


def test_a_reset_that_reads_the_ledger_keeps_the_series_and_lying_about_its_begin_changes_nothing(
    tmp_path, publisher, clock
):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        device.report(device.enrol(publisher.campaign(name="before")).id, RECORD)
        device.report(device.enrol(campaign(publisher)).id, RECORD)
        assert [line.series for line in device.history()] == ["", "pilot"]
    clock.now += DAY
    publisher.now = clock.now + DAY
    for lifetime in (10**9, 10**10):  # the owner allows more after each reset
        Device.reset(tmp_path, Publisher().root(), clock=clock)
        with Device.open(tmp_path, clock=clock, policy=Policy(lifetime_micro=lifetime)) as device:
            late = publisher.campaign(series=SERIES._replace(begins=publisher.now))
            again = device.enrol(late)
            fresh = publisher.campaign(name="fresh", series=Series("another", publisher.now))
            unanswered = device.enrol(fresh)
            clock.now += 2 * DAY
            assert reason(device.report, again.id, RECORD) == "series_answered"
            clock.now -= 2 * DAY
    with Device.open(tmp_path, clock=clock, policy=Policy(lifetime_micro=lifetime)) as device:
        clock.now += 2 * DAY
        assert device.report(unanswered.id, RECORD)
        assert reason(device.report, again.id, RECORD) == "series_answered"


@pytest.mark.parametrize("how", ["gone", "rotten", "older"])
def test_after_a_lost_ledger_no_series_that_had_begun_is_answered(tmp_path, publisher, clock, how):
    state = tmp_path / "state.db"
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        empty = state.read_bytes()
        device.report(device.enrol(campaign(publisher)).id, RECORD)
    if how == "gone":
        state.unlink()
    elif how == "rotten":
        state.write_bytes(state.read_bytes().replace(b"pilot", b"pIlot"))
    else:
        state.write_bytes(empty)
    clock.now += DAY
    assert reason(Device.open, tmp_path, clock=clock) == "state_lost"
    Device.reset(tmp_path, publisher.root(), clock=clock)
    publisher.now = clock.now + 1
    with Device.open(tmp_path, clock=clock, policy=GENEROUS) as device:
        old = device.enrol(campaign(publisher))
        unseen = device.enrol(publisher.campaign(name="unseen", series=Series("unseen", clock.now)))
        fresh = device.enrol(publisher.campaign(name="fresh", series=Series("fresh", clock.now + 1)))
        clock.now += DAY
        assert reason(device.report, old.id, RECORD) == "series_begun"
        assert reason(device.report, unseen.id, RECORD) == "series_begun"
        device.report(fresh.id, RECORD)
        assert answers(device) == 1
        silent = {each.name: each.silent.split(":")[0] for each in device.status().campaigns}
        assert silent == {"mushrooms": "series_begun", "unseen": "series_begun", "fresh": "series_answered"}


@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize("ledger_lost", [False, True])
def test_a_clock_that_was_behind_at_the_reset_opens_no_series(tmp_path, publisher, boots, ledger_lost):
    wall, up = [NOW + DAY], [5 * DAY]
    boot = ["a"]
    options = {"clock": lambda: wall[0], "uptime": lambda: (boot[0], up[0])}
    with Device.provision(tmp_path, trust=publisher.root(), **options) as device:
        device.report(device.enrol(campaign(publisher)).id, RECORD)
    if ledger_lost:
        (tmp_path / "state.db").unlink()
    wall[0] = NOW - 100 * DAY  # the battery was empty
    publisher.now = NOW - 200 * DAY
    Device.reset(tmp_path, publisher.root(), clock=options["clock"])
    publisher.now = NOW
    boot[0], up[0] = "b", 60
    with Device.open(tmp_path, policy=GENEROUS, **options) as device:
        publisher.now = NOW - 150 * DAY
        other = device.enrol(publisher.campaign(name="other", lifetime=1000 * DAY))
        device.report(other.id, RECORD)  # with the wrong clock
        publisher.now = NOW
        if boots:
            boot[0], up[0] = "c", 60
        wall[0] = NOW + 2 * DAY  # now it is right
        up[0] += 60
        unseen = device.enrol(publisher.campaign(name="unseen", series=Series("unseen", NOW)))
        assert reason(device.report, unseen.id, RECORD) == "series_begun"
        wall[0], up[0] = wall[0] + 5 * DAY, up[0] + 5 * DAY
        publisher.now = wall[0]
        fresh = device.enrol(publisher.campaign(name="fresh", series=Series("fresh", wall[0] - DAY)))
        assert device.report(fresh.id, RECORD)


@pytest.mark.parametrize("how", ["gone", "older"])
@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize("behind", [40, 50 * 60])
def test_a_clock_that_was_behind_by_seconds_at_the_reset_opens_no_series(tmp_path, publisher, how, boots, behind):
    """The clock is set back after the answer, the state is lost, and the clock is set right without a step that shows.

    Seconds below the slack of a minute gave a second answer; so did an hour where an older ledger was there.
    """
    true, error, boot, started = [NOW], [0], [1], NOW - 100
    options = {"clock": lambda: true[0] + error[0], "uptime": lambda: (f"boot {boot[0]}", true[0] - started)}
    publisher.now = NOW - DAY
    other = publisher.campaign(name="other", time_precision=60)
    with Device.provision(tmp_path, trust=publisher.root(), **options) as device:
        device.report(device.enrol(other).id, RECORD)
    older = (tmp_path / "state.db").read_bytes()
    true[0] += 70
    publisher.now = true[0]
    raw = publisher.campaign(series=SERIES._replace(begins=true[0]))
    with Device.open(tmp_path, policy=GENEROUS, **options) as device:
        true[0] += 5
        device.report(device.enrol(raw).id, RECORD)
    (tmp_path / "state.db").unlink()
    if how == "older":
        (tmp_path / "state.db").write_bytes(older)
    error[0] = -behind
    publisher.now = NOW - DAY
    Device.reset(tmp_path, publisher.root(), clock=options["clock"])
    with Device.open(tmp_path, policy=GENEROUS._replace(lifetime_micro=10**12), **options) as device:
        asked = device.enrol(other)
        true[0] += 10
        reason(device.report, asked.id, RECORD)
        if boots:
            boot[0], started = boot[0] + 1, true[0]
        error[0] = 0
        true[0] += 1
        assert reason(device.report, device.enrol(raw).id, RECORD) == "series_begun"
        publisher.now = true[0] + 61
        later = publisher.campaign(name="later", series=Series("later", publisher.now))
        true[0] += 100
        assert device.report(device.enrol(later).id, RECORD)


def test_devices_outside_of_the_share_draw_nothing_and_say_so(publisher, clock):
    """About an eighth takes part. A device in none of the shares is told so, and draws no seed."""
    taken = 0
    for number in range(24):
        drawn = []
        entropy = seeded(number)
        with Device.open(
            None, publisher.root(), clock=clock, entropy=lambda n, e=entropy, d=drawn: d.append(n) or e(n)
        ) as device:
            asked = device.enrol(campaign(publisher, high=WHOLE // 8))
            del drawn[:]
            outcome = reason(device.report, asked.id, RECORD)
            member = asked.series.has(device._state.meta("secret"))
            assert outcome == (None if member else "series_not_member")
            assert drawn == ([32] if member else [])
            assert answers(device) == member
            (status,) = device.status().campaigns
            assert status.series == "pilot"
            assert status.silent.split(":")[0] == ("series_answered" if member else "series_not_member")
            taken += member
    assert 0 < taken < 20


def test_explain_says_what_a_series_costs_and_whether_this_device_takes_part(device, publisher, clock):
    secret = device._state.meta("secret")
    inside = device.explain(campaign(publisher, low=0, high=WHOLE))
    assert "series 'pilot': the device gives at most one answer in the whole series" in inside
    assert "About 100% of all devices take part in this campaign, picked by chance" in inside
    assert "this device does." in inside
    assert "Cost: ε = 1, at most once." in inside
    assert "remaining periods" not in inside
    share = Series("pilot", NOW, 0, WHOLE // 100)
    outside = device.explain(publisher.campaign(series=share))
    assert "About 1% of all devices" in outside
    assert f"this device does{'' if share.has(secret) else ' not'}." in outside
    device.report(device.enrol(campaign(publisher)).id, RECORD)
    assert "series_answered: this device has answered" in device.explain(campaign(publisher, "other"))
    device.disable()
    assert "series_answered" in device.explain(campaign(publisher, "other"))
