"""Lives of a device with losses and resets: what its ledger says is compared with a list of all that left it.

An owner, a publisher, a clock, a disk and whoever copies files act at random, and an outside book (:class:`Life`) notes
each report, summary and encrypted message that leaves the device, by a return value or in a file. After every act the
ledger must say the same:

- one answer per campaign and period, whatever made it; no answers of one name for periods that overlap; one per series;
- the lines of the ledger are the answers that left, at their costs, and those that a killed act booked;
- what the ledger counts in all, of ε and of δ, never falls, and is at least the cost of everything that ever left;
- it is never more than the largest lifetime that the owner ever allowed, nor more than a limit per day or per window
  within any true day or window (counted where the clock was never ahead), and no period was answered before its time;
- no provisioning file is taken twice; on another machine nothing is answered.

What a device can not know is left out, and nothing else:

1. *An image.* The whole folder is put back on its machine: what left since the image was made is struck from the book,
   with the provisioning files used since. Two files of one moment that are put back while the device does not run are
   an image too, so between two starts only one file is lost, rots or is put back.
2. *A ledger that is lost.* If the state file at a reset is none that the device has left there, or an older copy, then
   the answers that it lacks stay in the book for the sums, for the lifetime and for the series. They do not count for
   periods and for limits per day and window: the owner has allowed more after a reset that says so (decision 18).
3. *A copy in use on the same machine*, in another folder. Both answer; the reports of a device then have the same ids.
4. *The marker that its owner removes* because the reset says so: the owner allows the largest lifetime again, and gives
   no provisioning file that was used.
5. *A wrong clock in a series.* After a reset a campaign of a series is asked while the clock is right (decision 60).
6. *An opt-out*, where the marker is lost or older too, or a kill came before the marker's note and no opening after it.
   An older state then takes part again. The book does not look for this; it is tested apart.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from operator import ge
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
from support.failures import reason
from support.killed import killed_before, left_before_death
from support.masked import TERMS, book_of, masked_payload
from support.nodes import NODE_KEYS
from support.publisher import DAY, NOW, Publisher
from support.reports import records_in
from support.sources import Source

import edge_sdk.opening
import edge_sdk.storage.database
import edge_sdk.storage.secret
import edge_sdk.timekeeping
from edge_sdk import Device, Node
from edge_sdk.storage.database import State
from edge_sdk.storage.ledger import Ledger, Lines
from edge_sdk.sync import sync
from edge_sdk.timekeeping import Timekeeper
from protocol.documents.campaign import DISCRETE, Series
from protocol.documents.masked_terms import DILUTED
from protocol.documents.provisioning import Provisioning, build_provisioning
from protocol.errors import HearsayError
from protocol.masked.message import read_message
from protocol.nodes.summary import read_summaries, read_summary

HOUR = 3_600
RECORD = {"odor": "n", "width": 3.2, "label": "e"}
ID_BYTES = 10
FILES = ("state.db", "state.db-journal", "highest", "installed", "policy.toml", "fetched.json")
DAILY, WEEKLY = 2, 6
"""The owner's limits on ε per day and per window of seven days."""
SLACK = 900
"""Seconds of a window that steps of the clock below a minute may hide."""
KINDS = ("device", "fleet", "device", "fleet", "node", "party")


class Terms(NamedTuple):
    """What the outside book knows of a campaign."""

    name: str
    seconds: int
    micro: int
    pico: int
    series: str


@dataclass
class Answer:
    """One answer: a line of the ledger, and its bytes once they have left the device.

    Attributes:
        at: the true time at which it was made.
        lost: whether a reset could not know of it.
    """

    campaign: bytes
    period: int
    at: int
    raw: bytes | None
    lost: bool = False

    @property
    def key(self):
        return self.campaign, self.period


class Outside(Source):
    """A server. What is sent to it has left the device."""

    def __init__(self, life):
        super().__init__()
        self.life = life

    def send(self, place, path):
        super().send(place, path)
        self.life.leave_in_file(Path(path).read_bytes())


def newest_line(place):
    """Number and seal of the newest line of a state's ledger; None if the file holds no ledger."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)) as file:
        return file.execute("SELECT number, seal FROM ledger ORDER BY number DESC LIMIT 1").fetchone()
    return None


class Life:
    """A device, its surroundings, and the outside book. ``honest``: the clock is never ahead."""

    def __init__(self, folder, seed, done):
        self.draw, self.seed, self.done = random.Random(seed), seed, done
        self.kind, self.honest = KINDS[seed % len(KINDS)], seed % 4 < 2
        self.folder, self.home = folder, folder / "state"
        self.home.mkdir(parents=True)
        self.drawn, self.branch, self.tell, self.killed, self.just_reset = 0, 0, None, False, False
        self.trace, self.own, self.begins = [], b"", {}
        self.true, self.wall, self.boot, self.up, self.machine = NOW, NOW, 1, 100, b"m" * 32
        self.publisher, self.versions, self.terms, self.asked = Publisher(now=NOW), Counter(), {}, []
        self.answers: list[Answer] = []
        self.used, self.files, self.was_reset = set(), 0, False
        self.contents, self.backups, self.images = {}, [], []
        self.allowed = self.counted = 0, 0
        self.server = Outside(self)
        self.device = None
        self.allow(self.draw.randrange(20, 90), 5)
        options = {"enrolment": self.file(self.next_file())} if self.kind == "fleet" else {}
        self.used |= set(range(1, self.files + 1))
        self.device = self.type.provision(
            self.home, Publisher().root(lifetime=9_000 * DAY), **self.options(), **options
        )
        for _ in range(4):
            self.sign()
        self.compare()

    @property
    def type(self):
        return Node if self.kind in ("node", "party") else Device

    def options(self):
        return {
            "clock": lambda: max(0, self.wall),
            "uptime": lambda: (f"boot {self.boot}", self.up),
            "entropy": self.entropy,
            "machine": lambda: self.machine,
        }

    def entropy(self, count):
        """Different at every call, also in a child that is killed; the same in every run."""
        self.drawn += 1
        return hashlib.shake_256(b"%d %d %d" % (self.seed, self.branch, self.drawn)).digest(count)

    def note(self, what):
        self.done[what] += 1

    # The outside book

    def leave(self, campaign, raw):
        """An answer has left the device."""
        if self.tell is not None:
            self.tell((campaign, raw))
            return
        period = {
            "node": lambda: read_summary(raw)[1].period,
            "party": lambda: read_message(raw)[1].period,
        }.get(self.kind, lambda: int.from_bytes(raw[ID_BYTES : ID_BYTES + 4]))()
        if any(answer.raw == raw for answer in self.answers):
            return
        found = self.known().get((campaign, period)) or self.book(campaign, period)
        assert found.raw is None, "a period was answered twice"
        found.raw = raw

    def book(self, campaign, period):
        """A new answer. Its period must be free."""
        terms = self.terms[campaign]
        begin, end = period * terms.seconds, (period + 1) * terms.seconds
        assert begin <= self.true or not self.honest, "a period was answered before its time"
        for other in self.known().values():
            had = self.terms[other.campaign]
            free = (
                had.name != terms.name or end <= other.period * had.seconds or (other.period + 1) * had.seconds <= begin
            )
            assert free, f"a period of {terms.name} was answered twice"
        if terms.series:
            assert all(self.terms[other.campaign].series != terms.series for other in self.answers), "a second answer"
        self.answers.append(Answer(campaign, period, self.true, None))
        self.note("answer")
        return self.answers[-1]

    def known(self):
        return {answer.key: answer for answer in self.answers if not answer.lost}

    def leave_in_file(self, content):
        if self.kind in ("node", "party"):
            for piece in read_summaries(content, *(("masked",) if self.kind == "party" else ())):
                assert piece.reason is None
                read = read_message if self.kind == "party" else read_summary
                self.leave(read(piece.envelope)[1].campaign, piece.envelope)
            return
        for campaign, raw in records_in(content):
            self.leave(campaign, raw)

    def compare(self):
        """The ledger against the book."""
        lines, ledger = self.device.history(), self.device._reporting.ledger
        paid = {(line.id, line.period): (line.epsilon_micro, line.delta_pico) for line in lines if line.id}
        assert len(paid) == sum(bool(line.id) for line in lines), "two lines for one period"
        for key in paid.keys() - self.known().keys():
            kept = [answer for answer in self.answers if answer.key == key]
            if self.just_reset and kept:
                kept[-1].lost = False
            else:
                assert self.killed, "the ledger has a line that nobody asked for"
                self.book(*key)
        self.killed = self.just_reset = False
        known = self.known()
        assert known.keys() <= paid.keys(), "the ledger has forgotten an answer"
        for (campaign, _), cost in paid.items():
            assert cost == self.terms[campaign][2:4]
        spent = ledger.spent_micro(), ledger.deltas.spent_pico()
        assert all(map(ge, spent, self.counted)), "the ledger counts less than before"
        self.counted = spent
        assert spent == tuple(sum(line[place] for line in lines) for place in (6, 8))
        for place, total in enumerate(self.cost(self.answers)):
            assert total <= spent[place], "more has left than is counted"
            assert total <= self.allowed[place], "more has left than was ever allowed"
        if self.honest:
            self.check_windows(known)
        if not self.was_reset:
            assert spent == self.cost(known.values())
        self.contents[self.digest()] = list(known.values())

    def cost(self, answers):
        terms = [self.terms[answer.campaign] for answer in answers]
        return sum(each.micro for each in terms), sum(each.pico for each in terms)

    def check_windows(self, known):
        for seconds, limit in ((DAY, DAILY), (7 * DAY, WEEKLY)):
            recent = [answer for answer in known.values() if self.true - answer.at < seconds - SLACK]
            assert self.cost(recent)[0] <= limit * 1_000_000, "a limit of the owner was exceeded"

    def digest(self):
        place = self.home / "state.db"
        return hashlib.sha256(place.read_bytes()).digest() if place.exists() else b""

    # The owner

    def allow(self, epsilon, delta):
        """Write the policy: a lifetime of ``epsilon`` and of ``delta`` · 10⁻⁶."""
        self.allowed = max(self.allowed[0], epsilon * 1_000_000), max(self.allowed[1], delta * 1_000_000)
        text = (
            f'epsilon_lifetime = "{epsilon}"\nepsilon_per_day = "{DAILY}"\nepsilon_per_window = "{WEEKLY}"\n'
            f'window_days = 7\nepsilon_per_period = "4"\nallow_masked = true\ndelta_lifetime = "{delta}e-6"\n'
        )
        (self.home / "policy.new").write_text(text)
        (self.home / "policy.new").rename(self.home / "policy.toml")

    def change_policy(self):
        largest = self.allowed[0] // 1_000_000
        self.allow(self.draw.randrange(1, largest + 20), self.draw.randrange(1, 20))

    def next_file(self):
        self.files += 1
        return self.files

    @staticmethod
    def file(number):
        return build_provisioning(Provisioning("pumps", f"pump {number}", bytes([number % 256, number // 256]) * 16))

    def out_and_in(self):
        self.device.disable()
        self.take_part()

    def take_part(self):
        """The owner of a closed fleet's device tries an old file first."""
        if self.kind == "fleet":
            for used in sorted(self.used)[-3:]:
                assert reason(self.device.enable, self.file(used)) in ("enrolment_used", "state_damaged")
            fresh = self.next_file()
            if reason(self.device.enable, self.file(fresh)) is None:
                self.used.add(fresh)
            else:
                self.device.enable(leave_fleet=True)
        else:
            self.device.enable()

    def reset(self):
        """The owner resets the device, and allows more."""
        self.close()
        known = self.contents.get(self.digest(), ()) if not self.hot() else ()
        for answer in self.answers:
            answer.lost = answer.lost or not any(answer is other for other in known)
        if not (self.home / "policy.toml").exists() or self.draw.random() < 0.5:
            self.change_policy()
        root = Publisher().root(lifetime=9_000 * DAY)
        options = {name: value for name, value in self.options().items() if name != "uptime"}
        if self.kind == "fleet":
            for used in sorted(self.used)[-3:]:
                found = reason(self.type.reset, self.home, root, enrolment=self.file(used), **options)
                assert found in ("enrolment_used", "state_damaged"), found
        fresh = self.next_file() if self.kind == "fleet" and self.draw.random() < 0.7 else 0

        def again(number):
            chosen = {"enrolment": self.file(number)} if number else {"leave_fleet": True}
            self.type.reset(self.home, root, **options, **chosen)

        if self.draw.random() < 0.3:
            self.kill(lambda: again(fresh), self.draw.randrange(1, 200), opens=False)
            fresh = fresh and self.next_file()
        if reason(again, fresh) is not None:
            # The marker or the policy is damaged: the owner does what the message says.
            self.allow(self.allowed[0] // 1_000_000, self.allowed[1] // 1_000_000)
            (self.home / "installed").unlink(missing_ok=True)
            self.used.clear()
            again(fresh)
        self.used |= {fresh} - {0}
        self.was_reset = self.just_reset = True
        if self.backups and self.draw.random() < 0.5:
            self.put_back_the_state_before_it_is_opened()
        self.open()
        status = self.device.status()
        counted = status.spent_micro, status.delta_spent_pico
        assert all(map(ge, counted, self.cost(self.answers))), "a reset counts less than has left"
        self.allowed = tuple(map(max, self.allowed, counted))
        self.allow(*(limit // 1_000_000 + self.draw.randrange(1, 30) for limit in self.allowed))
        for _ in range(3):
            self.sign()

    def put_back_the_state_before_it_is_opened(self):
        """After a reset an older state is put in the place of the new one, which no program has opened."""
        place = self.home / "state.db"
        new, line = place.read_bytes(), newest_line(place)
        self.put(self.draw.choice(self.backups), place.name)
        if newest_line(place) != line:  # after two resets alike, in one second, no line is missing from a copy
            assert reason(self.open_only) == "state_lost", "a reset was undone"
            self.note("undone")
        place.write_bytes(new)

    # The publisher

    def sign(self):
        """A new version of one of the publisher's campaigns."""
        self.publisher.now = self.true
        versions = 9_000 * DAY
        if self.kind == "node":
            name, pico, micro, seconds, series = "clinics", 0, 2_000_000, DAY, None
            raw = self.publisher.node_campaign(version=self.next_version(name), lifetime=versions)
        elif self.kind == "party":
            name, pico, micro, seconds, series = "wards", 2_000_000, 2_000_000, DAY, None
            terms = TERMS._replace(noise=DILUTED, delta_pico=1_000_000)
            payload = masked_payload(self.publisher, DISCRETE, masked=terms, name=name, version=self.next_version(name))
            raw = self.publisher.sign("campaign", payload)
        else:
            name, seconds = self.draw.choice((("hours", HOUR), ("days", DAY), ("weeks", 7 * DAY), ("once", DAY)))
            called = self.draw.choice(("first", f"of {self.true // (20 * DAY)}"))
            series = Series(called, self.begins.setdefault(called, self.true)) if name == "once" else None
            pico, micro = 0, self.draw.choice((250_000, 1_000_000))
            raw = self.publisher.campaign(
                name=name, version=self.next_version(name), lifetime=versions, time_precision=seconds,
                epsilon_micro=micro, series=series,
            )  # fmt: skip
        if reason(self.device.enrol, raw) is None:
            (campaign,) = [each for each in self.device.campaigns() if each.header.name == name]
            self.terms[campaign.id] = Terms(name, seconds, micro, pico, series.name if series else "")

    def next_version(self, name):
        self.versions[name] += 1
        return self.versions[name]

    # The application

    def report(self):
        for campaign in self.device.campaigns():
            terms = self.terms.get(campaign.id)
            if terms.series and self.was_reset and self.wall != self.true:
                continue
            try:
                self.leave(campaign.id, self.answer(campaign))
            except HearsayError as error:
                self.note(error.reason)

    def answer(self, campaign):
        if self.kind == "node":
            return self.device.summarise(campaign.id, [RECORD] * 3).raw
        if self.kind == "party":
            own = NODE_KEYS[0]._replace(public=self.device.public_key)
            version = self.device.status().keys.get(campaign.id.hex(), 0) + 1
            if not self.device.status().keys or own.public != self.own:
                self.device.accept_keys(book_of(campaign, keys=[*NODE_KEYS, own], version=version))
                self.own = own.public
            return self.device.encrypt(campaign.id, [RECORD] * 3, "e").raw
        return self.device.report(campaign.id, RECORD)

    def drain(self):
        path = self.folder / f"out{self.draw.randrange(1 << 30)}"
        if reason(self.device.drain, path) is None and path.exists():
            self.leave_in_file(path.read_bytes())
            if self.draw.random() < 0.6:
                reason(self.device.ack, path)

    def send(self):
        sync(self.device, self.server, entropy=self.entropy)

    # Clocks and power

    def passes(self):
        seconds = self.draw.choice((30, HOUR, 7 * HOUR, DAY, 3 * DAY))
        self.true, self.wall, self.up = self.true + seconds, self.wall + seconds, self.up + seconds

    def live_on(self):
        self.passes()
        self.report()

    def clock_is_right(self):
        self.wall = self.true

    def clock_is_wrong(self):
        self.wall = min(self.wall, self.true - self.draw.choice((20, 50, 20 * 60, 5 * HOUR, 12 * DAY)))
        if not self.honest:
            self.wall = self.true + self.draw.choice((-1, 1)) * self.draw.choice((40, DAY, 90 * DAY))
        self.report()

    def power_cycle(self):
        self.close()
        off = self.draw.choice((10, HOUR, 2 * DAY))
        self.boot, self.up, self.true = self.boot + 1, 5, self.true + off + 5
        self.wall = self.draw.choice((self.wall, 0, self.true, self.wall + off + 5))
        self.open()

    # Files

    def close(self):
        if self.device is not None:
            self.device.close()
        self.device = None

    def open(self):
        """Open the device; where it is refused, try once more what a careless owner tries, and reset it."""
        self.close()
        if self.try_open():
            if self.device.status().disabled:  # a state of before an opt-out
                self.note("out")
                self.take_part()
            return
        if self.draw.random() < 0.4:
            name = self.draw.choice(("highest", "state.db-journal"))
            self.note("careless")
            if self.backups and self.draw.random() < 0.5:
                self.put(self.backups[-1], name)
            else:
                (self.home / name).unlink(missing_ok=True)
            if self.try_open():
                self.compare()
                return
        self.reset()

    def open_only(self):
        self.device = self.type.open(self.home, **self.options())

    def try_open(self):
        found = reason(self.open_only)
        assert found in (None, "state_lost", "state_damaged")
        self.note(found)
        return found is None

    def hot(self):
        """Whether the journal is not empty, so that the state file alone does not tell what is in it."""
        journal = self.home / "state.db-journal"
        return journal.exists() and journal.stat().st_size > 0

    def snapshot(self):
        return {path.relative_to(self.home): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}

    def back_up(self):
        self.backups = [*self.backups[-4:], self.snapshot()]

    def put(self, files, name):
        for path, content in files.items():
            if str(path) == name:
                target = self.home / path
                if self.draw.random() < 0.5:
                    target.unlink(missing_ok=True)
                target.write_bytes(content)

    def lose_a_file(self):
        self.close()
        (self.home / self.draw.choice(FILES)).unlink(missing_ok=True)
        self.open()
        if not (self.home / "policy.toml").exists():
            self.report()
            self.change_policy()

    def put_back_a_file(self):
        if self.backups:
            self.close()
            files = self.draw.choice(self.backups)
            self.put(files, self.draw.choice([str(path) for path in files if path.name != "policy.toml"]))
            self.open()

    def put_back_the_policy(self):
        if self.backups:
            self.put(self.draw.choice(self.backups), "policy.toml")

    def a_file_rots(self):
        self.close()
        path = self.home / self.draw.choice(FILES)
        if path.exists() and path.name != "policy.toml":
            raw = bytearray(path.read_bytes())
            if raw and self.draw.random() < 0.5:
                raw[self.draw.randrange(len(raw))] ^= 1 << self.draw.randrange(8)
            else:
                del raw[self.draw.randrange(len(raw) + 1) :]
            path.write_bytes(raw)
        self.open()

    def make_an_image(self):
        book = [replace(answer) for answer in self.answers]
        self.images = [(self.snapshot(), book, set(self.used), self.was_reset, self.allowed, self.machine)]

    def put_back_the_image(self):
        if not self.images:
            return
        self.close()
        files, answers, used, self.was_reset, allowed, self.machine = self.images.pop()
        shutil.rmtree(self.home)
        for path, content in files.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_bytes(content)
        self.answers, self.used, self.allowed, self.backups, self.counted = answers, used, allowed, [], (0, 0)
        self.contents = {self.digest(): list(self.known().values())}
        self.server.places.clear()
        self.note("image")
        self.open()

    def other_machine(self):
        """The folder on another machine, or under another id."""
        self.close()
        own, self.machine = self.machine, {b"m" * 32: b"o" * 32, b"o" * 32: b"m" * 32}[self.machine]
        found = reason(self.open_only)
        assert found in (None, "state_copied")
        if found is None:
            for campaign in self.device.campaigns():
                assert reason(self.answer, campaign) == "state_copied"
            self.close()
        self.device = None
        if self.draw.random() < 0.7:
            self.machine = own
            self.open()
        else:
            self.reset()

    def clone(self):
        """A copy in another folder of the same machine answers with the ids of the original."""
        self.close()
        elsewhere, home = self.folder / "clone", self.home
        shutil.copytree(self.home, elsewhere)
        said = []
        with self.type.open(elsewhere, **self.options()) as copy, self.type.open(home, **self.options()) as original:
            for self.device in (copy, original):
                said.append({})
                for campaign in self.device.campaigns():
                    if not self.terms[campaign.id].series:
                        try:
                            said[-1][campaign.id] = self.answer(campaign)
                        except HearsayError as error:
                            self.note(error.reason)
            self.device = None
        for campaign, raw in said[1].items():
            self.leave(campaign, raw)
            if (
                self.type is Device
                and raw[ID_BYTES : ID_BYTES + 4] == said[0].get(campaign, b"")[ID_BYTES : ID_BYTES + 4]
            ):
                assert raw[:ID_BYTES] == said[0][campaign][:ID_BYTES]
        shutil.rmtree(elsewhere)
        self.note("clone")
        self.open()

    def dies(self):
        """The process is killed in an act."""
        self.close()
        act = self.draw.choice((self.report, self.report, self.drain, self.send, self.out_and_in))
        if self.draw.random() < 0.3:
            self.passes()
        self.kill(act, self.draw.randrange(1, 200))
        if self.draw.random() < 0.3:
            self.back_up()
        self.killed = True
        self.open()
        if self.device.status().disabled:
            self.take_part()

    def kill(self, act, number, *, opens=True):
        """Run an act in a child that dies at its ``number``-th statement of SQL or change of the file system."""
        self.branch += 1

        def work(tell):
            self.tell = tell
            with suppress(HearsayError):
                if opens:
                    self.open_only()
                act()

        told, died = left_before_death(work, number, [(edge_sdk.storage.database, "execute")])
        self.files += 3  # numbers of provisioning files that the child may have used
        self.note("killed" if died else "not killed")
        for campaign, raw in told:
            self.leave(campaign, raw)

    ACTS: ClassVar = {
        "live_on": 40, "report": 10, "passes": 6, "sign": 6, "drain": 8, "send": 8, "change_policy": 3, "out_and_in": 3,
        "reset": 1, "clock_is_right": 8, "clock_is_wrong": 4, "power_cycle": 8, "back_up": 8, "lose_a_file": 3,
        "put_back_a_file": 6, "put_back_the_policy": 2, "a_file_rots": 2, "make_an_image": 1, "put_back_the_image": 1,
        "other_machine": 2, "clone": 1, "dies": 12,
    }  # fmt: skip

    def live(self, steps):
        for name in self.draw.choices(list(self.ACTS), weights=self.ACTS.values(), k=steps):
            self.trace.append(name)
            self.note(name)
            found = reason(getattr(self, name)) or reason(self.compare)
            assert found in (None, "state_damaged", "state_lost"), found
            if found is not None:
                self.reset()
                self.compare()
        status = self.device.status()
        assert (status.spent_micro, status.delta_spent_pico) == self.counted
        self.close()
        shutil.rmtree(self.folder)


def live_them(folder, seeds, steps):
    """Live the lives with these seeds; return what was done, by name."""
    done = Counter()
    for seed in seeds:
        life = Life(folder / str(seed), seed, done)
        try:
            life.live(steps)
        except BaseException:
            print(f"seed {seed}, {life.kind}, honest {life.honest}: {' '.join(life.trace)}")
            raise
    print(dict(done))
    return done


TENS = [range(first, first + 10) for first in range(6, 156, 10)]
SLOW = [pytest.mark.deep, pytest.mark.slow]


@pytest.mark.parametrize(
    ("seeds", "steps"),
    [(range(6), 30), *[pytest.param(seeds, 170, marks=SLOW if at >= 2 else SLOW[1:]) for at, seeds in enumerate(TENS)]],
)
def test_the_ledger_says_what_left_whatever_happens_to_the_files(tmp_path, seeds, steps):
    done = live_them(tmp_path, seeds, steps)
    assert done["answer"] > len(seeds) * steps // 10
    if steps == 170:
        assert min(done[name] for name in ("reset", "killed", "state_lost", "clone", "careless")) > 0


PLAIN_LINES, PLAIN_BEGIN = Ledger.lines, Ledger.begin_after_reset
MISTAKES = {
    "a reset subtracts the δ that an earlier reset counted": [
        (Ledger, "lines", lambda self: PLAIN_LINES(self)._replace(deltas=self.deltas.by_line()))
    ],
    "no lines kept": [(Ledger, "lines", lambda _: Lines((), ()))],
    "second answer": [(Ledger, "newest", lambda *_: None), (Ledger, "paid_until", lambda *_: 0)],
    "versions apart": [(Ledger, "paid_until", lambda *_: 0)],
    "a reset forgets when it was": [
        (Ledger, "begin_after_reset", lambda self, cost, now, old, _: PLAIN_BEGIN(self, cost, now, old, 0)),
        (Ledger, "delay_series", lambda *_: None),
    ],
    "older copies": [(State, "_check_age", lambda *_: ())],
    "a reset removes the file of the highest line": [
        (edge_sdk.opening, "replace_highest", lambda path, _: Path(path).unlink(missing_ok=True))
    ],
    "careless owners": [(State, "_note_lack", lambda _: None)],
    "only the marker knows which files were used": [
        (module, "used_here", lambda _: ()) for module in (edge_sdk.opening, edge_sdk.storage.secret)
    ],
    "any machine": [(State, "copied", property(lambda _: "", lambda *_: None))],
    "a reset counts today's lifetime": [(edge_sdk.opening, "_whole_budget", lambda lifetime, *_: lifetime)],
    "limits by the wall clock": [(Timekeeper, "track", lambda *_: None)],
    "each boot counts twice": [(edge_sdk.timekeeping, "earliest", lambda proof, floor, now: floor + 2 * now.uptime)],
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_book_finds_a_device_that_is_wrong(tmp_path, monkeypatch, mistake):
    for owner, name, wrong in mistake:
        monkeypatch.setattr(owner, name, wrong, raising=False)
    with pytest.raises(AssertionError):
        live_them(tmp_path, range(200, 260), 150)


def lived(folder, policy, **options):
    """A device that has answered once, and its publisher."""
    publisher = Publisher()
    folder.mkdir()
    (folder / "policy.toml").write_text(policy)
    with Device.provision(folder, publisher.root(), clock=lambda: NOW, **options) as device:
        device.report(device.enrol(publisher.campaign(time_precision=HOUR)).id, RECORD)
    return publisher


def test_an_older_copy_stays_refused_when_the_file_of_the_highest_line_is_lost_too(tmp_path):
    """The copy was refused; then its owner removed the file beside it, and the device answered a period twice."""
    folder = tmp_path / "state"
    publisher = lived(folder, "# defaults")
    state = folder / "state.db"
    older = state.read_bytes()
    later = {"clock": lambda: NOW + HOUR}
    with Device.open(folder, **later) as device:
        device.report("mushrooms", RECORD)
    newest = state.read_bytes()
    state.write_bytes(older)
    assert reason(Device.open, folder, **later) == "state_lost"
    (folder / "highest").unlink()
    assert reason(Device.open, folder, **later) == "state_lost"
    refused_copy = state.read_bytes()
    state.write_bytes(newest)  # the copy was a mistake
    with Device.open(folder, **later) as device:
        assert device.status().spent_micro == 2_000_000
    state.write_bytes(refused_copy)
    Device.reset(folder, publisher.root(), **later)
    with Device.open(folder, **later) as device:
        assert device.status().spent_micro == 100_000_000


@pytest.mark.parametrize("later", ["opted out", "back"])
def test_an_opt_out_is_not_undone_by_an_older_copy(tmp_path, later):
    """The copy lacks no line of the ledger. It took part again, with the reports that the opt-out had deleted."""
    folder = tmp_path / "state"
    lived(folder, "# defaults")
    older = (folder / "state.db").read_bytes()
    with Device.open(folder, clock=lambda: NOW) as device:
        device.disable()
        if later == "back":
            device.enable()
    newest = (folder / "state.db").read_bytes()
    (folder / "state.db").write_bytes(older)
    for _ in range(2):
        with Device.open(folder, clock=lambda: NOW + HOUR) as device:
            assert (device.status().disabled, device.status().spool.reports) == (True, 0)
            assert reason(device.report, "mushrooms", RECORD) == "disabled"
    (folder / "state.db").write_bytes(newest)
    with Device.open(folder, clock=lambda: NOW + HOUR) as device:
        assert device.status().disabled == (later == "opted out")
        device.enable()
        device.report("mushrooms", RECORD)


@pytest.mark.parametrize("lost", [(), ("state.db",), ("highest",)], ids=str)
def test_a_reset_is_not_undone_by_an_older_copy_wherever_it_is_killed(tmp_path, lost):
    """The copy is put back before any program opens the new state. It answered a period twice, with nothing counted.

    The reset is killed before every second change of the folder.
    """
    folder, kept = tmp_path / "state", tmp_path / "kept"
    publisher = lived(folder, "# defaults")
    older, later = (folder / "state.db").read_bytes(), {"clock": lambda: NOW + HOUR}
    with Device.open(folder, **later) as device:
        device.report("mushrooms", RECORD)
    newest = (folder / "state.db").read_bytes()
    for name in lost:
        (folder / name).unlink()
    shutil.copytree(folder, kept)
    opened, number, killed = set(), -len(lost), True
    while killed:
        number += 2
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        killed = killed_before(lambda: Device.reset(folder, publisher.root(), **later), number)
        present = (folder / "state.db").read_bytes() if (folder / "state.db").exists() else None
        (folder / "state.db").write_bytes(older)
        begun = (folder / "highest").exists()  # else two files were lost, and the reset has not written one
        assert reason(Device.open, folder, **later) == ("state_lost" if begun else None), number
        if present is not None and begun:
            (folder / "state.db").write_bytes(present)
            with Device.open(folder, **later) as device:
                opened.add(device.status().spent_micro)
            (folder / "state.db").write_bytes(newest)
            undone = reason(Device.open, folder, **later)
            assert (undone == "state_lost") == (present != newest), number
    assert begun
    assert 100_000_000 in opened


def test_an_older_copy_without_a_missing_line_learns_from_the_marker_which_files_were_used(tmp_path):
    """The state of before the second file is put back, and then the marker is lost: the second file was taken again."""
    folder = tmp_path / "state"
    files = [build_provisioning(Provisioning("pumps", "pump 1", bytes([number]) * 32)) for number in range(3)]
    lived(folder, "# defaults", enrolment=files[0])
    older = (folder / "state.db").read_bytes()
    with Device.open(folder, clock=lambda: NOW) as device:
        device.disable()
        device.enable(files[1])
    (folder / "state.db").write_bytes(older)
    Device.open(folder, clock=lambda: NOW).close()
    (folder / "installed").unlink()
    with Device.open(folder, clock=lambda: NOW) as device:
        device.disable()
        assert [reason(device.enable, file) for file in files] == ["enrolment_used", "enrolment_used", None]


@pytest.mark.parametrize("how", ["lost", "older"])
def test_a_marker_learns_from_the_state_what_it_no_longer_says(tmp_path, how):
    """The largest ε that was spent, and the provisioning files that were used."""
    folder = tmp_path / "state"
    files = [build_provisioning(Provisioning("pumps", "pump 1", bytes([number]) * 32)) for number in range(4)]
    publisher = lived(folder, 'epsilon_lifetime = "10"', enrolment=files[0])
    older = (folder / "installed").read_bytes()
    with Device.open(folder, clock=lambda: NOW + HOUR) as device:
        device.report("mushrooms", RECORD)
        device.disable()
        device.enable(files[1])
        device.disable()
    (folder / "policy.toml").write_text('epsilon_lifetime = "0.5"')
    (folder / "installed").unlink()
    if how == "older":
        (folder / "installed").write_bytes(older)
    with Device.open(folder, clock=lambda: NOW + HOUR) as device:
        for used in files[:2]:
            assert reason(device.enable, used) == "enrolment_used"
        device.enable(files[2])
    (folder / "state.db").unlink()
    for used in files[:3]:
        assert reason(Device.reset, folder, publisher.root(), enrolment=used) == "enrolment_used"
    assert Device.reset(folder, publisher.root(), enrolment=files[3]) >= 2_000_000
