"""Exact privacy of ``she``: its probabilities are irrational, so the proof compares integer exponents.

P(answer | value) = c·q^N with q = e^{−s/t}, c the same for all values and N = ``exponent(value, answer)``.
Hence ln of the ratio of two probabilities is the difference of two integers times s/t: a Fraction.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product

import pytest
from support.failures import failure, reason

from protocol import SCALE
from protocol.epsilon import MICRO, exp_below, micro_epsilon
from protocol.mechanisms import from_dict, from_epsilon, laplace, she
from protocol.mechanisms.noise import GRID, ApproximateTable, rate

EPSILONS = ("0.001", "0.123457", "1", "16")
STEPS = (-GRID - 1, -1, 0, 1, GRID // 2, GRID - 1, GRID, GRID + 1, 7 * GRID)
"""Components of the compared answers: around and between the two noiseless values. Tests add the bounds."""
WIDEST = ((1 << 31) - 1 - GRID) // 64
"""The largest ``t`` with ``s`` = 1 whose bounds 32 bits can hold."""


def log_ratios(mechanism):
    """Exact ln of P(answer | one) / P(answer | other) over pairs of values and answers of all STEPS."""
    step = Fraction(mechanism.s, mechanism.t)
    for answer in product((*STEPS, *mechanism.bounds), repeat=mechanism.size):
        exponents = [mechanism.exponent(value, answer) for value in range(mechanism.size)]
        for one, other in permutations(exponents, 2):
            yield (other - one) * step


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3])
def test_no_answer_tells_two_values_apart_by_more_than_epsilon_and_some_do_by_all_of_it(epsilon, size):
    mechanism = from_epsilon("she", epsilon, size)
    declared = Fraction(micro_epsilon(epsilon), MICRO)
    assert max(log_ratios(mechanism)) == declared
    assert min(log_ratios(mechanism)) == -declared
    loss = mechanism.privacy_loss()
    assert (loss.ratio, loss.exponent) == (1, declared)
    assert not loss.exceeds(micro_epsilon(epsilon))
    assert loss.exceeds(micro_epsilon(epsilon) - 1)


def test_a_rate_one_step_steeper_would_spend_too_much():
    stated = from_epsilon("she", 1, 2).to_dict()
    steeper = from_dict({**stated, "s": stated["s"] + 1})
    assert max(log_ratios(steeper)) > 1
    assert steeper.privacy_loss().exceeds(MICRO)


def test_the_triangle_inequality_bounds_answers_that_were_not_enumerated():
    """Per component |a − M| and |a| differ by at most M, so two components differ by 2M at most."""
    mechanism = from_epsilon("she", 1, 5)
    least, most = mechanism.bounds
    for answer in ((least, most, 0, -17, 100_000), (1, 2, 3, 4, 5), (GRID,) * 5, (most,) * 5):
        exponents = [mechanism.exponent(value, answer) for value in range(5)]
        assert max(exponents) - min(exponents) <= 2 * GRID


def clamped_table(mechanism, centre):
    """Probabilities, to 60 digits, of every integer of one clipped component; the bounds have those of the tails."""
    least, most = mechanism.bounds
    with localcontext(prec=60):
        q = (-Decimal(mechanism.s) / Decimal(mechanism.t)).exp()
        power = q ** (centre - least)
        table = {least: power / (1 + q)}
        for step in range(least + 1, most):
            power = power / q if step <= centre else power * q
            table[step] = power * (1 - q) / (1 + q)
        table[most] = q ** (most - centre) / (1 + q)
        stated = (q ** (centre - least + 1) - q ** (most - centre + 1)) / (1 - q * q)
        assert abs(sum(table.values()) - 1) < Decimal("1e-50")
        assert abs(sum(answer * chance for answer, chance in table.items()) - centre - stated) < Decimal("1e-48")
        assert abs(stated) < Decimal("1e-20")
        return table


def test_every_answer_of_a_clamped_component_is_as_private_as_stated_and_its_bias_is():
    """By enumeration of all integers. A value changes two components by M each, so one component costs ε/2.

    The bias is E clamp(x + n) − x = (q^{M+H+x+1} − q^{M+H−x+1})/(1 − q²) for ``laplace`` and x steps.
    """
    mechanism = from_epsilon("she", 16, 2)
    absent, held = (clamped_table(mechanism, centre) for centre in (0, GRID))
    with localcontext(prec=60):
        bound = (Decimal(mechanism.s * GRID) / mechanism.t).exp() * (1 + Decimal("1e-50"))
        ratios = [absent[answer] / held[answer] for answer in absent]
        assert max(*ratios, 1 / min(ratios)) <= bound
        assert max(ratios) > bound * (1 - Decimal("1e-40"))  # the bounds attain the limit
        assert absent[mechanism.bounds[1]] + absent[mechanism.bounds[0]] < 2 * Decimal(-64).exp()
    for centre in (-GRID, 0, 300, GRID):
        clamped_table(from_epsilon("laplace", 16, 1), centre)


@pytest.mark.parametrize(
    ("module", "size", "options", "epsilon"),
    [
        *((she, size, {}, epsilon) for size in (2, 4096) for epsilon in EPSILONS),
        (laplace, 1, {"delta": 2}, "0.001"),
        (laplace, 3, {"delta": 2}, "1"),
        (laplace, 8, {"delta": 16}, "16"),
        (laplace, 4096, {"delta": 8192}, "0.25001"),
    ],
)
def test_answers_are_bounded_by_64_rates_of_noise_beyond_what_is_true_and_clamped(
    module, size, options, epsilon, monkeypatch
):
    """No seed with noise beyond the bounds can be found, so the test replaces the noise. Clamping hides no less: the
    input changes the probabilities of a whole tail by the same factor."""
    name, delta = module.__name__.rpartition(".")[2], options.get("delta", 2)
    mechanism = from_epsilon(name, epsilon, size, **options)
    reach, low = mechanism.reach, (0 if name == "she" else -GRID)
    assert 64 * delta * GRID <= reach * Fraction(epsilon) < 64 * delta * GRID + Fraction(epsilon)
    assert mechanism.bounds == (low - reach, GRID + reach)
    assert mechanism.counted == ((0, GRID) if name == "she" else mechanism.bounds)
    assert GRID + reach < 1 << 31
    assert rate(micro_epsilon(epsilon), delta) == (mechanism.s, mechanism.t)
    assert Fraction(mechanism.s, mechanism.t) == Fraction(epsilon) / (delta * GRID)
    for far in (1 << 40, -(1 << 40)):
        monkeypatch.setattr(module, "discrete_laplace", lambda *_, far=far: far)
        end = mechanism.bounds[far > 0]
        value = 1 if name == "she" else (SCALE,) + (0,) * (size - 1)
        assert mechanism.perturb(value, bytes(32)) == (end,) * size
        for beyond in range(3):
            outward = end + beyond if far > 0 else end - beyond
            assert mechanism.clamp(outward) == end
            assert all(abs(outward - x) - abs(outward) == abs(end - x) - abs(end) for x in (low, 7, GRID))


# The truncated table --------------------------------------------------------------------------------------


def test_the_table_holds_the_probabilities_of_the_formula_and_less_than_everything():
    """With q = e^{−s/t} a component is n steps off with probability q^|n| (1 − q)/(1 + q); 2q^{R+1}/(1 + q) is left."""
    mechanism = from_epsilon("she", 16, 2)
    for radius in (0, 1, 3, 10):
        table = mechanism.distribution(1, radius=radius)
        assert isinstance(table, ApproximateTable)
        assert table.approximate
        assert len(table) == (2 * radius + 1) ** 2
        q = 1 / exp_below(mechanism.s, mechanism.t)
        assert table.mass == (1 - 2 * q ** (radius + 1) / (1 + q)) ** 2
    with localcontext(prec=70):
        q = (-Decimal(mechanism.s) / Decimal(mechanism.t)).exp()
        for answer, probability in mechanism.distribution(0, radius=3).items():
            exact = ((1 - q) / (1 + q)) ** 2 * q ** mechanism.exponent(0, answer)
            assert abs(Decimal(probability.numerator) / probability.denominator - exact) < exact * Decimal("1e-45")


def test_a_table_of_too_large_a_radius_is_refused():
    assert reason(from_epsilon("she", 1, 2).distribution, 0, 200) == "too_many_answers"


@pytest.mark.parametrize("value", [-1, 3, 1.0, True, None, "1", (0,)], ids=repr)
def test_an_exponent_is_that_of_a_value_of_the_domain(value):
    refused = failure(from_epsilon("she", 1, 3).exponent, value, (0, 0, 0))
    assert refused.reason == "value_out_of_domain"
    assert refused.detail == "the input of this mechanism is an integer from 0 to 2"


@pytest.mark.parametrize(("t", "expected"), [(WIDEST, None), (WIDEST + 1, "parameters_invalid"), (0, "loss_unbounded")])
def test_documents_that_state_noise_that_32_bits_can_not_hold_are_refused(t, expected):
    assert reason(from_dict, {**from_epsilon("she", 1, 3).to_dict(), "s": 1, "t": t}) == expected
