"""Does ``perturb`` follow ``distribution``? Statistical tests with a stated rate of false alarm.

Each test draws N answers to every value and compares the count of every answer (and, for rows of bits,
of every bit and every pair of bits) with its exact binomial window. A right sampler fails with
probability at most ALPHA over fresh seeds; the seeds are fixed, so a test that passes once always does.
The second half of the file shows which faults the same comparison sees.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
from support.binomial import violations

from protocol.mechanisms import BITS, from_epsilon
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)
N = 30_000
CASES = [("direct", "1", 4), ("oue", "1", 3), ("the", "1", 3)]
FURTHER = [
    ("sue", "1", 3),
    ("direct", "0.1", 2),
    ("direct", "4", 6),
    ("oue", "0.1", 2),
    ("oue", "4", 4),
    ("sue", "0.1", 2),
    ("sue", "4", 3),
    ("the", "4", 2),
]


def expected(mechanism, value):
    """Exact probability of each event of one answer: the answer itself; for bits, each bit and pair."""
    table = {("answer", answer): chance for answer, chance in mechanism.distribution(value).items()}
    if mechanism.layout == BITS:
        ones = mechanism.bit_probabilities(value)
        table |= {("bit", j): ones[j] for j in range(mechanism.size)}
        table |= {("bits", i, j): ones[i] * ones[j] for i, j in combinations(range(mechanism.size), 2)}
    return table


def events(answer):
    """The events of one answer."""
    if isinstance(answer, int):
        return [("answer", answer)]
    ones = [j for j, bit in enumerate(answer) if bit]
    return [("answer", answer), *(("bit", j) for j in ones), *(("bits", i, j) for i, j in combinations(ones, 2))]


def compare(sampler, mechanism, purpose):
    """Violations of the windows by ``sampler(value, seed)``, as texts."""
    found = []
    for value in range(mechanism.size):
        found += violations(
            lambda seed, value=value: sampler(value, seed),
            expected(mechanism, value),
            events,
            purpose=f"{purpose}/{value}",
            n=N,
            alpha=ALPHA / mechanism.size,
        )
    return found


@pytest.mark.parametrize(
    ("name", "epsilon", "size"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER)]
)
def test_answers_follow_the_stated_distribution(name, epsilon, size):
    mechanism = from_epsilon(name, epsilon, size)
    assert compare(mechanism.perturb, mechanism, f"{name}/{epsilon}/{size}") == []


@pytest.mark.slow
@pytest.mark.parametrize("theta", ["0.1", "0.5", "0.9"])
def test_the_follows_its_distribution_at_other_thresholds(theta):
    mechanism = from_epsilon("the", "2", 3, theta=theta)
    assert compare(mechanism.perturb, mechanism, f"the/{theta}") == []


DIRECT, UNARY = from_epsilon("direct", 1, 4), from_epsilon("oue", 1, 3)
SYMMETRIC, THRESHOLDED = from_epsilon("sue", 1, 3), from_epsilon("the", "2", 3, theta="0.5")


def never_reports_the_last_value(value, seed):
    return min(DIRECT.perturb(value, seed), DIRECT.size - 2)


def lie_may_be_the_truth(value, seed):
    stream = Stream(seed, b"hearsay/1/direct")
    return value if stream.coin(DIRECT.keep) else stream.below(DIRECT.size)


def lie_is_the_next_value(value, seed):
    answer = DIRECT.perturb(value, seed)
    return value if answer == value else (value + 1) % DIRECT.size


def spends_a_tenth_more(value, seed):
    return from_epsilon("direct", "1.1", 4).perturb(value, seed)


def spends_a_tenth_less(value, seed):
    return from_epsilon("direct", "0.9", 4).perturb(value, seed)


def answers_outside_the_domain(value, seed):
    answer = DIRECT.perturb(value, seed)
    return DIRECT.size if answer == value == 0 and seed[0] < 2 else answer


def last_bit_in_clear(value, seed):
    return (*UNARY.perturb(value, seed)[:-1], int(value == UNARY.size - 1))


def unary_spends_a_tenth_more(value, seed):
    return from_epsilon("oue", "1.1", 3).perturb(value, seed)


def symmetric_with_its_probabilities_exchanged(value, seed):
    return tuple(1 - bit for bit in SYMMETRIC.perturb(value, seed))


def threshold_at_the_default(value, seed):
    return from_epsilon("the", "2", 3).perturb(value, seed)


def one_coin_for_two_bits(value, seed):
    """Every bit has the right probability, but the two bits of the other values are always equal."""
    bits = list(UNARY.perturb(value, seed))
    one, other = (j for j in range(UNARY.size) if j != value)
    bits[one] = bits[other]
    return tuple(bits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "mechanism"),
    [
        (never_reports_the_last_value, DIRECT),
        (lie_may_be_the_truth, DIRECT),
        (lie_is_the_next_value, DIRECT),
        (spends_a_tenth_more, DIRECT),
        (spends_a_tenth_less, DIRECT),
        (answers_outside_the_domain, DIRECT),
        (last_bit_in_clear, UNARY),
        (unary_spends_a_tenth_more, UNARY),
        (one_coin_for_two_bits, UNARY),
        (symmetric_with_its_probabilities_exchanged, SYMMETRIC),
        (threshold_at_the_default, THRESHOLDED),
    ],
)
def test_the_comparison_rejects(broken, mechanism):
    assert compare(broken, mechanism, broken.__name__)


def test_bits_that_agree_are_seen_by_their_pairs_alone():
    found = compare(one_coin_for_two_bits, UNARY, "pairs")
    assert not [text for text in found if text.startswith("('bit',")]
    assert [text for text in found if text.startswith("('bits',")]
