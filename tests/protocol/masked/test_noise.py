"""Is ``divided`` noise drawn exactly, and do h parts add up to one discrete Laplace number?

Two kinds of evidence. Enumeration of all random choices: each step of the sampler has the stated probabilities.
Samples: the whole sampler, and the sum of the parts, follow their distributions, with a stated rate of false alarm.
Each kind is shown to reject wrong samplers.
"""

from fractions import Fraction
from math import e, exp, factorial, lgamma, log1p

import numpy as np
import pytest
from support.binomial import violations
from support.enumerated import enumerated
from support.failures import reason_of

from protocol.errors import InputError
from protocol.masked import noise
from protocol.masked.noise import COIN, PartyNoise, chance, divided, party_noise, whole
from protocol.mechanisms.noise import discrete_laplace
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)
"""A right sampler fails one comparison with samples with at most this probability, over fresh seeds."""
N = 4_000
TAG = b"hearsay/1/masked"


def alternates_by_value(stream, a, b, first):
    """Replaces ``_alternates`` by one comparison, so that fewer sequences of choices remain."""
    value = exp(-a / b) if first == 1 else 2 / e
    return stream.below(1 << 53) < round(value * (1 << 53))


@pytest.mark.parametrize(("a", "b", "first", "value"), [(1, 1, 1, 1 / e), (2, 7, 1, exp(-2 / 7)), (1, 1, 3, 2 / e)])
def test_coins_of_exponentials_are_exact(a, b, first, value):
    found, missing = enumerated(lambda stream: noise._alternates(stream, a, b, first), Fraction(1, 10**14))
    assert float(found[True]) == pytest.approx(value, abs=1e-13)
    assert missing < 1e-13


def wrong_points(monkeypatch, s, t):
    """The largest difference between the drawn process and q^|k|/|k| points at k, |k| ≤ 8, for r = 1."""
    octaves = noise._plan(s, t, 1)[0]
    monkeypatch.setattr(noise, "_alternates", alternates_by_value)
    found, missing = enumerated(lambda stream: noise._point(stream, s, t, octaves), Fraction(1, 10**8))
    assert missing < 1e-5
    density = 2 * (octaves + 1)
    return max(abs(float(density * found[k]) - exp(-s / t * abs(k)) / abs(k)) for k in range(-8, 9) if k)


@pytest.mark.parametrize(("s", "t"), [(3, 1), (1, 1), (1, 2), (2, 7)])
def test_points_are_thinned_exactly(monkeypatch, s, t):
    assert wrong_points(monkeypatch, s, t) < 1e-4


def always(*_):
    return True


def no_tail_factor(stream, a, b, first):
    """Coins without the factor (2/e)^m of the tail."""
    return first == 3 or right_coin(stream, a, b, first)


right_coin = alternates_by_value


@pytest.mark.parametrize(("place", "broken"), [("_keeps_exp", always), ("coin", no_tail_factor)])
@pytest.mark.parametrize(("s", "t"), [(3, 1), (2, 7)])
def test_thinning_with_a_step_left_out_is_seen(monkeypatch, place, broken, s, t):
    if place == "coin":
        monkeypatch.setitem(globals(), "alternates_by_value", broken)
    else:
        monkeypatch.setattr(noise, place, broken)
    assert wrong_points(monkeypatch, s, t) > 1e-3


def poisson_of(stream, mean):
    parts = -(-mean // Fraction(1, 2))
    return noise._poisson(stream, parts, *(mean / parts).as_integer_ratio())


def wrong_counts(draw, mean):
    """The largest difference between drawn and Poisson probabilities, beyond that of the sequences not followed."""
    found, missing = enumerated(lambda stream: draw(stream, mean), Fraction(1, 10**6))
    assert missing < 1e-2
    exact = [exp(-float(mean)) * float(mean) ** n / factorial(n) for n in range(6)]
    return max(abs(float(found[n]) - each) for n, each in enumerate(exact)) - float(missing)


@pytest.mark.parametrize("mean", [Fraction(1, 500), Fraction(2, 5), Fraction(1, 2), Fraction(2, 3)])
def test_poisson_numbers_are_exact(mean):
    assert wrong_counts(poisson_of, mean) <= 1e-15


def test_a_poisson_number_without_its_rejection_is_seen():
    def proposed(stream, mean):
        n = 0
        while stream.below(mean.denominator * (n + 1)) < mean.numerator:
            n += 1
        return n

    assert wrong_counts(proposed, Fraction(1, 2)) > 0.05


@pytest.mark.parametrize(("s", "t", "parties"), [(3, 1, 1), (1, 10, 7), (1, 10**9, 3), (1, 10**9, 5000)])
def test_the_number_of_points_has_the_stated_mean(s, t, parties):
    octaves, parts, a, b = noise._plan(s, t, parties)
    assert (1 << octaves) * s >= t > (1 << octaves) // 2 * s
    assert parts * Fraction(a, b) == Fraction(2 * (octaves + 1), parties)
    assert 2 * a <= b


def two_sided(rate, shape, reach):
    """P(X − Y = k), k = −reach … reach, as a float array, from the formula of the negative binomial distribution."""
    k = np.arange(int(60 / rate) + 2 * reach + 50)
    logs = np.array([lgamma(n + shape) - lgamma(shape) - lgamma(n + 1) for n in k])
    one = np.exp(logs - rate * k + shape * log1p(-exp(-rate)))
    side = np.array([(one[: len(one) - d] * one[d:]).sum() for d in range(reach + 1)])
    return np.concatenate([side[:0:-1], side])


def compare(sampler, rate, parties, n=N):
    """Violations of the binomial windows by ``sampler(stream, rate, parties)``, as texts."""
    reach = int(3 / rate) + 2
    table = two_sided(float(rate), 1 / parties, reach)
    expected = {k - reach: Fraction(float(chance)) for k, chance in enumerate(table)}
    rest = 1 - sum(expected.values())
    negative = sum(each for k, each in expected.items() if k < 0) + rest / 2
    expected |= {"far": rest, "negative": negative, "positive": negative}

    def events(value):
        shown = [value if abs(value) <= reach else "far"]
        return [*shown, "negative" if value < 0 else "positive"] if value else shown

    return violations(
        lambda seed: sampler(Stream(seed, TAG), rate, parties),
        expected,
        events,
        purpose=f"divided/{rate}/{parties}",
        n=n,
        alpha=ALPHA,
    )


CASES = [(Fraction(1, 2), 1), (Fraction(1, 3), 2), (Fraction(2), 2), (Fraction(2, 7), 5)]


@pytest.mark.parametrize(
    ("rate", "parties"), [CASES[1], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES)]
)
def test_the_noise_follows_its_distribution(rate, parties):
    assert compare(divided, rate, parties) == []


def shape_off_by_one(stream, rate, parties):
    return divided(stream, rate, parties + 1)


def half_the_shape(stream, rate, parties):
    return divided(stream, rate, 2 * parties)


def no_sign(stream, rate, parties):
    return abs(divided(stream, rate, parties))


def rate_doubled(stream, rate, parties):
    return divided(stream, 2 * rate, parties)


def whole_copy_sometimes(stream, rate, parties):
    """``diluted`` noise with the same variance."""
    return divided(stream, rate, 1) if stream.below(parties) == 0 else 0


@pytest.mark.parametrize("broken", [shape_off_by_one, no_sign, rate_doubled, whole_copy_sometimes])
def test_the_comparison_rejects(broken):
    assert compare(broken, Fraction(1, 3), 2)


def test_a_party_draws_whole_copies_by_the_faster_sampler_where_its_integers_fit():
    """Both samplers are shown to be exact; here, which of the two draws, and how often ``diluted`` noise does."""
    short, long = Fraction(2, 7), Fraction(1, 2**60 + 1)
    copies = 0
    for number in range(40):
        seed = number.to_bytes(32, "big")
        drawn = discrete_laplace(Stream(seed, TAG), 2, 7)
        assert whole(Stream(seed, TAG), short) == PartyNoise(short, 1).draw(Stream(seed, TAG)) == drawn
        assert whole(Stream(seed, TAG), long) == divided(Stream(seed, TAG), long, 1)
        assert PartyNoise(short, 9).draw(Stream(seed, TAG)) == divided(Stream(seed, TAG), short, 9)
        after_coin = Stream(seed, TAG)
        adds = after_coin.coin(COIN // 3)
        copies += adds
        expected = discrete_laplace(after_coin, 2, 7) if adds else 0
        assert PartyNoise(short, 9, COIN // 3).draw(Stream(seed, TAG)) == expected
    assert 5 < copies < 25
    most = (1 << noise._LONGEST) - 1
    assert whole(Stream(seed, TAG), Fraction(1, most)) == discrete_laplace(Stream(seed, TAG), 1, most)
    assert whole(Stream(seed, TAG), Fraction(1, most + 1)) == divided(Stream(seed, TAG), Fraction(1, most + 1), 1)


def tail_violations(rate, parties, part, n):
    """Violations of the windows of P(|K| ≥ x) for the sum K of ``parties`` parts, x = c/rate."""
    thresholds = [0.01, 0.1, 0.5, 1, 2, 4]

    def total(seed):
        stream = Stream(seed, TAG)
        return sum(part(stream, rate, parties) for _ in range(parties))

    # P(|K| ≥ x) = 2q^x/(1 + q), which differs from e^−c by less than the rate
    expected = {c: Fraction(exp(-c)) for c in thresholds} | {"negative": Fraction(1, 2)}
    return violations(
        total,
        expected,
        lambda value: [c for c in thresholds if abs(value) * rate >= c] + (["negative"] if value < 0 else []),
        purpose=f"small/{rate}/{parties}",
        n=n,
        alpha=ALPHA,
    )


@pytest.mark.parametrize(
    ("rate", "n"),
    [
        (Fraction(1, 10**7), 200),
        pytest.param(Fraction(1, 10**9), 500, marks=pytest.mark.slow),
        pytest.param(Fraction(3, 10**23), 500, marks=pytest.mark.slow),
    ],
)
def test_parts_add_up_for_very_small_rates_too(rate, n):
    assert tail_violations(rate, 3, divided, n) == []
    if n >= 500:
        assert tail_violations(rate, 3, half_the_shape, n) != []


def test_time_grows_with_the_logarithm_of_the_rate():
    """Bytes read for one number, on average: a rate 10^6 times as small needs less than ten times as many."""

    def bytes_read(rate):
        count = 0
        for seed in range(40):
            stream = Stream(seed.to_bytes(32, "big"), TAG)
            divided(stream, rate, 4)
            count += 32 * stream._blocks - len(stream._buffer) + stream._position
        return count / 40

    assert bytes_read(Fraction(1, 10**9)) < 10 * bytes_read(Fraction(1, 10**3))


def moments(values, table):
    """Variance and fourth cumulant of a symmetric distribution."""
    second = (values**2 * table).sum()
    return second, (values**4 * table).sum() - 3 * second**2


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_variance_and_fourth_cumulant_of_divided_noise(parties):
    stated = PartyNoise(Fraction(1, 2), parties)
    reach = 120
    found = moments(np.arange(-reach, reach + 1.0), two_sided(0.5, 1 / parties, reach))
    assert (stated.variance, stated.fourth_cumulant) == pytest.approx(found, rel=1e-10)
    assert stated.copies == Fraction(1, parties)


@pytest.mark.parametrize("beta", [Fraction(1, 8), Fraction(3, 4), Fraction(1)])
def test_variance_and_fourth_cumulant_of_diluted_noise(beta):
    stated = PartyNoise(Fraction(1, 2), 3, int(beta * COIN))
    reach = 120
    table = float(beta) * two_sided(0.5, 1, reach)
    table[reach] += 1 - float(beta)
    found = moments(np.arange(-reach, reach + 1.0), table)
    assert (stated.variance, stated.fourth_cumulant) == pytest.approx(found, rel=1e-10)


@pytest.mark.parametrize(
    ("honest", "delta"), [(1, Fraction(1, 2)), (3, Fraction(1, 8)), (7, Fraction(1, 10**5)), (900, Fraction(1, 10**9))]
)
def test_the_chance_is_the_smallest_that_suffices(honest, delta):
    b = chance(honest, delta)
    assert Fraction(COIN - b, COIN) ** honest <= delta < Fraction(COIN - b + 1, COIN) ** honest


def test_a_delta_outside_its_range_is_refused():
    for delta in (Fraction(0), Fraction(1)):
        assert reason_of(InputError, party_noise, "diluted", Fraction(1), 3, delta) == "epsilon_invalid"
