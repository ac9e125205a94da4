"""The index of the largest of several counts with differential privacy: report-noisy-max with exponential noise.

Every count gets exponential noise of rate r, and the index of the largest sum is released, nothing else. One record
more raises each count by 0 or 1. So it moves the value that an index needs to win by at most 1 either way, and
P(index) changes by at most the factor e^r, however many counts there are. A replaced record is one record less and one
more: a factor of e^2r.

The index is drawn without noise on real numbers, by permute-and-flip, which has the same distribution: in random order,
an index with q records less than the best count is taken with probability e^−rq.

Source: Dwork, Roth (2014), section 3.3; McKenna, Sheldon (NeurIPS 2020); Ding, Kifer, Saghaian N. E., Steinke, Wang,
Xiao, Zhang (2021) for the equality of both; docs/math.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from aggregator.curator.noise.whole_numbers import below, coin_of_exponential
from protocol.stream import Stream


def noisy_max(counts: Sequence[int], rate: Fraction, stream: Stream) -> int:
    """Draw the index of a count that is probably the largest. Run by the curator, after the cost was recorded.

    Args:
        counts: at least one count. A record adds 0 or 1 to each.
        rate: r > 0, the ε of one added or removed record.
        stream: the randomness.
    """
    best = max(counts)
    left = list(range(len(counts)))
    while True:
        index = left.pop(below(stream, len(left)))
        if coin_of_exponential(stream, rate * (best - counts[index])):
            return index
