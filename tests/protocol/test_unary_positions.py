"""Unary encodings in report bytes: the distribution of every bit, the last bit included, at ε = 1.

A well-known library once sent its last bit in the clear. Here the bits are counted where they leave the
device, in the bytes of the answer field, at sizes of whole words and of none.
A right implementation fails any case with probability at most ALPHA over fresh seeds; seeds are fixed.
Each bit's count has its exact binomial window, and so has every bit together with the eighth after it,
because a stream that repeats a byte or a word leaves the bits' own distributions as they are.
"""

from fractions import Fraction
from math import comb

import pytest
from support.binomial import seeds, window
from support.mechanisms import kinds

from protocol.batches.report import encode_answer, layout_for
from protocol.mechanisms import from_epsilon
from protocol.mechanisms.unary import UnaryMechanism

ALPHA = Fraction(1, 10**9)
N = 4000
"""Number of samples: detects a bit whose probability is wrong by 0.06. A bit in the clear is wrong by at least 0.25."""
NAMES = kinds(UnaryMechanism)
CASES = [
    pytest.param(name, size, value, marks=() if (size, value) in ((13, 12), (64, 0), (64, 63)) else pytest.mark.slow)
    for name in NAMES
    for size in (13, 32, 64)
    for value in (0, size - 1)
]
APART = 8


def ones(fields, size):
    """Per bit the number of fields with this bit set, and with both this bit and the bit APART positions before set."""
    single, joint = [0] * size, [0] * size
    for field in fields:
        row = int.from_bytes(field, "big") >> (8 * len(field) - size)
        for counts, bits in ((single, row), (joint, row & (row >> APART))):
            for j, digit in enumerate(f"{bits:0{size}b}"):
                counts[j] += digit == "1"
    return single, joint


def faults(sampler, name, size, value):
    """Bits whose counts are outside their windows for the answers of ``sampler(mechanism, value, seed)``."""
    mechanism = from_epsilon(name, 1, size)
    layout = layout_for([mechanism])
    fields = [
        encode_answer(mechanism, sampler(mechanism, value, seed), layout)
        for seed in seeds(f"positions/{name}/{size}/{value}", N)
    ]
    padding = (1 << -size % 8) - 1
    assert not any(field[-1] & padding for field in fields)
    single, joint = ones(fields, size)
    chances = [mechanism.p if j == value else mechanism.q for j in range(size)]
    share = ALPHA / (2 * size)

    def is_wrong(count, chance):
        low, high = window(N, chance, share)
        return not low <= count <= high

    found = [("bit", j) for j in range(size) if is_wrong(single[j], chances[j])]
    pairs = ((j - APART, j) for j in range(APART, size))
    return found + [("bits", i, j) for i, j in pairs if is_wrong(joint[j], chances[i] * chances[j])]


@pytest.mark.parametrize(("name", "size", "value"), CASES)
def test_every_bit_has_its_probability_on_the_wire(name, size, value):
    assert faults(lambda mechanism, *given: mechanism.perturb(*given), name, size, value) == []


def last_bit_in_the_clear(mechanism, value, seed):
    return (*mechanism.perturb(value, seed)[:-1], int(value == mechanism.size - 1))


def only_the_first_31_bits_flipped(mechanism, value, seed):
    clear = [int(j == value) for j in range(mechanism.size)]
    return (*mechanism.perturb(value, seed)[:31], *clear[31:])


def last_bit_never_set(mechanism, value, seed):
    return (*mechanism.perturb(value, seed)[:-1], 0)


def true_bit_one_place_on(mechanism, value, seed):
    return mechanism.perturb((value + 1) % mechanism.size, seed)


def noise_repeats_after_eight_bits(mechanism, value, seed):
    """The seed gives eight coins, which are used repeatedly."""
    other = mechanism.perturb((value + 1) % 8, seed)[:8]
    true = mechanism.perturb(value, seed)[value]
    return tuple(true if j == value else other[j % 8] for j in range(mechanism.size))


@pytest.mark.parametrize(
    ("broken", "size", "value", "seen"),
    [
        (last_bit_in_the_clear, 13, 6, ("bit", 12)),
        (last_bit_in_the_clear, 64, 63, ("bit", 63)),
        (only_the_first_31_bits_flipped, 32, 0, ("bit", 31)),
        (only_the_first_31_bits_flipped, 64, 32, ("bit", 32)),
        (last_bit_never_set, 32, 31, ("bit", 31)),
        (true_bit_one_place_on, 32, 31, ("bit", 0)),
        (noise_repeats_after_eight_bits, 64, 60, ("bits", 20, 28)),
    ],
)
def test_the_comparison_names_the_bits_that_are_wrong(broken, size, value, seen):
    assert seen in faults(broken, "oue", size, value)


# The exact acceptance windows of the statistical tests, compared with sums of Fractions


@pytest.mark.parametrize(
    ("n", "p"), [(1, Fraction(1, 2)), (30, Fraction(1, 3)), (200, Fraction(1, 50)), (64, Fraction(9, 10))]
)
@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 10**6)])
def test_the_window_is_the_narrowest_with_its_rate(n, p, alpha):
    mass = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    low, high = window(n, p, alpha)
    assert sum(mass[:low]) <= alpha / 2 < sum(mass[: low + 1])
    assert sum(mass[high + 1 :]) <= alpha / 2 < sum(mass[high:])


def test_certain_and_impossible_events():
    assert window(10, Fraction(1), Fraction(1, 100)) == (10, 10)
    assert window(10, Fraction(0), Fraction(1, 100)) == (0, 0)


def test_seeds_are_fixed_and_distinct():
    first = list(seeds("a", 3))
    assert first == list(seeds("a", 3))
    assert len({*first, *seeds("b", 3)}) == 6
    assert all(len(seed) == 32 for seed in first)
