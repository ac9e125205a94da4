"""A store of nodes' summaries in fault tests: what was told as taken in stays; an ingest is completed by repetition.

``support.faults.harness`` breaks the acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.nodes.store.opening import make_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.reports.storage.manifest import read_campaign
from protocol.errors import HearsayError
from support.faults.harness import Harness, without_journal, without_synchronisation
from support.faults.lives import Scenario
from support.nodes import NODE_KEYS, node_payload, signed_list, summary_of
from support.publisher import NOW, Publisher

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHER = Publisher()
CAMPAIGN_FILE = PUBLISHER.sign("campaign", node_payload(PUBLISHER))
CAMPAIGN = read_campaign(CAMPAIGN_FILE)
FIRST = [summary_of(CAMPAIGN, node) for node in range(3)]
SECOND = summary_of(CAMPAIGN, 0, number=2)
LISTS = [signed_list(PUBLISHER, NODE_KEYS[:2]), signed_list(PUBLISHER, NODE_KEYS[:3], version=2)]


class AggregatorLife:
    """An aggregator and its store. The public methods without arguments are the steps that scenarios name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = root / "world"
        self.out = self.world / "out"
        self.store: NodeStore | None = None

    def _take(self, name: str, content: bytes) -> None:
        path = self.root / f"{name}.hsn"
        path.write_bytes(content)
        assert self.store is not None
        self.store.ingest([path], now=NOW)
        with (self.root / "told").open("a") as file:
            file.write(name + "\n")

    def told(self) -> list[str]:
        path = self.root / "told"
        return path.read_text().split() if path.exists() else []

    def open(self) -> None:
        """A program starts; the first one makes the store."""
        found = make_envelope_store(NodeStore, self.world / "store", CAMPAIGN_FILE)
        if found.list_bytes() is None:
            found.give_list(LISTS[0])
        self.store = found

    def close(self) -> None:
        self.store = None

    def list(self) -> None:
        """A newer list names the third node."""
        assert self.store is not None
        self.store.give_list(LISTS[1])

    def take(self) -> None:
        self._take("first", b"".join(FIRST) + b"junk")

    def contradict(self) -> None:
        """The first node sends another summary of the same period."""
        self._take("second", SECOND)


SCENARIOS = {
    "summaries new": Scenario((), ("open",)),
    "summaries list": Scenario(("open",), ("open", "list")),
    "summaries take": Scenario(("open", "list"), ("open", "take")),
    "summaries contradict": Scenario(("open", "list", "take"), ("open", "contradict")),
}


class AggregatorHarness(Harness):
    """Breaks one scenario of an aggregator."""

    scenarios = SCENARIOS

    def _life(self) -> AggregatorLife:
        return AggregatorLife(self.root)

    @staticmethod
    def _warm_up() -> None:
        """The modules are loaded, and no device is needed."""

    def _is_open(self) -> bool:
        return self.life.store is not None

    def _summary(self) -> dict[str, Any]:
        kept = self.life.store
        return {
            "version": kept.node_list().header.version,
            "total": kept.totals().total().statistics_id.hex(),
            "rejected": kept.rejected(),
        }

    @staticmethod
    def _seen_in(tree: dict[str, bytes | None]) -> set[Any]:
        del tree
        return set()

    def _examine(self, visible: set[Any]) -> list[str]:
        del visible
        problems = []
        try:
            self.life.open()
            found = {summary.identity for summary, _ in self.life.store.summaries()}
        except HearsayError as error:
            return [f"can not be opened: {error.reason}"]
        for name, number in (("first", 3), ("second", 1)):
            if name in self.life.told() and len(found) < number + (name == "second") * 3:
                problems.append(f"summaries of {name} are lost")
        for step in self.scenario.act:
            getattr(self.life, step)()
        if self._summary() != self.whole:
            problems.append(f"done once more, it is {self._summary()}, not {self.whole}")
        return problems


MUTATIONS = {"summaries without synchronisation": without_synchronisation, "summaries without journal": without_journal}
