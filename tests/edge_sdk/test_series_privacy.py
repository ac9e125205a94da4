"""Exact joint privacy of a series: all answers and silences of a device, in all campaigns, periods and orders of calls.

Real devices say whether they answer, and what they are asked; the noise of the answers is taken from the mechanisms'
exact distributions. So every probability of every outcome is a fraction, and nothing is drawn.
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import permutations, product

import pytest
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy
from protocol.batches.report import decode_report
from protocol.documents.campaign import WHOLE, Series, place
from protocol.epsilon import PrivacyLoss
from protocol.errors import PolicyError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

LABEL = Label("label", ["e", "p"])
ODOR, WIDTH = Categorical("odor", ["a", "n"]), Numeric("width", "0", "10", [0])
SHARES = [(0, WHOLE // 4), (WHOLE // 4, WHOLE // 2), (WHOLE // 8, WHOLE)]
"""The last one overlaps with both others, so there the order of the calls decides."""
MICRO = 1_000_000
RECORDS = [{"label": label, "odor": odor, "width": 7} for label, odor in product("ep", ("a", None))]
PERIODS = 2


def campaigns(shares: list[tuple[int, int]] = SHARES, *, series: bool = True) -> list[bytes]:
    """Three campaigns with other questions, mechanisms and ε (at most 1), each with a share of one series."""
    found = []
    for number, (features, mechanism, micro) in enumerate(
        (([ODOR], "direct", MICRO), ([ODOR, WIDTH], "oue", MICRO), ([WIDTH], "direct", MICRO // 2))
    ):
        publisher = Publisher(schema=build_schema(LABEL, features))
        low, high = shares[number]
        found.append(
            publisher.campaign(
                name=f"c{number}",
                mechanism=mechanism,
                epsilon_micro=micro,
                series=Series("pilot", NOW, low, high) if series else None,
            )
        )
    return found


def secrets(count: int) -> list[bytes]:
    """Secrets whose places are in every part of the shares: ``count`` per part."""
    edges, drawn = [0, WHOLE // 8, WHOLE // 4, WHOLE // 2, WHOLE], random.Random(1)
    parts: dict[int, list[bytes]] = {part: [] for part in range(4)}
    while any(len(found) < count for found in parts.values()):
        secret = drawn.randbytes(32)
        part = next(part for part in range(4) if edges[part] <= place(secret, "pilot") < edges[part + 1])
        if len(parts[part]) < count:
            parts[part].append(secret)
    return [secret for found in parts.values() for secret in found]


def life(raws: list[bytes], secret: bytes, record: dict[str, object], order: tuple[int, ...]):
    """What a device is seen to do: one entry per call, None or (campaign, question); and the inputs of its answers.

    Returns:
        the visible part; for each answer its mechanism and its exact distribution under ``record``.
    """
    given, time = iter([secret]), [NOW]
    policy = Policy(lifetime_micro=100 * MICRO)
    with Device.open(
        None, Publisher().root(), policy=policy, clock=lambda: time[0], entropy=lambda n: next(given, bytes(n))
    ) as device:
        asked = [device.enrol(raw) for raw in raws]
        seen, answers = [], []
        for period, number in product(range(PERIODS), order):
            campaign, time[0] = asked[number], NOW + period * DAY
            try:
                said = device.answer(campaign.id, record)
            except PolicyError as error:
                seen.append(error.reason)
                continue
            _, _, question, _ = decode_report(campaign.layout, said.reports)
            seen.append((number, question))
            answers.append((campaign, question))
    return tuple(seen), tuple(answers)


def distributions(answers, record) -> list[dict[object, Fraction]]:
    """The exact distribution of each answer of a device with this record. Answers are drawn independently."""
    found = []
    for campaign, number in answers:
        observed = campaign.schema.observe(record)
        code = campaign.schema.label.code(record["label"])
        question = campaign.questions[number]
        found.append(question.mechanism.distribution(question.input_of(observed, code, 2)))
    return found


def joint(raws, chosen, order) -> list[dict[object, Fraction]]:
    """For each record the exact distribution of all that is seen of a device whose secret is one of ``chosen``."""
    totals: list[dict[object, Fraction]] = [{} for _ in RECORDS]
    for secret in chosen:
        for total, record in zip(totals, RECORDS, strict=True):
            seen, answers = life(raws, secret, record, order)
            for outcome in product(*(found.items() for found in distributions(answers, record))):
                chance = Fraction(1, len(chosen))
                for _, probability in outcome:
                    chance *= probability
                key = secret, seen, tuple(answer for answer, _ in outcome)
                total[key] = total.get(key, Fraction(0)) + chance
    return totals


def worst_ratio(totals: list[dict[object, Fraction]], without_secret: bool = False) -> Fraction:
    """The largest ratio of the probabilities of one outcome under two records."""
    if without_secret:
        totals = [summed(total) for total in totals]
    keys = {key for total in totals for key in total}
    return max(max(t.get(k, Fraction(0)) for t in totals) / min(t.get(k, Fraction(0)) for t in totals) for k in keys)


def summed(total: dict[object, Fraction]) -> dict[object, Fraction]:
    """The same distribution for somebody who does not know the secret."""
    found: dict[object, Fraction] = {}
    for (_, seen, answers), chance in total.items():
        found[seen, answers] = found.get((seen, answers), Fraction(0)) + chance
    return found


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize(
    "order", [order if n in (0, 5) else pytest.param(order, marks=pytest.mark.slow) for n, order in enumerate(ORDERS)]
)
def test_the_worst_ratio_of_a_whole_series_is_that_of_one_answer(order):
    """Whatever the shares and the order of the calls: at most e^ε, and just the worst ratio of one answer."""
    raws = campaigns()
    totals = joint(raws, secrets(2), order)
    assert all(sum(total.values()) == 1 for total in totals)
    worst = worst_ratio(totals)
    assert not PrivacyLoss(worst).exceeds(MICRO)
    assert PrivacyLoss(worst) > 0.999  # e^ε, up to the rounding of the mechanism's integers
    assert worst_ratio(totals, without_secret=True) <= worst
    for total in totals:
        for _, seen, answers in total:
            assert len(answers) == sum(type(each) is tuple for each in seen) <= 1


def test_what_is_seen_apart_from_the_noise_is_the_same_for_all_records():
    raws = campaigns()
    for secret in secrets(1):
        assert len({life(raws, secret, record, (2, 0, 1))[0] for record in RECORDS}) == 1


def test_without_a_series_the_same_campaigns_cost_more():
    """The enumeration sees devices that answer more than once: in two periods, at ε = 1 each."""
    totals = joint(campaigns(series=False), secrets(1)[:1], (0,))
    assert PrivacyLoss(worst_ratio(totals)) > 1.9
