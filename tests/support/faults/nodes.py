"""The steps of a node in fault tests. What must hold is what must hold for a device (``support.faults.verdict``).

A node never releases two noises for one period, and never loses a summary that counts as sent.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edge_sdk import Node
from edge_sdk.node.release import OfRecords
from protocol.nodes.summary import read_summaries, read_summary
from support.faults.harness import Harness
from support.faults.lives import READY, RECORD, Life, Said, Scenario, documents, folders, summary
from support.publisher import Publisher, installed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Summed(Said):
    """One summary that others have seen."""

    @property
    def id(self) -> bytes:
        return read_summary(self.raw)[1].identity


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

    suffix = ".hsn"
    cost_micro = 2_000_000

    @property
    def documents(self) -> dict[str, bytes]:
        return _documents()

    @staticmethod
    def said(campaign: bytes, raw: bytes) -> Iterator[Said]:
        found = read_summary(raw)[1]
        assert found.campaign == campaign
        yield Summed(campaign, found.period, raw)

    @staticmethod
    def said_in_file(content: bytes) -> Iterator[Said]:
        for piece in read_summaries(content):
            assert piece.reason is None, "a file of summaries is torn"
            found = read_summary(piece.envelope)[1]
            yield Summed(found.campaign, found.period, piece.envelope)

    def open(self) -> None:
        """A program starts."""
        self.close()
        self.device = installed(Node, self.state, trust=self.documents["root 1"], **self._surroundings())

    def report(self) -> None:
        (campaign,) = self.device.campaigns()
        self._tell("returned", campaign.id, self.device.summarise(campaign.id, [RECORD] * 3, "e").raw)


SCENARIOS = {
    "node enrol": Scenario(("open",), ("open", "enrol")),
    "node summarise": Scenario(READY, ("open", "report")),
    "node first summary": Scenario(("open", "enrol"), ("open", "report")),
    "node into a full spool": Scenario(
        ("open", "enrol", "report", "later", "report", "later"), ("open", "report"), {"spool_reports": 2}
    ),
    "node drain": Scenario((*READY, "report", "drain", "send", "ack", "later", "report"), ("open", "drain")),
    "node ack": Scenario((*READY, "report", "drain", "send", "later", "report"), ("open", "ack")),
    "node sync": Scenario((*READY, "publish", "sync", "later", "report"), ("open", "sync")),
    "node disable": Scenario((*READY, "drain", "send"), ("open", "disable")),
    "node reset": Scenario((*READY, "report", "drain", "send", "lose"), ("reset",)),
    "node after half a change": Scenario((*READY, "report", "change_by_half"), ("open", "drain")),
}


class NodeHarness(Harness):
    """Breaks one scenario of a node."""

    scenarios = SCENARIOS

    lives = NodeLife

    def _life(self) -> NodeLife:
        return self.lives(self.root, self.scenario.policy)

    @classmethod
    def _warm_up(cls) -> None:
        """Live one life before the first fork, so that late imports and caches are loaded."""
        with tempfile.TemporaryDirectory() as folder:
            life = cls.lives(Path(folder), {})
            folders(life)
            for step in (
                "open",
                "enrol",
                "report",
                "install",
                "drain",
                "send",
                "ack",
                "second_day",
                "rotate",
                "report",
            ):
                getattr(life, step)()
            summary(life.device.status())
            life.close()


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


MUTATIONS = {"node draws noise anew": _noise_anew}
