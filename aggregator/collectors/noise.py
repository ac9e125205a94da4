"""The noise that each of the two collectors adds to its half of the sums, and what it costs.

With Q blocks (features) a changed record moves two cells of each block by one: L1 = 2Q, L2² = 2Q. Each collector adds
its own noise to every cell, enough for the whole ε, so that one honest collector suffices. Discrete Laplace noise has
the rate ⌊ε/2Q⌋. Discrete Gaussian noise of variance σ² costs ρ = 2Q/2σ² in zero-concentrated privacy; σ² is the least
integer for which ρ is at most the ρ that gives (ε, δ).

Source: docs/math.md, section 9; Canonne, Kamath, Steinke (2020) for both kinds of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from aggregator.curator.concentrated import rho_within
from aggregator.curator.sampling import discrete_gaussian
from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import GAUSSIAN, LAPLACE, cell_micro
from protocol.epsilon import MICRO
from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.sums import laplace_variance
from protocol.shared.report import terms_of
from protocol.stream import Stream

TAG = b"hearsay/1/shared-noise"
COLLECTORS = 2
_PICO = 10**12


def gaussian_variance(blocks: int, epsilon_micro: int, delta_pico: int) -> int:
    """Return σ², the least integer with Q/σ² ≤ ρ of (ε, δ), Q the number of blocks."""
    return ceil(blocks / rho_within(Fraction(epsilon_micro, MICRO), Fraction(delta_pico, _PICO)))


def cell_variance(noise: str, blocks: int, epsilon_micro: int, delta_pico: int) -> float:
    """Return the variance of one collector's noise in one cell."""
    if noise == GAUSSIAN:
        return float(gaussian_variance(blocks, epsilon_micro, delta_pico))
    return laplace_variance(Fraction(epsilon_micro // (2 * blocks), MICRO))


def better_noise(blocks: int, epsilon_micro: int, delta_pico: int) -> str:
    """Return the kind of noise with the smaller variance; Laplace noise without a δ, and if both are equal."""
    if not delta_pico:
        return LAPLACE
    return min((LAPLACE, GAUSSIAN), key=lambda kind: cell_variance(kind, blocks, epsilon_micro, delta_pico))


def variance_of(campaign: Campaign) -> float:
    """Return the variance of both collectors' noise together in one cell of a shared campaign."""
    terms = terms_of(campaign)
    blocks = len(campaign.schema.observed)
    return COLLECTORS * cell_variance(terms.noise, blocks, campaign.epsilon_micro, terms.delta_pico)


def kurtosis_of(campaign: Campaign) -> float:
    """Return the excess kurtosis of both collectors' noise together in one cell of a shared campaign."""
    return kurtosis(terms_of(campaign).noise, variance_of(campaign) / COLLECTORS)


def kurtosis(noise: str, variance: float) -> float:
    """Return the excess kurtosis of the sum of both collectors' noise, each of this variance v.

    For one Laplace noise the fourth cumulant is 3v² + v; Gaussian noise is taken to have none.
    """
    return 0.0 if noise == GAUSSIAN else (3 * variance**2 + variance) / (COLLECTORS * variance**2)


def noisy(campaign: Campaign, sums: Sequence[int], seed: bytes) -> list[int]:
    """Return one collector's sums with its noise. Each number is an integer, not reduced modulo p.

    Args:
        campaign: a shared campaign.
        sums: the collector's share of the sums over the accepted reports.
        seed: 32 fresh random bytes, used for nothing else.
    """
    terms, stream = terms_of(campaign), Stream(seed, TAG)
    if terms.noise == GAUSSIAN:
        variance = gaussian_variance(len(campaign.schema.observed), campaign.epsilon_micro, terms.delta_pico)
        return [each + discrete_gaussian(stream, variance) for each in sums]
    s, t = Fraction(cell_micro(campaign.schema, campaign.epsilon_micro), MICRO).as_integer_ratio()
    return [each + discrete_laplace(stream, s, t) for each in sums]
