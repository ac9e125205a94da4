"""Statistics of nodes' summaries: the totals in the common form of all statistics.

The noise variance of a total is Σ v_i over the summaries i, its excess kurtosis Σ(3v_i² + v_i)/(Σv_i)². A node may
summarise the same records in every period: with n_t records in period t, the sampling variance is at most c n times
that of n = Σ n_t different ones, c = (Σ √n_t)²/n². This bound is used. Source: docs/math.md, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.source import Source
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import NoisySum, of_sums
from aggregator.nodes.statistics.totals import Total
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.epsilon import format_micro
from protocol.errors import PolicyError
from protocol.nodes.terms import SMOOTH, noise_variance, ranges, released_vectors, shares, terms_of
from protocol.questions import ADD_REMOVE, CHANGE_FEATURES, MOMENT, Subject

ESTIMATOR = "sums of the nodes' noisy sums, each with the weight one"
INTERVALS = (
    "95 % intervals of the population that the records are drawn from, which cover noise and sampling; records that "
    "a node summarised in several periods are taken for the same ones"
)
THREATS = (
    "A node sees its own records. Each summary is differentially private by itself, whoever reads it: {}. The numbers "
    "are only as good as the nodes: a node that lies can state {} to {} records for every count, whatever it has, in "
    "each of the {} tables from which P(class) is pooled."
)
PROMISE = "ε is for adding or removing one record, and a changed record costs twice as much"
SMOOTH_PROMISE = "ε is for changing the features of one record, and not for its class or for its being there"


@dataclass(frozen=True, eq=False)
class Federation(Source):
    """Source of statistics: signed summaries of nodes, each with noisy sums over many records.

    ``total``: exact sum of the summaries that count; ``released``: the integers behind the estimates, totals or what a
    robust rule makes of them; ``records``: as the noisy class counts state it; ``rejected``: summaries and unreadable
    parts of files, by reason; ``entries``: of the model's card; ``list_bytes``: the signed node list, or None.
    """

    batch_of: ClassVar[str] = "nodes"
    campaign: Campaign
    total: Total
    released: tuple[tuple[int, ...], ...]
    records: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    periods: str = "all"
    entries: Mapping[str, Any] = field(default_factory=dict)
    list_bytes: bytes | None = None

    @property
    def reports(self) -> int:
        """Number of records, estimated from the noisy class counts; at least 1."""
        return max(self.records, 1)

    @property
    def stated_reports(self) -> int:
        """Number of records, as the noisy class counts state it."""
        return self.records

    @property
    def nodes(self) -> int:
        """Number of nodes with a summary that counts."""
        return self.total.nodes

    @property
    def batch(self) -> int:
        """Number of nodes whose summaries count. A campaign's ``min_batch_size`` is compared with it."""
        return self.total.nodes

    @property
    def summaries(self) -> int:
        """Number of summaries that count: at most one per node and period."""
        return sum(self.total.summaries.values())

    @property
    def statistics_id(self) -> bytes:
        """32 bytes, a digest of the total and its numbers, or of the robust rule's numbers in their place."""
        return self.total._replace(numbers=tuple(number for one in self.released for number in one)).statistics_id

    def counts(self, question: int) -> list[int]:
        """Return the noisy integers of the question with this index: counts, or sums in units of 1/S (S: 65536)."""
        return list(self.released[question])

    def populations(self) -> dict[str, Any]:
        """Return in words what the two kinds of intervals are about, and what the second kind assumes."""
        several = len(self.total.records) > 1
        rule = self.entries.get("intervals")
        return {
            "devices": "the records of these nodes, one in several periods counted as often",
            "population": "the population that these records are drawn from",
            "assumes": "the records of a period are independent"
            + ("; at worst every period has the same records" if several else "")
            if rule is None
            else str(rule),
        }

    def facts(self) -> dict[str, int]:
        """Return counts for people: nodes, summaries or masked messages, nodes that a rule left out, refusals."""
        left_out = self.entries.get("robust_left_out", 0)
        return (
            {"nodes": self.nodes, "summaries" if self.campaign.masked is None else "messages": self.summaries}
            | ({"left out by the rule": left_out} if left_out else {})
            | {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        )

    def card(self) -> dict[str, Any]:
        """Return entries for a model's card: ε, nodes, summaries, periods, estimator, intervals, threats."""
        campaign, stated = self.campaign, sorted(self.total.summaries)
        terms = terms_of(campaign)
        is_smooth = terms.sensitivity == SMOOTH
        return {
            "trust": "federated",
            "adjacency": adjacency_of(campaign),
            "sensitivity": terms.sensitivity,
            "epsilon_total": format_micro(campaign.epsilon_micro),
            "epsilon_smallest": format_micro(stated[0]) if stated else "none",
            "node_list": terms.list_name,
            "nodes": self.nodes,
            "summaries": self.summaries,
            "estimator": ESTIMATOR,
            "intervals": INTERVALS,
            "periods": self.periods,
            "rejected": {reason: int(count) for reason, count in sorted(self.rejected.items()) if count},
            "threats": THREATS.format(SMOOTH_PROMISE if is_smooth else PROMISE, *_count_claims(campaign)),
            **self.entries,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the part of the output of ``hearsay estimate --json`` that is about the nodes."""
        return {
            "campaign": self.campaign.id.hex(),
            "reports": self.stated_reports,
            "nodes": self.nodes,
            "summaries": self.summaries,
            "adjacency": adjacency_of(self.campaign),
            "epsilons": {format_micro(epsilon): count for epsilon, count in sorted(self.total.summaries.items())},
            "rejected": dict(self.rejected),
            "periods": self.periods,
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations(),
            **self.entries,
        }


def adjacency_of(campaign: Campaign) -> str:
    """Return the adjacency of a campaign for nodes: which data sets its ε makes hard to tell apart."""
    return CHANGE_FEATURES if terms_of(campaign).sensitivity == SMOOTH else ADD_REMOVE


def _count_claims(campaign: Campaign) -> tuple[int, int, int]:
    """Return the smallest and the largest count that a summary can state, and the number of tables of counts."""
    limits = zip(released_vectors(campaign), ranges(campaign, terms_of(campaign).least_epsilon_micro), strict=True)
    counts = [limit for subject, limit in limits if subject.kind != MOMENT]
    return min(low for low, _ in counts), max(high for _, high in counts), len(counts)


def noise_variances(campaign: Campaign, epsilon_micro: int) -> list[float]:
    """Return for every vector the noise variance of an entry of a summary that states this ε, in squared integers."""
    return [
        noise_variance(campaign, subject, share)
        for subject, share in zip(released_vectors(campaign), shares(campaign, epsilon_micro), strict=True)
    ]


def federated(
    campaign: Campaign, total: Total, *, rejected: Mapping[str, int] | None = None, periods: str = "all"
) -> Statistics:
    """Return the statistics of a total of summaries that was made by plain addition. Run by the aggregator.

    ``rejected`` and ``periods`` are attributes of the returned source (:class:`Federation`). Raises PolicyError
    ``batch_too_small`` if no summary counts.
    """
    if not total.nodes:
        raise PolicyError("batch_too_small", "usable summaries so far: none; hearsay status says why")
    laws = [
        (count, [(one, 3 * one**2 + one) for one in noise_variances(campaign, epsilon)])
        for epsilon, count in sorted(total.summaries.items())
    ]
    return statistics_of(campaign, total, added(campaign, total, laws), rejected=rejected, periods=periods)


Cumulants = Sequence[tuple[float, float]]
"""For each released vector the variance and the fourth cumulant of the noise of one entry."""


def added(campaign: Campaign, total: Total, laws: Sequence[tuple[int, Cumulants]]) -> list[NoisySum]:
    """Return the vectors of a total of plain addition. ``laws``: (number of summands, cumulants of their noise)."""
    subjects = released_vectors(campaign)
    sums = []
    for place, (subject, values) in enumerate(zip(subjects, divided(total.numbers, subjects), strict=True)):
        variance = sum(count * law[place][0] for count, law in laws)
        fourth = sum(count * law[place][1] for count, law in laws)
        kurtosis = fourth / variance**2 if variance**2 else 0.0
        sums.append(noisy_sum(subject, values, np.full(subject.size, variance), kurtosis))
    return sums


def divided(numbers: Sequence[int], subjects: Sequence[Subject]) -> list[tuple[int, ...]]:
    """Return one tuple per released vector from ``numbers``, in which the vectors follow one another."""
    found, start = [], 0
    for subject in subjects:
        found.append(tuple(numbers[start : start + subject.size]))
        start += subject.size
    return found


def noisy_sum(subject: Subject, values: tuple[int, ...], variance: Floats, kurtosis: float) -> NoisySum:
    """Return one released vector in units of records, from its K integers and their variance, (K,) float64."""
    unit = SCALE if subject.kind == MOMENT else 1
    estimate = np.array([value / unit for value in values], np.float64)
    return NoisySum(subject, estimate, variance / unit**2, values, kurtosis=kurtosis)


def statistics_of(
    campaign: Campaign,
    total: Total,
    sums: Sequence[NoisySum],
    *,
    rejected: Mapping[str, int] | None = None,
    periods: str = "all",
    entries: Mapping[str, Any] | None = None,
    concentration: float | None = None,
) -> Statistics:
    """Return statistics with a :class:`Federation` as source. Their number of records is the first vector's sum.

    ``concentration`` says how often periods repeat the same records (:func:`aggregator.estimates.sums.of_sums`); None
    for this module's bound c, at least 1/n.
    """
    records = sum(sums[0].released)
    released = tuple(one.released for one in sums)
    source = Federation(campaign, total, released, records, dict(rejected or {}), periods, dict(entries or {}))
    if concentration is None:  # noisy counts below 0 count as 0
        roots = sum(sqrt(max(count, 0)) for count in total.records.values())
        concentration = max(roots**2 / source.reports**2, 1 / source.reports)
    return of_sums(sums, campaign.schema, campaign.fit, source, concentration, is_counted=False)
