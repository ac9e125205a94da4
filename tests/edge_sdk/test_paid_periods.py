"""A period of a name is paid once, for all versions of the name; what bounds many names; what callers are told."""

from __future__ import annotations

import json
import re

import pytest
from support.failures import failure, reason
from support.publisher import DAY, NOW

from edge_sdk import Device, Policy

RECORD = {"odor": "n", "width": 2}
HOUR = 3_600


@pytest.mark.parametrize(("first", "second"), [(DAY, HOUR), (HOUR, DAY), (HOUR, HOUR // 2 + 1)])
def test_until_the_paid_end_of_a_version_the_next_one_is_silent_and_status_says_so(
    device, publisher, clock, first, second
):
    old = device.enrol(publisher.campaign(time_precision=first))
    device.report(old.id, RECORD)
    paid_until = (NOW // first + 1) * first
    new = device.enrol(publisher.campaign(version=2, time_precision=second))
    opens = -(-paid_until // second) * second
    for now in (NOW, paid_until - 1, opens - 1):
        clock.now = now
        error = failure(device.report, new.id, RECORD)
        assert error.reason == "period_answered"
        assert device.status().campaigns[0].silent_until == opens
    clock.now = opens
    assert device.status().campaigns[0].silent_until is None
    device.report(new.id, RECORD)
    assert device.status().campaigns[0].silent_until is None, "an answered period is not silence"
    assert [line.period_start for line in device.history()] == [NOW // first * first, opens]


def test_a_leap_ahead_silences_a_name_until_then_and_status_says_so(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    clock.now += 40 * DAY
    said = device.report(campaign.id, RECORD)
    until = (clock.now // DAY + 1) * DAY
    clock.now = NOW + DAY
    assert device.report(campaign.id, RECORD) == said
    (status,) = device.status().campaigns
    assert (status.state, status.silent_until) == ("open", until)
    assert json.loads(json.dumps(device.status().to_json()))["campaigns"][0]["silent_until"] == until
    new = device.enrol(publisher.campaign(version=2))
    error = failure(device.report, new.id, RECORD)
    assert error.reason == "period_answered"
    assert "another name" in error.detail
    other = device.enrol(publisher.campaign(name="mushrooms again"))
    assert device.report(other.id, RECORD)
    assert [each.silent_until for each in device.status().campaigns] == [until, None]


def test_who_asks_hears_whether_the_period_was_answered_before(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    first, again = (device.answer(campaign.id, RECORD) for _ in range(2))
    assert (first.repeated, again.repeated) == (False, True)
    assert first.reports == again.reports == device.report(campaign.id, RECORD)
    assert first.period == again.period == NOW // DAY
    clock.now += DAY
    assert device.answer(campaign.id, RECORD)[1:] == (NOW // DAY + 1, False, (NOW // DAY + 2) * DAY)


def test_many_names_by_one_publisher_are_bounded_by_the_day_and_the_lifetime(tmp_path, publisher, clock):
    policy = Policy.of(epsilon_lifetime="20")
    with Device.provision(tmp_path, trust=publisher.root(), policy=policy, clock=clock) as device:
        enrolled = [device.enrol(publisher.campaign(name=f"name {number}")) for number in range(9)]
        for day in range(7):
            said = [reason(device.report, campaign.id, RECORD) for campaign in enrolled]
            assert said.count(None) == (4 if day < 5 else 0)
            assert {*said} - {None} == {"budget_paused" if day < 4 else "budget_exhausted"}
            clock.now += DAY
        assert device.status().spent_micro == 20_000_000


def test_what_a_leap_spent_years_ahead_does_not_pause_every_other_name_until_then(device, publisher, clock):
    dear = device.enrol(publisher.campaign(epsilon_micro=4_000_000))
    clock.now += 90 * DAY
    device.report(dear.id, RECORD)
    clock.now = NOW
    other = device.enrol(publisher.campaign(name="other"))
    device.report(other.id, RECORD)
    clock.now = NOW + 89 * DAY
    device.report(other.id, RECORD)
    clock.now = NOW + 90 * DAY  # the day to which the clock had leapt, which is paid
    assert reason(device.report, other.id, RECORD) == "budget_paused"


def test_a_day_has_four_unless_its_owner_allows_more():
    assert Policy().day_micro == Policy.of().day_micro == 4_000_000
    assert Policy.of(epsilon_per_period=16).day_micro == 16_000_000, (
        "whoever allows more in a period allows it in a day"
    )
    assert Policy.of(epsilon_per_period=16, epsilon_per_day=5).day_micro == 5_000_000


WEEKLY = {"epsilon_per_period": "1", "epsilon_per_window": "1", "window_days": 7, "epsilon_lifetime": "5"}


@pytest.mark.parametrize(
    ("period", "limits", "days", "rhythm"),
    [
        (DAY, WEEKLY, 29, ["1 of the 7 periods of 7 days"]),
        (HOUR, WEEKLY, 29, ["1 of the 168 periods of 7 days"]),
        (HOUR, {"epsilon_lifetime": "9"}, 3, ["4 of the 24 periods of a day"]),
        (HOUR, {"epsilon_per_window": "6", "window_days": 3, "epsilon_lifetime": "15"}, 7,
         ["4 of the 24 periods of a day", "6 of the 72 periods of 3 days"]),
        (7 * HOUR, {"epsilon_lifetime": "10", "epsilon_per_day": "3"}, 4, ["3 of the 4 periods of a day"]),
        (13 * HOUR, {"epsilon_lifetime": "10", "epsilon_per_day": "1"}, 10, ["1 of the 2 periods of a day"]),
        (3 * DAY, {"epsilon_lifetime": "4"}, 12, []),
    ],
)  # fmt: skip
def test_the_days_that_are_told_are_the_days_that_a_device_answers(publisher, clock, period, limits, days, rhythm):
    """A real device that tries every hour, from the beginning of a period, until its life's ε is spent."""
    clock.now += -clock.now % period
    raw = publisher.campaign(time_precision=period)
    with Device.open(None, trust=publisher.root(), policy=Policy.of(**limits), clock=clock) as device:
        text = device.explain(raw)
        campaign = device.enrol(raw)
        while reason(device.report, campaign.id, RECORD) != "budget_exhausted":
            clock.now += HOUR
        answered = [line.answered_at for line in device.history()]
    assert re.findall(r"So the device answers in at most (.*), and in no other", text) == rhythm
    assert f"at most {len(answered)} more answers in this device's life, or {days} days" in text
    assert -(-(answered[-1] - answered[0] + period) // DAY) == days


def test_an_answer_that_no_limit_allows_is_not_said_to_be_possible_later(publisher, clock):
    policy = Policy.of(epsilon_per_window="0.5", window_days=7)
    with Device.open(None, trust=publisher.root(), policy=policy, clock=clock) as device:
        text = device.explain(publisher.campaign())
    assert "(epsilon_per_window)" in text
    assert "budget_paused" not in text
    assert "So the device answers" not in text


@pytest.mark.parametrize(("a_day", "answers"), [(None, range(10, 30)), ("8", [30])])
def test_a_device_that_is_on_for_minutes_a_day_needs_room_for_two_answers(publisher, clock, a_day, answers):
    """ε = 4 a day, switched on at eight, five minutes earlier or later: a limit of one answer in 24 hours pauses it."""
    limits = {"epsilon_lifetime": "400"} | ({} if a_day is None else {"epsilon_per_day": a_day})
    start = NOW - NOW % DAY + 8 * HOUR
    with Device.open(None, trust=publisher.root(), policy=Policy.of(**limits), clock=clock) as device:
        raw = publisher.campaign(epsilon_micro=4_000_000)
        assert ("may miss periods" in device.explain(raw)) == (a_day is None)
        campaign = device.enrol(raw)
        for day in range(1, 31):
            clock.now = start + day * DAY + (day * 7919) % 601 - 300
            reason(device.report, campaign.id, RECORD)
        assert len(device.history()) in answers


@pytest.mark.parametrize(
    ("period", "micro", "told"),
    [(DAY, 1_000_000, 0), (DAY, 2_000_000, 0), (DAY, 3_000_000, 1), (7 * DAY, 4_000_000, 0)],
)
def test_the_room_for_answers_that_come_early_is_told_where_there_is_none(device, publisher, period, micro, told):
    text = device.explain(publisher.campaign(time_precision=period, epsilon_micro=micro))
    assert text.count("may miss periods") == told


RAISED = 'epsilon_lifetime = "200"\nepsilon_per_day = "1"\n'


def reset(folder, publisher, clock):
    """Reset and enrol again, with a larger lifetime ε and a limit of one answer per day."""
    Device.reset(folder, publisher.root(), clock=clock)
    (folder / "policy.toml").write_text(RAISED)
    device = Device.open(folder, clock=clock)
    device.enrol(publisher.campaign())
    return device


@pytest.mark.parametrize("times", [1, 2])
def test_a_reset_pays_no_period_and_no_day_twice(tmp_path, publisher, clock, times):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
    for _ in range(times):
        reset(tmp_path, publisher, clock).close()
    with Device.open(tmp_path, clock=clock) as device:
        spent = device.status().spent
        assert (spent.day_micro, spent.lifetime_micro) == (1_000_000, 100_000_000 if times == 1 else 200_000_000)
        assert reason(device.report, campaign.id, RECORD) == "period_answered"
        newer = device.enrol(publisher.campaign(version=2))
        assert reason(device.report, newer.id, RECORD) == "period_answered"
        other = device.enrol(publisher.campaign(name="others"))
        assert reason(device.report, other.id, RECORD) == ("budget_paused" if times == 1 else "budget_exhausted")
        assert [line.campaign for line in device.history()] == ["", "mushrooms"]
        assert sum(line.epsilon_micro for line in device.history()) == spent.lifetime_micro
        assert device.drain(tmp_path / "x.hsr") == 0
    (tmp_path / "policy.toml").write_text(RAISED.replace("200", "300"))
    clock.now += DAY
    with Device.open(tmp_path, clock=clock) as device:
        device.report(newer.id, RECORD)
        assert device.status().spent.day_micro == 1_000_000
    Device.open(tmp_path, clock=clock).close()
