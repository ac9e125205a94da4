"""An attacker who sees all reports of a device guesses its value no more often than the lifetime ε allows.

Real devices in memory are asked until their budget is spent: in every period, several times per period, by several
campaigns at once. The best estimator (tests/support/attack.py) then guesses the true value of each device. Successes
are independent between devices, and their number is compared with a window of Binomial(devices, bound). With fresh
seeds a correct device fails a test with probability below ALPHA. The seeds are fixed.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import count, product

import pytest
from support.attack import bound, guess, success, table
from support.binomial import window
from support.failures import reason
from support.mixtures import mixed_payload, tiny_schema
from support.publisher import DAY, NOW, Publisher
from support.reports import opened

from edge_sdk import Device, Policy, PolicyError
from edge_sdk.answering.answer import answer
from protocol import canonical, mechanisms
from protocol.batches.report import decode_answer, decode_report
from protocol.documents import campaign as campaigns
from protocol.features import Categorical
from protocol.questions import CLASS, Subject, build_questions
from protocol.schema import Label, build_schema

ALPHA = Fraction(1, 10**6)
DEVICES = 200
CLASSES = ("a", "b", "c", "d")
EPSILON = 2_000_000
RECORDS = list(product(["a", None], ["x", "y"], ["e", "p"]))


def entropy_of(number):
    """A device's randomness, the same in every run."""
    draws = count()
    return lambda size: sha256(b"averaging %d %d" % (number, next(draws))).digest()[:size]


@lru_cache(maxsize=1)
def label_campaign():
    """A campaign that asks for the class only, at ε = 2: the most informative report at this ε."""
    publisher = Publisher(schema=build_schema(Label("label", CLASSES), [Categorical("odor", ["a", "n"])]))
    payload = campaigns.build_payload(
        publisher.header("label"),
        publisher.schema,
        build_questions([Subject(CLASS, None, 4)], 1, lambda _: mechanisms.from_micro("direct", EPSILON, 4)),
        epsilon_micro=EPSILON,
        purpose="learn who is what",
        contact="someone@example.org",
        time_precision=DAY,
        min_batch_size=1,
        fit=campaigns.Fit("discrete", "simplex"),
    )
    return publisher.sign("campaign", payload)


@lru_cache(maxsize=4)
def record_campaigns():
    """Three campaigns about the same record: one question a day, all questions a day, and bits."""
    publisher = Publisher(schema=tiny_schema())
    chosen = (("one", ["direct"] * 3, 1), ("all", ["direct"] * 3, 3), ("bits", ["oue"] * 3, 1))
    return tuple(
        publisher.sign("campaign", canonical.pack({**canonical.unpack(mixed_payload(names, answers=r)), "name": name}))
        for name, names, r in chosen
    )


def everything_said(device, raws, record, label, now, *, most=10_000):
    """All distinct reports, with their campaigns, of a device that is asked every day until its budget is spent."""
    enrolled = [device.enrol(raw) for raw in raws]
    heard = {}
    for _ in range(most):
        refused = 0
        for campaign in enrolled:
            with suppress(PolicyError):
                for _ in range(3):
                    heard[device.report(campaign.id, record, label=label)] = campaign
                continue
            assert reason(device.report, campaign.id, record, label) == "budget_exhausted"
            refused += 1
        if refused == len(enrolled):
            break
        now[0] += DAY
    length = {campaign.id: campaign.layout.record_length for campaign in enrolled}
    return [
        (reports[start : start + length[campaign.id]], campaign)
        for reports, campaign in heard.items()
        for start in range(0, len(reports), length[campaign.id])
    ]


def guessed(heard, candidates):
    """The most probable candidate, from report bytes alone; a candidate is a record and its label."""

    def likelihood(report, campaign):
        _, _, number, field = decode_report(campaign.layout, report)
        question = campaign.questions[number]
        said = decode_answer(question.mechanism, field, campaign.layout)
        probabilities = [
            chances(question.mechanism, question.input_of(*coded(campaign, each))).get(said, Fraction(0))
            for each in candidates
        ]
        return probabilities.__getitem__

    return guess([likelihood(*each) for each in heard], len(candidates))


@lru_cache(maxsize=1000)
def chances(mechanism, value):
    return mechanism.distribution(value)


def coded(campaign, candidate):
    record, label = candidate
    schema = campaign.schema
    return schema.observe(record), schema.label.code(label), len(schema.label.classes)


def hits(raws, candidates, lifetime, *, devices=DEVICES, most=10_000):
    """Number of devices whose value is guessed right, and the number of reports of each. True values alternate."""
    right, said = 0, set()
    policy = Policy.of(epsilon_lifetime=lifetime)
    for number in range(devices):
        now = [NOW]
        truth = number % len(candidates)
        record, label = candidates[truth]
        with Device.open(
            None, trust=Publisher().root(), policy=policy, clock=lambda now=now: now[0], entropy=entropy_of(number)
        ) as device:
            heard = everything_said(device, raws, record, label, now, most=most)
            said.add(len(heard))
        right += guessed(heard, candidates) == truth
    return right, said


LABELS = [({"odor": "a"}, label) for label in CLASSES]
PEOPLE = [({"odor": odor, "cap": cap}, label) for odor, cap, label in RECORDS]


@pytest.mark.slow
def test_one_report_that_spends_the_lifetime_attains_the_bound():
    right, said = hits([label_campaign()], LABELS, "2")
    attained = success(table(mechanisms.from_micro("direct", EPSILON, 4), range(4)))
    low, high = window(DEVICES, attained, ALPHA)
    assert said == {1}
    assert low <= right <= high
    assert high < DEVICES


@pytest.mark.slow
@pytest.mark.parametrize("lifetime", [2, 3, 4])
def test_all_that_several_campaigns_ever_hear_stays_below_the_bound(lifetime):
    right, said = hits(record_campaigns(), PEOPLE, str(lifetime))
    _, high = window(DEVICES, bound(1_000_000 * lifetime, len(PEOPLE)), 2 * ALPHA)
    assert max(said) <= lifetime
    assert right <= high < DEVICES
    assert right > DEVICES // len(PEOPLE), "the attack learns nothing: it would not notice a broken device"


@pytest.mark.slow
def test_the_test_rejects_a_device_without_a_lifetime_limit():
    right, said = hits([label_campaign()], LABELS, "100", most=12, devices=100)
    _, high = window(100, bound(EPSILON, 4), 2 * ALPHA)
    assert said == {12}
    assert right > high


def test_the_test_rejects_a_device_that_answers_a_period_with_fresh_noise():
    """The reports of a broken device that forgets its answers: the same question many times in one period."""
    campaign = opened(label_campaign())
    right = 0
    for number in range(DEVICES):
        truth = number % len(LABELS)
        observation, code, _ = coded(campaign, LABELS[truth])
        draw = entropy_of(number)
        secret = draw(32)
        heard = [
            (answer(campaign, observation, code, secret, campaign.period_at(NOW), [draw(32)])[0], campaign)
            for _ in range(12)
        ]
        right += guessed(heard, LABELS) == truth
    _, high = window(DEVICES, bound(EPSILON, 4), 2 * ALPHA)
    assert right > high
