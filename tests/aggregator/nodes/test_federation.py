"""Variances and intervals of totals: noise of several ε, its kurtosis, and records of several periods."""

import json

import numpy as np
import pytest
from support.commands import run
from support.failures import reason
from support.masked import DEALER, TERMS, book_of, masked_campaign, masked_payload
from support.node_fleets import keys, noisy, summaries_of, true_sums
from support.nodes import NODE_KEYS, PERIOD, node_campaign
from support.publisher import Publisher

from aggregator.cards.guarantee import masked_guarantee
from aggregator.estimates.cells import NOT_DETERMINED, rows
from aggregator.nodes.campaigns.numbering import first_numbers
from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.nodes.statistics.federation import divided, federated, noise_variances
from aggregator.nodes.statistics.masked import PeriodTotal, check_numbers, masked_statistics
from aggregator.nodes.statistics.totals import Total, Totals
from protocol import SCALE
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import keyid
from protocol.masked.keys import read_key_book
from protocol.masked.noise import noise_of
from protocol.nodes.summary import read_summary
from protocol.nodes.terms import released_vectors
from protocol.stream import Stream

CAMPAIGN = node_campaign()


def parsed(raws):
    return [read_summary(raw)[1] for raw in raws]


def test_noise_variances_of_several_epsilons_add_up():
    first = parsed(summaries_of(CAMPAIGN, keys(3)))
    second = parsed(summaries_of(CAMPAIGN, keys(5)[3:], epsilon_micro=200_000))
    statistics = federated(CAMPAIGN, Totals.of(CAMPAIGN, [*first, *second]).total())
    own, other = noise_variances(CAMPAIGN, 1_000_000), noise_variances(CAMPAIGN, 200_000)
    for place, one in enumerate(statistics.questions):
        unit = SCALE if one.subject.kind == "moment" else 1
        assert one.noise_variance == pytest.approx((3 * own[place] + 2 * other[place]) / unit**2)
    assert other[0] == pytest.approx(25 * own[0], rel=0.01)
    sums = np.array([summary.sums for summary in [*first, *second]]).sum(axis=0)
    assert statistics.questions[0].estimate.tolist() == sums[:2].tolist(), "weight one whatever ε"


@pytest.mark.parametrize(("nodes", "least", "most"), [(1, 0.93, 0.975), (4, 0.93, 0.975)])
def test_intervals_for_these_records_hold_as_often_as_they_say(nodes, least, most):
    """150 fleets, 14 numbers each: coverage of 95 % intervals of noise alone is within 0.93 and 0.975.

    The standard error is √(0.95·0.05/2100) = 0.5 %, so a right interval fails in less than one of 10,000 runs. An
    interval that forgets half of the noise variance covers about 0.85.
    """
    generator = np.random.default_rng(17)
    exact = true_sums(CAMPAIGN, 400, generator)
    hits = []
    for _ in range(150):
        numbers = np.array([noisy(CAMPAIGN, exact, 1_000_000, generator) for _ in range(nodes)]).sum(axis=0)
        total = Total(CAMPAIGN.id, nodes, {1_000_000: nodes}, {PERIOD: int(numbers[:2].sum())}, tuple(numbers.tolist()))
        statistics = federated(CAMPAIGN, total)
        truth, start = nodes * np.array(exact), 0
        for one, subject in zip(statistics.questions, released_vectors(CAMPAIGN), strict=True):
            unit = SCALE if subject.kind == "moment" else 1
            part = truth[start : start + subject.size] / unit
            start += subject.size
            own = one.devices_interval
            hits.append(((own.low <= part) & (part <= own.high)).mean())
    assert least < np.mean(hits) < most


def test_the_same_records_in_every_period_are_not_taken_for_more_people():
    one = parsed(summaries_of(CAMPAIGN, keys(4)))
    again = parsed(summaries_of(CAMPAIGN, keys(4), period=PERIOD + 1))
    single = federated(CAMPAIGN, Totals.of(CAMPAIGN, one).total()).questions[1]
    twice = federated(CAMPAIGN, Totals.of(CAMPAIGN, [*one, *again]).total()).questions[1]
    assert single.scatter == pytest.approx(1)
    assert twice.scatter == pytest.approx(2, rel=0.01)
    spread = twice.sampling_variance / twice.n**2
    np.testing.assert_allclose(spread, single.sampling_variance / single.n**2, rtol=0.15)


def of_counts(counts, epsilon_micro, generator, nodes=3):
    """Statistics of nodes whose records of the classes are ``counts`` together; every other sum is of no record."""
    exact = [*counts, *[0] * (sum(subject.size for subject in released_vectors(CAMPAIGN)) - len(counts))]
    nothing = [0] * len(exact)
    numbers = np.array([noisy(CAMPAIGN, exact if node == 0 else nothing, epsilon_micro, generator)
                        for node in range(nodes)]).sum(axis=0)  # fmt: skip
    total = Total(CAMPAIGN.id, nodes, {epsilon_micro: nodes}, {PERIOD: int(numbers[:2].sum())}, tuple(numbers.tolist()))
    return federated(CAMPAIGN, total)


def ends_of(shown):
    """Ends of an interval as the table shows it."""
    return tuple(map(float, shown.split(" to ")))


def test_shown_intervals_of_a_count_hold_it_though_the_number_of_records_is_noisy():
    """For these records, and for the population: 3 nodes with 599 of 600 records in one class, ε = 0.5, 400 stores.

    A count's interval was cut at the noisy number of records, and held the 599 in 50 % of stores. The standard error
    is 1.1 %, and the seed is fixed. The rare class's interval is cut at 0, which changes no coverage.
    """
    generator = np.random.default_rng(31)
    held = np.zeros((2, 2))
    for _ in range(400):
        shown = rows(of_counts((599, 1), 500_000, generator).questions[:1], CAMPAIGN.schema)
        for row, count, covers in zip(shown, (599, 1), held, strict=True):
            for place, (low, high) in enumerate(map(ends_of, row[4:6])):
                covers[place] += low <= count <= high
                assert low - 0.05 <= max(float(row[3]), 0) <= high + 0.05, "an estimate is in its own interval"
    assert (held / 400 > 0.92).all()
    assert (held / 400 < 0.98).all()


def test_a_noisy_number_of_records_below_one_is_shown_as_it_came():
    """10 records at ε = 0.1. The number was shown as 1, and the counts as 0.0 to 1.0."""
    generator = np.random.default_rng(5)
    found = [of_counts((10, 0), 100_000, generator) for _ in range(40)]
    negative = [one for one in found if one.questions[0].estimate.sum() < 0]
    assert 5 < len(negative) < 35
    for one in negative:
        number = int(one.questions[0].estimate.sum())
        shown = rows(one.questions, CAMPAIGN.schema)
        assert {row[2] for row in shown} == {number} == {one.stated_reports, one.to_json()["reports"]}
        assert {question["n"] for question in one.to_json()["questions"]} == {number} == set(one.frame()["n"][:2])
        widths = [np.diff(ends_of(row[4]))[0] for row in shown if row[4] != NOT_DETERMINED and float(row[3]) > 0]
        assert min(widths) > 100


# Decrypted totals: coverage of their intervals for both kinds of noise; the guarantee sheet


PARTIES = tuple(NODE_KEYS[:4])
DILUTED = TERMS._replace(noise="diluted", delta_pico=10**9, honest_micro=750_000)
DIVIDED = TERMS._replace(honest_micro=750_000)


def totals_of(campaign, exact, stream):
    """The total of four parties, whose exact sums are ``exact`` together."""
    laws = noise_of(campaign, len(PARTIES))
    vectors = divided(exact, released_vectors(campaign))
    numbers = [
        value + sum(law.draw(stream) for _ in PARTIES)
        for law, values in zip(laws, vectors, strict=True)
        for value in values
    ]
    book = read_key_book(book_of(campaign, PARTIES), campaign)
    ids = tuple(sorted(keyid(one.public) for one in PARTIES))
    return PeriodTotal(PERIOD, book, ids, tuple(numbers))


@pytest.mark.slow
@pytest.mark.parametrize(("terms", "least"), [(DIVIDED, 0.925), (DILUTED, 0.92)], ids=["divided", "diluted"])
def test_intervals_cover_the_exact_sums(terms, least):
    """300 totals: coverage of 95 % intervals of noise alone. A right one fails in less than one of 1,000 runs.

    Entries of one total are independent, so the standard error is below √(0.95·0.05/(300·14)) = 0.34 %. An interval
    that takes the noise for that of one copy in place of four thirds covers 0.90.
    """
    campaign = masked_campaign(masked=terms)
    exact = np.random.default_rng(5).integers(200, 900, sum(one.size for one in released_vectors(campaign))).tolist()
    stream, hits = Stream(bytes(32), b"coverage of masked totals"), []
    for _ in range(300):
        statistics = masked_statistics(campaign, [totals_of(campaign, exact, stream)])
        parts = divided(exact, released_vectors(campaign))
        for one, part in zip(statistics.questions, parts, strict=True):
            truth = np.array(part) / (SCALE if one.subject.kind == "moment" else 1)
            hits.append(((one.devices_interval.low <= truth) & (truth <= one.devices_interval.high)).mean())
    assert least < np.mean(hits) < 0.975


def test_numbers_beyond_what_parties_can_cause_are_found():
    campaign = masked_campaign(DISCRETE)
    size = sum(one.size for one in released_vectors(campaign))
    assert check_numbers(campaign, [0] * size, 4) is None
    assert check_numbers(campaign, [0, 4 * 10_000_000, *[0] * (size - 2)], 4) == 1


def test_the_guarantee_sheet_of_a_masked_campaign(tmp_path):
    payload = masked_payload(Publisher(), DISCRETE, masked=DIVIDED._replace(colluding_micro=100_000))
    path = tmp_path / "c.hsc"
    path.write_bytes(Publisher().sign("campaign", payload))
    found = run("guarantee", path, "--devices", 20, "--json")
    sheet = json.loads(found.output)
    assert (sheet["least_parties"], sheet["colluding_parties"], sheet["dealer"]) == (17, 2, DEALER.public.hex())
    assert sheet["delta"] == {"add-remove": 0.0, "change": 0.0}
    text = run("guarantee", path, "--devices", 20).output
    assert "17 of 20 parties" in text
    assert "dealer" in text
    path.write_bytes(
        Publisher().sign("campaign", masked_payload(Publisher(), DISCRETE, masked=DIVIDED._replace(unit="party")))
    )
    for command in ("guarantee", "show"):
        text = run(command, path).output
        assert "all records of one party more or less" in text
        assert "one record more" not in text
    assert reason(masked_guarantee, masked_campaign(DISCRETE), parties=101) == "argument_invalid"
    diluted = masked_guarantee(masked_campaign(DISCRETE, masked=DILUTED))
    assert diluted.deltas["change"] == 2 * diluted.deltas["add-remove"] == pytest.approx(2e-3, rel=1e-6)


@pytest.mark.parametrize("terms", [DIVIDED, DILUTED], ids=["divided", "diluted"])
def test_the_stated_noise_of_the_most_parties_is_that_of_the_dealer_s_numbers(terms):
    campaign = masked_campaign(DISCRETE, masked=terms._replace(most_parties=4))
    numbers = first_numbers(keyid(one.public) for one in PARTIES)
    for place, vector in enumerate(node_sheet(campaign).vectors):
        variance = sum(noise_of(campaign, u)[place].variance for u in numbers.values())
        assert vector.deviation == pytest.approx(variance**0.5)
    many = masked_campaign(DISCRETE, masked=terms._replace(most_parties=3001))
    exact = sum(
        noise_of(many, u)[0].variance for u in first_numbers(bytes([n // 256, n % 256]) for n in range(3001)).values()
    )
    assert node_sheet(many).vectors[0].deviation == pytest.approx(exact**0.5, rel=1e-3)
