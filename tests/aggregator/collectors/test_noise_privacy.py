"""What one honest collector's noise alone hides of a record: by enumeration, with the law that the code asks for.

A dishonest collector knows its own noise, so only the other's counts. Readers see more noise, and learn no more.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
import pytest
from support.shared import gaussian, of_cells, shared_campaign

from aggregator.collectors import noise
from aggregator.collectors.noise import better_noise, cell_variance, delta_above, gaussian_variance, noisy
from aggregator.curator.concentrated import rho_within
from protocol.documents.shared_terms import GAUSSIAN, LAPLACE, shared_loss
from protocol.epsilon import MICRO

PICO = 10**12
EPSILON = 1_000_003
"""In millionths; not divisible by a number of blocks."""


def laws(campaign, monkeypatch, sums):
    """The laws that one collector asks for, one for each cell; every number is the sum plus the drawn noise."""
    asked = []

    def draw(*law):
        asked.append(law[1:])
        return 100 + len(asked)

    monkeypatch.setattr(noise, "discrete_laplace", draw)
    monkeypatch.setattr(noise, "discrete_gaussian", draw)
    found = noisy(campaign, sums, bytes(32))
    assert found == [each + 101 + at for at, each in enumerate(sums)]
    return asked


def records(features, cells):
    """The vector of every record."""
    return [
        [int(at == cell) for cell in chosen for at in range(cells)] for chosen in product(range(cells), repeat=features)
    ]


def hidden_by_laplace(features, monkeypatch):
    campaign = shared_campaign(of_cells(features, 1), epsilon_micro=EPSILON)
    vectors = records(features, campaign.schema.observed[0].size * 2)
    asked = {tuple(laws(campaign, monkeypatch, vector)) for vector in vectors}
    assert len(asked) == 1, "the law depends on the record"
    rates = [Fraction(*law) for law in asked.pop()]
    # ln P(y)/P'(y) of a count is rate·(|y − b| − |y − a|) ≤ rate·|a − b|, which it reaches below both.
    loss = max(
        sum((rate * abs(a - b) for rate, a, b in zip(rates, one, other, strict=True)), Fraction(0))
        for one in vectors
        for other in vectors
    )
    assert loss <= Fraction(EPSILON, MICRO)
    assert loss == shared_loss(len(campaign.blocks), EPSILON, LAPLACE).exponent


def exact_delta(changed, variance, epsilon):
    """Σ max(P − e^ε·P', 0) over the sum of the noise of the changed counts, which decides the ratio."""
    reach = int(13 * variance**0.5) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    total = one = one / one.sum()
    for _ in range(changed - 1):
        total = np.convolve(total, one)
    first = np.pad(total, (0, changed))
    return np.maximum(first[::-1] - exp(epsilon) * np.pad(total, (changed, 0))[::-1], 0).sum()


def hidden_by_gaussian(features, monkeypatch, delta=1_000_000):
    publisher = of_cells(features, 1)
    shared = gaussian(publisher.schema, delta)
    campaign = shared_campaign(publisher, epsilon_micro=EPSILON, shared=shared)
    asked = set(laws(campaign, monkeypatch, [0] * (features * 2 * campaign.schema.observed[0].size)))
    assert len(asked) == 1
    variance = asked.pop()[0]
    for changed in range(2, 2 * features + 1, 2):
        assert exact_delta(changed, variance, EPSILON / MICRO) <= delta / PICO
    return variance


@pytest.mark.parametrize("features", [1, 2, 3])
def test_one_collectors_noise_alone_hides_a_record(features, monkeypatch):
    hidden_by_laplace(features, monkeypatch)
    hidden_by_gaussian(features, monkeypatch)


@pytest.mark.parametrize("mistake", ["Q for 2Q", "half the variance", "forgotten"])
def test_too_little_noise_is_found(mistake, monkeypatch):
    if mistake == "Q for 2Q":
        monkeypatch.setattr(noise, "cell_micro", lambda blocks, micro: micro // blocks)
        tried = hidden_by_laplace
    elif mistake == "half the variance":
        monkeypatch.setattr(noise, "gaussian_variance", lambda *terms: gaussian_variance(*terms) // 2)
        tried = hidden_by_gaussian
    else:
        monkeypatch.setitem(globals(), "noisy", lambda campaign, sums, seed: list(sums))
        tried = hidden_by_laplace
    with pytest.raises(AssertionError):
        tried(2, monkeypatch)


def test_the_sum_decides_as_all_cells_together_do():
    """δ of two changed counts over all pairs of numbers, without the sum."""
    variance, epsilon = 7, 0.9
    axis = np.arange(-60, 61)
    density = np.exp(-(axis**2) / (2 * variance))
    density /= density.sum()
    one, other = np.outer(density, np.roll(density, 1)), np.outer(np.roll(density, 1), density)
    whole = np.maximum(one - exp(epsilon) * other, 0).sum()
    assert whole == pytest.approx(exact_delta(2, variance, epsilon), rel=1e-9)


@pytest.mark.parametrize("changed", [1, 2, 6, 12])
@pytest.mark.parametrize(
    ("epsilon", "variances"), [(Fraction(1), (60, 200)), (Fraction(1, 4), (2000,)), (Fraction(3), (12, 25))]
)
def test_the_bound_of_delta_is_just_above_the_exact_one(changed, epsilon, variances):
    for variance in variances:
        exact, bound = exact_delta(changed, variance, float(epsilon)), float(delta_above(changed, variance, epsilon))
        assert exact < 1e-20 or exact * (1 - 1e-9) <= bound  # Below, the ends of the sums show.
        if bound < 1 and variance >= 2 * changed:
            assert bound <= exact * 1.001 + 1e-15


def test_noise_falls_with_epsilon_and_delta_and_is_never_above_that_of_the_best_order():
    for blocks in (1, 5, 36):
        for delta in (10, 10**6):
            found = [
                gaussian_variance(blocks, micro, delta) for micro in (600_000, 999_999, 10**6, 3 * 10**6, 8 * 10**6)
            ]
            assert found == sorted(found, reverse=True)
            assert found[2] <= blocks / rho_within(Fraction(1), Fraction(delta, PICO)) + 1
        assert gaussian_variance(blocks, 10**6, 10) >= gaussian_variance(blocks, 10**6, 10**6)


@pytest.mark.parametrize(("micro", "first"), [(1_000_000, 5), (100_000, 4)])
def test_from_which_number_of_features_gaussian_noise_is_smaller(micro, first):
    """δ = 10⁻⁶."""
    assert [better_noise(blocks, micro, 10**6) for blocks in (first - 1, first)] == [LAPLACE, GAUSSIAN]
    assert better_noise(first, micro, 0) == LAPLACE
    assert cell_variance(GAUSSIAN, first, micro, 10**6) < cell_variance(LAPLACE, first, micro, 10**6)
