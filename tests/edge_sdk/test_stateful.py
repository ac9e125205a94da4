"""Random sequences of actions by owner, publisher, clock and a full disk, compared with a simple model of the device.

The model states which results are allowed: the periods that may open, the spent ε, the waiting reports, the arrived
reports, the accepted versions. The disk is a small separate file system that really becomes full.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from functools import cache
from hashlib import shake_256
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.failures import failure
from support.publisher import DAY, NOW, Publisher, installed
from support.reports import records_in

from edge_sdk import Device
from edge_sdk.policy import Policy
from edge_sdk.storage.ledger import Ledger
from edge_sdk.storage.spool import Spool
from edge_sdk.timekeeping import Present
from protocol.documents import trust
from protocol.errors import HearsayError

if TYPE_CHECKING:
    from pathlib import Path

RECORD = {"odor": "n", "width": 3.2}
EPSILON = 1_000_000
LIFETIME = 15 * EPSILON
SPOOL = 6
SECONDS_OF_SLACK = 60
DRIFT = 5000
DISK_BYTES = 384 << 10
STEPS = 1700
DAYS = 20_000 * DAY
"""Seconds for which every document is valid."""


@cache
def document(kind, version, issued_at):
    publisher = Publisher(now=issued_at)
    return getattr(publisher, kind)(version=version, lifetime=DAYS)


class World(RuleBasedStateMachine):
    """A device, its surroundings, and the state of the model."""

    disk: Path
    disk_is_small = False
    done: ClassVar[Counter[str]] = Counter()
    refused: ClassVar[Counter[str]] = Counter()
    lives = 0

    def __init__(self):
        super().__init__()
        World.lives += 1
        self.folder = self.disk / str(World.lives)
        self.folder.mkdir()
        self.ballast = self.disk / "ballast"
        self.policy = Policy.of(epsilon_lifetime=str(LIFETIME // EPSILON), spool_reports=SPOOL)
        self.drawn = 0
        self.true = self.wall = NOW
        self.boot, self.uptime = 1, 0
        self.root, self.campaign_version, self.model_version = 1, 0, 0
        self.campaign, self.campaign_root = None, 0  # the newest document, and the root that it was accepted under
        self.answers = {}  # campaign id → newest period, its bytes
        self.made = []  # all reports, in order
        self.spool, self.dropped = [], 0  # numbers of the waiting reports, oldest first
        self.arrived = set()
        self.sealed = []  # path, number of the last report in it
        self.files = 0
        self.sure = NOW, 0, 0  # latest possible time when it was last confirmed, with boot and uptime of that moment
        self.proved = (
            None  # the same of the newest moment that documents prove; no answer and no clock has a part in it
        )
        self.leaps = 0  # in this boot
        self.steady = False  # clock and power are unchanged since the newest answer
        self.clock_was_wrong = False
        self.device = None

    @initialize(enrolled=st.integers(0, 3))
    def provision(self, enrolled):
        self._open()
        if enrolled:
            self.enrol(1)

    def _open(self):
        self.device = installed(
            Device,
            self.folder / "state",
            trust=document("root", 1, NOW),
            policy=self.policy,
            clock=lambda: max(0, self.wall),
            uptime=lambda: (f"boot {self.boot}", self.uptime),
            entropy=self._entropy,
            machine=lambda: None,
        )

    def _entropy(self, count):
        """Different every time, the same in every run."""
        self.drawn += 1
        return shake_256(b"%d" % self.drawn).digest(count)

    def _try(self, function, *arguments, refusals=()):
        """The result of a call; or its refusal, if the disk is full or the model allows the refusal."""
        World.done[function.__name__] += 1
        error = None
        try:
            return function(*arguments), None
        except HearsayError as caught:
            error = caught
        allowed = {*refusals, *(("disk_full",) if self.ballast.exists() else ())}
        assert error.reason in allowed, f"{error} where {sorted(allowed)} is allowed"
        World.refused[error.reason] += 1
        return None, error.reason

    # Documents ----------------------------------------------------------------------------------------

    def _take(self, kind, held, step):
        version = max(1, held + step)
        raw = document(kind, version, self.true if version > held else NOW)
        act = {"campaign": self.device.enrol, "model": self.device.install}[kind]
        found, refused = self._try(act, raw, refusals=("rollback", "equivocation") if version <= held else ())
        if refused is None:
            assert version >= held, "an older document was accepted"
            issued = self.true if version > held else NOW
            self._prove(issued)
            self._count_from(issued)
        return found, version if refused is None else held

    @rule(step=st.integers(-1, 1))
    def enrol(self, step):
        found, version = self._take("campaign", self.campaign_version, step)
        if found is not None and version > self.campaign_version:
            self.campaign, self.campaign_version, self.steady = found, version, False
            self.campaign_root = self.root
        assert [each.header.version for each in self.device.campaigns()] == [self.campaign_version][
            : self.campaign_version
        ]

    @rule(step=st.integers(-1, 1))
    def install(self, step):
        _, self.model_version = self._take("model", self.model_version, step)
        if self.model_version:
            assert self.device.model().model.header.version == self.model_version
            assert self.device.model().predict(RECORD) == "e"

    @rule(steps=st.permutations([1, 2, 3]), length=st.integers(1, 3))
    def rotate(self, steps, length):
        given = [self.root + step for step in steps[:length]]
        reached = self.root
        while reached + 1 in given:
            reached += 1
        raws = [document("root", version, NOW) for version in given]
        found, refused = self._try(self.device.rotate, raws, refusals=() if reached > self.root else ("bad_signature",))
        if refused is None:
            assert found == reached
            self.root = reached
            self._prove(NOW)
        assert self.device.status().root_version == self.root

    # Reports ------------------------------------------------------------------------------------------

    @rule()
    def report(self):
        if self.campaign is None:
            assert failure(self.device.report, bytes(32), RECORD).reason == "campaign_unknown"
            return
        spent = len(self.made) * EPSILON
        refusals = ["budget_exhausted"] if spent + EPSILON > LIFETIME else []
        lowered = self.root > self.campaign_root  # a new root may have lowered the time floor
        # A device that has used up the boot's one leap waits for the confirmed time, also where the clock is right.
        if self.wall < self.campaign.header.not_before or (lowered and self.clock_was_wrong):
            refusals.append("not_yet_valid")
        if self.clock_was_wrong:  # answers keep their age over steps of the clock, decision 55
            refusals.append("budget_paused")
        paid = max((period for period, _ in self.answers.values()), default=-1)
        if paid > self.answers.get(self.campaign.id, (-1, b""))[0]:  # by another version
            refusals.append("period_answered")
        if self.wall < self._proved_time():  # the device goes on from there after a restart
            self._prove(NOW)
        raw, refused = self._try(self.device.report, self.campaign.id, RECORD, "e", refusals=refusals)
        if refused:
            return
        period = int.from_bytes(raw[10:14])
        newest = self.answers.get(self.campaign.id)
        if newest is not None and period <= newest[0]:
            assert raw == newest[1], "a period was answered twice"
            assert not (self.steady and self.wall // DAY > newest[0]), "a day passed and opened no period"
            return
        assert period > paid, "two versions of a name answered one period"
        self.answers[self.campaign.id] = period, raw
        self.spool.append(len(self.made))
        self.made.append((self.campaign.id, raw))
        while len(self.spool) > SPOOL:
            self.spool.pop(0)
            self.dropped += 1
        self._judge_period(period)
        self._count_from((period + 1) * DAY - 1)
        self.steady = period == self.wall // DAY

    @rule(days=st.integers(1, 5))
    def days_pass(self, days):
        """Ordinary life."""
        for _ in range(days):
            self.time_passes(DAY)
            self.report()

    def _sure_time(self):
        """The latest possible time without a leap."""
        time, boot, uptime = self.sure
        if boot == self.boot:
            elapsed = self.uptime - uptime
            time += elapsed + elapsed // DRIFT + SECONDS_OF_SLACK
        return max(time, self._proved_time())

    def _proved_time(self):
        """The latest time that documents and the uptime since can prove (decision 103)."""
        if self.proved is None:
            return NOW
        time, boot, uptime = self.proved
        return time + self.uptime - (uptime if boot == self.boot else 0)  # a later boot began after that moment

    def _prove(self, issued):
        self.proved = max(issued, self._proved_time()), self.boot, self.uptime

    def _count_from(self, time):
        """A document confirms a time. An answer for a period confirms that the time is at most the period's end."""
        self.sure = max(time, self._sure_time()), self.boot, self.uptime

    def _judge_period(self, period):
        """A new period opens because time has passed, because a document confirms it, or by the boot's one leap."""
        assert len(self.made) * EPSILON <= LIFETIME
        if period > self._sure_time() // DAY:
            self.leaps += 1
        assert self.leaps <= 1, "one boot believed two leaps of the clock"

    @rule()
    def drain(self):
        path = self.folder / f"{self.files}.hsr"
        self.files += 1
        count, refused = self._try(self.device.drain, path)
        if path.exists():  # complete, even if the disk was too full to note it
            assert self._inside(path) == {self.made[number] for number in self.spool}
        if refused or not self.spool:
            assert refused or (count == 0 and not path.exists())
            return
        assert count == len(self.spool)
        assert self._inside(path) == {self.made[number] for number in self.spool}
        self.sealed.append((path, self.spool[-1]))

    @rule(days=st.integers(0, 3))
    def send(self, days):
        """Report once and seal all waiting reports; acknowledge them some days later."""
        self.days_pass(1)
        before = len(self.sealed)
        self.drain()
        self.days_pass(days)
        if len(self.sealed) > before:
            self.ack(0, gone=False)

    @staticmethod
    def _inside(path):
        return set(records_in(path.read_bytes()))

    @rule(which=st.integers(0, 2), gone=st.booleans())
    def ack(self, which, gone):
        if which >= len(self.sealed):
            refused = failure(self.device.ack, self.folder / "never.hsr").reason
            assert refused == "batch_unknown" or (refused == "disk_full" and self.ballast.exists())
            return
        path, through = self.sealed[-1 - which]
        if path.exists():
            self.arrived |= self._inside(path)
        if gone:
            path.unlink(missing_ok=True)
        count, refused = self._try(self.device.ack, path)
        if refused is None:
            released = [number for number in self.spool if number <= through]
            assert count == len(released)
            self.spool = self.spool[len(released) :]

    # Surroundings -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3600, DAY // 2, DAY, DAY + 7, 3 * DAY]))
    def time_passes(self, seconds):
        World.done["time passes"] += 1
        self.true, self.wall, self.uptime = self.true + seconds, self.wall + seconds, self.uptime + seconds

    @rule(days=st.integers(-400, 60), seconds=st.integers(0, DAY))
    def clock_is_set(self, days, seconds):
        World.done["clock is set"] += 1
        self.wall += days * DAY + seconds
        self.steady, self.clock_was_wrong = False, True

    @rule(days=st.integers(2, 30))
    def clock_leaps(self, days):
        """An attacker tries to get more than one answer a day."""
        self.clock_is_set(days, 0)
        self.report()

    @rule()
    def clock_is_right(self):
        World.done["clock is right"] += 1
        self.steady = self.steady and self.wall == self.true
        self.wall = self.true

    @rule(clock=st.sampled_from(["kept", "1970", "right"]))
    def power_cycle(self, clock):
        World.done["power cycle"] += 1
        self.boot, self.uptime, self.leaps, self.steady = self.boot + 1, 0, 0, False
        self.clock_was_wrong |= clock == "1970"
        self.wall = {"kept": self.wall, "1970": 0, "right": self.true}[clock]
        self._restart()

    @rule()
    def restart(self):
        World.done["restart"] += 1
        self._restart()

    def _restart(self):
        self.device.close()
        if failure(self._open):  # possible only because the disk is full
            assert self.ballast.exists()
            self.disk_has_room()
            self._open()
        self._compare()

    @precondition(lambda self: self.disk_is_small and not self.ballast.exists())
    @rule(left=st.sampled_from([0, 4096, 12_288, 40_960]))
    def disk_gets_full(self, left):
        World.done["disk gets full"] += 1
        free = os.statvfs(self.disk)
        self.ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))

    @precondition(lambda self: self.ballast.exists())
    @rule()
    def disk_has_room(self):
        World.done["disk has room"] += 1
        self.ballast.unlink(missing_ok=True)

    # What must hold -----------------------------------------------------------------------------------

    def _compare(self):
        status = self.device.status()
        assert status.spent_micro == len(self.made) * EPSILON <= LIFETIME
        assert status.spooled == len(self.spool)
        assert sum(status.spool.dropped.values()) == self.dropped
        assert [each.version for each in status.campaigns] == [self.campaign_version][: self.campaign_version]
        assert [each.version for each in status.models] == [self.model_version][: self.model_version]
        assert status.root_version == self.root
        history = [(line.id, line.period) for line in self.device.history()]
        assert history == [(campaign, int.from_bytes(raw[10:14])) for campaign, raw in self.made]

    def teardown(self):
        if self.device is None:
            return
        self.ballast.unlink(missing_ok=True)
        try:
            self._restart()
            left = self.folder / "left.hsr"
            self.device.drain(left)
            kept = self._inside(left) if left.exists() else set()
            assert len(set(self.made) - kept - self.arrived) <= self.dropped, "reports are gone that nobody counted"
        finally:
            self.device.close()
            subprocess.run(["rm", "-rf", self.folder], check=True)


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """A file system of a few hundred kilobytes. In CI there must be one; elsewhere the disk never gets full."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = False
    if sys.platform == "linux":
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", folder]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    if not mounted and os.environ.get("CI"):
        pytest.fail("no small file system can be mounted in CI")
    World.disk, World.disk_is_small = folder, mounted
    yield folder
    if mounted:
        subprocess.run(["umount", folder], check=True)


def live(lives, steps):
    chosen = settings(
        max_examples=lives, stateful_step_count=steps, phases=[Phase.generate], database=None, deadline=None
    )
    run_state_machine_as_test(World, settings=chosen)


@pytest.mark.parametrize(("lives", "least"), [(12, 400), pytest.param(35, STEPS, marks=pytest.mark.slow)])
def test_the_device_is_the_model(small_disk, lives, least):
    World.done.clear()
    World.refused.clear()
    live(lives=lives, steps=100)
    print(f"{World.done.total()} steps: {dict(World.done)}, refused: {dict(World.refused)}")
    assert World.done.total() >= least
    if least == STEPS:  # Few lives may by chance end before the limit for life: one full run had none that met it.
        assert World.refused["budget_exhausted"] > 0
        assert World.refused["disk_full"] > 0 or not World.disk_is_small


def _forget_uncounted(self, reason, through, lost):
    PLAIN_FORGET(self, reason, through, lost)
    self._state.remove_meta(f"dropped:{reason}")


PLAIN_FORGET, PLAIN_FORGET_THROUGH = Spool._forget, Spool.forget_through
MISTAKES = {
    "every call makes a new answer": (Ledger, "newest", lambda *_: None),
    "every time of the clock is accepted": (Present, "period_time", lambda self, _: (self.now, False)),
    "no period opens by time alone": (Present, "period_time", lambda *_: (NOW, False)),
    "reports beyond the limits are not counted": (Spool, "_forget", _forget_uncounted),
    "an acknowledgement deletes later reports": (
        Spool, "forget_through", lambda self, _: PLAIN_FORGET_THROUGH(self, 1 << 62),
    ),
    "older versions are accepted": (trust, "_check_floor", lambda *_: None),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_device_that_is_wrong_is_not_the_model(small_disk, monkeypatch, mistake):
    monkeypatch.setattr(*mistake)
    with pytest.raises((AssertionError, HearsayError, sqlite3.Error)):
        live(lives=60, steps=60)
