"""Both collectors' noise drawn by numpy, for simulations and forecasts. It has a seed, so nothing here is private."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aggregator.collectors.noise import COLLECTORS, better_noise, cell_variance, kurtosis
from aggregator.common.arrays import Integers
from aggregator.publishing.mechanisms.draws import discrete_laplace
from protocol.documents.shared_terms import GAUSSIAN
from protocol.epsilon import MICRO

LOCAL, SHARED = "local", "shared"
"""Whom devices trust: nobody, or that one of two collectors is honest."""


class SharedNoise(NamedTuple):
    """What the two collectors add to a total, for any number Q of blocks (features that a record is asked about).

    Attributes:
        epsilon_micro: ε of one report, for a changed record, in millionths.
        delta_pico: δ in 10^−12; 0 for Laplace noise.
        noise: ``laplace`` or ``gaussian``; None for the kind with the smaller variance.
    """

    epsilon_micro: int
    delta_pico: int = 0
    noise: str | None = None

    def of_part(self, part: float) -> SharedNoise:
        """Return the noise at a part of ε and δ, each rounded down."""
        return self._replace(epsilon_micro=int(self.epsilon_micro * part), delta_pico=int(self.delta_pico * part))

    def kind(self, blocks: int) -> str:
        """Return the kind of noise for a number of blocks."""
        return self.noise or better_noise(blocks, self.epsilon_micro, self.delta_pico)

    def variance(self, blocks: int) -> float:
        """Return the variance of both collectors' noise together in one cell."""
        return COLLECTORS * cell_variance(self.kind(blocks), blocks, self.epsilon_micro, self.delta_pico)

    def kurtosis(self, blocks: int) -> float:
        """Return the excess kurtosis of both collectors' noise together in one cell."""
        return kurtosis(self.kind(blocks), self.variance(blocks) / COLLECTORS)

    def draw(self, blocks: int, cells: int, rng: np.random.Generator) -> Integers:
        """Draw both collectors' noise in each cell: shape (cells,) int64.

        Discrete Gaussian noise of the integer variance σ² is drawn as rounded normal numbers of the variance σ² − 1/12,
        which rounding makes σ²; each probability differs by less than 0.002 at σ² = 1, and from σ² = 4 on by less than
        10^−4.
        """
        shape = (COLLECTORS, cells)
        if self.kind(blocks) == GAUSSIAN:
            drawn = np.rint(rng.normal(0, (self.variance(blocks) / COLLECTORS - 1 / 12) ** 0.5, shape)).astype(np.int64)
        else:
            drawn = discrete_laplace(self.epsilon_micro // (2 * blocks) / MICRO, shape, rng)
        return np.asarray(drawn.sum(axis=0), np.int64)
