"""Periods that open when the wall clock leaps, the device reboots, or a signed document confirms a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy, PolicyError
from edge_sdk.arguments import system_uptime
from edge_sdk.timekeeping import (
    Anchor,
    Present,
    Proof,
    Reading,
    after_answer,
    after_document,
    earliest,
    present,
)
from protocol.batches.report import decode_report

HOUR = 3600
RECORD = {"odor": "n", "width": 3.2}
HOURLY = Policy.of(epsilon_per_day="100")
"""The policy of an owner who allows an answer in every hour of a day."""


class Machine:
    """A device's clocks: a wall clock that anyone may set, and an uptime that nobody can."""

    def __init__(self, wall=NOW):
        self.wall, self.boot, self.seconds = wall, 1, 100

    def clock(self):
        return self.wall

    def uptime(self):
        return f"boot {self.boot}", self.seconds

    def run(self, seconds):
        self.wall += seconds
        self.seconds += seconds

    def reboot(self, off_seconds=0, wall=None):
        self.boot, self.seconds = self.boot + 1, 5
        self.wall = self.wall + off_seconds if wall is None else wall


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def field(tmp_path, publisher, machine):
    """A device that was provisioned and enrolled, and has answered its first period."""
    with Device.provision(
        tmp_path / "s", publisher.root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime
    ) as device:
        device.enrol(publisher.campaign(time_precision=HOUR))
        device.report(device.campaigns()[0].id, RECORD)
        yield device


def period(device):
    """The period that the device answers now."""
    campaign = device.campaigns()[0]
    return decode_report(campaign.layout, device.report(campaign.id, RECORD))[1]


def answers(device):
    return len(device.history())


def test_periods_open_as_time_passes(field, machine):
    for hour in range(1, 50):
        machine.run(HOUR)
        assert period(field) == NOW // HOUR + hour
    assert answers(field) == 50
    assert field.status().clock.leap_left


def test_leaps_of_the_wall_clock_open_one_period_per_boot(field, machine):
    for _ in range(20):
        machine.wall += 30 * DAY
        period(field)
    assert answers(field) == 2
    clock = field.status().clock
    assert not clock.leap_left
    assert clock.confirmed < clock.wall


def test_after_its_leap_the_device_goes_on_with_the_time_that_passes(field, machine):
    machine.wall += 10 * DAY
    first = period(field)
    machine.wall += 100 * DAY
    assert period(field) == first
    machine.run(HOUR)
    assert period(field) == first + 1
    assert answers(field) == 3


def test_next_at_is_when_the_next_period_opens_on_a_clock_that_was_set_right_within_a_period(publisher, machine):
    """The boot's one leap is used, and then the network moves the clock ahead within the day: periods open late."""
    machine.wall = (NOW // DAY + 3) * DAY + HOUR
    with Device.open(None, publisher.root(), clock=machine.clock, uptime=machine.uptime) as device:
        campaign = device.enrol(publisher.campaign(time_precision=DAY))
        assert not device.answer(campaign.id, RECORD).repeated
        machine.run(600)
        machine.wall += 20 * HOUR
        said = device.answer(campaign.id, RECORD)
        (shown,) = device.status().campaigns
        assert said.repeated
        assert shown.silent_until == said.next_at > machine.wall + 20 * HOUR
        machine.run(said.next_at - machine.wall - 60)
        assert device.answer(campaign.id, RECORD).repeated
        machine.run(60)
        assert not device.answer(campaign.id, RECORD).repeated


def test_next_at_after_a_leap_that_was_set_back_is_when_the_leaps_end_comes_again(field, machine):
    campaign = field.campaigns()[0]
    machine.wall += 2 * DAY
    said = field.answer(campaign.id, RECORD)
    machine.wall -= DAY
    assert field.answer(campaign.id, RECORD).next_at == said.next_at == field.status().campaigns[0].silent_until
    machine.run(said.next_at - machine.wall - 60)
    assert field.answer(campaign.id, RECORD).repeated
    machine.run(60)
    assert not field.answer(campaign.id, RECORD).repeated


def test_every_boot_has_one_leap_of_its_own(field, machine):
    for boot in range(1, 6):
        machine.reboot(DAY)
        for _ in range(3):
            machine.wall += 90 * DAY // 10
            period(field)
        assert answers(field) == 1 + boot


def test_what_reboots_can_buy_is_bounded_by_the_lifetime_alone(tmp_path, publisher, machine):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "policy.toml").write_text('epsilon_lifetime = "5"\n')
    device = Device.provision(tmp_path / "s", trust=publisher.root(), clock=machine.clock, uptime=machine.uptime)
    campaign = device.enrol(publisher.campaign(time_precision=HOUR))
    refusals = set()
    for _ in range(12):
        try:
            device.report(campaign.id, RECORD)
        except PolicyError as error:
            refusals.add(error.reason)
        machine.reboot(DAY)
    assert device.status().spent_micro == 5_000_000
    assert refusals == {"budget_exhausted"}
    device.close()


def test_powered_for_ten_minutes_a_day_it_answers_daily(tmp_path, publisher, machine):
    device = Device.provision(tmp_path / "s", trust=publisher.root(), clock=machine.clock, uptime=machine.uptime)
    campaign = device.enrol(publisher.campaign())
    for _ in range(30):
        device.close()
        machine.reboot(DAY - 600)
        device = Device.open(tmp_path / "s", clock=machine.clock, uptime=machine.uptime)
        machine.run(300)
        device.report(campaign.id, RECORD)
        machine.run(300)
        device.report(campaign.id, RECORD)
    assert answers(device) == 30
    device.close()


def test_a_clock_that_starts_in_1970_and_is_then_set_right_loses_nothing(tmp_path, publisher, machine):
    device = Device.provision(tmp_path / "s", trust=publisher.root(), clock=machine.clock, uptime=machine.uptime)
    campaign = device.enrol(publisher.campaign())
    for day in range(1, 10):
        machine.reboot(wall=day)  # a clock without battery
        device.report(campaign.id, RECORD)
        machine.wall = NOW + day * DAY  # the clock is set by the network
        device.report(campaign.id, RECORD)
    assert [line.period for line in device.history()] == [NOW // DAY + day for day in range(10)]
    device.close()


def test_without_any_clock_time_goes_on_from_the_last_signed_document(tmp_path, publisher):
    machine = Machine(wall=0)
    device = Device.provision(
        tmp_path / "s", publisher.root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime
    )
    campaign = device.enrol(publisher.campaign(time_precision=HOUR))
    for _ in range(5):
        device.report(campaign.id, RECORD)
        machine.seconds += HOUR
    assert [line.period for line in device.history()] == [NOW // HOUR + hour for hour in range(5)]
    machine.reboot(wall=0)
    assert device.report(campaign.id, RECORD)
    assert answers(device) == 5
    publisher.now += 7 * DAY
    device.install(publisher.model())
    device.report(campaign.id, RECORD)
    assert device.history()[-1].period == (NOW + 7 * DAY) // HOUR
    device.close()


def test_a_device_without_a_clock_goes_on_after_every_restart(tmp_path, publisher):
    """Thirty days of uptime opened no period, and the bytes of the first one came back."""
    machine = Machine(wall=0)
    options = {"policy": HOURLY, "clock": machine.clock, "uptime": machine.uptime}
    with Device.provision(tmp_path / "s", publisher.root(), **options) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
    seen = []
    for _ in range(3):
        machine.reboot(wall=0)
        with Device.open(tmp_path / "s", **options) as device:
            for _ in range(30 * 4):
                machine.run(6 * HOUR)
                seen.append(device.report(campaign.id, RECORD))
            clock = device.status().clock
            assert clock.earliest == clock.now > machine.wall
            assert "stands still while it is off" in clock.note
    with Device.open(tmp_path / "s", **options) as device:
        periods = [line.period for line in device.history()]
        assert periods == list(range(NOW // DAY, NOW // DAY + 91))
        assert len(set(seen)) == 91
        machine.wall = NOW + 200 * DAY
        device.report(campaign.id, RECORD)
        assert device.status().clock.note.startswith("the clock has moved ahead")
        assert device.history()[-1].period == NOW // DAY + 200


def test_a_device_without_a_clock_that_is_on_for_minutes_goes_on_too(tmp_path, publisher):
    machine = Machine(wall=0)
    options = {"policy": HOURLY, "clock": machine.clock, "uptime": machine.uptime}
    with Device.provision(tmp_path / "s", publisher.root(), **options) as device:
        campaign = device.enrol(publisher.campaign(time_precision=HOUR)).id
        for _ in range(6 * 24):
            machine.reboot(wall=0)
            machine.run(595)
            device.report(campaign, RECORD)
        assert answers(device) == 25


def test_the_earliest_time_is_of_documents_that_count(tmp_path, publisher):
    """A new root may lower the time floor: what a stolen key had dated ahead is then no proof."""
    assert earliest(Proof("a", 100, NOW + 50 * DAY, NOW + 50 * DAY), NOW, Reading(0, "a", 200)) == NOW
    assert earliest(None, NOW, Reading(0, "a", 200)) == NOW
    assert earliest(Proof("a", 100, NOW + DAY, NOW), NOW, Reading(0, "a", 200)) == NOW + DAY + 100
    assert earliest(Proof("a", 100, NOW + DAY, NOW), NOW, Reading(0, "b", 7)) == NOW + DAY + 7
    assert earliest(Proof("a", 100, NOW + DAY, NOW), NOW + 2 * DAY, Reading(0, "b", 7)) == NOW + 2 * DAY
    assert earliest(Proof("a", 100, NOW + DAY, NOW), NOW, Reading(5)) == NOW


@given(
    st.lists(
        st.tuples(st.sampled_from(["run", "boot", "document", "call", "set"]), st.integers(0, 3 * DAY)), max_size=40
    )
)
@examples(60)
def test_a_clock_that_is_never_ahead_opens_no_period_before_its_time_and_none_twice(steps):
    """The wall clock shows anything up to the true time. Documents bear the true time."""
    machine, true = Machine(wall=0), NOW
    with Device.open(None, Publisher().root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime) as device:
        campaign = device.enrol(Publisher().campaign(time_precision=HOUR, lifetime=3_000 * DAY))
        last = 0
        for kind, seconds in steps:
            if kind == "run":
                machine.run(seconds)
                true += seconds
            elif kind == "boot":
                machine.reboot(wall=0)
                true += seconds + 5
            elif kind == "set":
                machine.wall = true - seconds * 7
            elif kind == "document":
                device.install(Publisher(now=true).model(lifetime=3_000 * DAY, version=true - NOW + 1))
            said = device.answer(campaign.id, RECORD)
            assert device.status().clock.earliest <= true
            assert said.period <= true // HOUR
            assert said.period >= last
            last = said.period
        periods = [line.period for line in device.history()]
        assert len(set(periods)) == len(periods)


def test_a_newer_document_confirms_a_time_and_the_leap_stays_used(field, publisher, machine):
    machine.wall += 100 * DAY
    period(field)
    machine.wall += 100 * DAY
    assert answers(field) == 2
    publisher.now = machine.wall
    field.install(publisher.model())
    period(field)
    assert answers(field) == 3
    machine.wall += DAY
    period(field)
    assert answers(field) == 3


def test_a_clock_that_goes_back_opens_nothing(field, machine):
    machine.run(DAY)
    last = period(field)
    for back in (HOUR, DAY, 400 * DAY):
        machine.wall -= back
        assert period(field) == last
    machine.reboot()
    assert period(field) == last
    assert answers(field) == 2


def test_an_application_that_brings_its_own_clock_vouches_for_its_steps(tmp_path, publisher):
    now = [NOW]
    with Device.provision(tmp_path / "s", trust=publisher.root(), clock=lambda: now[0]) as device:
        campaign = device.enrol(publisher.campaign())
        for _ in range(5):
            device.report(campaign.id, RECORD)
            now[0] += 20 * DAY
        assert answers(device) == 5


def test_the_day_and_the_window_are_counted_over_all_campaigns(tmp_path, publisher, machine):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "policy.toml").write_text('epsilon_per_day = "3"\nepsilon_per_window = "5"\nwindow_days = 7\n')
    device = Device.provision(tmp_path / "s", trust=publisher.root(), clock=machine.clock, uptime=machine.uptime)
    ids = [device.enrol(publisher.campaign(name=name, time_precision=HOUR)).id for name in ("one", "two")]
    outcomes = []
    for _ in range(24 * 9):
        for campaign_id in ids:
            try:
                device.report(campaign_id, RECORD)
                outcomes.append("")
            except PolicyError as error:
                outcomes.append(error.reason)
        machine.run(HOUR)
    times = [line.answered_at for line in device.history()]
    assert set(outcomes) == {"", "budget_paused"}
    for start in times:
        assert sum(start <= time < start + DAY for time in times) <= 3
        assert sum(start <= time < start + 7 * DAY for time in times) <= 5
    assert len(times) == 10
    device.close()


def test_what_a_leap_jumped_over_does_not_open_for_other_campaigns(tmp_path, publisher, machine):
    """One campaign answers after a leap far ahead; then the clock goes back and moves on, and the other one answers."""
    with Device.provision(
        tmp_path, publisher.root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime
    ) as device:
        first, other, third = (
            device.enrol(publisher.campaign(name=name, time_precision=HOUR, lifetime=3000 * DAY)).id
            for name in ("first", "other", "third")
        )
        for each in (first, other, third):
            device.report(each, RECORD)
        machine.wall += 2000 * DAY
        device.report(first, RECORD)
        assert answers(device) == 4
        for boot in range(3):
            before = answers(device)
            for hour in range(1, 90):
                machine.wall = NOW + boot * DAY + hour * HOUR
                machine.seconds += 1
                device.report(other, RECORD)
                machine.wall = NOW + 2000 * DAY + hour * HOUR
                device.report(third if hour > 45 else first, RECORD)
            assert answers(device) - before <= 3  # each of them once, at most
            machine.reboot()


def test_a_wrong_clock_that_is_set_right_does_not_stop_the_other_campaigns(tmp_path, publisher, machine):
    with Device.provision(
        tmp_path, publisher.root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime
    ) as device:
        first, other = (
            device.enrol(publisher.campaign(name=name, time_precision=HOUR, lifetime=3000 * DAY)).id
            for name in ("first", "other")
        )
        device.report(first, RECORD)
        machine.wall += 2000 * DAY
        device.report(first, RECORD)
        machine.wall -= 2000 * DAY
        for _ in range(20):
            device.report(other, RECORD)
            machine.run(HOUR)
        assert answers(device) == 22
        machine.reboot(off_seconds=5 * HOUR)
        for _ in range(20):
            device.report(other, RECORD)
            machine.run(HOUR)
        assert answers(device) == 42


def test_clocks_may_speak_in_fractions_of_a_second(tmp_path, publisher):
    with Device.provision(tmp_path, publisher.root(), clock=lambda: NOW + 0.75, uptime=lambda: ("b", 5.5)) as device:
        device.report(device.enrol(publisher.campaign()).id, RECORD)
        assert [line.answered_at for line in device.history()] == [NOW]


def test_the_system_says_which_boot_it_is_and_how_long():
    (boot, first), (again, second) = system_uptime(), system_uptime()
    assert boot == again
    assert 0 <= first <= second


READINGS = st.builds(
    Reading, wall=st.integers(0, 10**6), boot=st.sampled_from(["a", "b"]), uptime=st.integers(0, 10**6)
)
STEPS = st.lists(st.tuples(st.sampled_from(["answer", "document", "run", "boot"]), st.integers(0, 10**6)), max_size=30)


@given(STEPS)
def test_one_leap_per_boot_whatever_the_order(steps):
    """The model: without documents, periods open as time passes, and by one leap per boot."""
    anchor, boot, uptime, floor = None, 0, 0, 0
    opened, leaps = None, {}
    for kind, amount in steps:
        if kind == "run":
            uptime += amount % 5000
        elif kind == "boot":
            boot, uptime = boot + 1, 0
        elif kind == "document":
            floor = max(floor, amount)
            anchor = after_document(anchor, Reading(0, str(boot), uptime), amount) or anchor
        else:
            reading = Reading(amount, str(boot), uptime)
            moment = present(anchor, floor, reading)
            time, leapt = moment.period_time(100)
            if opened is not None and time // 100 <= opened:
                continue
            opened = time // 100
            leaps[boot] = leaps.get(boot, 0) + leapt
            anchor = after_answer(anchor, floor, reading, time, leapt=leapt) or anchor
    assert max(leaps.values(), default=0) <= 1


LENGTHS = (1, 6, 24, 168, 720)


@given(st.lists(st.one_of(st.none(), st.tuples(st.sampled_from(LENGTHS), st.integers(0, 2000))), max_size=40))
def test_boots_open_no_more_periods_than_leaps_whatever_the_lengths(steps):
    """No time passes. A step is a boot, or an answer for a period of some length while the clock shows anything."""
    start = 10 * 720 + 50
    anchor, boot = after_document(None, Reading(start, "0", 0), start), 1
    opened = {length: [start // length] for length in LENGTHS}
    for step in steps:
        if step is None:
            boot += 1
            continue
        length, ahead = step
        reading = Reading(start + ahead, str(boot), 0)
        time, leapt = present(anchor, start, reading).period_time(length)
        if time // length > opened[length][-1]:
            opened[length].append(time // length)
            anchor = after_answer(anchor, start, reading, time, leapt=leapt) or anchor
        assert all(len(periods) - 1 <= boot for periods in opened.values())


def test_an_answer_within_a_long_period_confirms_no_time_of_its_own(tmp_path, publisher, machine):
    """The clock is wrong by hours, within the day that is open: the hours' campaign has one leap and no more."""
    machine.wall = NOW - NOW % DAY + 600
    with Device.provision(
        tmp_path, publisher.root(), policy=HOURLY, clock=machine.clock, uptime=machine.uptime
    ) as device:
        daily, hourly = (
            device.enrol(Publisher(now=machine.wall - DAY).campaign(name=name, time_precision=length)).id
            for name, length in (("days", DAY), ("hours", HOUR))
        )
        device.report(hourly, RECORD)
        machine.reboot(wall=machine.wall + 22 * HOUR)
        device.report(daily, RECORD)
        device.report(hourly, RECORD)
        for days in (1, 5, 9):
            machine.wall += days * DAY
            device.report(hourly, RECORD)
        assert len(device.history("hours")) == 2


@given(READINGS, st.integers(0, 10**6))
def test_no_anchor_means_one_leap_and_dates_by_the_later_clock(reading, floor):
    assert present(None, floor, reading) == Present(max(reading.wall, floor), floor, leap_left=True, base=floor)


@given(st.text(max_size=40), st.integers(0, 2**60), *[st.integers(0, 2**40)] * 2, st.booleans(), st.booleans())
def test_an_anchor_comes_back_as_it_was(boot, uptime, time, base, signed, leapt):
    anchor = Anchor(boot, uptime, time, signed, leapt, base)
    assert Anchor.from_bytes(anchor.to_bytes()) == anchor
    proof = Proof(boot, uptime, time, base)
    assert Proof.from_bytes(proof.to_bytes()) == proof


@pytest.mark.parametrize("raw", [b"", b"\xc0", b"\x95\x01\x01\x01\xc3\xc3", b"\x90", b"\xff"])
def test_damaged_bytes_are_no_anchor(raw):
    assert Anchor.from_bytes(raw) is None
    assert Proof.from_bytes(raw) is None
