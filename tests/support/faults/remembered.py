"""The steps of a device of a campaign with memory in fault tests: reports, the kept answer and its cost are one change.

Besides what must hold for every device: once a report was made, the kept answer that it shows is in the state, is never
another one in the same stretch of periods, and the whole campaign is paid.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import edge_sdk.answering.reporting
from edge_sdk.storage.rows import KEPT
from protocol.documents.memory_terms import Memory
from protocol.errors import HearsayError
from support.faults.harness import Mistake, Scenario
from support.faults.lives import EPSILON_MICRO, READY, Life, documents
from support.publisher import Publisher

if TYPE_CHECKING:
    from edge_sdk.storage.database import State
    from support.faults.lives import Said

WHOLE_COST = 3 * EPSILON_MICRO


@cache
def _documents() -> dict[str, bytes]:
    kept = {"memory": Memory(2, 200, EPSILON_MICRO // 2)}
    return {
        **documents(),
        **{f"campaign {version}": Publisher().campaign(version=version, **kept) for version in (1, 2)},
    }


class RememberingLife(Life):
    """A device that keeps a noisy answer. Its first report pays for all."""

    cost_micro = 0

    @property
    def documents(self) -> dict[str, bytes]:
        return _documents()

    def _kept(self) -> dict[str, bytes]:
        return {key: value for key, value in self.device._state.all_meta().items() if key.startswith(KEPT)}

    def report(self) -> None:
        super().report()
        for key, value in self._kept().items():
            self.tell(f"{key.split()[1]} {value.hex()}", "remembered")

    def examine(self, scenario: Scenario, before: Any, whole: Any, visible: set[Said]) -> list[str]:
        problems = self._remembers() + super().examine(scenario, before, whole, visible)
        return problems + self._remembers()

    def _remembers(self) -> list[str]:
        try:
            self.open()
        except HearsayError as error:
            return [f"can not be opened: {error.reason}"]
        kept, paid = {key.split()[1]: value.hex() for key, value in self._kept().items()}, {}
        for line in self.device.history():
            paid[line.id.hex()] = paid.get(line.id.hex(), 0) + line.epsilon_micro
        problems = [f"paid {micro} for a whole campaign" for micro in paid.values() if micro != WHOLE_COST]
        if set(paid) != set(kept):
            problems.append("a report's kept answer is gone, or is there without a report")
        told = {tuple(line.split()) for line in self.told("remembered")}
        if any(kept.get(campaign) != value for campaign, value in told):
            problems.append("a kept answer was drawn again")
        return problems


LIFE = RememberingLife
SCENARIOS = {
    "memory report": Scenario(READY, ("open", "report")),
    "memory first report": Scenario(("open", "enrol"), ("open", "report")),
}


def _kept_apart() -> None:
    """The kept answer is stored after the report, in a transaction of its own."""
    reporting = edge_sdk.answering.reporting.Reporting
    plain = reporting.answer

    def answer(self: Any, campaign_id: bytes, making: Any) -> Any:
        state: State = making._state
        write, waiting = state.write_meta, []
        state.write_meta = lambda key, value: (
            waiting.append((key, value)) if key.startswith(KEPT) else write(key, value)
        )
        found = plain(self, campaign_id, making)
        del state.write_meta
        with state.transaction():
            for one in waiting:
                write(*one)
        return found

    reporting.answer = answer


MUTATIONS = {"memory kept apart": Mistake("memory first report", "kill", _kept_apart)}
