"""Periods that open when the wall clock leaps, the device reboots, or a signed document confirms a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy
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

    def set(self, wall):
        """Set the clock, to a time in seconds from :data:`NOW`."""
        self.wall = NOW + wall

    def ahead(self, seconds):
        self.wall += seconds

    @property
    def options(self):
        return {"policy": HOURLY, "clock": self.clock, "uptime": self.uptime}


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def field(tmp_path, publisher, machine):
    """A device that was provisioned and enrolled, and has answered its first period."""
    with Device.provision(tmp_path / "s", publisher.root(), **machine.options) as device:
        device.enrol(publisher.campaign(time_precision=HOUR))
        device.report(device.campaigns()[0].id, RECORD)
        yield device


def answers(device):
    return len(device.history())


SCRIPTS = {
    "periods open as time passes": ([("run", HOUR)] * 6, [1, 2, 3, 4, 5, 6], True),
    "leaps open one period per boot": ([("ahead", 30 * DAY)] * 20, [720], False),
    "after a leap the passing time opens": (
        [("ahead", 10 * DAY), ("ahead", 100 * DAY), ("run", HOUR)],
        [240, 241],
        False,
    ),
    "every boot has a leap": ([("reboot", DAY), *[("ahead", 9 * DAY)] * 2] * 3, [24, 24 * 20, 24 * 39], False),
    "a clock that goes back opens nothing": (
        [("run", DAY), ("ahead", -HOUR), ("ahead", -DAY), ("ahead", -400 * DAY), ("reboot", 0)],
        [24],
        True,
    ),
    "a document confirms a time, and the leap stays used": (
        [("ahead", 100 * DAY), ("ahead", 100 * DAY), ("document", 200 * DAY), ("ahead", DAY)],
        [2400, 4800],
        False,
    ),
    "a clock that starts in 1970 and is then set right": (
        [step for day in range(1, 6) for step in (("reboot", 0), ("set", day - NOW), ("set", day * DAY))],
        [24, 48, 72, 96, 120],
        False,
    ),
    "without a clock time goes on from the last document": (
        [("set", -NOW), *[("run", HOUR)] * 4, ("reboot", 0), ("set", -NOW), ("document", 7 * DAY)],
        [1, 2, 3, 4, 168],
        True,
    ),
    "without a clock time goes on where the device is on for minutes": (
        [("reboot", 0), ("set", -NOW), ("run", 595)] * 6 * 24,
        list(range(1, 25)),
        True,
    ),
}
"""What the clocks do between answers, and the hours that are answered after the first one; whether a leap is left."""


@pytest.mark.parametrize(("steps", "hours", "leap_left"), SCRIPTS.values(), ids=SCRIPTS)
def test_what_opens_a_period(field, publisher, machine, steps, hours, leap_left):
    for name, seconds in steps:
        if name == "document":
            publisher.now = NOW + seconds
            field.install(publisher.model())
        else:
            getattr(machine, name)(seconds)
        field.report("mushrooms", RECORD)
    assert [line.period - NOW // HOUR for line in field.history()] == [0, *hours]
    assert field.status().clock.leap_left == leap_left


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


def test_status_tells_a_device_without_a_clock_from_one_whose_clock_was_set(field, machine):
    machine.reboot(wall=0)
    machine.run(6 * HOUR)
    field.report("mushrooms", RECORD)
    clock = field.status().clock
    assert clock.earliest == clock.now > machine.wall
    assert "stands still while it is off" in clock.note
    machine.wall = NOW + 200 * DAY
    field.report("mushrooms", RECORD)
    assert field.status().clock.note.startswith("the clock has moved ahead")
    assert [line.period - NOW // HOUR for line in field.history()] == [0, 6, 200 * 24]


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
    with Device.open(None, Publisher().root(), **machine.options) as device:
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


def test_what_a_leap_jumped_over_does_not_open_for_other_campaigns(tmp_path, publisher, machine):
    """One campaign answers after a leap far ahead; then the clock goes back and moves on, and the other one answers."""
    with Device.provision(tmp_path, publisher.root(), **machine.options) as device:
        first, other, third = (
            device.enrol(publisher.campaign(name=name, time_precision=HOUR, lifetime=3000 * DAY)).id
            for name in ("first", "other", "third")
        )
        for each in (first, other, third):
            device.report(each, RECORD)
        machine.wall += 2000 * DAY
        device.report(first, RECORD)
        assert answers(device) == 4
        for boot in range(2):
            before = answers(device)
            for hour in range(1, 16):
                machine.wall = NOW + boot * DAY + hour * HOUR
                machine.seconds += 1
                device.report(other, RECORD)
                machine.wall = NOW + 2000 * DAY + hour * HOUR
                device.report(third if hour > 8 else first, RECORD)
            assert answers(device) - before <= 3  # each of them once, at most
            machine.reboot()


def test_a_wrong_clock_that_is_set_right_does_not_stop_the_other_campaigns(tmp_path, publisher, machine):
    with Device.provision(tmp_path, publisher.root(), **machine.options) as device:
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
    with Device.provision(tmp_path, publisher.root(), **machine.options) as device:
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
