"""Joined statistics: counts add up under equal p and q, no weight depends on answers, the alarm rate is as stated."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import erfc, exp, sqrt

import numpy as np
import pytest
from support.binomial import window
from support.estimated import answered, campaign_about, nobody, summed, tallied
from support.reports import made

import aggregator
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.debias import Law
from aggregator.estimates.homogeneity import LEAST_DEVICES, LEVEL, chi_square_tail, deviance
from aggregator.estimates.joining import join
from aggregator.estimates.recurrence import known
from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.models.foresight import foresee
from aggregator.models.measured_accuracy import evaluate
from aggregator.reports.tally.tally import Tally
from protocol import mechanisms
from protocol.documents.campaign import EVALUATION
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.questions import OUTCOME, Subject
from protocol.schema import Label, build_schema

TABLE = np.array([[3.0, 1], [2, 4], [1, 0], [1, 2]]) / 14
"""Of odor and class; width tells nothing."""


def truth_of(question, table=TABLE):
    """True shares of the values of one question of :func:`made`."""
    if question.feature is None:
        return table.sum(axis=0)
    return (table if question.feature == 0 else np.outer([0.5, 0.5], table.sum(axis=0))).ravel()


def fleet(campaign, n, generator, table=TABLE):
    """Estimates from n answers per question of random people; ``table``: the joint distribution of the population."""
    return answered(campaign, n, lambda question: truth_of(question, table), generator)


def campaigns_of(epsilon=None, versions=(1, 2), **terms):
    """Campaigns that differ in their version alone."""
    terms |= {"epsilon_micro": epsilon * 10**6} if epsilon else {}
    return [made(version=version, **terms) for version in versions]


def returning(campaign, people, times, generator):
    """Estimates from ``people`` drawn from :data:`TABLE`; each answers one question in each of ``times`` periods."""
    record = generator.choice(TABLE.size, people, p=TABLE.ravel())
    width = generator.integers(0, 2, people)
    label = record % 2
    inputs = [
        label if q.feature is None else record if q.feature == 0 else width * 2 + label for q in campaign.questions
    ]
    who = generator.permutation(np.repeat(np.arange(people), times))
    asked = np.array_split(who, len(inputs))
    counts = []
    for question, mine, held in zip(campaign.questions, asked, inputs, strict=True):
        other = generator.integers(0, question.size - 1, len(mine))
        true = held[mine]
        is_kept = generator.random(len(mine)) < float(question.mechanism.p)
        answers = np.where(is_kept, true, other + (other >= true))
        counts.append(tuple(np.bincount(answers, minlength=question.size).tolist()))
    tally = Tally(campaign.id, tuple(len(mine) for mine in asked), tuple(counts))
    return estimate(campaign, tally, recurrence=known(campaign, tally, (people * times**2,)))


# --- exact cases ---


@pytest.mark.parametrize("mechanism", ["direct", "oue", "she"])
def test_counts_under_equal_p_and_q_are_simply_added(mechanism):
    campaigns = campaigns_of(versions=(1, 2, 3), mechanism=mechanism)
    generator, n = np.random.default_rng(1), (300, 50, 1000)
    counts = [[generator.integers(0, most, question.size) for question in campaigns[0].questions] for most in n]
    parts = [tallied(c, each, (most,) * 3) for c, each, most in zip(campaigns, counts, n, strict=True)]
    found = join(parts, one_population=True, disjoint=True).statistics
    wanted = tallied(campaigns[0], [sum(each) for each in zip(*counts, strict=True)], (sum(n),) * 3)
    assert found.reports == wanted.reports == 4050
    for one, other in zip(found.questions, wanted.questions, strict=True):
        assert (one.subject, one.n, one.law, one.is_binomial) == (other.subject, other.n, other.law, other.is_binomial)
        for name in ("estimate", "noise_variance", "variance", "devices_variance", "low", "high"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(class_shares(found).share, class_shares(wanted).share, rtol=1e-9)
    np.testing.assert_allclose(class_shares(found).variance, class_shares(wanted).variance, rtol=1e-6)
    for mine, other in zip(fit(found).terms, fit(wanted).terms, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    accuracy = foresee(found, "simplex").accuracy
    assert accuracy is None or 0 <= accuracy <= 1


def test_moments_of_several_campaigns_are_joined_and_sums_of_a_node_with_reports():
    schema = build_schema(Label("y", ["a", "b"]), [Numeric("u", "-1", "1", [0]), Categorical("v", ["a", "b"])])
    generator = np.random.default_rng(2)
    for mechanism in ("bit", "laplace"):
        parts = []
        for version in (1, 2):
            campaign = campaign_about(schema, mechanism, 4, version=version, family="gaussian")
            counts = [generator.integers(40, 60, question.mechanism.answers) for question in campaign.questions]
            parts.append(tallied(campaign, counts))
        found = join(parts, one_population=True).statistics
        for one, *others in zip(found.questions, *(part.questions for part in parts), strict=True):
            np.testing.assert_allclose(one.estimate, sum(other.estimate for other in others))
            assert (one.low <= one.estimate).all()
            assert (one.variance < sum(other.variance for other in others) + 2 * one.n * one.spread * one.n).all()
    campaigns = campaigns_of()
    node = summed(campaigns[0], ([60, 40], [30, 1, 10, 9, 10, 10, 10, 20], [40, 10, 20, 30]), 100, 4.0)
    reports = fleet(campaigns[1], 500, np.random.default_rng(6))
    found, test = join([node, reports], one_population=True)
    assert found.reports == 100 + 1500
    assert len(test.compared) == 14
    assert found.statistics_id == join([reports, node], one_population=True).statistics.statistics_id
    said = found.to_json()
    assert [source["reports"] for source in said["sources"]] == [100, 1500]
    assert "counts" not in said["questions"][0]
    assert len(found.frame()) == 14 + 2, "with the shares of both classes"
    assert "one population" in found._repr_html_()
    with pytest.raises(InputError, match=r"^several_sources"):
        _ = found.campaign


def test_different_mechanisms_are_weighed_by_what_was_planned_whatever_is_answered():
    """The joined share is one fixed linear function of the two sources' estimates, whatever the answers."""
    campaigns = [made(epsilon_micro=1_000_000), made(mechanism="oue", epsilon_micro=3_000_000, version=2)]
    generator = np.random.default_rng(3)
    for _ in range(2):
        parts = [fleet(c, 200, generator) for c in campaigns]
        found = join(parts, one_population=True).statistics.questions[1]
        one, other = (part.questions[1].estimate / 200 for part in parts)
        v = [part.questions[1].planned_variance for part in parts]
        weights = [v[1] / sum(v), v[0] / sum(v)]
        np.testing.assert_allclose(found.estimate / found.n, weights[0] * one + weights[1] * other, rtol=1e-9)
        assert weights[1] > weights[0], "the larger ε counts for more"


@pytest.mark.slow
def test_the_join_is_unbiased_and_its_variance_is_right():
    """400 pairs of fleets, 14 numbers. False alarm below 1e-6 per number: the limit is five standard deviations.

    Each variance is 7 % uncertain, the mean of the fourteen 2 %.
    """
    campaigns = [made(epsilon_micro=1_000_000), made(mechanism="oue", epsilon_micro=3_000_000, version=2)]
    generator = np.random.default_rng(4)
    errors, claimed = [], []
    for _ in range(400):
        parts = [fleet(c, n, generator) for c, n in zip(campaigns, (400, 150), strict=True)]
        found = join(parts, one_population=True, disjoint=True).statistics.questions
        pairs = list(zip(campaigns[0].questions, found, strict=True))
        errors.append(np.concatenate([one.estimate / one.n - truth_of(question) for question, one in pairs]))
        claimed.append(np.concatenate([one.variance / one.n**2 for one in found]))
    errors = np.array(errors)
    deviation = np.abs(errors.mean(axis=0)) / (errors.std(axis=0) / 20)
    assert (deviation < 5.5).all(), deviation
    assert np.mean(np.mean(claimed, axis=0) / errors.var(axis=0)) == pytest.approx(1, abs=0.1)


def test_devices_that_may_be_in_both_sources_are_not_taken_for_others():
    parts = [fleet(campaign, 1000, np.random.default_rng(5)) for campaign in campaigns_of(16)]
    same = join(parts, one_population=True).statistics
    apart = join(parts, one_population=True, disjoint=True).statistics
    for one, other, alone in zip(same.questions, apart.questions, parts[0].questions, strict=True):
        shared = 3000 * 2 * one.spread * 1000 / 3000
        assert (one.variance >= other.variance).all()
        np.testing.assert_allclose(one.variance - one.devices_variance, 4 * (alone.variance - alone.devices_variance))
        np.testing.assert_allclose(other.variance - other.devices_variance, shared * 1000 / 3000, rtol=0.6)
    assert (class_shares(same).variance > 1.4 * class_shares(apart).variance).all()


def test_evaluations_of_one_model_are_joined():
    """Accuracy and intervals equal those of all answers in one source."""
    base = made()
    mechanism = mechanisms.from_epsilon("direct", "1", 4)
    question = base.questions[0]._replace(mechanism=mechanism, subject=Subject(OUTCOME, None, 4))
    fit_of = base.fit._replace(family=EVALUATION)
    campaigns = [each._replace(questions=(question,), fit=fit_of, model=bytes(32)) for each in campaigns_of()]
    counts = [(400, 100, 150, 350), (50, 20, 10, 20)]
    parts = [tallied(campaign, [cells]) for campaign, cells in zip(campaigns, counts, strict=True)]
    found = evaluate(join(parts, one_population=True, disjoint=True).statistics)
    wanted = evaluate(tallied(campaigns[0], [np.sum(counts, axis=0)]))
    assert found.reports == 1100
    assert found.accuracy == pytest.approx(wanted.accuracy, rel=1e-9)
    for one, other in zip(found.confusion, wanted.confusion, strict=True):
        assert one[:2] == other[:2]
        assert one[2:] == pytest.approx(other[2:], rel=1e-9)
    assert aggregator.join is join


# --- refusals ---


def test_a_join_needs_a_declaration_one_schema_and_every_campaign_once():
    one, two = map(nobody, campaigns_of())
    other = campaign_about(build_schema(Label("y", ["a", "b"]), [Categorical("v", ["a"])]), "direct")
    for parts, declared, reason in [
        ([one, two], False, "population_undeclared"),
        ([one], True, "argument_invalid"),
        ([one, two, one], True, "source_repeated"),
        ([join([one, two], one_population=True).statistics, two], True, "source_repeated"),
        ([one, nobody(other)], True, "schema_differs"),
    ]:
        with pytest.raises(InputError, match=rf"^{reason}"):
            join(parts, one_population=declared)
    campaign = made(version=3)
    third = nobody(campaign._replace(fit=campaign.fit._replace(postprocess="paper")))
    with pytest.raises(InputError, match=r"^fit_differs"):
        join([one, third], one_population=True)
    assert join([one, third], one_population=True, fit=one.fit).statistics.fit == one.fit
    floors = [
        replace(each, fit=each.fit._replace(variance_floor_micro=floor)) for each, floor in ((one, 9), (third, 5))
    ]
    with pytest.raises(InputError, match=r"^fit_differs"):
        join(floors, one_population=True)
    settled = join(floors, one_population=True, postprocess="simplex").statistics.fit
    assert (settled.postprocess, settled.variance_floor_micro) == ("simplex", 9)
    evaluation = campaign._replace(model=bytes(32), fit=campaign.fit._replace(family="outcome"))
    with pytest.raises(InputError, match=r"^not_joinable"):
        join([one, nobody(evaluation)], one_population=True)


# --- homogeneity ---


def test_the_tail_of_the_chi_square_law():
    """Comparison with tabled 5 % points of 1 to 6 degrees of freedom, and with two closed forms."""
    for freedom, point in enumerate((3.841459, 5.991465, 7.814728, 9.487729, 11.070498, 12.591587), 1):
        assert chi_square_tail(point, freedom) == pytest.approx(0.05, abs=1e-6)
    assert chi_square_tail(9.0, 1) == pytest.approx(erfc(sqrt(4.5)))
    assert chi_square_tail(9.0, 2) == pytest.approx(exp(-4.5))
    assert chi_square_tail(0.0, 5) == 1
    assert chi_square_tail(20_000.0, 161) == 0  # 10,000 to the power of 80 is too large for a float.


REPEATS = 150
ALPHA = Fraction(1, 10**6)
"""The chance that a test rejects the rate LEVEL over fresh seeds."""
MOST = window(REPEATS, Fraction(2, 100), ALPHA)[1]


def admitting(part, statistics):
    """The same estimates with understated noise: ``part`` is the stated part of the noise."""
    if part == 1:
        return statistics
    laws = [Law(*(part * end for end in one.law)) for one in statistics.questions]
    told = zip(statistics.questions, laws, strict=True)
    return replace(statistics, questions=tuple(replace(one, law=law) for one, law in told))


def alarms(sizes, epsilon, others=TABLE, mechanisms=("direct", "oue"), seed=7, told=1.0):
    """Number of REPEATS pairs of fleets that the test finds different. The second fleet is drawn from ``others``.

    ``told`` is the part of the noise that the estimates state.
    """
    campaigns = [campaigns_of(epsilon, [version], mechanism=name)[0] for version, name in enumerate(mechanisms, 1)]
    generator = np.random.default_rng(seed)
    tables = [TABLE, *[others] * (len(campaigns) - 1)]
    count = 0
    for _ in range(REPEATS):
        drawings = zip(campaigns, sizes, tables, strict=True)
        parts = [admitting(told, fleet(c, n, generator, table)) for c, n, table in drawings]
        count += join(parts, one_population=True).homogeneity.differs
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "epsilon", "mechanisms"),
    [
        ((300, 300), 1, ("direct", "oue")),
        ((100, 3000), 8, ("direct", "direct")),
        ((50, 500, 200), 2, ("direct", "direct", "oue")),
    ],
)
def test_one_population_is_doubted_no_more_often_than_stated(sizes, epsilon, mechanisms):
    """The alarm rate is at most LEVEL, also for small samples of rare values (one expected holder in 50 people)."""
    assert LEVEL == 0.02
    found = alarms(sizes, epsilon, mechanisms=mechanisms)
    assert found <= MOST, f"{found} of {REPEATS}; false alarm ≤ {float(ALPHA):.0e}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "epsilon"), [(((300, 30), (3000, 1)), 8), (((200, 30), (200, 30)), 4), (((200, 20), (2000, 1)), 4)]
)
def test_devices_that_answer_again_are_doubted_no_more_often(sizes, epsilon):
    """The alarm rate holds if nearly all of one source's variance comes from the choice of its people."""
    campaigns = campaigns_of(epsilon)
    generator = np.random.default_rng(9)
    count = 0
    for _ in range(REPEATS):
        parts = [returning(c, *size, generator) for c, size in zip(campaigns, sizes, strict=True)]
        count += join(parts, one_population=True, disjoint=True).homogeneity.differs
    assert count <= MOST, f"{count} of {REPEATS}; false alarm ≤ {float(ALPHA):.0e}"


def test_the_deviance_is_its_least():
    """The deviance equals the smallest one over a grid of common shares, with one source at the end of its range."""
    campaigns = campaigns_of(8)
    generator = np.random.default_rng(10)
    for _ in range(10):
        parts = [returning(c, *size, generator) for c, size in zip(campaigns, ((300, 30), (3000, 1)), strict=True)]
        for pair in zip(*(part.questions for part in parts), strict=True):
            throws, base, gain, share = (np.array(each) for each in zip(*map(as_coin, pair), strict=True))
            seen = np.clip(base[:, None] + gain[:, None] * share, 0, 1)
            grid = np.linspace((-base / gain).max() + 1e-9, ((1 - base) / gain).min() - 1e-9, 20_001)[:, None, None]
            chance = base[:, None] + gain[:, None] * grid
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(seen > 0, seen * np.log(seen / chance), 0)
                terms += np.where(seen < 1, (1 - seen) * np.log((1 - seen) / (1 - chance)), 0)
            least = 2 * (throws[:, None] * terms).sum(axis=1).min(axis=0)
            found = deviance(pair)
            assert (found <= least + 1e-6).all()
            np.testing.assert_allclose(found, least, rtol=0.05, atol=0.05)


def as_coin(one):
    """m, q and g of the module's formulas, and the estimated shares."""
    at_zero, at_one = (end / one.scatter for end in one.law)
    slope = 1 + at_one - at_zero
    gain = 1 / sqrt(4 * at_zero + slope**2)
    return one.n / one.scatter, (1 - slope * gain) / 2, gain, one.estimate / one.n


def test_sources_with_few_answers_or_with_none_in_common_are_not_compared():
    """Below 30 answers χ² is inaccurate: at ε = 0.2, sources of 15 answers would be rejected in 10 % of the cases."""
    campaigns, generator = campaigns_of(), np.random.default_rng(11)
    for n, is_tested in ((LEAST_DEVICES - 1, False), (LEAST_DEVICES, True)):
        parts = [fleet(c, m, generator) for c, m in zip(campaigns, (n, 1000), strict=True)]
        assert (join(parts, one_population=True).homogeneity.chance is not None) == is_tested
    found = join([*map(nobody, campaigns)], one_population=True).homogeneity
    assert (found.chance, found.differs) == (None, False)
    assert "not tested" in str(found)


@pytest.mark.slow
def test_estimates_that_admit_half_of_their_noise_are_doubted():
    """The test above fails for estimates with understated noise."""
    assert alarms((300, 300), 1, told=0.5) > MOST


@pytest.mark.slow
def test_another_population_is_found_and_named():
    """The second population differs: a quarter of one class has another odor."""
    others = TABLE + np.array([[-0.1, 0], [0.1, 0], [0, 0], [0, 0]])
    assert alarms((1300, 1300), 3, others) > 0.9 * REPEATS
    generator = np.random.default_rng(8)
    parts = [fleet(c, 5000, generator, t) for c, t in zip(campaigns_of(3), (TABLE, others), strict=True)]
    found = join(parts, one_population=True).homogeneity
    assert found.differs
    assert {one.cell for one in found.compared[:2]} == {"odor=a, label=e", "odor=n, label=e"}
    assert "not samples of one population" in str(found)
    assert "odor=a, label=e" in str(found)
    assert "Homogeneity" in found._repr_html_()
