"""A curator's budget file in fault tests: its steps, what others have received from it, and what must hold.

ε released ≤ ε in the file; an assignment that was told stays; a budget is there with its whole total or not at all; and
the file continues to work. ``support.faults.harness`` breaks the acts.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING

from aggregator.common import databases
from aggregator.curator import budget as budget_file
from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile
from support.faults.harness import (
    FolderLife,
    Mistake,
    Scenario,
    die_within,
    with_less_synchronisation,
    without_journal,
    without_synchronisation,
)

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000
TOTAL_MICRO, QUERY_MICRO = 10_000_000, 500_000
COST = Cost(QUERY_MICRO, Fraction(0), None)
PEOPLE = {"assigned": (b"Ann", b"Bob"), "assigned-others": (b"Ann", b"Bob", b"Cy")}


class CuratorLife(FolderLife):
    """A curator and her budget file."""

    @classmethod
    def warm_up(cls) -> None:
        """Files that the harness wrote anew have another time."""
        databases.is_there = lambda *_: True

    @property
    def path(self) -> Path:
        return self.world / "pilots.budget"

    def open(self) -> None:
        """A program starts; the first one makes the file."""
        self.close()
        if self.path.exists():
            self.tool = BudgetFile.open(self.path, clock=lambda: NOW)
            return
        self.tool = BudgetFile.create(
            self.path, name="pilots", epsilon_micro=TOTAL_MICRO, random_bytes=os.urandom, clock=lambda: NOW
        )

    def digest(self, word: str = "assigned") -> bytes:
        return self.tool.digest(PEOPLE[word])

    def assign(self, word: str = "assigned") -> None:
        self.tool.assign(self.digest(word), "people")
        self.tell(word)

    def assign_others(self) -> None:
        self.assign("assigned-others")

    def spend(self) -> None:
        """Pay, and release a number."""
        self.tool.spend(self.digest(), "a number", COST)
        self.tell("released")

    def die_in_change(self) -> None:
        """A process dies within a transaction larger than its page cache. Its journal must be rolled back."""
        self.close()
        die_within(self.path, "queries", "INSERT INTO data VALUES (?, zeroblob(8000), '', 0, x'')")

    def summary(self) -> dict[str, object]:
        """What an act that was repeated after an error leaves, too. A query that fails may be paid all the same."""
        state = self.tool.state()
        return {"name": state.name, "total": state.total.epsilon_micro, "data": len(state.data)}

    def examine(self, scenario, before, whole, visible) -> list[str]:
        if not self.path.exists() and scenario.prepare:
            return ["the file is gone"]
        problems = super().examine(scenario, before, whole, visible)
        if self.tool is not None:
            self.assign()
            self.spend()
        return problems

    def promises(self, when: str, scenario: Scenario) -> list[str]:
        told, state = self.told(), self.tool.state()
        spent = state.spent.epsilon_micro
        problems = []
        if when == "after the restart":
            self.spent = spent
        elif spent != self.spent + QUERY_MICRO * scenario.act.count("spend"):
            problems.append(f"{self.spent} and then {spent} are spent")
        if spent < QUERY_MICRO * told.count("released"):
            problems.append(f"{when}: more was released than the file counts")
        known = {each.digest for each in state.data}
        if any(word in told and self.digest(word) not in known for word in PEOPLE):
            problems.append(f"{when}: an assignment is gone")
        return problems


READY = ("open", "assign", "spend")
LIFE = CuratorLife
SCENARIOS = {
    "budget new": Scenario((), ("open",)),
    "budget assign": Scenario(("open",), ("open", "assign")),
    "budget spend": Scenario(READY, ("open", "spend")),
    "budget assign others": Scenario(READY, ("open", "assign_others")),
    "budget after half a change": Scenario((*READY, "die_in_change"), ("open", "spend")),
}


def _released_before_paid() -> None:
    """The number leaves, and then is paid."""
    plain = CuratorLife.spend

    def spend(self: CuratorLife) -> None:
        self.tell("released")
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
    "budget without synchronisation": Mistake("budget spend", "kill", without_synchronisation),
    "budget with less synchronisation": Mistake("budget spend", "kill", with_less_synchronisation),
    "budget without journal": Mistake("budget spend", "kill", without_journal),
    "budget paid too late": Mistake("budget spend", "kill", _released_before_paid),
    "budget file in place": Mistake("budget new", "kill", _file_in_place),
}
