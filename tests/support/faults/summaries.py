"""A store of nodes' summaries in fault tests: what was told as taken in stays; an ingest is completed by repetition.

``support.faults.harness`` breaks the acts.
"""

from __future__ import annotations

from aggregator.nodes.store.opening import make_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.reports.storage.manifest import read_campaign
from support.faults.harness import FolderLife, Mistake, Scenario, without_journal, without_synchronisation
from support.nodes import NODE_KEYS, node_payload, signed_list, summary_of
from support.publisher import NOW, Publisher

PUBLISHER = Publisher()
CAMPAIGN_FILE = PUBLISHER.sign("campaign", node_payload(PUBLISHER))
CAMPAIGN = read_campaign(CAMPAIGN_FILE)
FIRST = [summary_of(CAMPAIGN, node) for node in range(3)]
SECOND = summary_of(CAMPAIGN, 0, number=2)
LISTS = [signed_list(PUBLISHER, NODE_KEYS[:2]), signed_list(PUBLISHER, NODE_KEYS[:3], version=2)]


class AggregatorLife(FolderLife):
    """An aggregator and its store."""

    def open(self) -> None:
        """A program starts; the first one makes the store."""
        found = make_envelope_store(NodeStore, self.world / "store", CAMPAIGN_FILE)
        if found.list_bytes() is None:
            found.give_list(LISTS[0])
        self.tool = found

    def close(self) -> None:
        self.tool = None

    def list(self) -> None:
        """A newer list names the third node."""
        self.tool.give_list(LISTS[1])

    def take(self, name: str = "first", content: bytes = b"".join(FIRST) + b"junk") -> None:
        path = self.root / f"{name}.hsn"
        path.write_bytes(content)
        self.tool.ingest([path], now=NOW)
        self.tell(name)

    def contradict(self) -> None:
        """The first node sends another summary of the same period."""
        self.take("second", SECOND)

    def summary(self) -> dict[str, object]:
        return {
            "version": self.tool.node_list().header.version,
            "total": self.tool.totals().total().statistics_id.hex(),
            "rejected": self.tool.rejected(),
        }

    def promises(self, when: str, scenario: Scenario) -> list[str]:
        del scenario
        found = {summary.identity for summary, _ in self.tool.summaries()}
        return [
            f"{when}: summaries of {name} are lost"
            for name, least in (("first", 3), ("second", 4))
            if name in self.told() and len(found) < least
        ]


LIFE = AggregatorLife
SCENARIOS = {
    "summaries new": Scenario((), ("open",)),
    "summaries list": Scenario(("open",), ("open", "list")),
    "summaries take": Scenario(("open", "list"), ("open", "take")),
    "summaries contradict": Scenario(("open", "list", "take"), ("open", "contradict")),
}


MUTATIONS = {
    "summaries without synchronisation": Mistake("summaries contradict", "kill", without_synchronisation),
    "summaries without journal": Mistake("summaries contradict", "kill", without_journal),
}
