"""Several answers per period: exact joint privacy, by enumeration over records, answers and assignments.

A device answers one question of each stratum; the answers of a period are about one record. For every
combination of questions that ids can be assigned, the joint probability of all answers is computed for
every record, and compared between all of them.
"""

from fractions import Fraction
from itertools import product
from math import prod

import pytest
from support.mixtures import mixed_payload, tiny_schema
from support.publisher import NOW, Publisher

from edge_sdk import Device
from edge_sdk.answering.answer import answer
from protocol.batches.report import decode_answer, decode_report
from protocol.documents.campaign import parse_campaign
from protocol.epsilon import composed, exp_below
from protocol.mechanisms import from_epsilon
from protocol.schema import Observation
from protocol.stream import SEED_BYTES

TINY = Publisher(schema=tiny_schema())


def observation(odor, cap):
    return Observation((odor, cap), (None, None), ())


RECORDS = [(observation(odor, cap), label) for odor, cap, label in product(range(2), range(2), range(2))]
CASES = [
    *((name, answers) for name in ("direct", "oue", "sue", "the") for answers in (1, 2, 3)),
    (("direct", "oue", "direct"), 2),
    (("direct", "oue", "sue"), 3),
]


def campaign_of(names, answers):
    if isinstance(names, str):
        payload = TINY.campaign_payload(mechanism=names, answers=answers, epsilon_micro=1_000_001)
    else:
        payload = mixed_payload(names, answers=answers, publisher=TINY)
    return parse_campaign(payload)


def assignments(campaign):
    strata = [
        [question for question in campaign.questions if question.stratum == stratum]
        for stratum in range(campaign.answers)
    ]
    return list(product(*strata))


def joint_tables(asked):
    """Per record the exact joint probability of all answers: each stratum has its own seed."""
    for seen, label in RECORDS:
        tables = [question.mechanism.distribution(question.input_of(seen, label, 2)).items() for question in asked]
        yield {
            tuple(given for given, _ in row): prod((chance for _, chance in row), start=Fraction(1))
            for row in product(*tables)
        }


def worst_ratio(asked):
    tables = list(joint_tables(asked))
    assert all(sum(table.values()) == 1 for table in tables)
    return max(
        max(table[answers] for table in tables) / min(table[answers] for table in tables) for answers in tables[0]
    )


@pytest.mark.parametrize(("names", "answers"), CASES)
def test_all_answers_of_a_period_tell_records_apart_by_epsilon_at_most(names, answers):
    campaign = campaign_of(names, answers)
    ratios = [worst_ratio(asked) for asked in assignments(campaign)]
    assert len(ratios) == {1: 3, 2: 2, 3: 1}[answers]
    loss = campaign.privacy_loss()
    assert max(ratios) == loss.ratio  # the composed loss is attained
    assert loss.ratio <= exp_below(campaign.epsilon_micro)
    assert not loss.exceeds(campaign.epsilon_micro)


@pytest.mark.parametrize("answers", [2, 3])
def test_each_answer_at_the_whole_epsilon_would_be_seen(answers):
    """The test can fail: strata with the whole ε each exceed the total."""
    campaign = campaign_of("direct", answers)
    spendthrift = [
        tuple(question._replace(mechanism=from_epsilon("direct", "1.000001", question.size)) for question in asked)
        for asked in assignments(campaign)
    ]
    assert max(map(worst_ratio, spendthrift)) > exp_below(campaign.epsilon_micro)


def test_a_question_asked_in_two_strata_would_be_counted_twice():
    """Composition is over answers: the same question in two strata costs exactly twice its loss."""
    asked = campaign_of("direct", 2).questions[0]
    again = asked._replace(stratum=1)
    assert worst_ratio((asked, again)) == composed([asked.mechanism.privacy_loss()] * 2).ratio


@pytest.mark.parametrize(("names", "answers"), [(("she",) * 3, 3), (("direct", "she", "she"), 2)])
def test_strata_with_histograms_are_compared_by_exponents(names, answers):
    """For answers of ``she`` ln of the ratio is an integer times s/t; rational ratios are compared separately."""
    campaign = campaign_of(names, answers)
    loss = campaign.privacy_loss()
    worst = (Fraction(1), Fraction(0))
    for asked in assignments(campaign):
        ratio, exponent = _histogram_loss(asked)
        assert exponent <= loss.exponent
        assert ratio <= max(loss.ratio, exp_below(1_000_000))
        worst = max(worst, (ratio, exponent), key=lambda pair: (pair[1], pair[0]))
    assert worst[1] == loss.exponent
    assert not loss.exceeds(campaign.epsilon_micro)


def _histogram_loss(asked):
    rational = [question for question in asked if question.mechanism.name != "she"]
    ratio = worst_ratio(rational) if rational else Fraction(1)
    exponents = []
    for one, other in product(RECORDS, repeat=2):
        total = Fraction(0)
        for question in asked:
            mechanism = question.mechanism
            if mechanism.name == "she":
                here, there = (question.input_of(*record, 2) for record in (one, other))
                steps = max(
                    mechanism.exponent(there, given) - mechanism.exponent(here, given)
                    for given in product((-3, 1024), repeat=mechanism.size)
                )
                total += steps * Fraction(mechanism.s, mechanism.t)
        exponents.append(total)
    return ratio, max(exponents)


def test_every_stratum_has_noise_of_its_own():
    """The joint tables multiply because answer i is made from seed i alone."""
    campaign, seen = campaign_of("oue", 3), observation(1, 0)
    seeds = [bytes([number]) * SEED_BYTES for number in (1, 2, 3)]
    records = answer(campaign, seen, 1, bytes(32), campaign.period_at(NOW), seeds)
    for record, question, seed in zip(records, campaign.questions, seeds, strict=True):
        _, _, number, field = decode_report(campaign.layout, record)
        assert campaign.questions[number] == question
        found = decode_answer(question.mechanism, field, campaign.layout)
        assert found == question.mechanism.perturb(question.input_of(seen, 1, 2), seed)


def test_a_device_draws_one_seed_for_each_answer_and_uses_none_twice():
    drawn = []

    def entropy(count):
        drawn.append(bytes([len(drawn)]) * count)
        return drawn[-1]

    with Device.open(None, trust=TINY.root(), clock=lambda: NOW, entropy=entropy) as device:
        campaign = device.enrol(TINY.campaign(mechanism="oue", answers=3))
        before = len(drawn)
        said = device.report(campaign.id, {"odor": "a", "cap": "y"}, label="p")
        assert device.status().spent_micro == campaign.epsilon_micro
    length = campaign.layout.record_length
    numbers = [decode_report(campaign.layout, said[at : at + length])[2] for at in range(0, len(said), length)]
    assert [campaign.questions[number].stratum for number in numbers] == [0, 1, 2]
    seeds = drawn[before:]
    assert [len(seed) for seed in seeds] == [SEED_BYTES] * 3
    assert len(set(drawn)) == len(drawn)
