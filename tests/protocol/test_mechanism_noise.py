"""Does the discrete Laplace sampler follow its distribution? Statistical tests with a stated false alarm.

The probabilities of the noise are irrational: expected here to 49 digits, from q = e^{−s/t} as
P(n) = (1 − q)/(1 + q)·q^|n|. A right sampler fails one parameter set with probability at most ALPHA over
fresh seeds; the seeds are fixed. The second half shows which faults the same comparison sees.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.binomial import violations

from protocol.epsilon import exp_below
from protocol.mechanisms.noise import _bernoulli_exp, discrete_laplace, rate
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)
N = 30_000
"""Number of samples: enough to detect a rate 10 % too small with every parameter set below."""
RATES = [(1, 2), (1, 1), (3, 1), (2, 3), (2, 7)]
TAG = b"hearsay/1/histogram"


def expected(s, t):
    """Probabilities of each noise within ±R, of both tails beyond ±R, and of both signs."""
    q = 1 / exp_below(s, t)
    at_zero = (1 - q) / (1 + q)
    reach = 4 * t // s + 4
    table = {n: at_zero * q ** abs(n) for n in range(-reach, reach + 1)}
    tail = q ** (reach + 1) / (1 + q)
    signs = (1 - at_zero) / 2
    return table | {"below": tail, "above": tail, "negative": signs, "positive": signs}


def events(noise, reach):
    """The events that one noise shows: its value or its tail, and its sign."""
    shown = [noise if abs(noise) <= reach else "above" if noise > 0 else "below"]
    return [*shown, "negative" if noise < 0 else "positive"] if noise else shown


def compare(sampler, s, t):
    """Violations of the windows by ``sampler(stream, s, t)``, as texts."""
    table = expected(s, t)
    reach = max(n for n in table if isinstance(n, int))
    return violations(
        lambda seed: sampler(Stream(seed, TAG), s, t),
        table,
        lambda noise: events(noise, reach),
        purpose=f"laplace/{s}/{t}",
        n=N,
        alpha=ALPHA,
    )


@pytest.mark.parametrize(("s", "t"), [RATES[0], *(pytest.param(*rate, marks=pytest.mark.slow) for rate in RATES[1:])])
def test_the_noise_follows_its_distribution(s, t):
    table = expected(s, t)
    values = [chance for event, chance in table.items() if event not in ("negative", "positive")]
    assert abs(sum(values) - 1) < Fraction(1, 10**40)
    assert compare(discrete_laplace, s, t) == []


def by_hand(stream, s, t, *, keep_any_u=False, keep_negative_zero=False):
    """A second implementation of the six steps. A fault may leave out a step."""
    while True:
        u = stream.below(t)
        if not (keep_any_u or _bernoulli_exp(stream, u, t)):
            continue
        v = 0
        while _bernoulli_exp(stream, 1, 1):
            v += 1
        y = (u + t * v) // s
        negative = stream.below(2)
        if negative and y == 0 and not keep_negative_zero:
            continue
        return -y if negative else y


def zero_counted_twice(stream, s, t):
    """Step 6 left out: +0 and −0 both stay."""
    return by_hand(stream, s, t, keep_negative_zero=True)


def no_rejection_of_u(stream, s, t):
    """Step 2 left out: within a block of t steps the noise is flat."""
    return by_hand(stream, s, t, keep_any_u=True)


def rate_a_tenth_too_small(stream, s, t):
    return discrete_laplace(stream, 9 * s, 10 * t)


def rate_a_tenth_too_large(stream, s, t):
    return discrete_laplace(stream, 11 * s, 10 * t)


def leans_to_the_negative(stream, s, t):
    """Three of five noises that are not zero are negative."""
    size = abs(discrete_laplace(stream, s, t))
    return -size if stream.below(5) < 3 else size


def never_far_out(stream, s, t):
    """The tail is cut off at the precision of a float."""
    return max(min(discrete_laplace(stream, s, t), 4 * t // s + 4), -4 * t // s - 4)


@pytest.mark.slow
@pytest.mark.parametrize(("s", "t"), [(1, 2), (3, 1), (2, 3)])
@pytest.mark.parametrize(
    "broken", [zero_counted_twice, rate_a_tenth_too_small, rate_a_tenth_too_large, leans_to_the_negative]
)
def test_the_comparison_rejects(broken, s, t):
    assert compare(broken, s, t)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "s", "t"), [(no_rejection_of_u, 1, 2), (no_rejection_of_u, 2, 7), (never_far_out, 1, 2)]
)
def test_the_comparison_rejects_where_the_fault_can_show(broken, s, t):
    assert compare(broken, s, t)


def test_the_steps_by_hand_are_those_of_the_sampler():
    """Without a fault the second implementation equals the sampler, so each mutant has only the named fault."""
    for number in range(300):
        seed = number.to_bytes(32, "big")
        s, t = RATES[number % len(RATES)]
        assert by_hand(Stream(seed, TAG), s, t) == discrete_laplace(Stream(seed, TAG), s, t)


def test_the_rate_is_in_lowest_terms():
    assert rate(1_000_000, 2) == (1, 2048)
    assert rate(123_457, 2) == (123_457, 2_048_000_000)
