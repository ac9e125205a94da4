"""Robust rules in place of plain addition: trimmed mean, median and Krum, for nodes that may lie.

A rule is for many nodes of about equal size that state one ε. Plain addition lets a single node move every total as far
as the campaign's ``max_records`` allows. The trimmed mean and the median limit what a minority of the nodes can do.
Krum returns the numbers of one node, so its noise and sampling error are those of that node alone.

    trimmed mean   of every number of N nodes leave out the g = ⌊αN⌋ smallest and largest, take the mean of the rest
    median         of every number, the mean of the two middle ones for even N
    Krum           the node with the smallest sum of squared distances to its N − F − 2 nearest nodes, F liars assumed

Means and medians are multiplied by N, so they estimate the same totals as plain addition.

Source: Yin, Chen, Ramchandran, Bartlett, ICML 2018 (trimmed mean, median); Blanchard, El Mhamdi, Guerraoui, Stainer,
NeurIPS 2017 (Krum); Tukey, McLaughlin, Sankhya A 25 (1963) and McKean, Schrader, Commun. Stat. 13 (1984) (variances).
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.debias import Z95
from aggregator.nodes.summaries.totals import column_sums
from protocol.errors import InputError, PolicyError

TRIMMED, MEDIAN, KRUM = "trimmed-mean", "median", "krum"
FEWEST = 6
"""Smallest number of nodes of a trimmed mean or median: fewer do not show their spread."""
_BLOCK = 256
"""Rows of the matrix of distances that are computed at a time."""
_FORMS = re.compile(r"(trimmed-mean):(0?\.[0-9]{1,6})|(median)|(krum):([0-9]{1,6})")


class Rule(NamedTuple):
    """A robust rule.

    Attributes:
        kind: :data:`TRIMMED`, :data:`MEDIAN` or :data:`KRUM`.
        share: α of the trimmed mean, the share of the nodes that is left out at either end; 0 for other rules.
        liars: F of Krum, the number of nodes that may lie; 0 for other rules.
    """

    kind: str
    share: Fraction = Fraction(0)
    liars: int = 0

    def __str__(self) -> str:
        """The rule as :func:`parse_rule` reads it."""
        if self.kind == TRIMMED:
            return f"{TRIMMED}:{float(self.share):g}"
        return f"{KRUM}:{self.liars}" if self.kind == KRUM else MEDIAN


class Robust(NamedTuple):
    """What a trimmed mean or median of N nodes gives, as estimates of the nodes' totals.

    Attributes:
        totals: M integers, N times the mean or median of each number, rounded to the nearest integer.
        variance: shape (M,) float64, variance of each total, estimated from the differences between the nodes. It holds
            the noise and the sampling of records. It is an estimate for fits, and too rough for intervals: it is 0
            where most nodes agree, and bias is not in it.
    """

    totals: list[int]
    variance: Floats


def parse_rule(text: str) -> Rule:
    """Read ``trimmed-mean:0.1``, ``median`` or ``krum:3``.

    Raises:
        InputError: ``robust_invalid``: another text, or the share is 0, or ½ or more.
    """
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
    """Refuse a rule whose assumptions do not hold.

    Args:
        rule: the rule.
        nodes: N, number of nodes.

    Raises:
        PolicyError: ``nodes_too_few``: fewer than :data:`FEWEST` nodes, or so few that nothing would be trimmed; of
            Krum fewer than 2F + 3.
    """
    if rule.kind == KRUM:
        if nodes < 2 * rule.liars + 3:
            raise PolicyError("nodes_too_few", f"krum:{rule.liars} needs {2 * rule.liars + 3} nodes; there are {nodes}")
        return
    if nodes < FEWEST:
        raise PolicyError("nodes_too_few", f"{rule.kind} needs {FEWEST} nodes; there are {nodes}")
    if rule.kind == TRIMMED and not int(rule.share * nodes):
        raise PolicyError("nodes_too_few", f"{rule} of {nodes} nodes leaves out none; name a larger share")


def combine(rule: Rule, values: Integers) -> Robust:
    """Trimmed mean or median of every number, scaled to the total of all nodes. Run by the aggregator.

    Args:
        rule: a trimmed mean or a median, accepted by :func:`check_rule`.
        values: shape (N, M) int64, the numbers of every node. The order of the rows does not matter.
    """
    ordered = np.sort(values, axis=0)
    number = len(ordered)
    cut = int(rule.share * number) if rule.kind == TRIMMED else (number - 1) // 2
    middle = ordered[cut : number - cut]
    totals = [_rounded(number * total, len(middle)) for total in column_sums(middle)]
    if rule.kind == MEDIAN:
        return Robust(totals, _median_variance(ordered))
    winsorized = np.clip(ordered, ordered[cut], ordered[number - cut - 1]).astype(np.float64)
    spread = winsorized.var(axis=0, ddof=1)
    return Robust(totals, np.asarray(number * spread / (len(middle) / number) ** 2, np.float64))


def _rounded(numerator: int, denominator: int) -> int:
    """The integer nearest to a fraction, halves rounded up; ``denominator`` > 0."""
    return (2 * numerator + denominator) // (2 * denominator)


def _median_variance(ordered: Integers) -> Floats:
    """Variance of N times the median: shape (M,) float64. ``ordered``: shape (N, M), each column rising.

    The order statistics of rank c and N + 1 − c contain the median with 95 %, c = (N + 1)/2 − z√N/2 rounded. Their
    distance is 2z standard deviations.
    """
    number = len(ordered)
    rank = max(1, round((number + 1) / 2 - Z95 * number**0.5 / 2))
    distance = (ordered[number - rank] - ordered[rank - 1]).astype(np.float64)
    return np.asarray((number * distance / (2 * Z95)) ** 2, np.float64)


def krum_choice(parameters: Floats, liars: int) -> int:
    """The row that Krum chooses; of equally good rows the first.

    Args:
        parameters: shape (N, P) float64, normalised parameters of every node's model.
        liars: F; N ≥ 2F + 3.
    """
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
