"""Gaussian fits under ``posterior``: moments without noise stay; noise pulls means and variances to the pooled ones."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.models.postprocess.posterior import Moments, shrunk

SHARE = np.array([0.6, 0.3, 0.1])
MEAN = np.array([-0.4, 0.1, 0.5])
VARIANCE = np.array([0.05, 0.1, 0.02])


def moments_with(noise, seed=None):
    """Moments of three classes; their estimates have errors of this variance if there is a seed."""
    first, second = SHARE * MEAN, SHARE * (VARIANCE + MEAN**2)
    if seed is not None:
        errors = np.random.default_rng(seed).normal(0, noise**0.5, (2, 3))
        first, second = first + errors[0], second + errors[1]
    return Moments(first, second, np.full(3, noise), np.full(3, noise), SHARE)


def test_without_noise_the_moments_stay():
    mean, variance = shrunk(moments_with(1e-14))
    assert mean == pytest.approx(MEAN, abs=1e-6)
    assert variance == pytest.approx(VARIANCE, abs=1e-6)


def test_with_noise_alone_all_classes_are_equal():
    """Far beyond any signal: mean 0, and variances equal to a part in a thousand."""
    mean, variance = shrunk(moments_with(1e6, seed=1))
    assert np.ptp(mean) < 1e-3
    assert np.ptp(np.log(variance)) < 1e-3


def test_the_more_noise_the_nearer_to_the_pooled_mean():
    found = [shrunk(moments_with(noise)) for noise in (1e-14, 1e-4, 1e-3, 1e-2, 1.0, 1e3)]
    spreads = [np.ptp(mean) for mean, _ in found]
    assert spreads == sorted(spreads, reverse=True)
    pooled = SHARE @ MEAN
    assert np.abs(found[3][0] - pooled).max() < np.abs(MEAN - pooled).max()


def test_fewer_variances_are_near_zero_than_in_the_moments_alone():
    """Noise of the size of the moments themselves, 200 draws: no variance falls to a fiftieth of the pooled one."""
    raw, kept = [], []
    for seed in range(200):
        of = moments_with(0.01, seed)
        raw.append(of.second / SHARE - (of.first / SHARE) ** 2)
        kept.append(shrunk(of)[1])
    least = (VARIANCE @ SHARE) / 50
    assert (np.array(raw) < least).mean() > 0.2
    assert (np.array(kept) < least).mean() < 0.01
    assert (np.array(kept) > 0).all()


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_of_the_classes_does_not_matter(order):
    of = moments_with(0.01, seed=4)
    mean, variance = shrunk(of)
    other = shrunk(Moments(*(part[order] for part in of)))
    np.testing.assert_allclose(other[0], mean[order], rtol=1e-9)
    np.testing.assert_allclose(other[1], variance[order], rtol=1e-9)


def test_impossible_moments_give_possible_parameters():
    """Second moments below 0 and first moments beyond 1, with little noise stated."""
    of = Moments(np.array([3.0, -2.0, 0.0]), np.array([-1.0, 5.0, 0.0]), np.full(3, 1e-6), np.full(3, 1e-6), SHARE)
    mean, variance = shrunk(of)
    assert (np.abs(mean) <= 1).all()
    assert np.isfinite(variance).all()
    assert (variance > 0).all()
