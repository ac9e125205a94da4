"""Do devices answer by the stated distribution? Statistical tests with a stated rate of false alarm.

Each test draws answers to several inputs and compares the count of every event with its exact binomial window. An event
is an answer or a range of answers; of rows of bits also each bit and each pair of bits; of noise also its sign. A right
sampler fails one case with probability at most ALPHA over fresh seeds; the seeds are fixed. The same comparison must
reject samplers with a fault.
"""

from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from support.binomial import violations

from protocol import SCALE
from protocol.epsilon import exp_below
from protocol.mechanisms import from_epsilon
from protocol.mechanisms.noise import _bernoulli_exp, discrete_laplace, rate
from protocol.mechanisms.piecewise import CELLS
from protocol.mechanisms.unary import UnaryMechanism
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)
N = 30_000
"""Samples of one input: enough to detect noise with a rate 10 % too small, and an ε a tenth too large."""
BUCKET = 128
"""Cells of ``piecewise`` that are counted together."""
STEPS = 4096
"""Width of the ranges in which answers of ``laplace`` are counted, from one tail to the other."""

DIRECT, UNARY = from_epsilon("direct", 1, 4), from_epsilon("oue", 1, 3)
SUBSET = from_epsilon("subset", "0.5", 5)
SYMMETRIC, THRESHOLDED = from_epsilon("sue", 1, 3), from_epsilon("the", "2", 3, theta="0.5")
BIT, PIECEWISE, HYBRID = from_epsilon("bit", "1"), from_epsilon("piecewise", "1"), from_epsilon("hybrid", "3")
DUCHI_2, DUCHI_3 = from_epsilon("duchi", "1", 2), from_epsilon("duchi", "1", 3)
BITS, LAPLACE = from_epsilon("bits", "1", 2), from_epsilon("laplace", "0.5", 1)
NUMBERS = {
    BIT: (-SCALE, -20_000, 0, SCALE),
    PIECEWISE: (-SCALE, -20_000, 0, SCALE),
    HYBRID: (-SCALE, 777),
    BITS: ((0, -20_000), (SCALE, 0)),
    DUCHI_2: ((SCALE, -30_000), (0, -SCALE)),
    DUCHI_3: ((SCALE, -30_000, 0), (-SCALE, 5, SCALE)),
    LAPLACE: ((-SCALE,), (777,)),
}
"""The inputs of numeric mechanisms. Of the others every value is an input."""
FURTHER = [
    *(DIRECT, SUBSET, SYMMETRIC, THRESHOLDED, *NUMBERS),
    *(from_epsilon("the", "2", 3, theta=theta) for theta in ("0.1", "0.25", "0.9")),
    *(from_epsilon(name, "0.1", 2) for name in ("direct", "oue", "sue")),
    *(from_epsilon(name, "4", size) for name, size in (("direct", 6), ("oue", 4), ("sue", 3), ("the", 2))),
]


def events(mechanism, answer):
    if mechanism in (PIECEWISE, HYBRID):
        return [answer // BUCKET if answer < CELLS else answer]
    if mechanism == LAPLACE:
        return [max(-4, min(answer[0] // STEPS, 3))]
    if not isinstance(mechanism, UnaryMechanism):
        return [answer]
    ones = [j for j, bit in enumerate(answer) if bit]
    return [answer, *(("bit", j) for j in ones), *(("bits", i, j) for i, j in combinations(ones, 2))]


def expected(mechanism, value):
    if mechanism == LAPLACE:
        return laplace_buckets(value[0])
    table = Counter()
    for answer, chance in mechanism.distribution(value).items():
        table[events(mechanism, answer)[0]] += chance
    if isinstance(mechanism, UnaryMechanism):
        ones = mechanism.bit_probabilities(value)
        table |= {("bit", j): ones[j] for j in range(mechanism.size)}
        table |= {("bits", i, j): ones[i] * ones[j] for i, j in combinations(range(mechanism.size), 2)}
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


def compare(sampler, mechanism):
    """Violations of the windows by ``sampler(value, seed)``, as texts."""
    inputs, found = NUMBERS.get(mechanism) or range(mechanism.size), []
    for value in inputs:
        found += violations(
            lambda seed, value=value: sampler(value, seed),
            expected(mechanism, value),
            lambda answer: events(mechanism, answer),
            purpose=f"{mechanism!r}/{value}",
            n=N,
            alpha=ALPHA / len(inputs),
        )
    return found


@pytest.mark.parametrize(
    "mechanism", [UNARY, *(pytest.param(each, marks=pytest.mark.slow) for each in FURTHER)], ids=repr
)
def test_answers_follow_the_stated_distribution(mechanism):
    assert compare(mechanism.perturb, mechanism) == []


def never_reports_the_last_value(value, seed):
    return min(DIRECT.perturb(value, seed), DIRECT.size - 2)


def lie_may_be_the_truth(value, seed):
    stream = Stream(seed, b"hearsay/1/direct")
    return value if stream.coin(DIRECT.keep) else stream.below(DIRECT.size)


def lie_is_the_next_value(value, seed):
    answer = DIRECT.perturb(value, seed)
    return value if answer == value else (value + 1) % DIRECT.size


def answers_outside_the_domain(value, seed):
    answer = DIRECT.perturb(value, seed)
    return DIRECT.size if answer == value == 0 and seed[0] < 2 else answer


def last_bit_in_clear(value, seed):
    return (*UNARY.perturb(value, seed)[:-1], int(value == UNARY.size - 1))


def symmetric_with_its_probabilities_exchanged(value, seed):
    return tuple(1 - bit for bit in SYMMETRIC.perturb(value, seed))


def one_coin_for_two_bits(value, seed):
    """Every bit has the right probability, but the two bits of the other values are always equal."""
    bits = list(UNARY.perturb(value, seed))
    one, other = (j for j in range(UNARY.size) if j != value)
    bits[one] = bits[other]
    return tuple(bits)


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


def noise_without_a_sign(value, seed):
    (answer,) = LAPLACE.perturb(value, seed)
    return (abs(answer),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "mechanism"),
    [
        (never_reports_the_last_value, DIRECT),
        (lie_may_be_the_truth, DIRECT),
        (lie_is_the_next_value, DIRECT),
        (answers_outside_the_domain, DIRECT),
        (from_epsilon("direct", "1.1", 4).perturb, DIRECT),
        (from_epsilon("direct", "0.9", 4).perturb, DIRECT),
        (last_bit_in_clear, UNARY),
        (from_epsilon("oue", "1.1", 3).perturb, UNARY),
        (symmetric_with_its_probabilities_exchanged, SYMMETRIC),
        (from_epsilon("the", "2", 3).perturb, THRESHOLDED),
        (from_epsilon("bit", "1.2").perturb, BIT),
        (bits_with_one_coin, BITS),
        (cells_with_tails_of_one_half, PIECEWISE),
        (HYBRID.piecewise.perturb, HYBRID),
        (duchi_of_two_with_ties_on_one_side, DUCHI_2),
        (duchi_that_does_not_round_at_random, DUCHI_3),
        (from_epsilon("laplace", "0.6", 1).perturb, LAPLACE),
        (noise_without_a_sign, LAPLACE),
    ],
)
def test_the_comparison_rejects(broken, mechanism):
    assert compare(broken, mechanism)


@pytest.mark.slow
def test_bits_that_agree_are_seen_by_their_pairs_alone():
    found = compare(one_coin_for_two_bits, UNARY)
    assert not [text for text in found if text.startswith("('bit',")]
    assert [text for text in found if text.startswith("('bits',")]


# The noise of ``she`` and ``laplace`` ---------------------------------------------------------------------

RATES = [(1, 2), (1, 1), (3, 1), (2, 3), (2, 7)]
TAG = b"hearsay/1/histogram"


def compare_noise(sampler, s, t):
    """Violations of the windows by ``sampler(stream, s, t)``: P(n) = (1 − q)/(1 + q)·q^|n| with q = e^{−s/t}."""
    q = 1 / exp_below(s, t)
    at_zero, reach = (1 - q) / (1 + q), 4 * t // s + 4
    table = {n: at_zero * q ** abs(n) for n in range(-reach, reach + 1)}
    table |= dict.fromkeys(("below", "above"), q ** (reach + 1) / (1 + q))
    assert abs(sum(table.values()) - 1) < Fraction(1, 10**40)
    table |= dict.fromkeys(("negative", "positive"), (1 - at_zero) / 2)

    def shown(noise):
        found = [noise if abs(noise) <= reach else "above" if noise > 0 else "below"]
        return [*found, "negative" if noise < 0 else "positive"] if noise else found

    return violations(
        lambda seed: sampler(Stream(seed, TAG), s, t), table, shown, purpose=f"laplace/{s}/{t}", n=N, alpha=ALPHA
    )


@pytest.mark.parametrize(("s", "t"), [RATES[0], *(pytest.param(*rate, marks=pytest.mark.slow) for rate in RATES[1:])])
def test_the_noise_follows_its_distribution(s, t):
    assert compare_noise(discrete_laplace, s, t) == []


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


FAULTS = (zero_counted_twice, rate_a_tenth_too_small, rate_a_tenth_too_large, leans_to_the_negative)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "s", "t"),
    [
        *((fault, s, t) for fault in FAULTS for s, t in ((1, 2), (3, 1), (2, 3))),
        *((no_rejection_of_u, 1, 2), (no_rejection_of_u, 2, 7), (never_far_out, 1, 2)),
    ],
)
def test_the_comparison_rejects_faulty_noise(broken, s, t):
    assert compare_noise(broken, s, t)


def test_the_steps_by_hand_are_those_of_the_sampler():
    """Without a fault the second implementation equals the sampler, so each mutant has only the named fault."""
    for number in range(300):
        seed = number.to_bytes(32, "big")
        s, t = RATES[number % len(RATES)]
        assert by_hand(Stream(seed, TAG), s, t) == discrete_laplace(Stream(seed, TAG), s, t)


def test_the_rate_is_in_lowest_terms():
    assert rate(1_000_000, 2) == (1, 2048)
    assert rate(123_457, 2) == (123_457, 2_048_000_000)
