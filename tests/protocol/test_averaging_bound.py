"""The best guess from all answers of one device never exceeds the bound of its lifetime ε, by enumeration.

Source: tests/support/attack.py for the bound and its proof; decision 22.
"""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attack import best_adaptive, both, bound, merged, success, table
from support.examples import examples
from support.mechanisms import has_whole_table, inputs_of, kinds, made
from support.mixtures import mixed_payload, tiny_schema

from benchmarks.guarantees import averaging
from protocol import mechanisms
from protocol.documents.campaign import parse_campaign
from protocol.epsilon import MICRO
from protocol.mechanisms.noise import NoisyIntegers

VALUES = {name: inputs_of(made(name))[:3] for name in mechanisms.names() if has_whole_table(made(name))}
"""Mechanism with exact probabilities → three inputs that an attacker wants to tell apart."""
SMALL = [name for name, values in VALUES.items() if len(made(name).distribution(values[0])) < 1000]


def answers_of(name, micro):
    mechanism = mechanisms.from_micro(name, micro, made(name).size)
    return merged(table(mechanism, VALUES[name]))


def repeated(answers, times):
    joint = answers
    for _ in range(times - 1):
        joint = both(joint, answers)
    return joint


def test_the_tables_cover_every_mechanism_but_those_of_unbounded_noise():
    assert set(mechanisms.names()) - set(VALUES) == set(kinds(NoisyIntegers))


@pytest.mark.parametrize(("micro", "periods"), [(100_000, 3), (1_000_000, 2)])
@pytest.mark.parametrize("name", VALUES)
def test_repeating_a_question_until_the_budget_is_gone_gains_no_more_than_the_lifetime_epsilon(name, micro, periods):
    found = success(repeated(answers_of(name, micro), periods))
    assert Fraction(1, 3) < found <= bound(periods * micro, 3)


@pytest.mark.parametrize("name", VALUES)
def test_without_a_lifetime_limit_the_same_answers_pass_the_bound_in_the_end(name):
    """The bound holds only because a device stops answering: without a limit it is exceeded."""
    answers = merged(row[:2] for row in answers_of(name, MICRO))
    joint, number = answers, 1
    while success(joint) <= bound(MICRO, 2):
        joint, number = both(joint, answers), number + 1
    assert 1 < number < 12


@pytest.mark.parametrize(("micro", "values"), [(500_000, 2), (1_000_000, 3), (4_000_000, 8), (16_000_000, 5)])
def test_one_answer_by_direct_attains_the_bound_up_to_rounding(micro, values):
    found = success(direct(micro, values))
    assert 0 <= bound(micro, values) - found < Fraction(1, 1 << 31)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(SMALL), st.integers(1, 30)), min_size=1, max_size=3))
def test_any_mixture_of_campaigns_stays_below_the_bound_of_what_they_cost_together(chosen):
    joint = ((Fraction(1),) * 3,)
    for name, tenths in chosen:
        joint = both(joint, answers_of(name, 100_000 * tenths))
    assert success(joint) <= bound(sum(100_000 * tenths for _, tenths in chosen), 3)


def direct(micro, size, inputs=None):
    return table(mechanisms.from_micro("direct", micro, size), inputs or range(size))


@pytest.mark.parametrize("budget", [MICRO, 2 * MICRO])
def test_no_choice_of_the_next_campaign_by_the_answers_so_far_beats_the_bound(budget):
    """A campaign asks for the value, or which of two groups it belongs to; the attacker chooses the groups."""
    groups = [each for each in product((0, 1), repeat=3) if each[0] == 0 and any(each)]
    offers = [
        (cost, merged(answers))
        for cost in (500_000, MICRO)
        for answers in (direct(cost, 3), *(direct(cost, 2, each) for each in groups))
    ]
    found = best_adaptive(offers, budget, 3)
    assert success(repeated(merged(direct(MICRO, 3)), budget // MICRO)) <= found <= bound(budget, 3)
    whole = [*offers, (budget, merged(direct(budget, 3)))]
    assert 0 <= bound(budget, 3) - best_adaptive(whole, budget, 3) < Fraction(1, 1 << 30)


RECORDS = list(product(["a", None], ["x", "y"], ["e", "p"]))
"""All records of a tiny schema with different codes. The attacker guesses the record."""


@pytest.mark.parametrize("names", [["direct"] * 3, ["oue"] * 3, ["direct", "the", "sue"]])
@pytest.mark.parametrize("answers", [1, 2, 3])
def test_the_strata_of_a_period_spend_their_total_and_no_more(names, answers):
    campaign = parse_campaign(mixed_payload(names, answers=answers, publisher=None))
    schema = tiny_schema()
    inputs = [(schema.observe({"odor": odor, "cap": cap}), schema.label.code(label)) for odor, cap, label in RECORDS]
    strata = [[one for one in campaign.questions if one.stratum == stratum] for stratum in range(answers)]
    best = Fraction(0)
    for asked in product(*strata):
        joint = ((Fraction(1),) * len(RECORDS),)
        for question in asked:
            values = [question.input_of(observation, label, 2) for observation, label in inputs]
            joint = both(joint, merged(table(question.mechanism, values)))
        best = max(best, success(joint))
    assert Fraction(1, len(RECORDS)) < best <= bound(campaign.epsilon_micro, len(RECORDS))
    assert best > bound(campaign.epsilon_micro // 10, len(RECORDS))


@pytest.mark.parametrize(("values", "periods"), [(2, 1), (2, 6), (3, 5), (8, 4)])
def test_the_benchmark_that_draws_the_curve_sums_the_same_probabilities(values, periods):
    answers = merged(direct(500_000, values))
    assert averaging.success(500_000, periods, values) == pytest.approx(float(success(repeated(answers, periods))))
