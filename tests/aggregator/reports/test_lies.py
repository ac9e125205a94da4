"""One dishonest report in a campaign with integer answers: refused beyond the bounds, of small effect within them."""

from __future__ import annotations

import pytest
from support.publisher import NOW, Publisher
from support.reports import batch, digest, made, mixed, opened, report

from aggregator.estimates.debias import debias
from aggregator.estimates.reports import estimate
from aggregator.operations.report_store import create_store
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.storage.quarantine import Quarantine
from aggregator.reports.tally.tally import count
from benchmarks.speed.raw_counts import count_batches
from protocol import mechanisms
from protocol.batches.report import encode_report, report_id

RAW = Publisher().campaign(mechanism="she")
CAMPAIGN = opened(RAW)
LARGEST, SMALLEST = (1 << 31) - 1, -(1 << 31)
KINDS = {
    "she": made(mechanism="she"),
    "laplace": mixed(*(mechanisms.from_epsilon("laplace", "1", 3, delta=delta) for delta in (2, 6, 4))),
    "she beside values": mixed(mechanisms.from_epsilon("direct", "1", 4), mechanisms.from_epsilon("she", "0.5", 3)),
}


def lie(campaign, device, number):
    """A report that repeats one integer in every coordinate of its answer."""
    period = campaign.period_at(NOW)
    index = campaign.questions[-1].stratum
    identifier = report_id(digest("liar", device), campaign.id, period, index)
    asked = campaign.assignment.question_for(identifier, index)
    size = campaign.questions[asked].mechanism.answers
    field = (number.to_bytes(4, "big", signed=True) * size).ljust(campaign.layout.answer_bytes, b"\0")
    return encode_report(campaign.layout, identifier, period, asked, field)


def question_of(campaign, record):
    start = len(campaign.layout.prefix) + 12
    return campaign.questions[int.from_bytes(record[start : start + 2], "big")]


@pytest.mark.parametrize("kind", KINDS)
def test_integers_beyond_the_bounds_are_no_answers_and_the_ends_are(kind):
    campaign = KINDS[kind]
    least, most = question_of(campaign, lie(campaign, 0, 0)).mechanism.bounds
    wrong = [lie(campaign, 0, number) for number in (LARGEST, SMALLEST, most + 1, least - 1)]
    right = [lie(campaign, 0, number) for number in (most, least, 0)]
    for record in right + wrong:
        data = batch(campaign, [record])
        for verify in (True, False):
            counted = count_batches(data, campaign, now=NOW, verify=verify)
            assert sum(counted.n) == (record in right)
            assert counted.rejected == ({} if record in right else {"value_out_of_domain": 1})
        found = decode_batches(data, campaign, now=NOW)
        assert found.rejected == counted.rejected
        assert [piece.data for piece in found.pieces] == ([] if record in right else [record])
        if record in right:
            assert count(campaign, found.records).counts == counted.counts


def test_one_integer_beyond_the_bounds_is_enough():
    campaign = KINDS["she"]
    good = report(campaign, 1, 1)
    size = question_of(campaign, good).mechanism.answers
    _, most = question_of(campaign, good).mechanism.bounds
    place = len(good) - campaign.layout.answer_bytes
    for component in range(size):
        at = place + 4 * component
        bad = good[:at] + (most + 1).to_bytes(4, "big") + good[at + 4 :]
        found = decode_batches(batch(campaign, [good, bad]), campaign, now=NOW)
        assert found.rejected == {"value_out_of_domain": 1}
        assert found.records.size == 1


@pytest.mark.parametrize("number", [LARGEST, SMALLEST, 1 << 17])
def test_a_liar_does_not_overturn_a_campaign(tmp_path, number):
    """Without bounds, one report can add 2,097,152 reports to a cell unnoticed."""
    records = [report(CAMPAIGN, device, device % 5) for device in range(300)]
    stores = []
    for name, lies in (("honest", []), ("one lie", [lie(CAMPAIGN, 0, number)])):
        path = tmp_path / f"{name}.hsr"
        path.write_bytes(batch(CAMPAIGN, records + lies))
        store = create_store(tmp_path / name, RAW)
        store.ingest([path], now=NOW)
        stores.append(store)
    honest, lied = (estimate(CAMPAIGN, store.tally()) for store in stores)
    refused = number not in range(-1, 132_096 + 1)
    assert stores[1].tally_report().rejected == ({"value_out_of_domain": 1} if refused else {})
    assert [piece.reason for kept in Quarantine(stores[1].path / "quarantine").files() for piece in kept.pieces] == [
        "value_out_of_domain"
    ] * refused
    for before, after in zip(honest.questions, lied.questions, strict=True):
        assert (abs(after.estimate - before.estimate) < (1e-9 if refused else 2.9)).all()


def test_records_that_older_software_took_are_counted_within_the_bounds():
    """Records already in a store are not refused, because a refusal would block the whole store."""
    for kind, campaign in KINDS.items():
        record = lie(campaign, 0, 0)
        question = question_of(campaign, record)
        found = decode_batches(batch(campaign, [record]), campaign, now=NOW).records
        for number, end in ((LARGEST, 1), (SMALLEST, 0)):
            size = question.mechanism.answers
            found.answer[0, : 4 * size] = list(number.to_bytes(4, "big", signed=True) * size)
            sums = count(campaign, found).counts[campaign.questions.index(question)]
            least, most = (0, 1024) if "she" in kind else question.mechanism.bounds
            assert sums == ((least, most)[end],) * size
            estimated = debias(question.mechanism, 1, sums).estimate
            assert (abs(estimated) < (9 if "she" in kind else 1 + 64 * 6)).all()
