"""The method ``smooth-trimmed``: as ``smooth``, with a trimmed mean in place of the mean.

A trimmed mean leaves out the same number of values at either end. Its smooth sensitivity is smaller where values crowd
within the bounds, but it is the mean of other values: for skewed numbers it is biased.

Source: Bun, Steinke (2019) for trimmed means; Zafarani, Clifton (2020); docs/smooth.md.
"""

from __future__ import annotations

from aggregator.curator.methods.smooth import Smooth
from aggregator.curator.terms import FitTerms
from protocol.epsilon import MICRO


class SmoothTrimmed(Smooth):
    """Noisy trimmed mean and noisy variance, noise scaled to the smooth sensitivity."""

    name = "smooth-trimmed"

    def trim(self, n: int, terms: FitTerms) -> int:
        """How many of ``n`` values the mean leaves out at either end: the share of the terms, rounded down."""
        return n * terms.trim_micro // MICRO
