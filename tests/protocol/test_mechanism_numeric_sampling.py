"""Does ``perturb`` of the numeric mechanisms follow ``distribution``? With a stated rate of false alarm.

As in test_mechanism_sampling.py: every event is compared with its exact binomial window, so a right
sampler fails a case with probability at most ALPHA over fresh seeds; the seeds are fixed.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from support.binomial import violations

from protocol import SCALE
from protocol.epsilon import exp_below
from protocol.mechanisms import from_epsilon
from protocol.mechanisms.piecewise import CELLS
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)
N = 20_000
BUCKET = 128
STEPS = 4096
"""Width in steps of the buckets in which answers of ``laplace`` are counted, from one tail to the other."""

BIT, PIECEWISE, HYBRID = from_epsilon("bit", "1"), from_epsilon("piecewise", "1"), from_epsilon("hybrid", "3")
DUCHI_2, DUCHI_3 = from_epsilon("duchi", "1", 2), from_epsilon("duchi", "1", 3)
BITS, LAPLACE = from_epsilon("bits", "1", 2), from_epsilon("laplace", "0.5", 1)
INPUTS = {
    BIT: (-SCALE, -20_000, 0, SCALE),
    PIECEWISE: (-SCALE, -20_000, 0, SCALE),
    HYBRID: (-SCALE, 777),
    BITS: ((0, -20_000), (SCALE, 0)),
    DUCHI_2: ((SCALE, -30_000), (0, -SCALE)),
    DUCHI_3: ((SCALE, -30_000, 0), (-SCALE, 5, SCALE)),
    LAPLACE: ((-SCALE,), (777,)),
}


def event_of(mechanism):
    """The counted event of an answer: a bucket of cells or steps, or the answer itself."""
    if mechanism in (PIECEWISE, HYBRID):
        return lambda answer: answer // BUCKET if answer < CELLS else answer
    if mechanism == LAPLACE:
        return lambda answer: max(-4, min(answer[0] // STEPS, 3))
    return lambda answer: answer


def expected(mechanism, value):
    """Exact probability of every event of one answer."""
    if mechanism == LAPLACE:
        return laplace_buckets(value[0])
    table: dict = {}
    event = event_of(mechanism)
    for answer, chance in mechanism.distribution(value).items():
        table[event(answer)] = table.get(event(answer), Fraction(0)) + chance
    return table


def laplace_buckets(x):
    """From P(noise ≥ n) = q^n/(1 + q) for n > 0, mixed over the two places of the rounded input."""
    q = 1 / exp_below(LAPLACE.s, LAPLACE.t)
    step, rest = divmod(x * 1024, SCALE)
    up = Fraction(rest, SCALE)

    def power(n):
        return 1 / exp_below(LAPLACE.s * n, LAPLACE.t) if n else Fraction(1)

    def at_least(n):
        return power(n) / (1 + q) if n > 0 else 1 - power(1 - n) / (1 + q)

    def reaches(n):
        return (1 - up) * at_least(n - step) + up * at_least(n - step - 1)

    edges = [reaches(STEPS * k) for k in range(-3, 4)]
    chances = [1 - edges[0], *(a - b for a, b in pairwise(edges)), edges[-1]]
    return dict(zip(range(-4, 4), chances, strict=True))


def compare(sampler, mechanism, purpose):
    """Violations of the windows by ``sampler(value, seed)``, as texts."""
    event = event_of(mechanism)
    found = []
    for value in INPUTS[mechanism]:
        found += violations(
            lambda seed, value=value: sampler(value, seed),
            expected(mechanism, value),
            lambda answer: [event(answer)],
            purpose=f"{purpose}/{value}",
            n=N,
            alpha=ALPHA / len(INPUTS[mechanism]),
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", INPUTS, ids=repr)
def test_answers_follow_the_stated_distribution(mechanism):
    assert compare(mechanism.perturb, mechanism, repr(mechanism)) == []


def bit_that_spends_a_fifth_more(value, seed):
    return from_epsilon("bit", "1.2").perturb(value, seed)


def bits_with_one_coin(value, seed):
    first, _ = BITS.perturb(value, seed)
    return (first, first)


def cells_with_tails_of_one_half(value, seed):
    """Outside the window a fair coin decides between left and right, whatever the lengths of the two parts."""
    stream = Stream(seed, b"hearsay/1/piecewise")
    start = (value + SCALE) * (CELLS - PIECEWISE.window) // (2 * SCALE)
    if stream.coin(PIECEWISE.threshold):
        return start + stream.below(PIECEWISE.window)
    right = CELLS - PIECEWISE.window - start
    if not right or (start and stream.below(2)):
        return stream.below(start)
    return start + PIECEWISE.window + stream.below(right)


def hybrid_without_its_bit(value, seed):
    return HYBRID.piecewise.perturb(value, seed)


def duchi_of_two_with_ties_on_one_side(value, seed):
    stream = Stream(seed, b"hearsay/1/duchi")
    corner = [stream.below(2 * SCALE) < x + SCALE for x in value]
    side = stream.coin(DUCHI_2.threshold)
    while True:
        answer = [stream.coin(1 << 31) for _ in value]
        if (sum(a == v for a, v in zip(answer, corner, strict=True)) > 1) == side:
            return tuple(map(int, answer))


def duchi_that_does_not_round_at_random(value, seed):
    return DUCHI_3.perturb(tuple(SCALE if x >= 0 else -SCALE for x in value), seed)


def noise_that_is_too_small(value, seed):
    return from_epsilon("laplace", "0.6", 1).perturb(value, seed)


def noise_without_a_sign(value, seed):
    (answer,) = LAPLACE.perturb(value, seed)
    return (abs(answer),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "mechanism"),
    [
        (bit_that_spends_a_fifth_more, BIT),
        (bits_with_one_coin, BITS),
        (cells_with_tails_of_one_half, PIECEWISE),
        (hybrid_without_its_bit, HYBRID),
        (duchi_of_two_with_ties_on_one_side, DUCHI_2),
        (duchi_that_does_not_round_at_random, DUCHI_3),
        (noise_that_is_too_small, LAPLACE),
        (noise_without_a_sign, LAPLACE),
    ],
)
def test_the_comparison_rejects(broken, mechanism):
    assert compare(broken, mechanism, broken.__name__)
