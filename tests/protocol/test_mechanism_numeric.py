"""The numeric mechanisms, exactly: unbiased, with the variance they state, at no more than ε.

Expectations and ratios are sums of Fractions over all answers, not samples. ``laplace`` has irrational
probabilities: its rounding is enumerated, its noise is symmetric, its privacy a comparison of exponents.
"""

import random
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import lcm
from operator import mul

import pytest
from support.failures import failure
from support.mechanisms import kinds

from protocol import SCALE
from protocol.epsilon import exp_below, micro_epsilon
from protocol.mechanisms import from_epsilon, laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import NumericMechanism, SingleNumberMechanism

HALF = 1 << 31
INPUTS = (-SCALE, 0, SCALE, *random.Random(20).sample(range(-SCALE, SCALE + 1), 20))
EPSILONS = ("0.001", "1", "16")
AROUND_THE_HYBRIDS_BORDER = ("0.001", "0.61", "0.62", "16")
GRID_OF_INPUTS = (*INPUTS[:9], -1, 1, -SCALE + 1, SCALE - 1)
SINGLE = kinds(SingleNumberMechanism)
VECTORS = tuple(name for name in kinds(NumericMechanism) if name not in SINGLE)
SEED = bytes(range(32))


def integers(fractions):
    """The numbers as numerators over a common denominator, for fast sums of thousands of numbers."""
    denominator = lcm(*{each.denominator for each in fractions})
    return [each.numerator * (denominator // each.denominator) for each in fractions], denominator


@lru_cache(maxsize=8)
def estimates(mechanism, answers, place):
    found = [mechanism.estimate(answer) for answer in answers]
    return integers(found if place is None else [each[place] for each in found])


def mean_and_variance(mechanism, value, place=None):
    """Mean and variance of the estimate, or of one coordinate of it, over all answers."""
    table = mechanism.distribution(value)
    chances, ones = integers(list(table.values()))
    assert sum(chances) == ones
    numbers, denominator = estimates(mechanism, tuple(table), place)
    mean = Fraction(sum(map(mul, chances, numbers)), ones * denominator)
    squares = sum(chance * number**2 for chance, number in zip(chances, numbers, strict=True))
    return mean, Fraction(squares, ones * denominator**2) - mean**2


def worst_ratio(tables):
    """Largest ratio of one answer's probabilities over all pairs of tables.

    Answers with probability 0 for every input (a cell of a hybrid with share 0) are left out.
    """
    assert all(table.keys() == tables[0].keys() for table in tables)
    chances, _ = integers([table[answer] for answer in tables[0] for table in tables])
    columns = [chances[start : start + len(tables)] for start in range(0, len(chances), len(tables))]
    pairs = {(max(column), min(column)) for column in columns if max(column) > 0}
    assert min(least for _, least in pairs) > 0
    return max(Fraction(*pair) for pair in pairs)


def floor_bias(threshold):
    return Fraction(SCALE, threshold - HALF)


def vectors_with_one_entry(size, numbers):
    """Every position of the one entry that is not 0, and every number in it."""
    return [tuple(x if c == place else 0 for c in range(size)) for place in range(size) for x in numbers]


def mixed_vectors(size):
    return [
        tuple(INPUTS[(start + 5 * place) % len(INPUTS)] for place in range(size))
        for start in range(0, len(INPUTS), 2 if size > 4 else 1)
    ]


@pytest.mark.parametrize(
    ("name", "epsilon", "size"),
    [
        *(("bit", epsilon, 1) for epsilon in EPSILONS),
        *(("bits", epsilon, size) for epsilon in EPSILONS for size in (1, 2, 3)),
        *(("piecewise", epsilon, 1) for epsilon in ("0.001", "16")),
        *(("hybrid", epsilon, 1) for epsilon in ("0.61", "0.62", "3")),
        *(("duchi", "1", size) for size in (1, 2, 3, 4, 5, 6)),
    ],
)
def test_estimates_are_unbiased_up_to_the_floor_of_a_coin_and_vary_as_stated(name, epsilon, size):
    mechanism = from_epsilon(name, epsilon, size)
    most = Fraction(0)
    if name in ("bit", "bits"):
        most = floor_bias(mechanism.threshold)
    elif name == "hybrid":
        assert (mechanism.share == 0) == (epsilon == "0.61")
        most = (1 - Fraction(mechanism.share, 2 * HALF)) * floor_bias(mechanism.bit.threshold)
    if name in SINGLE:
        found = [(x, *mean_and_variance(mechanism, x)) for x in INPUTS]
    else:
        vectors = vectors_with_one_entry(size, INPUTS) if name == "bits" else mixed_vectors(size)
        found = [(x, *mean_and_variance(mechanism, each, at)) for each in vectors for at, x in enumerate(each)]
    for x, mean, variance in found:
        assert 0 <= x - mean <= most
        assert variance == mechanism.variance(x)


@pytest.mark.parametrize(
    ("name", "epsilon", "values"),
    [
        *((name, epsilon, GRID_OF_INPUTS) for name in ("bit", "piecewise") for epsilon in ("0.001", "16")),
        *(("hybrid", epsilon, GRID_OF_INPUTS) for epsilon in AROUND_THE_HYBRIDS_BORDER),
        *(("bits", epsilon, vectors_with_one_entry(n, GRID_OF_INPUTS)) for epsilon in EPSILONS for n in (1, 2, 3)),
        # The table of every input is a mixture of the corners' tables.
        *(
            ("duchi", epsilon, [*product((-SCALE, SCALE), repeat=n), (0,) * n, *mixed_vectors(n)[3:6]])
            for epsilon in EPSILONS
            for n in (1, 2, 3, 4, 5, 6)
        ),
        ("duchi", "1", [(SCALE,) * 9, (-SCALE,) * 9, (SCALE, -SCALE, 0) * 3]),
    ],
    ids=lambda each: f"{len(each)} values" if not isinstance(each, str) else each,
)
def test_no_answer_tells_two_inputs_apart_by_more_than_epsilon(name, epsilon, values):
    """The worst ratio, by enumeration, is that of ``privacy_loss``, and at most e^ε."""
    mechanism = from_epsilon(name, epsilon, 1 if name in SINGLE else len(values[0]))
    worst = worst_ratio([mechanism.distribution(value) for value in values])
    assert worst == mechanism.privacy_loss().ratio
    assert worst <= exp_below(mechanism.epsilon_micro)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_square_that_was_rounded_and_asked_for_is_right_within_one_unit(epsilon):
    """⌊u²/S⌋ loses less than one unit; 2v − S and its inverse are exact."""
    piecewise, bit = from_epsilon("piecewise", "1"), from_epsilon("bit", epsilon)
    for u in INPUTS:
        v = u * u // SCALE
        assert 0 <= Fraction(u * u, SCALE) - v < 1
        mean, _ = mean_and_variance(bit, 2 * v - SCALE)
        assert 0 <= v - (mean + SCALE) / 2 <= floor_bias(bit.threshold) / 2
    assert (mean_and_variance(piecewise, 2 * v - SCALE)[0] + SCALE) / 2 == v


class EveryRest:
    """A stream whose every below(S) is one chosen number."""

    def __init__(self, word):
        self.word = word

    def below(self, bound):
        assert bound == SCALE
        return self.word


@pytest.mark.parametrize("x", INPUTS)
def test_laplace_rounds_to_its_grid_without_bias(x, monkeypatch):
    """The probability of rounding up is a multiple of 1/64, so 64 equally likely reads represent all S reads."""
    mechanism = from_epsilon("laplace", 1, 1)
    monkeypatch.setattr(laplace, "discrete_laplace", lambda stream, s, t: 0)
    for offset in (0, 1023):
        total = Fraction(0)
        for word in range(offset, SCALE, 1024):
            monkeypatch.setattr(laplace, "Stream", lambda seed, tag, word=word: EveryRest(word))
            (estimate,) = mechanism.estimate(mechanism.perturb((x,), SEED))
            assert abs(estimate - x) < SCALE // GRID
            total += estimate
        assert total / 64 == x


@pytest.mark.parametrize("x", INPUTS)
@pytest.mark.parametrize("epsilon", ["0.001", "1", "16"])
def test_the_noise_of_laplace_is_symmetric_and_of_the_stated_variance(x, epsilon):
    mechanism = from_epsilon("laplace", epsilon, 1)
    table, mirrored = mechanism.distribution((x,), radius=3), mechanism.distribution((-x,), radius=3)
    on_grid = x * GRID % SCALE == 0
    if not on_grid:  # on the grid both tables end one step above their middle
        assert {(-n,): chance for (n,), chance in table.items()} == mirrored
    step = x * GRID // SCALE
    even = mechanism.distribution((step * (SCALE // GRID),), radius=3)
    assert all(even[(step - n,)] == even[(step + n,)] for n in range(4))
    q = 1 / exp_below(mechanism.s, mechanism.t)
    lost = Fraction(x * GRID % SCALE, SCALE)
    steps = 2 * q / (1 - q) ** 2 + lost * (1 - lost)
    assert mechanism.variance(x) == steps * (SCALE // GRID) ** 2
    assert (
        abs(even[(step,)] * q - even[(step + 1,)]) == 0
    )  # geometric, so that 2q/(1 − q)² is the variance of the noise


@pytest.mark.parametrize("epsilon", ["0.001", "1", "16"])
def test_with_two_entries_bits_would_cost_twice_epsilon(epsilon):
    """The reason for at most one entry: two entries change the probabilities of more coins."""
    mechanism = from_epsilon("bits", epsilon, 1)
    (one,), (other,) = (mechanism.bit_probabilities([x]) for x in (SCALE, -SCALE))
    assert (one / other) ** 2 > exp_below(micro_epsilon(epsilon)) >= one / other


@pytest.mark.parametrize(("size", "delta"), [(1, 2), (2, 2), (3, 2), (2, 4), (3, 6)])
def test_laplace_is_private_by_its_exponents(size, delta):
    """On the grid P(answer | x) ∝ q^n, so two inputs differ by q to the difference of two integers."""
    mechanism = from_epsilon("laplace", "1", size, delta=delta)
    some = (-SCALE, -64, 0, 64, SCALE // 2, SCALE)
    values = [v for v in product(some, repeat=size) if sum(x != 0 for x in v) <= delta // 2]
    answers = list(product((*mechanism.bounds, -GRID, -1, 0, 1, 77, GRID), repeat=size))
    worst = max(
        max(exponents) - min(exponents)
        for exponents in ([mechanism.exponent(value, answer) for value in values] for answer in answers)
    )
    assert worst == delta * GRID
    assert worst * Fraction(mechanism.s, mechanism.t) == 1
    loss = mechanism.privacy_loss()
    assert (loss.ratio, loss.exponent) == (1, 1)


@pytest.mark.parametrize(("size", "epsilon"), [(4096, "0.25"), (64, "0.003906"), (500, "0.03")])
def test_laplace_noise_that_32_bits_can_not_hold_is_refused(size, epsilon):
    """Once, such noise was silently clipped to 32 bits, which biased every estimate towards 0."""
    refused = failure(lambda: from_epsilon("laplace", epsilon, size))
    assert refused.reason == "parameters_invalid"
    assert "larger ε" in refused.detail


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_between_two_grid_points_is_a_mixture_and_no_bolder(epsilon):
    """Of the step's 64 inputs no two differ by more than one step of the noise. Tables have 49 digits."""
    mechanism = from_epsilon("laplace", epsilon, 1)
    tables = [mechanism.distribution((x,), radius=3) for x in (640, 641, 650, 671, 703, 704)]
    common = set.intersection(*map(set, tables))
    assert len(common) == 7
    worst = max(max(t[n] for t in tables) / min(t[n] for t in tables) for n in common)
    assert worst == exp_below(mechanism.s, mechanism.t)
    assert worst < exp_below(micro_epsilon(epsilon))


def tails_of_one_half_each(mechanism, start):
    """A faulty table: outside the window left and right have probability ½ each, whatever their lengths."""
    inside, _ = mechanism._heights()
    left, right = start, 4096 - start - mechanism.window
    outside = 1 - inside * mechanism.window
    shares = {"left": outside if not right else outside / 2, "right": outside if not left else outside / 2}
    return {
        cell: inside
        if start <= cell < start + mechanism.window
        else (shares["left"] / left if cell < start else shares["right"] / right)
        for cell in range(4096)
    }


@pytest.mark.parametrize("epsilon", ["0.001", "16"])
def test_tails_chosen_with_one_half_each_are_not_private(epsilon):
    """The book's listing 5.4, which docs/math.md, section 8.3, says not to repeat."""
    mechanism = from_epsilon("piecewise", epsilon)
    last = 4096 - mechanism.window
    tables = [tails_of_one_half_each(mechanism, start) for start in (0, 1, last // 2, last - 1, last)]
    assert all(sum(table.values()) == 1 for table in tables)
    assert worst_ratio(tables) > 1 / exp_below(micro_epsilon(epsilon)) * exp_below(2 * micro_epsilon(epsilon))
    assert worst_ratio(tables) > exp_below(micro_epsilon(epsilon)) * (1 + Fraction(1, 10**6))


def half_spaces(threshold, size, ties):
    """Duchi's table for every corner with even D: ``ties`` belong to both half-spaces, or to one."""
    p = Fraction(threshold, 2 * HALF)
    tables = []
    for v in product((-1, 1), repeat=size):
        products = {t: sum(a * b for a, b in zip(t, v, strict=True)) for t in product((-1, 1), repeat=size)}
        upper = [t for t, s in products.items() if s > 0 or (s == 0 and ties in ("both", "upper"))]
        lower = [t for t, s in products.items() if s < 0 or (s == 0 and ties in ("both", "lower"))]
        tables.append({t: p * (t in upper) / len(upper) + (1 - p) * (t in lower) / len(lower) for t in products})
    return tables


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("ties", "epsilon"), [("both", "0.5"), ("both", "1"), ("both", "3"), ("lower", "1"), ("upper", "0.1")]
)
def test_duchi_with_ties_is_not_private(ties, epsilon, size):
    """docs/math.md, section 8.4: the ratio reaches e^ε + 1 where ties belong to both sides."""
    threshold = from_epsilon("duchi", epsilon, size).threshold
    worst = worst_ratio(half_spaces(threshold, size, ties))
    assert worst > exp_below(micro_epsilon(epsilon)) * (1 + Fraction(1, 10**6))
    if ties == "both":
        assert worst == Fraction(threshold, 2 * HALF - threshold) + 1


@pytest.mark.parametrize("ties", ["both", "upper", "lower"])
def test_without_ties_the_same_construction_is_duchis(ties):
    mechanism = from_epsilon("duchi", "1", 3)
    found = half_spaces(mechanism.threshold, 3, ties)
    corners = product((-SCALE, SCALE), repeat=3)
    expected = [{tuple(2 * b - 1 for b in t): c for t, c in mechanism.distribution(v).items()} for v in corners]
    assert found == expected
