"""Campaigns with mixed layouts (single values, bits, integers), from the device's bytes to counts."""

from __future__ import annotations

import pytest
from support.mixtures import mixed_payload
from support.publisher import NOW
from support.reports import batch, report, summand

from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.tally import count
from protocol.batches.report import decode_answer, decode_report, encode_answer, encode_report
from protocol.documents.campaign import parse_campaign
from protocol.errors import InputError
from protocol.mechanisms import BITS, INTEGERS, SINGLE

MIXTURES = [
    pytest.param(("direct", "oue", "direct"), 1, (BITS, 2), id="layout 2, one answer"),
    pytest.param(("oue", "direct", "sue"), 3, (BITS, 2), id="layout 2, a narrow row of bits beside"),
    pytest.param(("oue", "the", "direct"), 2, (BITS, 2), id="layout 2, two answers"),
    pytest.param(("direct", "she", "direct"), 1, (INTEGERS, 32), id="layout 3, one answer"),
    pytest.param(("she", "direct", "she"), 3, (INTEGERS, 16), id="layout 3, a wide question answered by one integer"),
]
DEVICES = 400


def campaign_of(names, answers):
    return parse_campaign(mixed_payload(names, answers=answers))


def records_of(campaign):
    return [
        report(campaign, device, device // 3, index=index)
        for device in range(DEVICES)
        for index in range(campaign.answers)
    ]


def counts_by_hand(campaign, records):
    """The tally from the scalar reader, one report at a time."""
    n = [0] * len(campaign.questions)
    counts = [[0] * question.mechanism.answers for question in campaign.questions]
    for record in records:
        _, _, number, field = decode_report(campaign.layout, record)
        mechanism = campaign.questions[number].mechanism
        answer = decode_answer(mechanism, field, campaign.layout)
        n[number] += 1
        parts = {answer: 1} if mechanism.layout == SINGLE else dict(enumerate(summand(mechanism, answer)))
        for place, amount in parts.items():
            counts[number][place] += amount
    return tuple(n), tuple(map(tuple, counts))


@pytest.mark.parametrize(("names", "answers", "layout"), MIXTURES)
def test_answers_of_all_kinds_come_back_and_are_counted(names, answers, layout):
    campaign = campaign_of(names, answers)
    assert campaign.layout == layout
    records = records_of(campaign)
    assert {len(record) for record in records} == {campaign.layout.record_length}
    found = decode_batches(batch(campaign, records[:7]) + batch(campaign, records[7:]), campaign, now=NOW)
    assert found.rejected == {}
    tally = count(campaign, found.records)
    assert (tally.n, tally.counts) == counts_by_hand(campaign, records)
    assert all(tally.n)


@pytest.mark.parametrize(("names", "answers", "layout"), MIXTURES)
def test_an_answer_field_has_one_meaning(names, answers, layout):
    """Decoding returns the device's answer, padded to the campaign's width."""
    campaign = campaign_of(names, answers)
    for question in campaign.questions:
        mechanism = question.mechanism
        for value in range(question.size):
            answer = mechanism.perturb(value, bytes([value]) * 32)
            field = encode_answer(mechanism, answer, campaign.layout)
            assert len(field) == layout[1]
            assert decode_answer(mechanism, field, campaign.layout) == answer


def bits_beyond(mechanism, layout):
    """Every bit of the answer field that the mechanism does not use."""
    if mechanism.layout == SINGLE:
        used = 32 if layout.kind == INTEGERS else 16
    else:
        used = mechanism.answers * (1 if mechanism.layout == BITS else 32)
    return range(used, 8 * layout.answer_bytes)


@pytest.mark.parametrize(("names", "answers", "layout"), MIXTURES)
def test_any_bit_of_padding_sets_the_report_aside(names, answers, layout):
    campaign = campaign_of(names, answers)
    good, bad = {}, []
    for record in records_of(campaign):
        identifier, period, number, field = decode_report(campaign.layout, record)
        if number in good:
            continue
        good[number] = record
        mechanism = campaign.questions[number].mechanism
        for bit in bits_beyond(mechanism, campaign.layout):
            spoilt = (int.from_bytes(field, "big") | 1 << (8 * len(field) - 1 - bit)).to_bytes(len(field), "big")
            assert decode_answer(mechanism, spoilt, campaign.layout) is None
            bad.append(encode_report(campaign.layout, identifier, period, number, spoilt))
    assert len(good) == len(campaign.questions)
    assert bad
    found = decode_batches(batch(campaign, [*bad, *good.values()]), campaign, now=NOW)
    assert found.rejected == {"value_out_of_domain": len(bad)}
    assert len(found.records.id) == len(good)


@pytest.mark.parametrize(("names", "width"), [(("direct", "oue", "oue"), 2), (("direct", "she", "she"), 4)])
def test_a_single_value_at_or_above_its_size_is_no_answer(names, width):
    campaign = campaign_of(names, 3)
    identifier, period, number, _ = decode_report(campaign.layout, report(campaign, 1))
    assert campaign.questions[number].mechanism.name == "direct"
    too_large = [2, 3, 255, 256, 65535, *([65536, 1 << 31, (1 << 32) - 1] if width == 4 else [])]
    records = [
        encode_report(
            campaign.layout,
            identifier,
            period,
            number,
            value.to_bytes(width, "big").ljust(campaign.layout.answer_bytes, b"\0"),
        )
        for value in too_large
    ]
    for record in records:
        field = decode_report(campaign.layout, record)[3]
        assert decode_answer(campaign.questions[number].mechanism, field, campaign.layout) is None
    found = decode_batches(batch(campaign, records), campaign, now=NOW)
    assert found.rejected == {"value_out_of_domain": len(too_large)}


@pytest.mark.parametrize("names", [("oue", "she", "direct"), ("she", "sue", "she"), ("direct", "she", "the")])
def test_bits_and_integers_do_not_share_a_campaign(names):
    with pytest.raises(InputError, match=r"^layout_invalid"):
        mixed_payload(names)
