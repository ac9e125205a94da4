"""Statistics of nodes by a robust rule, and what the rule costs where no node lies.

No interval is stated. A rule is for nodes that may lie, and no interval covers what they did. Where no node lies, the
errors of a rule have no simple law either: medians of rare counts are biased, and the spread of few nodes is uncertain.
The variances are estimates, for fits that weigh or floor by them.

A rule compares nodes, so the summaries of every compared node state the same ε, the one that most nodes state, and are
of the same periods: those in which at least half of the nodes with this ε have one. Other nodes are left out, and their
number is stated. So a few nodes with another ε or an odd period leave nobody else out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.summaries.federation import Federation, divided, federated, noisy_sum, statistics_of
from aggregator.nodes.summaries.honest_loss import expected_loss
from aggregator.nodes.summaries.normalised import normalised
from aggregator.nodes.summaries.robust import KRUM, Rule, check_rule, combine, krum_choice
from aggregator.nodes.summaries.totals import Totals
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.nodes.summary import Summary
from protocol.nodes.terms import released_vectors

_LARGEST = 1 << 62
INTERVALS = "no interval under a robust rule: what lying nodes did is not known"


class Compared(NamedTuple):
    """The nodes that a rule compares.

    Attributes:
        summaries: their summaries.
        values: shape (N, M) int64, the sums of each node over the periods, in the order of the nodes' ids.
        left_out: number of nodes that lack a summary of one of the periods with the common ε.
    """

    summaries: list[Summary]
    values: Integers
    left_out: int


def robust_statistics(
    campaign: Campaign,
    summaries: Iterable[Summary],
    rule: Rule,
    *,
    rejected: Mapping[str, int] | None = None,
    periods: str = "all",
) -> Statistics:
    """Statistics by a robust rule. Run by the aggregator.

    Args:
        campaign: the campaign that the summaries answer.
        summaries: those of the chosen periods that count; at most one per node and period.
        rule: the rule.
        rejected, periods: attributes of the returned source.

    Raises:
        InputError: ``robust_unequal``: no ε is stated by more than half of the nodes; ``too_large``: numbers of so many
            periods do not fit into 64 bits.
        PolicyError: ``nodes_too_few``; ``batch_too_small``: no summary counts.
    """
    compared = compared_nodes(summaries)
    check_rule(rule, len(compared.values))
    subjects = released_vectors(campaign)
    plain = Totals.of(campaign, compared.summaries).total()
    entries: dict[str, Any] = {
        "intervals": INTERVALS,
        "robust": str(rule),
        "robust_nodes": len(compared.values),
        "robust_left_out": compared.left_out,
    }
    if rule.kind == KRUM:
        periods_each = len(compared.summaries) // len(compared.values)
        parameters = normalised(compared.values, campaign, compared.summaries[0].epsilon_micro, periods_each)
        chosen = krum_choice(parameters, rule.liars)
        node = sorted({summary.node for summary in compared.summaries})[chosen]
        own = Totals.of(campaign, [one for one in compared.summaries if one.node == node]).total()
        found = federated(campaign, own, rejected=rejected, periods=periods)
        entries["robust_loss"] = (
            f"every standard deviation is about {sqrt(len(compared.values)):.1f} times that of plain addition, because "
            f"the model is one node's of {len(compared.values)}"
        )
        source = found.source
        assert isinstance(source, Federation)
        return _without_intervals(replace(found, sources=(replace(source, entries=entries),)))
    made = combine(rule, compared.values)
    variances = divided(made.variance.tolist(), subjects)
    sums = [
        noisy_sum(subject, values, np.array(variance), kurtosis=0.0)
        for subject, values, variance in zip(subjects, divided(made.totals, subjects), variances, strict=True)
    ]
    honest = federated(campaign, plain)
    entries["robust_loss"] = str(expected_loss(rule, honest, len(compared.values)))
    return _without_intervals(
        statistics_of(campaign, plain, sums, rejected=rejected, periods=periods, entries=entries, concentration=0.0)
    )


def _without_intervals(found: Statistics) -> Statistics:
    """The same estimates without any interval."""
    return replace(found, questions=tuple(one.without_interval() for one in found.questions))


def compared_nodes(summaries: Iterable[Summary]) -> Compared:
    """The nodes with the common ε and a summary in each period in which at least half of such nodes have one.

    Args:
        summaries: at most one per node and period.

    Raises:
        InputError: ``robust_unequal``: no ε is stated by more than half of the nodes; ``too_large``: the numbers of so
            many periods do not fit into 64 bits.
    """
    given = list(summaries)
    epsilon_micro, nodes = _common_epsilon(given)
    by_node: dict[bytes, dict[int, Summary]] = {}
    for summary in given:
        if summary.epsilon_micro != epsilon_micro:
            continue
        by_node.setdefault(summary.node, {})[summary.period] = summary
    seen = Counter(period for own in by_node.values() for period in own)
    periods = sorted(period for period, nodes in seen.items() if 2 * nodes >= len(by_node))
    rows = [[own[period] for period in periods] for _, own in sorted(by_node.items()) if own.keys() >= {*periods}]
    used = [summary for row in rows for summary in row]
    if len(periods) * max((abs(number) for summary in used for number in summary.sums), default=0) >= _LARGEST:
        raise InputError("too_large", "the numbers of so many periods do not fit into 64 bits; choose fewer periods")
    size = len(used[0].sums) if used else 0
    values = np.zeros((len(rows), size), np.int64)
    for place, row in enumerate(rows):
        for summary in row:
            values[place] += np.array(summary.sums, np.int64)
    return Compared(used, values, nodes - len(rows))


def _common_epsilon(summaries: Sequence[Summary]) -> tuple[int, int]:
    """The ε that most nodes state in a summary, in millionths, and the number of all nodes; zeros without summaries.

    Raises:
        InputError: ``robust_unequal``: no ε is stated by more than half of the nodes.
    """
    stating: dict[int, set[bytes]] = {}
    for summary in summaries:
        stating.setdefault(summary.epsilon_micro, set()).add(summary.node)
    nodes = len({summary.node for summary in summaries})
    if not nodes:
        return 0, 0
    epsilon_micro = max(stating, key=lambda each: (len(stating[each]), each))
    if 2 * len(stating[epsilon_micro]) <= nodes:
        raise InputError(
            "robust_unequal",
            f"the summaries state {len(stating)} different ε, and none is that of more than half of the nodes; "
            "a robust rule compares nodes of one ε",
        )
    return epsilon_micro, nodes
