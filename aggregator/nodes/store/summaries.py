"""The store of summaries: files of nodes' noisy sums in the clear → exact totals and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgpack
import numpy as np

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.robust import Rule, robust_statistics
from aggregator.nodes.statistics.totals import Totals
from aggregator.nodes.store.database import Row
from aggregator.nodes.store.envelope_store import Arrival, EnvelopeStore
from aggregator.nodes.store.node_list import needed, read_list
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.nodes.summary import ROLE, Summary, judge_summary, read_summary


class NodeStore(EnvelopeStore):
    """One campaign's summaries on disk. A node counts once per period, whatever its size and its ε."""

    what = "summaries"
    suffix = ".hsn"
    role = ROLE

    @staticmethod
    def check(campaign: Campaign) -> None:
        """Refuse a masked campaign, whose nodes send encrypted messages in place of summaries: ``campaign_masked``."""
        if campaign.masked is not None:
            raise InputError("campaign_masked", "nodes answer this campaign with masked messages, not with summaries")

    def judge(self, documents: Mapping[str, bytes], now: int) -> Callable[[bytes], Summary]:
        """Return :func:`protocol.nodes.summary.judge_summary` for this campaign, the newest list of nodes and now."""
        listed = read_list(needed(documents.get("list")), self.campaign)
        return lambda envelope: judge_summary(envelope, self.campaign, listed, now)

    @staticmethod
    def content(envelope: bytes) -> Summary:
        """Return the summary in an envelope. Its signature is not checked."""
        return read_summary(envelope)[1]

    def arrivals(self) -> Iterator[tuple[Arrival, str | None]]:
        """Return all kept summaries without their numbers (:meth:`summaries`)."""
        return ((Arrival(one.period, one.node, one.epsilon_micro), fault) for one, fault in self.summaries())

    def summaries(self) -> Iterator[tuple[Summary, str | None]]:
        """Return all kept summaries by period, node and identity, each with why it does not count, or None."""
        return ((_summary_in(row), fault) for row, fault in self.judged())

    def counted(self) -> Iterator[Summary]:
        """Return the summaries that count, by period and node: of listed nodes, and without contradiction."""
        return (summary for summary, reason in self.summaries() if reason is None)

    def totals(self) -> Totals:
        """Return the exact sums of the summaries that count, by period."""
        return Totals.of(self.campaign, self.counted())

    def sums(self, periods: range, rule: Rule | None, *, rejected: Mapping[str, int], words: str) -> Statistics:
        """Return the statistics of the summaries of some periods, by plain addition, or by a robust rule if given."""
        if rule is None:
            return federated(self.campaign, self.totals().total(periods), rejected=rejected, periods=words)
        found = (summary for summary in self.counted() if summary.period in periods)
        return robust_statistics(self.campaign, found, rule, rejected=rejected, periods=words)


def _summary_in(row: Row) -> Summary:
    """Return the summary in a row, decoded without the checks for foreign bytes, which take ten times as long."""
    body = msgpack.unpackb(msgpack.unpackb(row.envelope)[2])
    sums = tuple(np.frombuffer(body["sums"]["b"], "<i8").tolist())
    return Summary(body["campaign"], body["node"], body["period"], body["epsilon_micro"], sums, row.identity)
