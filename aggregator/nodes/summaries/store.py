"""The store of summaries: files of nodes' noisy sums in the clear → exact totals and their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.summaries.envelope_store import EnvelopeStore, Heard
from aggregator.nodes.summaries.federation import Federation, federated
from aggregator.nodes.summaries.judging import SummaryJudge, summary_in
from aggregator.nodes.summaries.listing import needed, read_list
from aggregator.nodes.summaries.robust import Rule
from aggregator.nodes.summaries.robust_estimate import robust_statistics
from aggregator.nodes.summaries.totals import Totals
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.nodes.summary import Summary


class NodeStore(EnvelopeStore):
    """One campaign's summaries on disk. A node counts once per period, whatever its size and its ε."""

    what = "summaries"
    suffix = ".hsn"

    @staticmethod
    def check(campaign: Campaign) -> None:
        """Refuse a masked campaign, whose nodes send encrypted messages in place of summaries.

        Raises:
            InputError: ``campaign_masked``.
        """
        if campaign.masked is not None:
            raise InputError("campaign_masked", "nodes answer this campaign with masked messages, not with summaries")

    def judge(self, documents: Mapping[str, bytes], now: int) -> SummaryJudge:
        """What judges the summaries of an ingest: the campaign, the newest list of nodes, and the clock.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
        """
        return SummaryJudge(self.campaign, read_list(needed(documents.get("list")), self.campaign), now)

    def heard(self) -> Iterator[tuple[Heard, str | None]]:
        """All kept summaries without their numbers (:meth:`summaries`)."""
        return ((Heard(one.period, one.node, one.epsilon_micro), fault) for one, fault in self.summaries())

    def summaries(self) -> Iterator[tuple[Summary, str | None]]:
        """All kept summaries by period, node and identity, each with the reason why it does not count, or None.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes.
            StorageError: ``store_damaged``: a summary is not the one that was taken in.
        """
        return ((summary_in(row), fault) for row, fault in self.judged())

    def counted(self) -> Iterator[Summary]:
        """The summaries that count, by period and node: of listed nodes, and without contradiction."""
        return (summary for summary, reason in self.summaries() if reason is None)

    def totals(self) -> Totals:
        """Exact sums of the summaries that count, by period."""
        return Totals.of(self.campaign, self.counted())

    def statistics(self, scope: Scope = EVERYTHING, rule: Rule | None = None) -> Statistics:
        """Statistics of the summaries of some periods.

        Args:
            scope: the periods. What it says of damaged batches does not matter: every summary is signed by itself.
            rule: a robust rule in place of plain addition; None for plain addition.

        Raises:
            InputError: ``nodes_unknown``: the store has no list of nodes; ``robust_unequal``.
            PolicyError: ``batch_too_small``: no summary counts; ``nodes_too_few``.
            StorageError: ``store_damaged``, ``store_busy``, ``io_failed``.
        """
        chosen = range(scope.first, scope.last + 1)
        about: dict[str, Any] = {"rejected": self.rejected(), "periods": scope.periods}
        if rule is not None:
            found = (summary for summary in self.counted() if summary.period in chosen)
            statistics = robust_statistics(self.campaign, found, rule, **about)
        else:
            statistics = federated(self.campaign, self.totals().total(chosen), **about)
        source = statistics.source
        assert isinstance(source, Federation)
        return replace(statistics, sources=(replace(source, list_bytes=self.list_bytes()),))
