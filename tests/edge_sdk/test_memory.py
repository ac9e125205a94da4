"""Campaigns with memory: the exact joint law of a device's life, what the ledger books, and what outlives what."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from math import lcm, prod
from random import Random

import pytest
from support.failures import reason
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy
from protocol import canonical
from protocol.batches.report import decode_answer, decode_report
from protocol.documents.campaign import parse_campaign
from protocol.documents.memory_terms import Memory, remembered
from protocol.epsilon import PrivacyLoss
from protocol.errors import DocumentError
from protocol.mechanisms import from_micro

MICRO = 1_000_000
PERIODS, CHANGES = 50, 2
TERMS = Memory(CHANGES, 17, MICRO // 2)
GENEROUS = Policy(lifetime_micro=1_000 * MICRO)
RECORDS = [{"odor": odor, "width": 2, "label": label} for odor, label in product("an", "ep")]
LIVES = [[0] * 50, [3] * 50, [0] * 20 + [3] * 10 + [0] * 20, [1] * 17 + [2] * 33, [0] * 10 + [1] * 10 + [3] * 30]
"""Indices of :data:`RECORDS`: one per period; at most two changes, some of them back to an earlier record."""


def lived(raw, life):
    """The stretches of a device whose record in period t is RECORDS[life[t]]: its record when drawn, its periods.

    A kept answer is drawn exactly where the device takes two seeds. Also returned: what the ledger counts, ids.
    """
    drawn, time, bytes_of = [0], [NOW], Random(3).randbytes

    def entropy(count):
        drawn[0] += 1
        return bytes_of(count)

    stretches, ids, questions = [], [], set()
    with Device.open(None, Publisher().root(), policy=GENEROUS, clock=lambda: time[0], entropy=entropy) as device:
        campaign = device.enrol(raw)
        for period, record in enumerate(life):
            time[0], before = NOW + period * DAY, drawn[0]
            identifier, _, question, _ = decode_report(campaign.layout, device.report(campaign.id, RECORDS[record]))
            ids.append(identifier[4:])
            questions.add(question)
            if drawn[0] - before == 2:
                stretches.append((record, []))
            stretches[-1][1].append(period)
        paid = [line.epsilon_micro for line in device.history()]
    assert len(set(ids)) == len(life)
    assert len(questions) == 1
    return stretches, paid


def chance(mechanism, kept, value, ones):
    """P(a stretch's reports | value), for ``direct``: ``ones`` says how many of the reports name each value."""
    (p, q), base = mechanism.fresh, mechanism.permanent.distribution(value)
    return sum(base[y] * p**n * q ** (kept - n) for y, n in enumerate(ones))


def parts(total, number, most):
    """All ways to write ``total`` as a falling sum of ``number`` integers of 0 … ``most``."""
    if not number:
        return [()] if not total else []
    return [(one, *rest) for one in range(min(total, most) + 1) for rest in parts(total - one, number - 1, one)]


def worst_of_stretch(mechanism, kept):
    """The largest ratio of the probabilities of ``kept`` reports of one kept answer, over all reports, exactly.

    By symmetry only the numbers of reports of the two true values matter, and the numbers of all others, sorted.
    """
    (p, q), one, other = mechanism.fresh, mechanism.permanent.p, mechanism.permanent.q
    if mechanism.layout == 2:  # bits are independent, and two of them depend on the value
        law = [
            [rate * p**n * q ** (kept - n) + (1 - rate) * q**n * p ** (kept - n) for n in range(kept + 1)]
            for rate in (one, other)
        ]
        ratios = [a / b for a, b in zip(*law, strict=True)]
        return max(ratios) / min(ratios)
    unit = lcm(p.denominator, q.denominator)
    told = [int(p * unit) ** n * int(q * unit) ** (kept - n) for n in range(kept + 1)]
    found = Fraction(0)
    for first in range(kept + 1):
        for second in range(kept + 1 - first):
            rest = kept - first - second
            for row in parts(rest, mechanism.size - 2, rest):
                others = other * sum(told[n] for n in row)
                true = one * told[first] + other * told[second] + others
                found = max(found, true / (other * told[first] + one * told[second] + others))
    return found


@pytest.mark.parametrize("name", ["direct", "oue"])
def test_the_worst_joint_law_of_50_periods_and_two_changes_is_within_what_the_ledger_booked(name):
    raw = Publisher().campaign(mechanism=name, memory=TERMS)
    found = [lived(raw, life) for life in LIVES]
    shapes = {tuple(tuple(periods) for _, periods in stretches) for stretches, _ in found}
    assert len(shapes) == 1  # where an answer is drawn says nothing about the record
    assert all(paid == [(1 + CHANGES) * MICRO] + [0] * (PERIODS - 1) for _, paid in found)
    (stretches,) = shapes
    for size in (2, 4, 8):  # of the campaign's questions
        mechanism = remembered(from_micro(name, MICRO, size), TERMS.report_micro)
        loss = PrivacyLoss(prod(worst_of_stretch(mechanism, len(periods)) for periods in stretches))
        assert not loss.exceeds((1 + CHANGES) * MICRO)
        assert loss > (1 + CHANGES) * 0.999999  # the booking is hardly more than the law needs
        assert 0.499 < mechanism.privacy_loss() <= 0.5  # of one report alone


def test_a_device_that_draws_where_the_record_changes_would_spend_more_than_it_booked(monkeypatch):
    life = LIVES[2]
    runs = [sum(a != b for a, b in pairwise(life[: period + 1])) for period in range(PERIODS)]
    monkeypatch.setattr(Memory, "number", lambda terms, period: runs[period - terms.first])
    stretches, _ = lived(Publisher().campaign(memory=TERMS), life)
    assert [len(periods) for _, periods in stretches] == [20, 10, 20]
    mechanism = remembered(from_micro("direct", MICRO, 3), TERMS.report_micro)
    changed = prod(
        chance(mechanism, n, value, row)
        for n, value, row in ((20, 0, (20, 0, 0)), (10, 1, (0, 10, 0)), (20, 0, (0, 0, 20)))
    )
    unchanged = chance(mechanism, 50, 0, (20, 10, 20))
    assert PrivacyLoss(changed / unchanged) > 4 * (1 + CHANGES)


def test_what_is_kept_outlives_a_restart_and_an_opt_out_pays_again(tmp_path, publisher, clock):
    raw, record = publisher.campaign(memory=TERMS._replace(report_micro=MICRO - 1)), RECORDS[0]
    with Device.provision(
        tmp_path, trust=publisher.root(), clock=clock, policy=Policy(lifetime_micro=6 * MICRO)
    ) as one:
        campaign = one.enrol(raw)
        first = one.report(campaign.id, record)
    kept = []
    for day in range(1, 8):
        clock.now = NOW + day * DAY
        with Device.open(tmp_path, clock=clock, policy=Policy(lifetime_micro=6 * MICRO)) as one:
            kept.append(one.report(campaign.id, record))
            assert one.status().spent_micro == 3 * MICRO
    number = decode_report(campaign.layout, first)[2]
    mechanism = campaign.questions[number].mechanism
    told = {
        decode_answer(mechanism, decode_report(campaign.layout, each)[3], campaign.layout) for each in (first, *kept)
    }
    assert len(told) <= 2  # F is nearly 2^32 here
    with Device.open(tmp_path, clock=clock, policy=Policy(lifetime_micro=6 * MICRO)) as one:
        for spent in (6 * MICRO, None):
            one.disable()
            one.enable()
            clock.now += DAY
            if spent is None:
                assert reason(one.report, campaign.id, record) == "budget_exhausted"
            else:
                one.report(campaign.id, record)
                assert one.status().spent_micro == spent


def test_the_owners_limits_count_the_whole_campaign_and_its_words_say_what_links_reports(publisher, clock, tmp_path):
    raw = publisher.campaign(epsilon_micro=2 * MICRO, memory=TERMS)
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as one:
        assert reason(one.enrol, raw) == "policy_refused"  # 6 on one day
        words = " ".join(one.explain(publisher.campaign(memory=TERMS)).split())
    for told in (
        "one question for the whole campaign",
        "After every 17 days it draws another one, 2 times in all, whether or not the record has changed.",
        "Cost: ε = 3 for the whole campaign, paid with the first answer (ε = 1 per kept answer).",
        "odds of any guess by at most 1.6488",
        "all reports can multiply them by 20.09.",
        "among two with probability 0.",
        "The owner's policy allows it.",
    ):
        assert told in words, words


def test_a_limit_per_day_holds_where_several_campaigns_renew_on_one_day(publisher, clock):
    """Each campaign of 2 kept answers counts one on every later day; that of one kept answer counts on no other day."""
    once = TERMS._replace(renewals=1)
    owner = Policy(lifetime_micro=1_000 * MICRO, day_micro=4 * MICRO)
    with Device.open(None, publisher.root(), policy=owner, clock=clock) as device:
        refused = []
        for day in range(6):
            clock.now = NOW + day * DAY
            terms = once if day else TERMS._replace(renewals=0)
            device.enrol(raw := publisher.campaign(name=f"c{day}", memory=terms, lifetime=20 * DAY))
            refused.append(reason(device.report, device.enrol(raw).id, RECORDS[0]))
        assert refused == [None] * 4 + ["budget_paused"] * 2  # on day 4: 3 of today's 4 are promised, and 2 are wanted
        assert device.status().spent.day_micro == 3 * MICRO
        clock.now = NOW + 24 * DAY  # all but the youngest have expired
        fresh = device.enrol(publisher.campaign(name="last", memory=TERMS))
        assert reason(device.report, fresh.id, RECORDS[0]) is None


WRONG = [
    {"renewals": -1},
    {"renewals": 1000},
    {"stretch": 0},
    {"report_micro": MICRO},
    {"report_micro": 999},
    {"report_micro": MICRO // 2 + 1},
    {"fresh": []},
    {"fresh": [1, 2, 3]},
    {"more": 1},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_device_refuses_terms_that_do_not_recompute(publisher, change):
    payload = canonical.unpack(publisher.campaign_payload(memory=TERMS))
    assert parse_campaign(canonical.pack(payload)).memory.renewals == CHANGES
    payload["memory"] = payload["memory"] | change
    with pytest.raises(DocumentError) as error:
        parse_campaign(canonical.pack(payload))
    assert error.value.reason == "invalid_campaign"


@pytest.mark.parametrize("name", ["direct", "oue"])
def test_reports_are_drawn_by_the_stated_law(name):
    """2,000 reports; each of the two counts is off by 5 standard deviations with probability 6e-7."""
    mechanism = remembered(from_micro(name, MICRO, 6), MICRO // 2)
    seeds, count = Random(5).randbytes, 2_000
    drawn = [mechanism.perturb(2, seeds(32)) for _ in range(count)]
    assert sum(mechanism.distribution(2).values()) == 1
    for value, rate in ((2, mechanism.p), (4, mechanism.q)):
        hits = sum(mechanism.supports(each, value) for each in drawn)
        assert abs(hits - count * rate) < 5 * (count * rate * (1 - rate)) ** Fraction(1, 2)
