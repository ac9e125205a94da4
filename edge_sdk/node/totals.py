"""Totals of a set of summaries in plain Python, for a node without the aggregator's software.

Totals are exact sums of the released integers: what an aggregator computes from the same set, before it makes a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.nodes.summary import read_summary
from protocol.nodes.terms import released_vectors

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.nodes.summary_files import SummarySet
    from protocol.questions import Subject


class Totals(NamedTuple):
    """Sums over the nodes of one period.

    Attributes:
        period: the period.
        nodes: number of nodes whose summaries were added. Summaries in conflict are not.
        sums: shape (M,), for every released number the sum over these nodes.
    """

    period: int
    nodes: int
    sums: tuple[int, ...]

    def vectors(self, campaign: Campaign) -> list[tuple[Subject, tuple[int, ...]]]:
        """The sums divided into the released vectors of the campaign, each with its subject, in order."""
        found, place = [], 0
        for subject in released_vectors(campaign):
            found.append((subject, self.sums[place : place + subject.size]))
            place += subject.size
        return found


def totals(summaries: SummarySet, campaign: Campaign) -> list[Totals]:
    """The totals of a campaign by period, in the order of the periods. Each node counts once per period.

    Args:
        summaries: verified summaries, for example of an exchange. Those of other campaigns are left out.
        campaign: a campaign for nodes.
    """
    found: dict[int, Totals] = {}
    for envelope in summaries.counting():
        summary = read_summary(envelope)[1]
        if summary.campaign != campaign.id:
            continue
        before = found.get(summary.period, Totals(summary.period, 0, (0,) * len(summary.sums)))
        sums = tuple(a + b for a, b in zip(before.sums, summary.sums, strict=True))
        found[summary.period] = Totals(summary.period, before.nodes + 1, sums)
    return [found[period] for period in sorted(found)]
