"""Variances and intervals of totals: noise of several ε, its kurtosis, and records of several periods."""

import json
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from support.commands import run
from support.failures import reason, refusal
from support.masked import DEALER, TERMS, book_of, masked_campaign, masked_payload
from support.node_fleets import keys, noisy, summaries_of, true_sums
from support.nodes import NODE_KEYS, PERIOD, node_campaign
from support.publisher import Publisher

from aggregator.cards.guarantee import masked_guarantee
from aggregator.estimates.cells import NOT_DETERMINED, parameter_rows, rows
from aggregator.estimates.conditional import PRIOR, conditionals
from aggregator.estimates.ratios import Variance, ratio_interval
from aggregator.models.foresight import UNDER_RULE, Foresight, foresee
from aggregator.models.published import interval_card, published
from aggregator.nodes.campaigns.numbering import first_numbers
from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.nodes.statistics.federation import divided, federated, noise_variances
from aggregator.nodes.statistics.masked import PeriodTotal, check_numbers, masked_statistics
from aggregator.nodes.statistics.robust import (
    Rule,
    combine,
    compared_nodes,
    expected_loss,
    krum_choice,
    parse_rule,
    robust_statistics,
)
from aggregator.nodes.statistics.totals import Total, Totals, column_sums
from protocol import SCALE
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import keyid
from protocol.masked.keys import read_key_book
from protocol.masked.noise import noise_of
from protocol.nodes.summary import build_summary, read_summary
from protocol.nodes.terms import ranges, released_vectors
from protocol.questions import CELL, CLASS, MOMENT, PRESENT
from protocol.schema import Categorical, Label, Numeric, build_schema
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


# Robust rules: exact values, invariance, variances that hold, what lying nodes can do, and the cost on honest data


CAMPAIGN = node_campaign()
TRIMMED, MEDIAN = Rule("trimmed-mean", Fraction(1, 10)), Rule("median")


def test_rules_by_hand_are_exact_and_written_as_they_are_read():
    values = np.array([[1, 10], [2, 10], [3, 10], [4, 10], [100, 10], [-100, 10], [5, 10], [6, 10]], np.int64)
    assert combine(Rule("trimmed-mean", Fraction(1, 8)), values).totals == [28, 80]  # 8 · (1 + … + 6)/6
    assert combine(MEDIAN, values).totals == [28, 80]
    assert combine(MEDIAN, values[:-1]).totals == [21, 70]  # 7 · 3
    assert combine(Rule("trimmed-mean", Fraction(1, 8)), values).variance[1] == 0
    shuffled = np.random.default_rng(1).permutation(values)
    for rule in (Rule("trimmed-mean", Fraction(1, 4)), MEDIAN):
        assert combine(rule, values).totals == combine(rule, shuffled).totals
        assert combine(rule, values).variance.tolist() == combine(rule, shuffled).variance.tolist()
    values = np.full((7, 1), (1 << 62) + 1, np.int64)
    assert combine(Rule("trimmed-mean", Fraction(1, 7)), values).totals == [7 * ((1 << 62) + 1)]
    assert column_sums(-values) == [-7 * ((1 << 62) + 1)]
    for text in ("trimmed-mean:0.1", "median", "krum:3"):
        assert str(parse_rule(text)) == text


@pytest.mark.parametrize(("rule", "most"), [(TRIMMED, 1.15), (MEDIAN, 1.4)])
def test_stated_variances_are_those_of_many_fleets(rule, most):
    """400 fleets of 60 nodes with Laplace noise. The mean stated variance is 0.9 to ``most`` times the observed one.

    The observed variance of one number has a relative standard error of √(2/400) = 7 %, the mean over 20 numbers less
    than 2 %. The variance of the plain sum, in place of the rule's, is 1.29 and 1.69 times the observed one.
    """
    generator = np.random.default_rng(11)
    totals, stated = [], []
    for _ in range(400):
        values = np.rint(1000 + generator.laplace(scale=50, size=(60, 20))).astype(np.int64)
        found = combine(rule, values)
        totals.append(found.totals)
        stated.append(found.variance)
    observed = np.array(totals, float).var(axis=0).mean()
    assert 0.9 < np.mean(stated) / observed < most
    assert observed < 0.85 * 60 * 2 * 50**2, "both rules beat the mean under Laplace noise"


def test_krum_takes_a_row_from_the_middle():
    generator = np.random.default_rng(3)
    honest = generator.normal(size=(20, 5))
    rows = np.vstack([honest, 100 + np.zeros((6, 5))])
    chosen = krum_choice(rows, 6)
    assert chosen < 20
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    scores = [np.sort(np.delete(row, place))[: 26 - 6 - 2].sum() for place, row in enumerate(distances)]
    assert chosen == int(np.argmin(scores))


def fleet(number, liars=0, records=500, lie=None, seed=1, periods=1):
    """Parsed summaries; the last ``liars`` nodes send the numbers ``lie``."""
    generator = np.random.default_rng(seed)
    found = []
    for place, key in enumerate(keys(number)):
        for period in range(periods):
            honest = noisy(CAMPAIGN, true_sums(CAMPAIGN, records, generator), CAMPAIGN.epsilon_micro, generator)
            numbers = lie if place >= number - liars else honest
            found.append(read_summary(build_summary(CAMPAIGN, key, PERIOD + period, numbers))[1])
    return found


LIE = [
    each
    for (_, high), one in zip(ranges(CAMPAIGN), released_vectors(CAMPAIGN), strict=True)
    for each in [high] * one.size
]


@pytest.mark.parametrize("rule", ["trimmed-mean:0.15", "median", "krum:4"])
def test_lying_nodes_move_a_robust_estimate_little(rule):
    honest = federated(CAMPAIGN, Totals.of(CAMPAIGN, fleet(40)).total())
    lied = fleet(40, liars=4, lie=LIE)
    plain = federated(CAMPAIGN, Totals.of(CAMPAIGN, lied).total())
    robust = robust_statistics(CAMPAIGN, lied, parse_rule(rule))

    def error(statistics):
        return max(
            float(np.abs(one.estimate / one.n - other.estimate / other.n).max())
            for one, other in zip(statistics.questions, honest.questions, strict=True)
        )

    assert error(plain) > 0.07
    assert error(robust) < error(plain) / (1.5 if rule.startswith("krum") else 2)


@pytest.mark.parametrize("rule", ["trimmed-mean:0.15", "median", "krum:2"])
def test_one_liar_with_another_epsilon_is_left_out_alone(rule):
    honest, liar = fleet(10), keys(11)[-1]
    odd = read_summary(build_summary(CAMPAIGN, liar, PERIOD, LIE, CAMPAIGN.epsilon_micro - 1))[1]
    statistics = robust_statistics(CAMPAIGN, [*honest, odd], parse_rule(rule))
    alone = robust_statistics(CAMPAIGN, honest, parse_rule(rule))
    assert statistics.source.card()["robust_left_out"] == 1
    assert [one.estimate.tolist() for one in statistics.questions] == [one.estimate.tolist() for one in alone.questions]


def test_nodes_without_a_common_epsilon_are_refused():
    mixed = fleet(6)
    for key in keys(12)[6:]:
        mixed.append(read_summary(build_summary(CAMPAIGN, key, PERIOD, LIE, CAMPAIGN.epsilon_micro - 1))[1])
    assert reason(lambda: robust_statistics(CAMPAIGN, mixed, MEDIAN)) == "robust_unequal"
    assert compared_nodes(mixed[:11]).left_out == 5


def test_nodes_that_lack_a_common_period_are_left_out_and_odd_periods_ignored():
    summaries = fleet(10, periods=2)
    odd = read_summary(build_summary(CAMPAIGN, keys(10)[0], PERIOD + 50, LIE))[1]
    missing = [one for one in summaries if (one.node, one.period) != (summaries[-1].node, PERIOD)]
    found = compared_nodes([*missing, odd])
    assert (len(found.values), found.left_out, len(found.summaries)) == (9, 1, 18)
    statistics = robust_statistics(CAMPAIGN, [*missing, odd], MEDIAN)
    assert statistics.source.card()["robust_left_out"] == 1
    assert statistics.reports == pytest.approx(9 * 2 * 500, rel=0.1)
    assert refusal(robust_statistics, CAMPAIGN, [], MEDIAN) == "nodes_too_few"


def test_the_stated_cost_on_honest_data_is_that_of_honest_fleets():
    """The stated loss of the class counts is within 25 % of that of 60 fleets of real summaries.

    A ratio of root mean squares over 60 fleets and 2 classes has a standard error of about 8 %.
    """
    rule = parse_rule("median")
    statistics = federated(CAMPAIGN, Totals.of(CAMPAIGN, fleet(20)).total())
    stated = expected_loss(rule, statistics, 20)
    generator = np.random.default_rng(8)
    errors = np.zeros(2)
    for _ in range(60):
        exact = [true_sums(CAMPAIGN, 500, generator)[:2] for _ in range(20)]
        values = np.array([noisy(CAMPAIGN, [*one, *[0] * 12], CAMPAIGN.epsilon_micro, generator)[:2] for one in exact])
        truth = 20 * 500 * np.array([0.6, 0.4])
        errors += [
            ((np.array(combine(rule, values).totals) - truth) ** 2).sum(),
            ((values.sum(axis=0) - truth) ** 2).sum(),
        ]
    assert stated.class_counts == pytest.approx(np.sqrt(errors[0] / errors[1]), rel=0.25)
    assert str(stated).startswith("on honest data")
    assert expected_loss(rule, statistics, 20) == stated


# No interval is stated anywhere under a robust rule: what nodes that may lie did, nobody knows


RULES = ["median", "trimmed-mean:0.2", "krum:1"]
PUBLISHER = Publisher()
ODOR = Categorical("odor", ["none", "foul"], "missing", 0)
AGE = Numeric("age", "-1", "1", [0], "missing", None)
PUBLISHER.schema = build_schema(Label("diagnosis", ["well", "ill"]), [ODOR, AGE])
DIAGNOSES = node_campaign(publisher=PUBLISHER, epsilon_micro=10_000_000)
COUNTS = {CLASS: [300, 100], CELL: [200, 30, 100, 70], PRESENT: [150, 50, 150, 50]}
SUMS = {1: [0.25 * 150, -0.5 * 50], 2: [0.25 * 150, 0.5 * 50]}
"""Sums of every node. Half of the records of either class lack their number. Its means are 0.25 and −0.5."""


@cache
def statistics(rule=None):
    exact = []
    for subject in released_vectors(DIAGNOSES):
        exact += [round(SCALE * x) for x in SUMS[subject.power]] if subject.kind == MOMENT else COUNTS[subject.kind]
    generator = np.random.default_rng(4)
    raws = [build_summary(DIAGNOSES, key, PERIOD, noisy(DIAGNOSES, exact, 10_000_000, generator)) for key in keys(9)]
    summaries = [read_summary(raw)[1] for raw in raws]
    if rule is None:
        return federated(DIAGNOSES, Totals.of(DIAGNOSES, summaries).total())
    return robust_statistics(DIAGNOSES, summaries, parse_rule(rule))


@pytest.mark.parametrize("rule", RULES)
def test_no_table_and_no_json_has_an_interval_but_every_ratio(rule):
    found, plain = statistics(rule), statistics()
    assert all(row[4:] == (NOT_DETERMINED,) * 2 for row in rows(found.questions, found.schema))
    shown = parameter_rows(conditionals(found.questions, found.schema), published(found), found.schema)
    assert shown
    assert all(row[1] and row[3:] == (NOT_DETERMINED,) * 2 for row in shown)
    ends = ("low", "high", "devices_low", "devices_high")
    body = json.loads(json.dumps(found.to_json(published(found)), allow_nan=False))
    for one in [*body["questions"], *body["parameters"]]:
        assert all(number is None for end in ends for number in one[end])
        for name in ("variances", "devices_variances"):  # They were stated, and so half of every interval.
            assert all(number is None for number in one.get(name, []))
        assert None not in one.get("raw", [])
    assert found.frame(published(found))[["sd", "devices_sd"]].isna().all(axis=None)
    assert np.isfinite(plain.frame()["sd"][:-2]).all()
    assert body["adjacency"] == "add-remove"
    assert "what lying nodes did is not known" in body["intervals"]
    assert "what lying nodes did is not known" in found.populations["assumes"]
    plainly = plain.to_json(published(plain))
    assert all(None not in one["low"] for one in [*plainly["questions"], *plainly["parameters"]])
    assert "lying" not in plain.populations["assumes"]


@pytest.mark.parametrize("rule", RULES)
def test_means_are_divided_by_the_share_of_records_with_the_number(rule):
    found = statistics(rule)
    means = [one for one in conditionals(found.questions, found.schema) if one.subject.kind == MOMENT]
    tables = [one for one in conditionals(found.questions, found.schema) if one.subject.kind in (CELL, PRESENT)]
    first = next(one for one in means if one.subject.power == 1)
    assert first.raw == pytest.approx([0.25, -0.5], abs=0.1)  # It was [0.125, −0.25], divided by P(class).
    assert tables[0].raw == pytest.approx([2 / 3, 0.3, 1 / 3, 0.7], abs=0.1)


@pytest.mark.parametrize("rule", RULES)
def test_neither_card_nor_publish_claims_a_range(rule):
    found = statistics(rule)
    expected = foresee(found, "floored")
    assert (expected.accuracy, expected.low, expected.high, expected.beats) == (None,) * 4
    assert expected.shown == UNDER_RULE
    assert expected.largest_class == pytest.approx(0.75, abs=0.02)
    assert expected.largest_shown.endswith(f"% (interval {UNDER_RULE})")
    card = expected.to_card()
    assert Foresight.of_card(card) == expected._replace(largest_class=float(card["largest_class"]))
    assert "under a robust rule" in (expected.warning or "")
    card = interval_card(found)
    assert {*card["class_intervals"].values(), *card["interval_widths"].values()} == {NOT_DETERMINED}
    assert found.source.card()["intervals"].startswith("no interval")
    assert foresee(statistics(), "floored").low is not None


def test_pooled_shares_keep_their_estimate():
    prior = next(
        one for one in conditionals(statistics("median").questions, DIAGNOSES.schema) if one.subject.kind == PRIOR
    )
    assert prior.raw == pytest.approx([0.75, 0.25], abs=0.02)
    assert not prior.population.determined.any()


def test_ratios_of_extreme_sums_without_variance_do_not_overflow():
    huge = np.array([-1e18, 3e18])
    found = ratio_interval(huge, np.array([-1e18, 1e18]), Variance(0.0, 0.0, 0.0))
    assert found.low.tolist() == found.high.tolist() == [1, 1]
