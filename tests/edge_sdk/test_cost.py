"""The cost of a report does not grow with waiting reports, versions or ledger lines. Calls and steps are counted.

The sums that are kept in memory between reports are compared with the rows, under a clock that moves at random.
"""

from __future__ import annotations

import sys
from random import Random
from threading import Thread

import pytest
from support.failures import reason
from support.publisher import DAY, NOW

from edge_sdk import Device, Policy
from edge_sdk.storage.database import State
from edge_sdk.storage.rows import DOCUMENTS, Rows
from edge_sdk.storage.spool import Limits, Spool, SpoolRow
from protocol.documents.campaign import Series
from protocol.errors import StorageError

RECORD = {"odor": "n", "width": 2}
HOUR = 3_600
YEAR = 365 * DAY
WIDE = Policy.of(
    epsilon_lifetime="100000", epsilon_per_day="1000", epsilon_per_window="10000", window_days=30, spool_days=36_500
)


def work(device, action):
    """The number of Python calls and of steps of SQLite's virtual machine during an action."""
    counted = [0]

    def count(*_):
        counted[0] += 1

    device._state._connection.set_progress_handler(count, 1)
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: count() if event in ("call", "c_call") else None)
    try:
        action()
    finally:
        sys.setprofile(before)
        device._state._connection.set_progress_handler(None, 1)
    return counted[0]


def least_work(device, campaign, clock, step, tries=8):
    """The cost of a new answer. It varies a little, since the noise takes a random number of draws."""
    found = []
    for _ in range(tries):
        clock.now += step
        found.append(work(device, lambda: device.report(campaign.id, RECORD)))
    return min(found)


@pytest.fixture
def wide(publisher, clock):
    with Device.open(None, trust=publisher.root(), policy=WIDE, clock=clock) as device:
        yield device


@pytest.mark.parametrize("leap", [0, 5 * YEAR])
def test_neither_what_waits_nor_a_leap_of_years_makes_a_report_dearer(wide, publisher, clock, leap):
    if leap:
        campaign = wide.enrol(publisher.campaign(name="leapt", lifetime=20 * YEAR))
        clock.now += leap
        wide.report(campaign.id, RECORD)
        clock.now = NOW
    hourly = wide.enrol(publisher.campaign(lifetime=20 * YEAR, time_precision=HOUR))
    first = least_work(wide, hourly, clock, HOUR)
    for _ in range(700):
        clock.now += HOUR
        wide.report(hourly.id, RECORD)
    assert wide.status().spooled > 700
    assert least_work(wide, hourly, clock, HOUR) < 1.05 * first


def test_a_full_spool_drops_the_oldest_at_a_cost_that_does_not_depend_on_what_waits(publisher, clock):
    costs = []
    for limit in (20, 600):
        policy = WIDE._replace(spool=Limits(limit, 1_000_000, YEAR))
        with Device.open(None, trust=publisher.root(), policy=policy, clock=clock) as device:
            campaign = device.enrol(publisher.campaign(lifetime=20 * YEAR, time_precision=HOUR))
            for _ in range(limit + 5):
                clock.now += HOUR
                device.report(campaign.id, RECORD)
            costs.append(least_work(device, campaign, clock, HOUR))
            assert device.status().spooled == limit
            assert device.status().spool.dropped == {"spool_reports": 13}
    assert costs[1] < 1.05 * costs[0]


def test_versions_of_a_name_make_no_report_and_no_refusal_dearer(wide, publisher, clock):
    costs, refused = [], []
    for number in range(1, 121):
        campaign = wide.enrol(publisher.campaign(version=2 * number))
        if number in (2, 120):
            costs.append(least_work(wide, campaign, clock, DAY))
        clock.now += DAY
        wide.report(campaign.id, RECORD)
        if number in (2, 120):
            new = wide.enrol(publisher.campaign(version=2 * number + 1))
            assert reason(wide.report, new.id, RECORD) == "period_answered"
            refused.append(work(wide, lambda which=new.id: reason(wide.report, which, RECORD)))
    assert costs[1] < 1.05 * costs[0]
    assert refused[1] < 1.05 * refused[0]


def test_many_series_make_no_report_dearer(wide, publisher, clock):
    """A publisher may name one series after another, with long names."""
    costs = []
    for number in range(1, 121):
        campaign = wide.enrol(publisher.campaign(version=number, series=Series(f"{number} " + "x" * 1000, NOW)))
        clock.now += DAY
        wide.report(campaign.id, RECORD)
        if number in (2, 120):
            other = wide.enrol(publisher.campaign(name="other", version=number))
            costs.append(least_work(wide, other, clock, DAY))
    assert costs[1] < 1.05 * costs[0]


def test_what_is_remembered_of_a_window_is_what_the_lines_say(wide, publisher, clock):
    draw = Random(6)
    campaigns = [
        wide.enrol(publisher.campaign(name=f"name {number}", lifetime=20 * YEAR, time_precision=60 + number))
        for number in range(4)
    ]
    ledger = wide._reporting.ledger
    different = set()
    for _ in range(400):
        steps = (1, HOUR, 7 * HOUR, DAY, -HOUR, -DAY, 40 * DAY, -39 * DAY, YEAR // 3)
        clock.now = max(NOW, clock.now + draw.choice(steps))
        reason(wide.report, draw.choice(campaigns).id, RECORD)
        lines = wide.history()
        for seconds in (DAY, 30 * DAY):
            told = sum(line.epsilon_micro for line in lines if abs(line.answered_at - clock.now) < seconds)
            assert ledger.spent_around(clock.now, seconds) == told
            different.add(told)
        assert ledger.spent_micro() == sum(line.epsilon_micro for line in lines)
    assert len(different) > 10


def test_the_spool_drops_what_it_did_when_it_looked_at_every_row():
    """The rule: drop every row that is too old, or precedes one that is; then the oldest, by number and by bytes."""
    draw = Random(7)
    state = State(None)
    spool, limits = Spool(state), Limits(12, 400, 30 * DAY)
    model, dropped, now = [], dict.fromkeys(("spool_age", "spool_reports", "spool_bytes"), 0), NOW
    for line in range(1, 1200):
        now += draw.choice((HOUR, DAY, 4 * DAY, 11 * DAY, -HOUR, -DAY, -9 * DAY, 60 * DAY, -55 * DAY))
        sure = min(now, NOW + line * DAY)
        records = [bytes(18)] * draw.choice((1, 1, 1, 4))
        records[0] = bytes(draw.choice((18, 18, 150)))
        with state.transaction():
            state.run(
                "INSERT INTO ledger VALUES (?, 1, 1, 1, 1, 1, 1, x'00')", (line,)
            )  # the spool only asks for the number of the last
            spool.add(line, 1, records, now, sure, limits)
        model.append((line, len(records), now, len(b"".join(records))))
        old = max((row[0] for row in model[:-1] if row[2] < sure - limits.age_seconds), default=0)
        dropped["spool_age"] += sum(row[1] for row in model if row[0] <= old)
        model = [row for row in model if row[0] > old]
        for why, column, limit in (("spool_reports", 1, limits.reports), ("spool_bytes", 3, limits.size_bytes)):
            while len(model) > 1 and sum(row[column] for row in model) > limit:
                dropped[why] += model.pop(0)[1]
        held = spool.held()
        assert held.reports == sum(row[1] for row in model)
        assert held.size_bytes == sum(row[3] for row in model)
        assert held.oldest_at == min(row[2] for row in model)
        assert held.dropped == {why: count for why, count in dropped.items() if count}
        if draw.random() < 0.02:
            with state.transaction():
                spool.forget_through(draw.choice(model)[0])
                model = [row for row in model if row[0] > spool._released()]
    assert min(dropped.values()) > 20
    state.close()


def test_what_was_taken_back_is_not_remembered(wide, publisher, clock, monkeypatch):
    lost, other = (wide.enrol(publisher.campaign(name=name)) for name in ("lost", "other"))
    plain = State._commit

    def fail(self, connection):
        monkeypatch.setattr(State, "_commit", plain)
        raise StorageError("disk_full", "no room")

    wide.report(wide.enrol(publisher.campaign(name="before")).id, RECORD)
    monkeypatch.setattr(State, "_commit", fail)
    assert reason(wide.report, lost.id, RECORD) == "disk_full"
    assert not wide.answer(other.id, RECORD).repeated
    assert not wide.answer(lost.id, RECORD).repeated
    assert wide.status().spent_micro == 3_000_000


def test_devices_that_share_a_state_spend_one_budget(tmp_path, publisher, clock):
    policy = Policy.of(epsilon_per_day="4")
    with (
        Device.provision(tmp_path, trust=publisher.root(), policy=policy, clock=clock) as one,
        Device.open(tmp_path, policy=policy, clock=clock) as two,
    ):
        enrolled = [one.enrol(publisher.campaign(name=f"name {number}")) for number in range(6)]
        said = [reason((one, two)[n % 2].report, campaign.id, RECORD) for n, campaign in enumerate(enrolled)]
        assert said == [None] * 4 + ["budget_paused"] * 2
        assert one.report(enrolled[1].id, RECORD) == two.report(enrolled[1].id, RECORD)


def test_what_others_write_meanwhile_is_not_taken_for_damage(tmp_path, publisher, clock, monkeypatch):
    plain = Rows._count
    with (
        Device.provision(tmp_path, trust=publisher.root(), clock=clock) as one,
        Device.open(tmp_path, clock=clock) as two,
    ):
        raw = publisher.campaign()
        writer = Thread(target=lambda: two.report(two.enrol(raw).id, RECORD))

        def count(self):
            if self._table is DOCUMENTS and not writer.ident:
                writer.start()
                writer.join(0.3)
            return plain(self)

        monkeypatch.setattr(Rows, "_count", count)
        assert one.status().spent_micro == 0
        writer.join()
        assert one.status().spent_micro == 1_000_000


def test_a_row_of_the_spool_that_is_missing_is_noticed_by_the_next_report(wide, publisher, clock):
    campaign = wide.enrol(publisher.campaign())
    for _ in range(3):
        clock.now += DAY
        wide.report(campaign.id, RECORD)
    for number in (3, 1):
        (row,) = Rows(wide._state, wide._reporting.spool._rows._table).some("WHERE number = ?", (number,))
        wide._state.run("DELETE FROM spool WHERE number = ?", (number,))
        clock.now += DAY
        assert reason(wide.report, campaign.id, RECORD) == "state_damaged"
        wide._reporting.spool._rows.add(SpoolRow(*row))
    assert wide.report(campaign.id, RECORD)
