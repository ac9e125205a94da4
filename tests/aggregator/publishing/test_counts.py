"""The laws of counts agree with vectorised draws: means and variances, for every mechanism."""

from __future__ import annotations

import numpy as np
import pytest
from support.mechanisms import inputs_of, made

from aggregator.publishing.mechanisms.draws import _Drawn, count_law
from protocol import mechanisms

ANSWERS, CAMPAIGNS = 60, 800
DEVIATIONS = 5.5
"""A right law fails one comparison of a mean with probability 4e-8."""


def moments_of(law, rng):
    counts = np.array([law.counts(ANSWERS, rng) for _ in range(CAMPAIGNS)], float)
    return counts.mean(axis=0), counts.var(axis=0)


@pytest.mark.parametrize("name", mechanisms.names())
def test_counts_have_the_mean_and_variance_of_drawn_answers(name):
    mechanism = made(name, "2")
    inputs = np.array(inputs_of(mechanism))
    shares = np.linspace(1, 3, len(inputs))
    shares /= shares.sum()
    rng = np.random.default_rng(5)
    mean, variance = moments_of(count_law(mechanism, inputs, shares), rng)
    drawn_mean, drawn_variance = moments_of(_Drawn(mechanism, inputs, shares), rng)
    both = np.sqrt((variance + drawn_variance) / CAMPAIGNS)
    assert (np.abs(mean - drawn_mean) <= DEVIATIONS * both + 1e-9).all()
    seen = variance + drawn_variance > 1  # cells of piecewise have few answers each, and are compared in their sum
    if len(mean) > 100:
        np.testing.assert_allclose(variance.sum(), drawn_variance.sum(), rtol=0.06)
    else:
        np.testing.assert_allclose(variance[seen], drawn_variance[seen], rtol=0.35)


def test_a_law_of_other_inputs_is_seen():
    mechanism = made("direct", "2")
    inputs = np.arange(3)
    rng = np.random.default_rng(5)
    mean, variance = moments_of(count_law(mechanism, inputs, np.array([0.5, 0.3, 0.2])), rng)
    other, _ = moments_of(_Drawn(mechanism, inputs, np.array([0.3, 0.5, 0.2])), rng)
    assert (np.abs(mean - other) > DEVIATIONS * np.sqrt(2 * variance / CAMPAIGNS)).any()
