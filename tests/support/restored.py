"""Lives of ledgers whose files are lost, restored and copied one by one, with everything that left noted outside.

A life is a folder, its backups, and a note of all that left. :meth:`Life.step` does one thing by chance: an act of the
software, which may be killed at any change of the file system or statement of a database; or a misfortune: a file or
the whole folder is replaced by an old one, a file is lost, a copy elsewhere is used. What is refused is mended as the
documents say. :attr:`Life.differences` then has every difference between what left and what the ledger says.
"""

from __future__ import annotations

import shutil
from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile
from aggregator.nodes.dealer import dealer as dealer_room
from aggregator.nodes.dealer import issuing as releasing
from aggregator.nodes.dealer.dealer import Dealer
from aggregator.nodes.dealer.journal import Journal
from aggregator.operations.report_store import create_store, open_store
from aggregator.operations.retry import retry
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.workspace import create_workspace, open_workspace
from aggregator.reports.storage.manifest import fingerprint, read_manifest
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import keyid, read_envelope
from protocol.errors import HearsayError
from protocol.features import Categorical
from protocol.masked.keys import read_key_book
from protocol.masked.release import build_request
from protocol.schema import Label, build_schema
from support.fleets import records, sealed
from support.killed import left_before_death
from support.masked import MODULUS, TERMS, masked_payload
from support.nodes import NODE_KEYS, signed_list
from support.publisher import DAY, NOW, Publisher, key, small_schema
from support.reports import opened

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

MOST_BACKUPS = 8
KILLED, RESTORED = 0.12, 0.2
"""Shares of the acts that are killed, and of the steps that are misfortunes."""


class Life:
    """One folder, its backups and what left it.

    A subclass has the methods ``begin``, which makes the folder; ``act``, which chooses one act of the software and
    returns it as a function, whose result leaves; ``note``, which notes and compares what left; ``mend``, which does
    what the documents say after a refusal; and ``compare``, which compares all that left with the ledger.

    Args:
        root: a scratch folder.
        chance: all choices of the life.

    Attributes:
        home: the folder that is in use.
        differences: what left and what the ledger says, where these differ.
        refusals: number of refused acts, by reason.
        done: number of acts whose result left.
    """

    statements: tuple[tuple[Any, str], ...] = ()
    """Methods of which each call is a moment at which an act can be killed."""
    never_lost: tuple[str, ...] = ()
    """Beginnings of the names of files that are restored and never lost."""
    spared: tuple[str, ...] = ()
    """Names of files that are neither lost nor restored alone."""
    accidents: tuple[str, ...] = ()
    """Reasons of refusals after a misfortune."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.home = root / "home"
        self.elsewhere = root / "elsewhere"
        self.differences: list[str] = []
        self.refusals: dict[str, int] = {}
        self.done = 0
        self.backups: list[dict[str, bytes]] = []
        self.memories: list[Any] = []
        self.begin()
        self.back_up()

    def step(self) -> None:
        """One act or misfortune."""
        if self.chance.random() < RESTORED:
            self.misfortune()
            return
        reason = self.attempt(self.home)
        if reason is None:
            self.compare()
        elif reason in self.accidents and self.chance.random() < 0.5:
            self.mend()

    def attempt(self, home: Path) -> str | None:
        """Do an act, and note what left. The reason, if it is refused."""
        work = self.act(home)
        if self.chance.random() < KILLED:
            if home == self.home and self.chance.random() < 0.5:
                self.back_up()  # The state that the killed act would leave behind.
            told, _ = left_before_death(lambda tell: tell(_tried(work)), self.chance.randrange(1, 50), self.statements)
            if not told:
                return None
            (tried,) = told
        else:
            tried = _tried(work)
        left, reason = tried
        if reason is not None:
            self.refusals[reason] = self.refusals.get(reason, 0) + 1
            return reason
        self.done += 1
        self.note(left)
        return None

    def misfortune(self) -> None:
        """Back up, restore or lose a file, restore everything, or use a copy elsewhere."""
        what = self.chance.choice(["back up", "back up", "file", "file", "file", "everything", "copy", "lost"])
        if what == "back up":
            self.back_up()
        elif what == "file":
            backup = self.chance.choice([self.backups[-1], self.chance.choice(self.backups)])
            names = [name for name in sorted(backup) if name not in self.spared]
            self.write(self.chance.choice(names), backup)
        elif what == "everything":
            self.restore_everything()
        elif what == "copy":
            shutil.copytree(self.home, self.elsewhere)
            self.use_copy()
            shutil.rmtree(self.elsewhere, ignore_errors=True)
        else:
            names = sorted(self.files().keys() - set(self.spared))
            names = [name for name in names if not name.startswith(self.never_lost or "/")]
            if names:
                (self.home / self.chance.choice(names)).unlink()

    def use_copy(self) -> None:
        """Somebody tries an act on a copy of the folder."""
        self.attempt(self.elsewhere)

    def use_refused_copy(self) -> None:
        """A copy is refused; or its keeper gives the original up, and adopts the copy."""
        done = self.done
        self.attempt(self.elsewhere)
        self.differs("a copy worked", done, self.done)
        if self.chance.random() < 0.2:
            shutil.rmtree(self.home)
            self.elsewhere.rename(self.home)
            self.mend()

    def restore_everything(self) -> None:
        """Write a backup over the folder, or into the emptied folder."""
        backup = self.chance.choice(self.backups)
        if self.chance.random() < 0.5:
            for name in self.files():
                (self.home / name).unlink()
        for name in backup:
            self.write(name, backup)

    def write(self, name: str, backup: dict[str, bytes]) -> None:
        """Put an old file back: into the file that is there, or as a new one."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.chance.random() < 0.5:
            path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(backup[name])

    def files(self) -> dict[str, bytes]:
        """The files of the folder."""
        found = [path for path in self.home.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.home)): path.read_bytes() for path in found}

    def back_up(self) -> None:
        """Copy all files aside; of many backups some are kept."""
        self.backups.append(self.files())
        self.memories.append(self.memory())
        if len(self.backups) > MOST_BACKUPS:
            dropped = self.chance.randrange(1, MOST_BACKUPS)
            del self.backups[dropped], self.memories[dropped]

    def memory(self) -> Any:
        """What a backup of the present moment has to say once it is restored as a whole."""
        return None

    def differs(self, what: str, known: object, found: object) -> None:
        """Note a difference, if there is one."""
        if known != found:
            self.differences.append(what)


def _tried(work: Callable[[], Any]) -> tuple[Any, str | None]:
    """What an act lets out, or the reason of its refusal."""
    try:
        return work(), None
    except HearsayError as error:
        return None, error.reason


DEALER_KEY = key(91)
PUBLISHER = Publisher()
MASKED = PUBLISHER.sign(
    "campaign",
    masked_payload(PUBLISHER, "discrete", masked=TERMS._replace(dealer=DEALER_KEY.public, honest_micro=500_000)),
)
MASKED_CAMPAIGN = opened(MASKED)
PARTIES = ((0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4), (0, 2, 3), (0, 1, 2, 4), (1, 2, 3))
LISTS = [signed_list(PUBLISHER, [NODE_KEYS[i] for i in each], n) for n, each in enumerate(PARTIES * 5, 1)]
IDS = [keyid(each.public) for each in NODE_KEYS]
ROOT = PUBLISHER.root()
MACHINES = (b"1" * 32, b"2" * 32)


class DealerLife(Life):
    """A dealer of masked sums. Only what is known to the whole of the machine's past can not be noticed.

    Its keeper does what the documents say: before an adoption every other copy is given up.
    """

    statements = ((Journal, "_run"),)
    accidents = ("dealer_copied", "dealer_damaged", "not_a_dealer", "dealer_in_workspace")

    def begin(self) -> None:
        self.machine, self.clock = MACHINES[0], NOW
        self.books: dict[tuple[int, int], bytes] = {}
        self.serials: dict[int, tuple[bytes, int]] = {}
        self.sets: dict[int, tuple[int, bytes, bytes]] = {}
        self.tried: set[tuple[int, int, bytes]] = set()
        self.members = [(1, IDS[:4])]
        """Versions of key books, with their parties."""
        self.adoptions = 0
        dealer_room.machine_mark = lambda: self.machine
        releasing.release_elements = _quick_elements
        Dealer.create(self.home, modulus=MODULUS, entropy=lambda size: DEALER_KEY.seed[:size]).close()

    def act(self, home: Path) -> Callable[[], Any]:
        machine = self.machine if self.chance.random() < 0.97 else MACHINES[self.machine == MACHINES[0]]
        self.clock = min(self.clock + self.chance.choice([0, 0, DAY // 2, DAY]), NOW + 100 * DAY)
        kind = self.chance.choice(["setup", "rekey", "book", "release", "release", "release"])
        listed = LISTS[min(len(LISTS) - 1, len(self.books) + self.chance.randrange(3))]
        if not self.books:
            kind, listed = "setup", LISTS[0]
        period = self.clock // DAY - self.chance.choice([0, 0, 0, 1, 2, -1])
        version, members = self.chance.choice(self.members)
        parties = self.chance.sample(members, self.chance.randrange(2, len(members) + 1))
        self.tried.add((period, version, b"".join(sorted(parties))))
        clock = self.clock

        def work() -> Any:
            dealer_room.machine_mark = lambda: machine
            try:
                with Dealer.open(home, clock=lambda: clock) as dealer:
                    if kind == "book":
                        return "book", dealer.book(MASKED_CAMPAIGN.id)
                    if kind == "release":
                        request = build_request(MASKED_CAMPAIGN.id, period, version, sorted(parties))
                        return "set", period, version, b"".join(sorted(parties)), dealer.release(request).raw
                    made = dealer.setup if kind == "setup" else dealer.rekey
                    return "book", made(MASKED, listed, ROOT).raw
            finally:
                dealer_room.machine_mark = lambda: self.machine

        return work

    def note(self, left: Any) -> None:
        if left[0] == "set":
            _, period, *released = left
            self.differs(f"two sets of period {period}", self.sets.setdefault(period, tuple(released)), tuple(released))
            return
        book = read_key_book(left[1], MASKED_CAMPAIGN)
        self.members = [*self.members, (book.version, sorted(book.parties))][-4:]
        place = self.adoptions, book.version
        self.differs(f"two books of version {book.version}", self.books.setdefault(place, left[1]), left[1])
        for node, party in book.parties.items():
            found = node, party.u
            self.differs(f"serial number {party.serial} twice", self.serials.setdefault(party.serial, found), found)

    use_copy = Life.use_refused_copy

    def mend(self) -> None:
        """Bring back what is missing from the newest backup, the clock's machine stays, and adopt."""
        if self.chance.random() < 0.3:
            self.machine = self.chance.choice(MACHINES)
        self.adoptions += 1
        files = self.files()
        for name in self.backups[-1].keys() - files.keys():
            self.write(name, self.backups[-1])
        for backup in [{}, *reversed(self.backups)]:
            if backup:
                for name in self.files():
                    (self.home / name).unlink()
            for name in backup:
                self.write(name, backup)
            _, reason = _tried(lambda: Dealer.adopt(self.home, clock=lambda: self.clock).close())
            if reason is None:
                return
        self.differs("no backup can be adopted", reason, None)

    def compare(self) -> None:
        """Every set that left is in the journal, or its period is closed; and the journal has no other set."""
        served, reason = _tried(self._served)
        if reason is not None:
            return
        for each in served:
            journal = {row.period: (row.version, row.parties) for row in each.releases}
            for period, (version, parties, _) in self.sets.items():
                if period >= each.row.first_period or period in journal:
                    self.differs(f"period {period} in the journal", journal.get(period), (version, parties))
            for period, released in journal.items():
                self.differs(f"a set of {period} that nobody asked for", (period, *released) in self.tried, True)
            digests = {book.version: book.digest for book in each.books}
            for (adoptions, version), raw in self.books.items():
                if adoptions == self.adoptions:
                    digest = sha256(read_envelope(raw, "keys").payload).digest()
                    self.differs(f"book {version} in the journal", digests.get(version), digest)
        if not served:
            self.differs("the journal lacks the campaign", self.adoptions > 0 or not self.books, True)

    def _served(self) -> Any:
        with Dealer.open(self.home, clock=lambda: self.clock) as dealer:
            return dealer.served()


def _quick_elements(total: int, campaign: bytes, period: int, count: int, modulus: int) -> list[int]:
    """In place of long powers: numbers that depend on the same values."""
    text = b"%d %s %d" % (total, campaign.hex().encode(), period)
    return [int.from_bytes(sha256(text + bytes([place])).digest()) % modulus + 2 for place in range(count)]


PEOPLE = (b"Ann", b"Bob")
TOTAL_MICRO, DELTA = 1_000_000, Fraction(1, 1000)


class CuratorLife(Life):
    """A curator's budget. She says that nothing was paid since a copy was made only where that is true."""

    statements = ((BudgetFile, "_run"),)
    accidents = ("budget_copied", "budget_damaged", "file_not_found", "budget_exceeded", "budget_lost")

    def begin(self) -> None:
        self.path = self.home / "ward.hsb"
        self.home.mkdir(exist_ok=True)
        self.paid: dict[str, Cost] = {}
        self.tried: set[str] = set()
        with BudgetFile.create(
            self.path, name="ward", epsilon_micro=TOTAL_MICRO, delta=DELTA, concentrated_delta=Fraction(0)
        ) as made:
            made.assign(made.digest(PEOPLE))

    def act(self, home: Path) -> Callable[[], Any]:
        query = f"query {len(self.tried)}"
        self.tried.add(query)
        delta = Fraction(self.chance.choice([0, 0, 3]), 10**5)
        cost = Cost(self.chance.choice([1_000, 10_000, 100_000]), delta, None)
        assigns = self.chance.random() < 0.2

        def work() -> Any:
            with BudgetFile.open(home / "ward.hsb", clock=lambda: NOW) as budget:
                if assigns:
                    budget.assign(budget.digest(PEOPLE))
                    return None
                budget.spend(budget.digest(PEOPLE), query, cost)
                return query, cost

        return work

    def note(self, left: Any) -> None:
        if left is None:
            return
        self.paid[left[0]] = left[1]
        spent = sum(cost.epsilon_micro for cost in self.paid.values())
        self.differs(f"ε = {spent} millionths left", spent <= TOTAL_MICRO, True)
        self.differs("too much δ left", sum(cost.delta for cost in self.paid.values()) <= DELTA, True)

    use_copy = Life.use_refused_copy

    def mend(self) -> None:
        """Adopt what is there, or the newest backup; a budget of which nothing is left gives way to one of others."""
        if _tried(lambda: BudgetFile.open(self.path).close())[1] is not None:
            self.write("ward.hsb", next(each for each in reversed(self.backups) if "ward.hsb" in each))
            self.path.with_name("ward.hsb-journal").unlink(missing_ok=True)
        state, reason = _tried(self._state)
        if reason is not None or state.closed_at or state.left.epsilon_micro < 100_000:
            shutil.rmtree(self.home)
            self.backups, self.memories = [], []
            self.begin()
            self.back_up()
            return
        nothing_since = self.paid.keys() <= {each.query for each in state.queries}
        BudgetFile.adopt(self.path, nothing_since=nothing_since, clock=lambda: NOW).close()
        state = self._state()
        self.differs("the total counts as spent", bool(state.closed_at), not nothing_since)
        self.compare()

    def compare(self) -> None:
        """Every query that left is in the file, if anything can be paid from it; and the file has no other."""
        state, reason = _tried(self._original)
        if reason is not None or state.closed_at:
            return
        said = {each.query: each.cost for each in state.queries}
        for query, cost in self.paid.items():
            self.differs(f"{query} in the file", said.get(query), cost)
        self.differs("queries that nobody asked", said.keys() <= self.tried, True)

    def _state(self) -> Any:
        with BudgetFile.open(self.path, clock=lambda: NOW) as budget:
            return budget.state()

    def _original(self) -> Any:
        """The state of a file that pays; assigning what is assigned changes nothing else."""
        with BudgetFile.open(self.path, clock=lambda: NOW) as budget:
            budget.assign(budget.digest(PEOPLE))
            return budget.state()


SCHEMA = small_schema()
NAMES = ("mushrooms", "birds")


class WorkspaceLife(Life):
    """A publisher's workspace of which single files are restored. An old copy of the whole can not be noticed in it.

    Copies of documents are restored and never lost: a copy and an old history together are the whole memory of a
    version.
    """

    never_lost = ("published/",)
    accidents = ("workspace_damaged", "not_a_workspace")

    def begin(self) -> None:
        self.versions: dict[tuple[str, int], bytes] = {}
        self.clock = NOW
        create_workspace(self.home, name="workspace", now=NOW)

    def act(self, home: Path) -> Callable[[], Any]:
        name = self.chance.choice(NAMES)
        self.clock += 1
        now = self.clock
        parameters = CampaignParameters(name, 1_000_000, "direct")

        def payload(version: int, _: bytes | None) -> bytes:
            return build_campaign(SCHEMA, parameters, version, now)

        return lambda: open_workspace(home).publish("campaign", name, now, payload)

    def note(self, left: Any) -> None:
        payload = read_envelope(left, "campaign").payload
        header = parse_campaign(payload).header
        place, digest = (header.name, header.version), sha256(payload).digest()
        self.differs(f"two documents of {place}", self.versions.setdefault(place, digest), digest)

    def use_copy(self) -> None:
        """A copy of the whole can not be noticed: nobody uses it."""

    def restore_everything(self) -> None:
        """An old copy of the whole can not be noticed: nobody restores it."""

    def mend(self) -> None:
        files = self.files()
        for name in self.backups[-1]:
            if name not in files:
                self.write(name, self.backups[-1])

    def compare(self) -> None:
        """The history has every document that left, with its digest."""
        history, reason = _tried(self._history)
        if reason is not None:
            return
        said = {(item.name, item.version): item.digest for item in history}
        for place, digest in self.versions.items():
            self.differs(f"{place} in the history", said.get(place), digest)

    def _history(self) -> Any:
        with open_workspace(self.home).locked() as current:
            return current.history()


CELLS, PERIODS = 400, 4
REPORTS = build_campaign(
    build_schema(
        Label("label", ["a", "b"]), [Categorical("one", [str(number) for number in range(200)], substitute=0)]
    ),
    CampaignParameters("restored", 1_000_000, "direct", purpose="a test", lifetime_seconds=365 * DAY),
    1,
    NOW,
)
REPORTED = parse_campaign(REPORTS)
REPORTS_FILE = PUBLISHER.sign("campaign", REPORTS)
QUESTION = next(i for i, question in enumerate(REPORTED.questions) if question.mechanism.answers >= CELLS)
FIRST = REPORTED.period_at(NOW)
INPUTS = 12


class StoreLife(Life):
    """A store of reports, in which report i has cell i, so that a cell of 2 is a report that counts twice.

    A copy of the whole folder is as good as the store was: then the store says what it said. Manifest and lock file
    together are the memory of how new the store is, so in one life only one of them is lost or restored alone. The
    quarantine may be old or lost: it has pieces that are judged again, and no count follows from it.
    """

    accidents = ("store_damaged", "not_a_store", "other_campaign")

    def begin(self) -> None:
        self.inputs = self.home.with_name("inputs")
        self.inputs.mkdir(exist_ok=True)
        self.numbers: dict[Path, set[int]] = {}
        for number in range(INPUTS):
            path = self.inputs / f"{number}.hsr"
            chosen = sorted(self.chance.sample(range(CELLS), 12))
            path.write_bytes(sealed(REPORTED, _reports(chosen)))
            self.numbers[path] = set(chosen)
        self.spared = (self.chance.choice(["lock", "manifest.json"]),)
        self.day = 0
        self.surely: set[int] = set()
        """Reports that the store has to count; of the others in ``perhaps`` some may be counted."""
        self.perhaps: set[int] = set()
        self.said: dict[bytes, bytes] = {}
        create_store(self.home, REPORTS_FILE, buckets=1)

    def back_up(self) -> None:
        """The operator copies a store that works."""
        if self._tallied() is not None:
            super().back_up()

    def memory(self) -> tuple[set[int], set[int]]:
        return self.surely.copy(), self.perhaps.copy()

    def _tallied(self) -> Any:
        return _tried(lambda: open_store(self.home).tally())[0]

    def act(self, home: Path) -> Callable[[], Any]:
        kind = self.chance.choice(["ingest", "ingest", "ingest", "retry", "tally", "tally"])
        self.day = min(PERIODS, self.day + self.chance.choice([0] * 9 + [1]))
        now, paths = NOW + self.day * DAY, self.chance.sample(sorted(self.numbers), self.chance.randrange(1, 4))
        if home == self.home and kind != "tally":
            chosen = paths if kind == "ingest" else sorted(self.numbers)
            self.perhaps |= {n for path in chosen for n in self.numbers[path] if n % PERIODS <= self.day}
        day = self.day

        def work() -> Any:
            store = open_store(home)
            store.workers = 1
            if kind == "ingest":
                store.ingest(paths, now=now)
                return {n for path in paths for n in self.numbers[path] if n % PERIODS <= day}
            if kind == "retry":
                retry(store, now=now)
                return set()
            manifest = read_manifest(home)
            return fingerprint(manifest), tuple(store.tally().counts[QUESTION])

        return work

    def note(self, left: Any) -> None:
        if isinstance(left, set):
            self.surely |= left
            return
        manifest, cells = left
        found = sha256(repr(cells).encode()).digest()
        self.differs("two tallies of one manifest", self.said.setdefault(manifest, found), found)

    def use_copy(self) -> None:
        """A copy is another store: what it counts stays there."""
        surely = self.surely.copy()
        self.attempt(self.elsewhere)
        self.surely = surely

    def restore_everything(self) -> None:
        number = self.chance.randrange(len(self.backups))
        for name in self.files():
            (self.home / name).unlink()
        for name in self.backups[number]:
            self.write(name, self.backups[number])
        self.compare_with(*self.memories[number])

    def mend(self) -> None:
        """Move the store away and ingest the files again, or bring the newest backup back."""
        if self.chance.random() < 0.5:
            shutil.rmtree(self.home)
            create_store(self.home, REPORTS_FILE, buckets=1)
            self.surely, self.perhaps = set(), set()
            self.said = {}
        else:
            self.restore_everything()

    def compare_with(self, surely: set[int], perhaps: set[int]) -> None:
        self.surely, self.perhaps = surely.copy(), perhaps.copy()
        self.compare()

    def compare(self) -> None:
        """Every report of an ingested file is counted, once, and no other."""
        tally = self._tallied()
        if tally is None:
            return
        cells = tally.counts[QUESTION]
        self.differs("a report counts twice", set(cells) <= {0, 1}, True)
        here = {cell for cell, count in enumerate(cells) if count}
        self.differs(f"reports are lost: {sorted(self.surely - here)}", self.surely <= here, True)
        self.differs(f"reports come from nowhere: {sorted(here - self.perhaps)}", here <= self.perhaps, True)


def _reports(chosen: list[int]) -> Any:
    """Report i: cell i, period i mod 4, and a unique id for the cell's question."""
    numbers = np.array(chosen, np.int64)
    low, high = REPORTED.assignment.interval(QUESTION, 0)
    first_four = low + numbers * 7_919_777 % (high - low)
    ids = (first_four.astype(np.uint64) << np.uint64(32)) | (numbers.astype(np.uint64) * np.uint64(0x9E3779B1))
    return records(REPORTED, ids, FIRST + numbers % PERIODS, QUESTION, numbers)
