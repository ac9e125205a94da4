"""Two collectors in fault tests: what one does, what others have received from it, and what must hold.

One request, one answer and one total of a period, whatever was handed out before; no other set of reports leaves. The
harness writes files anew, so the check for copies, which looks at the file's inode, is off here. Randomness is fresh in
every process, so work that is done twice shows.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from aggregator.collectors import journal
from aggregator.collectors.collector import CollectorFolder
from protocol.errors import PolicyError
from support.collectors import LATER, PERIOD, ROOT, Two
from support.faults.harness import FolderLife, Mistake, Scenario, without_synchronisation

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = ("request", "answer", "total")


class CollectorLife(FolderLife):
    """Both folders in reach of faults. The files between the collectors are outside: they are what others have."""

    two: Two

    @classmethod
    def warm_up(cls) -> None:
        """Files that the harness wrote anew have another inode."""
        journal.Journal.check_original = lambda _self: None

    def open(self) -> None:
        """A program starts; the first one makes the folders and the reports."""
        fresh = not (self.world / "leader").exists()
        self.two = Two(self.world, make=fresh)
        self.tool = self
        if fresh:
            self.two.honest(range(3))
            self.two.honest(range(4), "more.hsr")

    def close(self) -> None:
        self.tool = None

    def _with(self, name: str, act: Callable[[CollectorFolder], object], out: str) -> None:
        with CollectorFolder.open(self.world / name, clock=lambda: LATER) as one:
            one.threads = 1
            act(one)
        self.tell(f"{out} {sha256((self.out / out).read_bytes()).hexdigest()}")

    def check(self, files: str = "in.hsr", out: str = "request") -> None:
        raw, path = self.two.raw, self.world / files
        self._with("leader", lambda one: one.check(raw, ROOT, PERIOD, [path], self.out / out), out)

    def answer(self) -> None:
        request, out = self.out / "request", self.out / "answer"
        self._with("helper", lambda one: one.answer(self.two.raw, ROOT, request, out), "answer")

    def finish(self) -> None:
        answer, out = self.out / "answer", self.out / "total"
        self._with("leader", lambda one: one.finish(self.two.raw, ROOT, answer, out), "total")

    def summary(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for name in ("leader", "helper"):
            with CollectorFolder.open(self.world / name, clock=lambda: LATER) as one:
                found[name] = [[row.period, row.reports, bool(row.total)] for row in one.periods()]
        return found

    def seen_in(self, tree: dict[str, bytes | None]) -> set[Any]:
        """Files in the folder ``out`` are whole, and others may have them."""
        found = {name: tree.get(str(self.out / name)) for name in FILES}
        return {(name, sha256(content).hexdigest()) for name, content in found.items() if content is not None}

    def examine(self, scenario, before, whole, visible) -> list[str]:
        for name, digest in visible:
            self.tell(f"{name} {digest}")
        return super().examine(scenario, before, whole, visible)

    def promises(self, when: str, scenario: Scenario) -> list[str]:
        names = [line.split()[0] for line in sorted(set(self.told()))]
        problems = [f"{when}: two different files: {name}" for name in FILES if names.count(name) > 1]
        if "request" in names and "check" in scenario.act:
            with suppress(PolicyError):
                leader = CollectorFolder.open(self.world / "leader", clock=lambda: LATER)
                with leader:
                    sent = leader.check(self.two.raw, ROOT, PERIOD, [self.world / "more.hsr"], self.root / "other")
                if sent.reports != 3:
                    problems.append(f"{when}: a second set was sent")
        return problems


LIFE = CollectorLife
SCENARIOS = {
    "collector check": Scenario(("open",), ("open", "check")),
    "collector answer": Scenario(("open", "check"), ("open", "answer")),
    "collector finish": Scenario(("open", "check", "answer"), ("open", "finish")),
}


def _handed_out_before_recorded() -> None:
    """A file leaves, and then the journal notes it."""
    record, hand_out = CollectorFolder._record, CollectorFolder._hand_out

    def early(self: CollectorFolder, row: Any) -> None:
        if self._out is not None and not row.total:
            hand_out(self, row, self._out)
        record(self, row)

    let_out = CollectorFolder._let_out

    def noted(self: CollectorFolder, *arguments: Any) -> Any:
        self._out = arguments[-1]
        return let_out(self, *arguments)

    CollectorFolder._out = None
    CollectorFolder._record, CollectorFolder._let_out = early, noted


def _noise_drawn_again() -> None:
    """A period that was answered is answered anew."""
    CollectorFolder._row = lambda _self, _task, _period: None


MUTATIONS = {
    "collector hands out too early": Mistake("collector answer", "kill", _handed_out_before_recorded),
    "collector draws noise again": Mistake("collector answer", "restart", _noise_drawn_again),
    "collector without synchronisation": Mistake("collector answer", "kill", without_synchronisation),
}
