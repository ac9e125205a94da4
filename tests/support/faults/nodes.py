"""The steps of a node in fault tests. What must hold is what must hold for a device.

A node never releases two noises for one period, and never loses a summary that counts as sent.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edge_sdk import Node
from edge_sdk.node.release import OfRecords
from protocol.nodes.summary import read_summaries, read_summary
from support.faults.harness import Mistake, Scenario
from support.faults.lives import READY, RECORD, Life, Said, documents
from support.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator


class Summed(Said):
    """One summary that others have seen."""

    read = staticmethod(read_summary)

    @property
    def id(self) -> bytes:
        return self.read(self.raw)[1].identity


@cache
def _documents() -> dict[str, bytes]:
    publisher = Publisher()
    return {
        **documents(),
        "campaign 1": publisher.node_campaign(name="mushrooms"),
        "campaign 2": publisher.node_campaign(name="mushrooms", version=2),
    }


class NodeLife(Life):
    """A node and its folder. A step ``report`` is a summary of three records."""

    kind = Node
    suffix = ".hsn"
    cost_micro = 2_000_000
    answer: type[Summed] = Summed
    role: tuple[str, ...] = ()

    @property
    def documents(self) -> dict[str, bytes]:
        return _documents()

    def said(self, campaign: bytes, raw: bytes) -> Iterator[Said]:
        found = self.answer.read(raw)[1]
        assert found.campaign == campaign
        yield self.answer(campaign, found.period, raw)

    def said_in_file(self, content: bytes) -> Iterator[Said]:
        for piece in read_summaries(content, *self.role):
            assert piece.reason is None, "a file of summaries or messages is torn"
            yield from self.said(self.answer.read(piece.envelope)[1].campaign, piece.envelope)

    def report(self) -> None:
        (campaign,) = self.device.campaigns()
        self.tell_answer("returned", campaign.id, self.device.summarise(campaign.id, [RECORD] * 3, "e").raw)


def scenarios(kind: str, answer: str, answering: str, more: Scenario) -> dict[str, Scenario]:
    """The scenarios of a node or a party; ``more``: a scenario of its own, which is called ``answer``."""
    full = ("open", "enrol", "report", "later", "report", "later")
    found = {
        answer: more,
        answering: Scenario(READY, ("open", "report")),
        "first answer": Scenario(("open", "enrol"), ("open", "report")),
        "into a full spool": Scenario(full, ("open", "report"), {"spool_reports": 2}),
        "drain": Scenario((*READY, "report", "drain", "send", "ack", "later", "report"), ("open", "drain")),
        "ack": Scenario((*READY, "report", "drain", "send", "later", "report"), ("open", "ack")),
        "sync": Scenario((*READY, "publish", "sync", "later", "report"), ("open", "sync")),
        "disable": Scenario((*READY, "drain", "send"), ("open", "disable")),
        "reset": Scenario((*READY, "report", "drain", "send", "lose"), ("reset",)),
        "after half a change": Scenario((*READY, "report", "change_by_half"), ("open", "drain")),
    }
    return {f"{kind} {name}": scenario for name, scenario in found.items()}


LIFE = NodeLife
SCENARIOS = scenarios("node", "enrol", "summarise", Scenario(("open",), ("open", "enrol")))


def _noise_anew() -> None:
    """A repeated call gets the period's sums with other noise."""
    plain = Node.summarise

    def summarise(self, campaign, records, label):
        found = plain(self, campaign, records, label)
        if not found.repeated:
            return found
        making = OfRecords(None, self._entropy)
        making.exact = [3] * len(read_summary(found.raw)[1].sums)
        (raw,) = making.make(self._reporting.campaign(campaign), self._reporting.secret(), found.period)
        return found._replace(raw=raw)

    Node.summarise = summarise


MUTATIONS = {"node draws noise anew": Mistake("node summarise", "restart", _noise_anew)}
