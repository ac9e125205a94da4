"""What a robust rule costs where no node lies: simulated from the totals, without any record.

N nodes of n/N records each are drawn from the estimated shares and means, with the noise that summaries have. The loss
is the ratio of the root mean square errors of the rule's totals and of plain addition, over the simulated fleets. It
holds the bias of the rule for rare values, whose counts are skewed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.estimates.cells import question_name
from aggregator.estimates.question_estimate import QuestionEstimate, is_share
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.summaries.robust import Rule, combine

REPEATS = 100
_WORK = 2_000_000
"""Most simulated numbers of one vector; of many nodes or values there are fewer repeats, at least two."""
_ROUNDING = 1 << 20
"""Steps of 1 that simulated numbers are rounded to, so that the rule sees integers: 2^-20 records."""


class Loss(NamedTuple):
    """Standard errors of a rule on honest data, as multiples of those of plain addition.

    Attributes:
        class_counts: of the class counts.
        typical: the median over all released vectors.
        worst: of the vector that loses most.
        worst_name: that vector in words.
    """

    class_counts: float
    typical: float
    worst: float
    worst_name: str

    def __str__(self) -> str:
        """One sentence for people and for a model's card."""
        return (
            f"on honest data the standard errors are {self.class_counts:.2f} times those of plain addition for class "
            f"counts, {self.typical:.2f} times for a typical statistic, {self.worst:.2f} times for {self.worst_name}"
        )


def expected_loss(rule: Rule, statistics: Statistics, nodes: int, repeats: int = REPEATS) -> Loss:
    """Simulate the loss of a trimmed mean or median on honest nodes of equal size. Run by the aggregator.

    The same statistics give the same numbers: their id seeds the generator.

    Args:
        rule: the rule.
        statistics: of plain addition.
        nodes: N, number of nodes.
        repeats: largest number of simulated fleets.
    """
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    ratios = [_ratio(rule, question, nodes, repeats, generator) for question in statistics.questions]
    worst = int(np.argmax(ratios))
    name = question_name(statistics.questions[worst].subject, statistics.schema)
    return Loss(ratios[0], float(np.median(ratios)), ratios[worst], name)


def _ratio(rule: Rule, question: QuestionEstimate, nodes: int, repeats: int, generator: np.random.Generator) -> float:
    """The loss of one vector: root mean square error of the rule over that of plain addition; 1 without any error."""
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
    """Numbers of honest nodes in units of 2^-20 records, shape (N, K) int64, and their true totals, shape (K,)."""
    size, records = len(question.estimate), max(1, question.n // nodes)
    share = question.estimate / question.n
    if is_share(question.subject):
        share = np.clip(share, 0, 1)
        exact = generator.binomial(records, share, (nodes, size)).astype(np.float64)
    else:
        exact = records * share + np.sqrt(records * question.spread) * generator.normal(size=(nodes, size))
    noise = generator.laplace(scale=np.sqrt(question.noise_variance / nodes / 2), size=(nodes, size))
    return np.rint((exact + noise) * _ROUNDING).astype(np.int64), nodes * records * share
