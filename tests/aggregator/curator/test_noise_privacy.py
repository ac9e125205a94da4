"""Calibrated noise keeps its promise; samplers draw from the law that they name, and rounding is exact.

Numbers are in floating point, from textbook densities (``support.noise``), and share nothing with the proofs.
"""

from __future__ import annotations

import itertools
from decimal import Context, Decimal
from fractions import Fraction
from math import exp, floor, log, sqrt

import numpy as np
import pytest
from support.binomial import seeds, window
from support.failures import reason
from support.noise import distribution, log_density

from aggregator.curator import sampling as exponentials
from aggregator.curator.methods.smooth import release
from aggregator.curator.noise import (
    NAMES,
    LaplaceLogNormal,
    TimesExponential,
    calibrate,
    calibrate_to_rho,
    law,
    published,
)
from aggregator.curator.smooth_sensitivity import (
    BoundedValues,
    smooth_sensitivity_of_mean,
    trimmed_mean,
)
from protocol.noise.law import (
    Calibration,
    InversePower,
    LazyReal,
    PureLaw,
    Shifted,
    Signed,
    TimesRoot,
    Uniform,
    power_tail_magnitude,
    rounded,
)
from protocol.stream import Stream

EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(4))
DELTA = Fraction(1, 1000)
ORDERS = np.array([1.05, 1.5, 2, 4, 10, 40])
"""Orders of Rényi divergences."""


def outputs(points):
    """Outputs for noise of location 0 and scale 1, ``(points,) float64``: dense around 0, and far into both tails."""
    return np.sinh(np.linspace(-14, 14, points))


def log_ratios(density, shift, stretch, z):
    """ln of the density of Z over that of e^``stretch``·Z + ``shift``, at z: ``shift`` and ``stretch`` ``(k, 1)``."""
    return density(z) - (density((z - shift) * np.exp(-stretch)) - stretch)


def worst_pairs(calibration):
    """All shifts and stretches of two neighbours, on a grid: two columns ``(k, 1)``.

    In units of the first scale the shift is at most min(1, e^stretch)/k.
    """
    stretch = float(calibration.beta) * np.linspace(-1, 1, 9)
    share = np.linspace(-1, 1, 9)
    pairs = [(s * min(1, np.exp(t)) / float(calibration.multiplier), t) for s, t in itertools.product(share, stretch)]
    shift, stretch = np.array(pairs).T
    return shift[:, None], stretch[:, None]


def density_of(calibration):
    return log_density(calibration.law.name, getattr(calibration.law, "sigma", None))


def divergences(calibration, shift, stretch, points=2001):
    """What the releases of pairs of neighbours show, each at its worst pair.

    Returns:
        The largest log ratio of densities; the largest δ for the calibration's ε; and of all Rényi orders the largest
        divergence over the order, which ρ-zCDP limits to ρ.
    """
    density, z = density_of(calibration), outputs(points)
    ratios = log_ratios(density, shift, stretch, z)
    mass = np.exp(density(z)) * np.gradient(z)
    mass /= mass.sum()
    excess = np.maximum(0, 1 - np.exp(np.minimum(float(calibration.epsilon) - ratios, 0)))
    renyi = [
        np.log((np.exp(np.clip((order - 1) * ratios, -700, 600)) * mass).sum(axis=1)) / (order - 1) / order
        for order in ORDERS
    ]
    return ratios.max(), (excess * mass).sum(axis=1).max(), np.max(renyi)


def broken_promises(calibration, pairs, points=2001):
    """The promises of a calibration that a pair of neighbours breaks: a list of texts, empty for a right one."""
    ratio, delta, renyi = divergences(calibration, *pairs, points)
    found = []
    if isinstance(calibration.law, PureLaw) and ratio > float(calibration.epsilon) * (1 + 1e-9):
        found.append(f"log ratio {ratio} above ε")
    if delta > float(calibration.delta) * (1 + 1e-6) + 1e-12:
        found.append(f"δ {delta}")
    if calibration.rho is not None and renyi > float(calibration.rho) * (1 + 1e-6):
        found.append(f"ρ {renyi}")
    return found


def calibrations(name):
    for epsilon in EPSILONS:
        yield calibrate(name, epsilon, DELTA)
        for share in (Fraction(1, 100), Fraction(1, 3)):
            yield calibrate(name, epsilon, DELTA, calibrate(name, epsilon, DELTA).beta * share)
    if name == "laplace-log-normal" or isinstance(law(name), PureLaw):
        yield calibrate_to_rho(name, Fraction(1, 8), DELTA)


@pytest.mark.parametrize("name", [*NAMES, "gamma3/2", "gamma5/2"])
def test_no_shift_and_stretch_breaks_a_promise(name):
    """The admissibility inequality at the stated (k, β), over a grid of all shifts and stretches."""
    for calibration in calibrations(name):
        assert broken_promises(calibration, worst_pairs(calibration)) == [], calibration


def weakened(calibration: Calibration, factor: Fraction) -> Calibration:
    """The same promise with k divided, and β multiplied, by a factor."""
    return calibration._replace(multiplier=calibration.multiplier / factor, beta=calibration.beta * factor)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("cauchy", Fraction(101, 100)),
        ("gamma4", Fraction(3, 2)),
        ("student-t", Fraction(3, 2)),
        ("laplace", Fraction(3, 2)),
        ("gaussian", Fraction(2)),
        ("laplace-log-normal", Fraction(5, 2)),
    ],
)
def test_weaker_constants_break_a_promise(name, factor):
    """So the checks can fail. The factor is how much each proof may give away: Cauchy's is exact."""
    calibration = weakened(calibrate(name, Fraction(1), DELTA), factor)
    assert broken_promises(calibration, worst_pairs(calibration)) != []


def test_local_sensitivity_breaks_a_promise():
    """Noise scaled to the local sensitivity, which is not smooth: equal values have almost no noise."""
    calibration = calibrate("cauchy", Fraction(1))
    stretch = np.array([[np.log(10.0)]])
    assert broken_promises(calibration, (np.array([[1 / float(calibration.multiplier)]]), stretch)) != []


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_cost_of_cauchy_noise_is_exact(epsilon):
    """The largest log ratio over all shifts and stretches is ε itself, to one part in 10⁴ of the grid of outputs."""
    calibration = calibrate("cauchy", epsilon)
    ratio, _, _ = divergences(calibration, *worst_pairs(calibration))
    assert float(epsilon) * (1 - 1e-4) <= ratio <= float(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_calibrations_use_up_their_budget_and_no_more(epsilon):
    for name in NAMES:
        found = calibrate(name, epsilon, DELTA)
        cost = found.law.epsilon_above(found.multiplier, found.beta, found.delta)
        assert epsilon * (1 - Fraction(1, 10**6)) < cost <= epsilon == found.epsilon
        assert found.delta == (0 if isinstance(found.law, PureLaw) else DELTA)
        assert 0 < found.beta < epsilon
    found = calibrate_to_rho("laplace-log-normal", epsilon, DELTA)
    assert epsilon * (1 - Fraction(1, 10**6)) < found.rho <= epsilon
    found = calibrate_to_rho("student-t", epsilon, Fraction(0))
    assert epsilon * (1 - Fraction(1, 10**6)) < found.rho <= epsilon


def test_published_constants_are_those_of_the_paper_and_dearer():
    found = published("cauchy", Fraction(1, 10))
    assert (found.multiplier, found.beta) == (60, Fraction(1, 60))
    assert (published("gamma4", Fraction(1)).multiplier, published("gamma4", Fraction(1)).beta) == (10, Fraction(1, 10))
    for name in ("cauchy", "gamma4", "laplace", "gaussian"):
        paper = published(name, Fraction(1), DELTA)
        assert broken_promises(paper, worst_pairs(paper)) == []
        ours = calibrate(name, Fraction(1), DELTA, paper.beta)
        assert ours.multiplier < paper.multiplier
    assert float(calibrate("cauchy", Fraction(1, 10), beta=Fraction(1, 60)).multiplier) == pytest.approx(
        10.05, abs=0.01
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_some_smoothing_of_cauchy_noise_costs_nothing(epsilon):
    """Up to ln(2 cosh ε − 1) the multiplier is that of β = 0, 1/(2 sinh(ε/2))."""
    free = np.log(2 * np.cosh(float(epsilon)) - 1)
    least = 1 / (2 * np.sinh(float(epsilon) / 2))
    for beta in (free / 100, free * 0.999):
        assert float(calibrate("cauchy", epsilon, beta=Fraction(beta)).multiplier) == pytest.approx(least, rel=1e-9)
    above = (free + float(epsilon)) / 2
    assert float(calibrate("cauchy", epsilon, beta=Fraction(above)).multiplier) > least * 1.1


@pytest.mark.parametrize(
    ("expected", "make"),
    [
        ("noise_unknown", lambda: law("normal")),
        ("noise_unknown", lambda: law("gamma1")),
        ("noise_unknown", lambda: law("gamma0")),
        ("noise_unknown", lambda: law("gamma65")),
        ("noise_unknown", lambda: law("gamma4/0")),
        ("noise_unfit", lambda: calibrate("laplace", Fraction(1))),
        ("noise_unfit", lambda: calibrate("gaussian", Fraction(1))),
        ("noise_unfit", lambda: calibrate("laplace-log-normal", Fraction(1))),
        ("noise_unfit", lambda: calibrate_to_rho("gaussian", Fraction(1), DELTA)),
        ("noise_unfit", lambda: published("student-t", Fraction(1))),
        ("noise_unfit", lambda: published("laplace", Fraction(1))),
        ("noise_unfit", lambda: published("laplace", Fraction(60), Fraction(1, 10**6))),
        ("beta_invalid", lambda: calibrate("cauchy", Fraction(1), beta=Fraction(1))),
        ("beta_invalid", lambda: calibrate("cauchy", Fraction(1), beta=Fraction(0))),
        ("beta_invalid", lambda: calibrate("student-t", Fraction(1), beta=Fraction(1, 3))),
        ("beta_invalid", lambda: calibrate("gaussian", Fraction(1), DELTA, beta=Fraction(1, 2))),
        (None, lambda: calibrate("cauchy", Fraction(64))),
        ("epsilon_invalid", lambda: calibrate("cauchy", Fraction(0))),
        ("epsilon_invalid", lambda: calibrate("cauchy", Fraction(65))),
        ("epsilon_invalid", lambda: calibrate("laplace", Fraction(1), Fraction(1))),
        ("epsilon_invalid", lambda: calibrate("laplace", Fraction(1), Fraction(-1, 10))),
        (None, lambda: calibrate("laplace", Fraction(1), Fraction(1, 10**100))),
        (None, lambda: calibrate("gamma64", Fraction(1, 10**6))),
    ],
)
def test_what_can_not_be_calibrated_is_refused(expected, make):
    assert reason(make) == expected


def test_a_release_is_the_rounded_sum_and_refuses_a_sensitivity_that_is_not_smooth_enough():
    data = BoundedValues([3, 5, 5, 9], 0, 10)
    calibration = calibrate("cauchy", Fraction(1, 10))
    sensitivity = smooth_sensitivity_of_mean(data, calibration.beta)
    grid = Fraction(1, 64)
    found = release(trimmed_mean(data), sensitivity, calibration, grid, Stream(bytes(32), b"release"))
    noise = calibration.law.draw(Stream(bytes(32), b"release"))
    low, high = (Fraction(end, 1 << 200) for end in noise.bounds(200))
    exact = trimmed_mean(data) + calibration.multiplier * sensitivity.value * (low + high) / 2
    assert abs(found - exact) <= grid / 2
    assert found % grid == 0
    rougher = smooth_sensitivity_of_mean(data, calibration.beta * 2)
    arguments = (calibration, grid, Stream(bytes(32), b"release"))
    assert reason(release, trimmed_mean(data), rougher, *arguments) == "beta_invalid"
    assert reason(release, trimmed_mean(data), sensitivity, calibration, Fraction(0), arguments[2]) == "grid_invalid"


def test_variances_are_those_of_the_noise():
    unit = Fraction(1)
    for name, expected in (
        ("cauchy", np.inf),
        ("gamma3", np.inf),
        ("gamma4", 1.0),
        ("student-t", 3.0),
        ("laplace", 2.0),
    ):
        found = calibrate(name, unit, DELTA)
        assert found.variance(Fraction(3)) == pytest.approx(expected * (3 * float(found.multiplier)) ** 2)
    z = np.sinh(np.linspace(-30, 30, 200_001))
    for name in ("gamma4", "gamma7/2", "student-t", "laplace", "gaussian"):
        mass = np.exp(log_density(name)(z)) * np.gradient(z)
        assert (mass * z**2).sum() == pytest.approx(law(name).variance, rel=1e-4), name
    found = law("laplace-log-normal")
    mass = np.exp(log_density(found.name, found.sigma)(z)) * np.gradient(z)
    assert (mass * z**2).sum() == pytest.approx(found.variance, rel=1e-4)


LAWS = [*NAMES, "gamma3/2", "gamma5/2", "gamma64"]
FALSE_ALARM = 1e-6
"""Probability that a right sampler fails one test. The seeds are fixed: what passes once always does."""
DRAWS = 2500
SLOW_LAW, FEWER = "laplace-log-normal", 900
"""A draw of this law takes four times as long. Its parts, Laplace and normal numbers, are tested with all draws."""
FINE = 1 << 40


def samples(draw, purpose, count):
    """``count`` draws, rounded to multiples of 2^−40: ``(count,) float64``, sorted."""
    found = [rounded(Fraction(0), Fraction(FINE), draw(Stream(seed, b"test"))) / FINE for seed in seeds(purpose, count)]
    return np.sort(np.array(found))


def distance(drawn, cdf):
    """Kolmogorov's distance of an empirical distribution from the true one: of Z, or of |Z| if that is larger.

    A symmetric error is twice as large in the distribution of |Z|, P(|Z| ≤ z) = 2·P(Z ≤ z) − 1.
    """
    n = len(drawn)
    steps = np.arange(n + 1) / n
    found = [cdf(drawn), 2 * cdf(np.sort(np.abs(drawn))) - 1]
    return max(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()) for expected in found)


def limit(count):
    """The distance that a right sampler exceeds with probability at most FALSE_ALARM, for any count.

    Massart's inequality, P(distance > d) ≤ 2·e^(−2nd²), for both distances together.
    """
    return sqrt(log(4 / FALSE_ALARM) / (2 * count))


def cdf_of(name):
    return distribution(name, getattr(law(name), "sigma", None))


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_the_law(name):
    count = FEWER if name == SLOW_LAW else DRAWS
    drawn = samples(law(name).draw, name, count)
    assert distance(drawn, cdf_of(name)) <= limit(count)


def even_runs(stream):
    """The exponential sampler with runs of even length in place of odd ones."""
    whole = 0
    while True:
        first = last = Uniform(stream)
        length = 1
        while exponentials.is_below(following := Uniform(stream), last):
            last, length = following, length + 1
        if length % 2 == 0:
            return Shifted(whole, first)
        whole += 1


def one_coin_too_many(stream):
    """The normal sampler with k coins in place of k(k − 1) to make e^(−k²/2) of e^(−k/2)."""
    while True:
        whole = 0
        while exponentials._coin_of_half(stream):
            whole += 1
        x = Uniform(stream)
        coins = [exponentials._coin_of_half(stream) for _ in range(whole)]
        coins += [exponentials._coin_of(stream, x) for _ in range(whole)]
        if all(coins) and exponentials._coin_of_half_square(stream, x):
            return Shifted(whole, x)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("cauchy", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(3, 2)))),
        ("gamma4", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(3)))),
        ("gamma4", lambda stream: power_tail_magnitude(stream, Fraction(4))),
        ("student-t", lambda stream: Signed(stream, TimesRoot(power_tail_magnitude(stream, Fraction(2)), 3))),
        ("student-t", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(2), 2))),
        ("laplace", lambda stream: Signed(stream, even_runs(stream))),
        ("gaussian", lambda stream: Signed(stream, one_coin_too_many(stream))),
        ("laplace-log-normal", LaplaceLogNormal(Fraction(3, 2)).draw),
    ],
)
def test_a_broken_sampler_is_found(name, draw):
    """Another power, no sign, one acceptance too few, a missing root, a wrong parity, other coins, another σ."""
    count = FEWER if name == SLOW_LAW else DRAWS
    assert distance(samples(draw, f"broken {name}", count), cdf_of(name)) > limit(count)


class Known(LazyReal):
    """A number that is known exactly, in place of a uniform one."""

    def __init__(self, value):
        self.value = value

    def bounds(self, bits):
        low = floor(self.value * (1 << bits))
        return low, low + 1


@pytest.mark.parametrize(
    ("coin", "exponent"),
    [
        (exponentials._coin_of_half, 1 / 2),
        (lambda stream: exponentials._coin_of(stream, Known(Fraction(3, 4))), 3 / 4),
        (lambda stream: exponentials._coin_of(stream, Known(Fraction(1, 10))), 1 / 10),
        (lambda stream: exponentials._coin_of_half_square(stream, Known(Fraction(9, 10))), 81 / 200),
        (lambda stream: exponentials._coin_of_half_square(stream, Known(Fraction(1, 2))), 1 / 8),
    ],
)
def test_a_coin_has_the_probability_that_it_says(coin, exponent):
    """The heads of 3,000 coins are in an exact binomial window with false alarm 10⁻⁶; twice the exponent is outside."""
    heads = sum(coin(Stream(seed, b"coin")) for seed in seeds(f"coin {exponent}", 3000))
    low, high = window(3000, Fraction(exp(-exponent)), Fraction(1, 10**6))
    assert low <= heads <= high
    low, high = window(3000, Fraction(exp(-2 * exponent)), Fraction(1, 10**6))
    assert not low <= heads <= high


_PRECISE = Context(prec=700)
DIGITS = 2048


def as_decimal(fraction):
    return _PRECISE.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))


def exact_number(noise):
    """The number that a lazy real is, to more than 500 digits, by decimal powers, roots and exponentials."""
    if isinstance(noise, Uniform):
        return as_decimal(Fraction(noise.bounds(DIGITS)[0], 1 << DIGITS))
    if isinstance(noise, Signed):
        value = exact_number(noise._magnitude)
        return value.copy_negate() if noise._negative else value
    if isinstance(noise, Shifted):
        return _PRECISE.add(Decimal(noise._integer), exact_number(noise._real))
    if isinstance(noise, InversePower):
        exponent = as_decimal(Fraction(-noise._power, noise._root))
        return _PRECISE.power(exact_number(noise._uniform), exponent)
    if isinstance(noise, TimesRoot):
        return _PRECISE.multiply(exact_number(noise._y), _PRECISE.sqrt(Decimal(noise._square)))
    assert isinstance(noise, TimesExponential)
    exponent = _PRECISE.multiply(as_decimal(noise._sigma), exact_number(noise._y))
    return _PRECISE.multiply(exact_number(noise._x), _PRECISE.exp(exponent))


def rounded_decimal(center, scale, value):
    return floor(center + scale * Fraction(value) + Fraction(1, 2))


@pytest.mark.parametrize("name", LAWS)
def test_rounding_is_that_of_the_exact_number(name):
    """Also where the sum is within 2^−k of the boundary between two integers, k = 20, 100, 300, on either side."""
    for number, seed in enumerate(seeds(f"rounding {name}", 12)):
        scale = Fraction(10 ** (number % 4), 7)
        noise = law(name).draw(Stream(seed, b"test"))
        value = exact_number(noise)
        for bits in (20, 100, 300):
            for side in (-1, 1):
                near = Fraction(number) + Fraction(1, 2) - scale * Fraction(value) + Fraction(side, 1 << bits)
                found = rounded(near, scale, noise)
                assert found == rounded_decimal(near, scale, value) == number + (side > 0)
