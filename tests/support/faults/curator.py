"""A curator's budget file in fault tests: its steps, what others have received from it, and what must hold.

ε released ≤ ε in the file; an assignment that was told stays; a budget is there with its whole total or not at all; and
the file continues to work. ``support.faults.harness`` breaks the acts.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from aggregator.common import databases
from aggregator.curator import budget as budget_file
from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile
from protocol.errors import HearsayError
from support.faults.harness import Harness, with_less_synchronisation, without_journal, without_synchronisation
from support.faults.lives import Scenario

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000
TOTAL_MICRO, QUERY_MICRO = 10_000_000, 500_000
COST = Cost(QUERY_MICRO, Fraction(0), None)
PEOPLE = (b"Ann", b"Bob")
OTHERS = (b"Ann", b"Bob", b"Cy")


class CuratorLife:
    """A curator and her budget file. The public methods without arguments are the steps that scenarios name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = root / "world"
        self.out = self.world / "out"
        self.path = self.world / "pilots.budget"
        self.budget: BudgetFile | None = None

    def _tell(self, what: str) -> None:
        """Note something that others have received. The note is out of reach of every fault."""
        with (self.root / "told").open("a") as file:
            file.write(what + "\n")

    def told(self) -> list[str]:
        path = self.root / "told"
        return path.read_text().split() if path.exists() else []

    def open(self) -> None:
        """A program starts; the first one makes the file."""
        self.close()
        if not self.path.exists():
            self.budget = BudgetFile.create(
                self.path, name="pilots", epsilon_micro=TOTAL_MICRO, random_bytes=os.urandom, clock=lambda: NOW
            )
            return
        self.budget = BudgetFile.open(self.path, clock=lambda: NOW)

    def close(self) -> None:
        if self.budget is not None:
            self.budget.close()
            self.budget = None

    def assign(self) -> None:
        self.budget.assign(self.budget.digest(PEOPLE), "all people")
        self._tell("assigned")

    def assign_others(self) -> None:
        self.budget.assign(self.budget.digest(OTHERS), "one more")
        self._tell("assigned-others")

    def spend(self) -> None:
        """Pay, and release a number."""
        self.budget.spend(self.budget.digest(PEOPLE), "a number", COST)
        self._tell("released")

    def die_in_change(self) -> None:
        """A process dies within a transaction larger than its page cache. Its journal must be rolled back."""
        self.close()
        child = os.fork()
        if child == 0:
            import signal
            import sqlite3

            connection = sqlite3.connect(self.path, isolation_level=None)
            for statement in (
                "PRAGMA journal_mode = TRUNCATE",
                "PRAGMA cache_size = 5",
                "BEGIN",
                "DELETE FROM queries",
            ):
                connection.execute(statement).fetchall()
            for number in range(20):
                connection.execute("INSERT INTO data VALUES (?, zeroblob(8000), '', 0, x'')", (number + 10,))
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        assert (self.world / "pilots.budget-journal").stat().st_size > 0


READY = ("open", "assign", "spend")
SCENARIOS = {
    "budget new": Scenario((), ("open",)),
    "budget assign": Scenario(("open",), ("open", "assign")),
    "budget spend": Scenario(READY, ("open", "spend")),
    "budget assign others": Scenario(READY, ("open", "assign_others")),
    "budget after half a change": Scenario((*READY, "die_in_change"), ("open", "spend")),
}


class CuratorHarness(Harness):
    """Breaks one scenario of a curator."""

    scenarios = SCENARIOS

    def _life(self) -> CuratorLife:
        return CuratorLife(self.root)

    @staticmethod
    def _warm_up() -> None:
        """No device is needed. Files that the harness wrote anew have another time."""
        databases.is_there = lambda *_: True

    def _is_open(self) -> bool:
        return self.life.budget is not None

    def _summary(self) -> dict[str, Any]:
        """What an act that was repeated after an error leaves, too. A query that fails may be paid all the same."""
        state = self.life.budget.state()
        return {"name": state.name, "total": state.total.epsilon_micro, "data": len(state.data)}

    def _seen_in(self, tree: dict[str, bytes | None]) -> set[Any]:
        del tree
        return set()

    def _examine(self, visible: set[Any]) -> list[str]:
        del visible
        problems = []
        if not self.life.path.exists() and self.scenario.prepare:
            return ["the file is gone"]
        try:
            self.life.open()
        except HearsayError as error:
            return [f"can not be opened: {error.reason}"]
        problems += self._promises("after the restart")
        before = self.life.budget.state().spent.epsilon_micro
        for step in self.scenario.act:
            getattr(self.life, step)()
        problems += self._promises("after the act was done once more")
        after = self.life.budget.state().spent.epsilon_micro
        if after != before + QUERY_MICRO * self.scenario.act.count("spend"):
            problems.append(f"{before} and then {after} are spent")
        if self._summary() != self.whole:
            problems.append(f"done once more, it is {self._summary()}, not {self.whole}")
        self.life.assign()
        self.life.spend()
        return problems

    def _promises(self, when: str) -> list[str]:
        told, state = self.life.told(), self.life.budget.state()
        problems = []
        if state.spent.epsilon_micro < QUERY_MICRO * told.count("released"):
            problems.append(f"{when}: more was released than the file counts")
        known = {each.digest for each in state.data}
        for word, people in (("assigned", PEOPLE), ("assigned-others", OTHERS)):
            if word in told and self.life.budget.digest(people) not in known:
                problems.append(f"{when}: an assignment is gone")
        return problems


def _released_before_paid() -> None:
    """The number leaves, and then is paid."""
    plain = CuratorLife.spend

    def spend(self: CuratorLife) -> None:
        self._tell("released")
        plain(self)

    CuratorLife.spend = spend


def _file_in_place() -> None:
    """A new file is written under its final name."""

    def write(path: Path, data: bytes, *, mode: int) -> None:
        del mode
        path.write_bytes(data[: len(data) // 2])
        with path.open("ab") as file:
            file.write(data[len(data) // 2 :])

    budget_file.write_output = write


MUTATIONS = {
    "budget without synchronisation": without_synchronisation,
    "budget with less synchronisation": with_less_synchronisation,
    "budget without journal": without_journal,
    "budget paid too late": _released_before_paid,
    "budget file in place": _file_in_place,
}
