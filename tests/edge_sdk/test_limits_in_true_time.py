"""Limits per day and per window hold in true time on a device whose clock is behind at boot and is set right later."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy, PolicyError
from edge_sdk.timekeeping import Reading, Step, Track, follow

HOUR = 3_600
QUARTER = 900
RECORD = {"odor": "n", "width": 3.2}


class Field:
    """A device and the true time. The wall clock is the true time plus an error.

    Attributes:
        true: the true time, in seconds since 1970.
        error: what the clock shows in excess of the true time.
        answers: true time of each answer.
    """

    def __init__(self, policy, names=("pumps",)):
        self.true, self.error, self.boot, self.started = NOW, 0, 1, NOW - 100
        publisher = Publisher()
        self.device = Device.open(
            None,
            publisher.root(),
            policy=policy,
            clock=lambda: max(0, self.true + self.error),
            uptime=lambda: (f"boot {self.boot}", self.true - self.started),
        )
        self.ids = [
            self.device.enrol(publisher.campaign(name=name, time_precision=HOUR, lifetime=3_000 * DAY)).id
            for name in names
        ]
        self.answers = []

    def report(self):
        for campaign in self.ids:
            with suppress(PolicyError):
                if not self.device.answer(campaign, RECORD).repeated:
                    self.answers.append(self.true)

    def run(self, seconds, every=QUARTER):
        """Call every quarter of an hour, as the systemd timer does."""
        for _ in range(0, seconds, every):
            self.report()
            self.true += every

    def off(self, seconds, error):
        """Switched off; at the start the clock has an error, and the device asks 30 seconds later."""
        self.true += seconds + 30
        self.boot, self.started, self.error = self.boot + 1, self.true - 30, error

    def most_within(self, seconds):
        """The most answers in any window of true time. Steps of the clock below a minute are not noticed."""
        window = seconds - 600
        return max((sum(start <= time < start + window for time in self.answers) for start in self.answers), default=0)


FOUR_A_DAY = Policy.of(epsilon_per_day="4", epsilon_lifetime="100000")


@pytest.mark.parametrize("battery", [True, False])
def test_a_device_that_is_on_for_minutes_answers_daily(battery):
    """Time in which the device was off counts, later than the clock says: the limit has to pay for three answers."""
    field = Field(Policy.of(epsilon_per_day="3", epsilon_lifetime="100000"))
    for day in range(1, 31):
        field.off(DAY - QUARTER - 30, error=0 if battery else NOW - field.true - DAY)
        field.run(QUARTER // 3, every=QUARTER // 3)
        field.error = 0
        field.run(2 * QUARTER // 3, every=QUARTER // 3)
        assert len(field.answers) >= day - 1


def test_status_says_that_the_clock_was_behind_and_the_next_period_is_true():
    field = Field(FOUR_A_DAY)
    assert field.device.status().clock.note == ""
    field.off(10 * DAY, error=-9 * DAY)
    field.run(QUARTER)
    field.error = 0
    said = field.device.answer(field.ids[0], RECORD)
    clock = field.device.status().clock
    assert abs(clock.periods_behind - 9 * DAY) < HOUR
    assert "periods open" in clock.note
    assert "as if that time had not passed" in clock.note
    assert field.true < said.next_at <= field.true + HOUR
    assert field.device.status().spent.day_micro >= 1_000_000
    assert field.device.history()[-1].answered_at <= field.true


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([QUARTER, HOUR, 5 * HOUR, 26 * HOUR])),
        st.tuples(st.just("right"), st.just(0)),
        st.tuples(st.just("off"), st.sampled_from([0, HOUR, DAY, 12 * DAY])),
        st.tuples(st.just("off, stale"), st.sampled_from([0, HOUR, DAY, 12 * DAY])),
        st.tuples(st.just("off, 1970"), st.sampled_from([0, DAY])),
    ),
    min_size=4,
    max_size=14,
)


@given(STEPS)
@examples(60)
def test_no_clock_that_is_behind_and_set_right_passes_a_limit(steps):
    """A clock stops while off, starts in 1970 or goes on; the network sets it right, or not before the next start."""
    policy = Policy.of(epsilon_per_day="2", epsilon_per_window="5", window_days=7, epsilon_lifetime="100000")
    field = Field(policy, names=("one", "two"))
    for kind, seconds in steps:
        if kind == "run":
            field.run(seconds, every=max(QUARTER, seconds // 6))
        elif kind == "right":
            field.error = 0
        else:
            lost = {"off": field.error, "off, stale": field.error - seconds, "off, 1970": -field.true}[kind]
            field.off(seconds, error=lost)
        field.report()
    assert field.most_within(DAY) <= 2
    assert field.most_within(7 * DAY) <= 5


@given(st.lists(st.tuples(st.integers(-40, 40), st.sampled_from([60, HOUR, 9 * HOUR])), max_size=25))
@examples(60)
def test_within_one_boot_no_clock_passes_a_limit(steps):
    """Whatever the clock shows, ahead or behind: ages within one boot are those of the uptime."""
    field = Field(Policy.of(epsilon_per_day="2", epsilon_lifetime="100000"), names=("one", "two"))
    for days, seconds in steps:
        field.error = days * DAY
        field.report()
        field.true += seconds
    assert field.most_within(DAY) <= 2


def test_the_steps_of_a_device_that_wakes_every_hour_stay_few():
    track = None
    for hour in range(24 * 24):
        reading = Reading(NOW + hour * HOUR, f"boot {hour}", 30)
        track = follow(track, reading, reading.wall, hour, 7 * DAY)
        assert len(track.steps) <= 2 * 24 * 7 + 2
    assert Track.from_bytes(track.to_bytes()) == track


def test_steps_are_forgotten_after_the_longest_window():
    track = Track("a", 100, NOW, 0)
    track = follow(track, Reading(NOW + DAY, "a", 200), NOW + DAY, 1, DAY)
    assert track.steps == (Step(1, 0, NOW + 100, DAY - 100),)
    assert not follow(track, Reading(NOW + 2 * DAY, "a", 200 + DAY), NOW + 2 * DAY, 1, DAY).steps


@pytest.mark.parametrize("raw", [b"", b"\xc0", b"\x90", b"\x91\x01", b"\xff"])
def test_damaged_bytes_are_no_track(raw):
    assert Track.from_bytes(raw) is None


def test_jumps_of_less_than_a_minute_do_not_add_up_within_a_boot():
    """The clock is a minute ahead and behind in turns, and each call that is news is stored."""
    stored, uptime = Track("a", 100, NOW, 0), 100
    line, answered_at = 1, NOW
    for second in range(500):
        uptime += 1
        wall = stored.time + (-70 if second % 2 else 59)
        track = follow(stored, Reading(wall, "a", uptime), wall, line, DAY)
        age = track.time - track.date(line, answered_at, DAY)
        assert age <= uptime - 100 + 60 + 1
        stored = track if track.is_news(stored) else stored


def test_gains_below_a_minute_are_steps_once_they_sum_to_a_minute_in_a_boot():
    track = Track("a", 100, NOW, 0)
    for _ in range(3):
        passed = track.uptime + 1
        track = follow(track, Reading(0, "a", passed), track.time + 26, 5, DAY)
    assert [step.seconds for step in track.steps] == [25]
    assert (track.gained, track.time) == (50, NOW + 78)
    fresh = follow(track, Reading(0, "b", 10), track.time + 60, 5, DAY)
    assert (fresh.gained, len(fresh.steps)) == (50, 1)


def test_a_reset_keeps_the_steps_of_the_clock(tmp_path):
    publisher = Publisher()
    wall, up = [NOW + 5 * DAY], [60]  # 15 days behind
    clocks = {"clock": lambda: wall[0], "uptime": lambda: ("boot", up[0])}
    policy = Policy.of(epsilon_per_day="4", epsilon_lifetime="100")

    def answers(device, campaign):
        count = 0
        for _ in range(6):
            with suppress(PolicyError):
                count += not device.answer(campaign, RECORD).repeated
            wall[0] += HOUR
            up[0] += HOUR
        return count

    raw = publisher.campaign(name="pumps", time_precision=HOUR, lifetime=3_000 * DAY)
    with Device.provision(tmp_path / "s", publisher.root(), policy=policy, **clocks) as device:
        assert answers(device, device.enrol(raw).id) == 4
        wall[0] += 15 * DAY
        with pytest.raises(PolicyError):
            device.answer(device.enrol(raw).id, RECORD)
    for _ in range(2):  # the second reset reads what the first one wrote
        Device.reset(tmp_path / "s", publisher.root(), policy=policy, clock=clocks["clock"])
    more = Policy.of(epsilon_per_day="4", epsilon_lifetime="900")
    with Device.open(tmp_path / "s", publisher.root(), policy=more, **clocks) as device:
        campaign = device.enrol(raw).id
        assert device.status().spent.day_micro == 4_000_000
        assert answers(device, campaign) == 0


def test_status_shows_the_window_of_thirty_days_although_it_has_no_limit():
    field = Field(FOUR_A_DAY)
    field.off(60 * DAY, error=-40 * DAY)
    field.run(4 * HOUR)
    field.error = 0
    field.run(2 * DAY)
    assert field.device.status().spent.window_micro == 1_000_000 * len(field.answers)
