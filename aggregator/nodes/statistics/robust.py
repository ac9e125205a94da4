"""Robust rules in place of plain addition: trimmed mean, median and Krum, for many nodes of about equal size.

Plain addition lets a single node move every total as far as ``max_records`` allows. For N nodes, with a share α to
leave out or a number F of assumed liars:

    trimmed mean   of every number leave out the ⌊αN⌋ smallest and the ⌊αN⌋ largest, and take the mean of the rest
    median         take the median of every number; for even N the mean of the two middle ones
    Krum           take the node with the smallest sum of squared distances to its N − F − 2 nearest nodes

Means and medians are multiplied by N. No interval is stated, since none covers what lying nodes did; variances are
estimates for fits. A rule compares only nodes that state the ε of most nodes and have a summary in each of the periods
in which at least half of these have one; the number of the others is stated.

Source: Yin, Chen, Ramchandran, Bartlett, ICML 2018 (trimmed mean, median); Blanchard, El Mhamdi, Guerraoui, Stainer,
NeurIPS 2017 (Krum); Tukey, McLaughlin, Sankhya A 25 (1963) and McKean, Schrader, Commun. Stat. 13 (1984) (variances).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.cells import question_name
from aggregator.estimates.debias import Z95
from aggregator.estimates.question_estimate import QuestionEstimate, is_share
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.statistics.federation import (
    Federation,
    divided,
    federated,
    noise_variances,
    noisy_sum,
    statistics_of,
)
from aggregator.nodes.statistics.totals import Totals, column_sums
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.errors import InputError, PolicyError
from protocol.nodes.summary import Summary
from protocol.nodes.terms import released_vectors
from protocol.questions import CLASS, MOMENT

TRIMMED, MEDIAN, KRUM = "trimmed-mean", "median", "krum"
FEWEST = 6
"""Fewest nodes for a trimmed mean or median. From fewer, the spread of the nodes can not be estimated."""
_BLOCK = 256
"""Rows of the matrix of distances that are computed at a time."""
_FORMS = re.compile(r"(trimmed-mean):(0?\.[0-9]{1,6})|(median)|(krum):([0-9]{1,6})")


class Rule(NamedTuple):
    """A robust rule: :data:`TRIMMED`, :data:`MEDIAN` or :data:`KRUM`.

    ``share`` is α of the trimmed mean, the share of the nodes that is left out at either end; ``liars`` is F of Krum,
    the number of nodes that may lie. They are 0 for other rules.
    """

    kind: str
    share: Fraction = Fraction(0)
    liars: int = 0

    def __str__(self) -> str:
        if self.kind == TRIMMED:
            return f"{TRIMMED}:{float(self.share):g}"
        return f"{KRUM}:{self.liars}" if self.kind == KRUM else MEDIAN


class RobustTotals(NamedTuple):
    """N times each of M trimmed means or medians, and variances, (M,), estimated from the differences between nodes."""

    totals: list[int]
    variance: Floats


def parse_rule(text: str) -> Rule:
    """Return the rule of a text: ``trimmed-mean:0.1`` (below ½), ``median`` or ``krum:3``; else ``robust_invalid``."""
    found = _FORMS.fullmatch(text)
    if found is None:
        raise InputError("robust_invalid", "a robust rule is trimmed-mean:SHARE (below 0.5), median or krum:LIARS")
    if found[3] is not None:
        return Rule(MEDIAN)
    if found[4] is not None:
        return Rule(KRUM, liars=int(found[5]))
    share = Fraction(found[2])
    if not 0 < share < Fraction(1, 2):
        raise InputError("robust_invalid", "a trimmed mean leaves out more than 0 and less than 0.5 at either end")
    return Rule(TRIMMED, share)


def check_rule(rule: Rule, nodes: int) -> None:
    """Refuse a rule whose assumptions do not hold for so many nodes.

    Raises PolicyError ``nodes_too_few``: fewer than :data:`FEWEST` nodes, or so few that nothing would be trimmed; for
    Krum fewer than 2F + 3, where F is the assumed number of liars.
    """
    if rule.kind == KRUM:
        if nodes < 2 * rule.liars + 3:
            raise PolicyError("nodes_too_few", f"krum:{rule.liars} needs {2 * rule.liars + 3} nodes; there are {nodes}")
        return
    if nodes < FEWEST:
        raise PolicyError("nodes_too_few", f"{rule.kind} needs {FEWEST} nodes; there are {nodes}")
    if rule.kind == TRIMMED and not int(rule.share * nodes):
        raise PolicyError("nodes_too_few", f"{rule} of {nodes} nodes leaves out none; name a larger share")


def combine(rule: Rule, values: Integers) -> RobustTotals:
    """Return trimmed means or medians of ``values``, (N, M) int64 by node, each times the number N of nodes."""
    ordered = np.sort(values, axis=0)
    number = len(ordered)
    cut = int(rule.share * number) if rule.kind == TRIMMED else (number - 1) // 2
    middle = ordered[cut : number - cut]
    totals = [_rounded(number * total, len(middle)) for total in column_sums(middle)]
    if rule.kind == MEDIAN:
        return RobustTotals(totals, _median_variance(ordered))
    winsorized = np.clip(ordered, ordered[cut], ordered[number - cut - 1]).astype(np.float64)
    spread = winsorized.var(axis=0, ddof=1)
    return RobustTotals(totals, np.asarray(number * spread / (len(middle) / number) ** 2, np.float64))


def _rounded(numerator: int, denominator: int) -> int:
    """Return the integer nearest to a fraction, halves rounded up; ``denominator`` > 0."""
    return (2 * numerator + denominator) // (2 * denominator)


def _median_variance(ordered: Integers) -> Floats:
    """Return the variance of N times the median, (M,) float64. ``ordered``: shape (N, M), each column rising."""
    number = len(ordered)
    rank = max(1, round((number + 1) / 2 - Z95 * number**0.5 / 2))
    distance = (ordered[number - rank] - ordered[rank - 1]).astype(np.float64)
    return np.asarray((number * distance / (2 * Z95)) ** 2, np.float64)


def krum_choice(parameters: Floats, liars: int) -> int:
    """Return the index of the node that Krum chooses by ``parameters``, (N, P) float64, N ≥ 2F + 3, F = ``liars``."""
    number = len(parameters)
    neighbours = number - liars - 2
    squares = (parameters**2).sum(axis=1)
    scores = np.empty(number)
    for start in range(0, number, _BLOCK):
        block = parameters[start : start + _BLOCK]
        distances = np.maximum(squares[start : start + _BLOCK, None] + squares - 2 * block @ parameters.T, 0)
        rows = np.arange(len(block))
        distances[rows, start + rows] = np.inf  # A node is no neighbour of itself.
        scores[start : start + _BLOCK] = np.partition(distances, neighbours - 1, axis=1)[:, :neighbours].sum(axis=1)
    return int(scores.argmin())


_LARGEST = 1 << 62
INTERVALS = "no interval under a robust rule: what lying nodes did is not known"


class Cohort(NamedTuple):
    """The compared nodes' summaries, their sums, (N, M) int64 by node id, and the number of nodes left out."""

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
    """Return statistics of summaries that are combined by a robust rule. Run by the aggregator.

    ``summaries``: at most one per node and period. ``rejected``, ``periods``: for the result's source. Raises
    InputError: ``robust_unequal``: no ε is stated by more than half of the nodes; ``too_large``: numbers of so many
    periods exceed 64 bits. Raises PolicyError: ``nodes_too_few``; ``batch_too_small``: no summary counts.
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
    return replace(found, questions=tuple(one.without_interval() for one in found.questions))


def compared_nodes(summaries: Iterable[Summary]) -> Cohort:
    """Return the nodes that a rule compares, chosen by ε and periods as this module's description says."""
    given = list(summaries)
    epsilon_micro, nodes = _common_epsilon(given)
    by_node: dict[bytes, dict[int, Summary]] = {}
    for summary in given:
        if summary.epsilon_micro == epsilon_micro:
            by_node.setdefault(summary.node, {})[summary.period] = summary
    seen = Counter(period for own in by_node.values() for period in own)
    periods = sorted(period for period, nodes in seen.items() if 2 * nodes >= len(by_node))
    rows = [[own[period] for period in periods] for _, own in sorted(by_node.items()) if own.keys() >= {*periods}]
    used = [summary for row in rows for summary in row]
    if len(periods) * max((abs(number) for summary in used for number in summary.sums), default=0) >= _LARGEST:
        raise InputError("too_large", "the numbers of so many periods do not fit into 64 bits; choose fewer periods")
    values = np.zeros((len(rows), len(used[0].sums) if used else 0), np.int64)
    for place, row in enumerate(rows):
        for summary in row:
            values[place] += np.array(summary.sums, np.int64)
    return Cohort(used, values, nodes - len(rows))


def _common_epsilon(summaries: Sequence[Summary]) -> tuple[int, int]:
    """Return the ε that most nodes state, in millionths, and the number of all nodes; 0 and 0 without summaries."""
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


_LEAST = 1e-9
"""Smallest number to which counts are raised if a large ε leaves no noise."""


def normalised(values: NDArray[np.int64], campaign: Campaign, epsilon_micro: int, periods: int = 1) -> Floats:
    """Return parameters of each node's model, which Krum compares: nodes of different sizes become comparable.

    ``values``, shape (N, M) int64, are the numbers of every node, summed over ``periods`` periods. Counts are raised to
    at least half a standard deviation of their noise, and each class's column of a table is divided by its sum. Sums of
    numbers are divided by the class counts, and clipped. The result is (N, M) float64, each parameter in [−1, 1].
    """
    subjects = released_vectors(campaign)
    classes = subjects[0].size
    found = []
    start = 0
    counts = np.ones((len(values), classes))
    for subject, variance in zip(subjects, noise_variances(campaign, epsilon_micro), strict=True):
        part = values[:, start : start + subject.size].astype(np.float64)
        start += subject.size
        floor = max(np.sqrt(periods * variance) / 2, _LEAST)
        if subject.kind == MOMENT:
            means = part / SCALE / counts
            found.append(np.clip(means, -1.0 if subject.power == 1 else 0.0, 1.0))
            continue
        raised = np.maximum(part, floor)
        if subject.kind == CLASS:
            counts = np.maximum(raised, 1.0)
            found.append(raised / raised.sum(axis=1, keepdims=True))
        else:
            table = raised.reshape(len(values), -1, classes)
            found.append((table / table.sum(axis=1, keepdims=True)).reshape(part.shape))
    return np.concatenate(found, axis=1)


REPEATS = 100
_WORK = 2_000_000
"""Most simulated numbers for one vector. With many nodes or values there are fewer repeats, at least two."""
_ROUNDING = 1 << 20
"""Simulated numbers are rounded to multiples of 2^-20 records, so that the rule gets integers."""


class Loss(NamedTuple):
    """Standard errors of a rule on honest data, as multiples of those of plain addition."""

    class_counts: float
    typical: float
    worst: float
    worst_name: str

    def __str__(self) -> str:
        return (
            f"on honest data the standard errors are {self.class_counts:.2f} times those of plain addition for class "
            f"counts, {self.typical:.2f} times for a typical statistic, {self.worst:.2f} times for {self.worst_name}"
        )


def expected_loss(rule: Rule, statistics: Statistics, nodes: int, repeats: int = REPEATS) -> Loss:
    """Simulate the loss of a trimmed mean or median on honest nodes that have equally many records each.

    The records of at most ``repeats`` sets of ``nodes`` nodes are drawn from ``statistics`` of plain addition, whose id
    seeds the generator. The loss is the root mean square error of the rule's totals, divided by that of plain addition.
    """
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    ratios = [_ratio(rule, question, nodes, repeats, generator) for question in statistics.questions]
    worst = int(np.argmax(ratios))
    name = question_name(statistics.questions[worst].subject, statistics.schema)
    return Loss(ratios[0], float(np.median(ratios)), ratios[worst], name)


def _ratio(rule: Rule, question: QuestionEstimate, nodes: int, repeats: int, generator: np.random.Generator) -> float:
    """Return the rule's root mean square error for one vector, divided by that of plain addition; 1 without error."""
    size = len(question.estimate)
    number = max(2, min(repeats, _WORK // (nodes * size)))
    robust = plain = 0.0
    for _ in range(number):
        values, truth = _drawn(question, nodes, generator)
        found = np.array(combine(rule, values).totals, np.float64) / _ROUNDING
        robust += float(((found - truth) ** 2).sum())
        plain += float(((values.sum(axis=0) / _ROUNDING - truth) ** 2).sum())
    return float(np.sqrt(robust / plain)) if plain else 1.0


def _drawn(question: QuestionEstimate, nodes: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], Floats]:
    """Draw numbers of N honest nodes, (N, K) int64 in units of 2^-20 records. Also return their true totals, (K,)."""
    size, records = len(question.estimate), max(1, question.n // nodes)
    share = question.estimate / question.n
    if is_share(question.subject):
        share = np.clip(share, 0, 1)
        exact = generator.binomial(records, share, (nodes, size)).astype(np.float64)
    else:
        exact = records * share + np.sqrt(records * question.spread) * generator.normal(size=(nodes, size))
    noise = generator.laplace(scale=np.sqrt(question.noise_variance / nodes / 2), size=(nodes, size))
    return np.rint((exact + noise) * _ROUNDING).astype(np.int64), nodes * records * share
