"""The post-processing ``posterior``: its means are integrals; its limits are sharp tables and the class prior."""

from __future__ import annotations

from dataclasses import replace
from math import lgamma, log, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.estimated import answered, split, summed
from support.examples import examples
from support.publisher import Publisher
from support.reports import made, opened

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.models.postprocess import noisy_gamma
from aggregator.models.postprocess import posterior as posterior_tables
from aggregator.models.postprocess.joint_tables import joint_table
from aggregator.models.postprocess.methods import POSTPROCESSES
from aggregator.models.postprocess.noisy_gamma import REACH, posterior
from aggregator.models.postprocess.posterior import Moments, shrunk
from benchmarks.models import estimators as bench
from protocol.features import Categorical
from protocol.schema import Label, build_schema

CAMPAIGN = made(mechanism="direct", epsilon_micro=1_000_000)
FEATURES = range(len(CAMPAIGN.schema.observed))
JOINT = [[60.0, 40.0], [50.0, 0, 10, 0, 0, 10, 0, 30], [55.0, 5.0, 5.0, 35.0]]


def integrated(x, v, mean, shape):
    """Posterior mean and log p(x) by the trapezoidal rule over log g, without the module's tables."""
    most = max(mean, x, 0) + 40 * (np.sqrt(v) + mean)
    g = np.geomspace(mean * 1e-60 ** min(1, 1 / shape), most, 400_001)
    density = shape * np.log(g) - shape * g / mean - (g - x) ** 2 / (2 * v)
    top = density.max()
    weight = np.exp(density - top)
    step = log(g[1] / g[0])
    constant = shape * log(shape / mean) - lgamma(shape) - log(2 * pi * v) / 2
    return float(weight @ g / weight.sum()), log(weight.sum() * step) + top + constant


@examples(40)
@given(
    st.sampled_from([0.3, 1.0, 1.67, 3.0, 10.0, 33.0, 100.0]),
    st.floats(-3, 0),
    st.floats(-6, 3),
    st.floats(-6, 6),
)
def test_the_mean_and_the_density_are_those_of_numerical_integration(shape, log_mean, log_variance, sds):
    """|z| goes far beyond the table's reach on both sides."""
    mean, v = 10**log_mean, 10**log_variance
    x = mean + sds * v**0.5
    found = posterior(np.array([x]), v, mean, shape)
    expected, evidence = integrated(x, v, mean, shape)
    assert found.mean[0] == pytest.approx(expected, rel=2e-4)
    assert found.evidence[0] == pytest.approx(evidence, abs=2e-3)


@pytest.mark.parametrize("shape", [0.3, 1.0, 10.0, 100.0])
def test_the_ends_of_the_table_meet_the_expansions(shape):
    """x and μ are chosen so that z crosses ±REACH."""
    for end in (-REACH, REACH):
        z = end + np.array([-1e-6, 1e-6])
        found = posterior(shape - z, 1.0, 1.0, shape)
        assert found.mean[0] == pytest.approx(found.mean[1], rel=1e-4)
        assert found.evidence[0] == pytest.approx(found.evidence[1], abs=2e-3)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_far_right", lambda z, shape: (0 * z, shape / z**2)),
        ("_far_left", lambda z, shape: (0 * z, -z / 2)),
        ("_interpolated", lambda z, shape: (0 * z, np.maximum(-z, 0.01))),
    ],
)
def test_a_wrong_expansion_is_found(monkeypatch, name, wrong):
    monkeypatch.setattr(noisy_gamma, name, wrong)
    cases = [(0.5, 1e-6, 0.1, 1.0), (0.1, 1e-2, 0.1, 1.0), (0.0, 1e2, 1e-2, 3.0)]
    differs = [
        abs(posterior(np.array([x]), v, mean, shape).mean[0] / integrated(x, v, mean, shape)[0] - 1) > 0.01
        for x, v, mean, shape in cases
    ]
    assert any(differs)


def tables(found):
    return POSTPROCESSES["posterior"](found, FEATURES)


def test_without_noise_the_tables_are_those_of_the_counts():
    """A hundred million records: zeros stay next to 0, all other cells are the shares."""
    found = tables(summed(CAMPAIGN, [np.array(one) * 1e6 for one in JOINT], 100_000_000))
    np.testing.assert_allclose(found.prior, [0.6, 0.4], atol=1e-3)
    np.testing.assert_allclose(found.likelihood[1], [[55 / 60, 5 / 40], [5 / 60, 35 / 40]], atol=1e-3)
    sharp = found.likelihood[0]
    np.testing.assert_allclose(sharp[:, 0], [50 / 60, 10 / 60, 0, 0], atol=1e-3)
    assert sharp[2:, 0].max() < 1e-5


def test_the_more_noise_the_nearer_to_the_class_prior():
    """From sharp tables over independence to equal shares; the contrast falls at every step."""
    contrasts, priors = [], []
    for noise in (0.0, 1e2, 1e3, 1e4, 1e6, 1e9):
        found = tables(summed(CAMPAIGN, JOINT, 100, noise))
        contrasts.append(max(np.abs(np.log(one[:, 0] / one[:, 1])).max() for one in found.likelihood))
        priors.append(found.prior[0])
    assert contrasts == sorted(contrasts, reverse=True)
    assert priors == sorted(priors, reverse=True)
    assert contrasts[0] > 2
    assert contrasts[-1] < 1e-3
    assert priors[-1] == pytest.approx(0.5, abs=1e-3)


def test_a_table_that_is_not_distinguishable_from_independence_is_shrunk_to_it():
    """Many records of independent features: the tables' columns are equal up to a part of the noise's deviation."""
    n, noise = 10_000, 1e5
    rng = np.random.default_rng(1)
    prior, margin = np.array([0.7, 0.3]), np.array([0.4, 0.3, 0.2, 0.1])
    raw, kept = [], []
    for _ in range(20):
        sums = [n * prior, n * np.outer(margin, prior).ravel(), n * np.outer([0.5, 0.5], prior).ravel()]
        noisy = [one + rng.normal(0, noise**0.5, len(one)) for one in sums]
        found = summed(CAMPAIGN, noisy, n, noise)
        for name, into in (("simplex", raw), ("posterior", kept)):
            table = POSTPROCESSES[name](found, FEATURES).likelihood[0]
            into.append(np.abs(np.log(table[:, 0] / table[:, 1])).mean())
    assert np.mean(kept) < np.mean(raw) / 2


@examples(30)
@given(st.permutations(range(4)), st.booleans(), st.integers(0, 2**32))
def test_names_and_order_of_values_and_classes_do_not_matter(order, swap, seed):
    rng = np.random.default_rng(seed)
    sums = [np.array(one) + rng.normal(0, 20, len(one)) for one in JOINT]
    classes = [1, 0] if swap else [0, 1]
    changed = [sums[0][classes], sums[1].reshape(4, 2)[order][:, classes].ravel()]
    changed.append(sums[2].reshape(2, 2)[:, classes].ravel())
    before, after = (tables(summed(CAMPAIGN, one, 100, 400.0)) for one in (sums, changed))
    np.testing.assert_allclose(after.prior, before.prior[classes], rtol=1e-9)
    np.testing.assert_allclose(after.likelihood[0], before.likelihood[0][order][:, classes], rtol=1e-9)
    np.testing.assert_allclose(after.likelihood[1], before.likelihood[1][:, classes], rtol=1e-9)


def test_skewed_or_unknown_classes_give_little_weight_to_far_tables():
    shares = ([0.5, 0.5], 0.0), ([0.9, 0.1], 0.0), ([0.5, 0.5], 0.3), ([0.5, 0.5], np.inf)
    equal, *skewed = (posterior_tables.shape_weights(np.array(one), np.full(2, noise)) for one, noise in shares)
    assert equal.tolist() == list(posterior_tables.WEIGHTS)
    for one in skewed:
        np.testing.assert_allclose(one, np.multiply(posterior_tables.WEIGHTS, posterior_tables.IF_SKEWED))
    four = posterior_tables.shape_weights(np.array([0.7, 0.1, 0.1, 0.1]), np.zeros(4))
    np.testing.assert_allclose(four, np.multiply(posterior_tables.WEIGHTS, np.square(posterior_tables.IF_SKEWED)))


def test_an_estimate_without_a_law_keeps_its_own_variance():
    found = summed(CAMPAIGN, JOINT, 100, 400.0)
    lawless = replace(found, questions=tuple(replace(one, law=None) for one in found.questions))
    for ours, other in zip(tables(found).likelihood, tables(lawless).likelihood, strict=True):
        np.testing.assert_allclose(ours, other)


COPIES = 20
COPIED = build_schema(
    Label("class", ["common", "rare"]),
    [Categorical(f"copy {number}", ["0", "1"], substitute=0) for number in range(COPIES)],
)
MANY = opened(Publisher(schema=COPIED).campaign(mechanism="direct", epsilon_micro=4_000_000))


def about_copies(devices, rng, rare=0.2):
    """Statistics of features that are all the same bit, which is 1 in 40 % of one class and 60 % of the other."""
    cells = [0.6 * (1 - rare), 0.4 * rare, 0.4 * (1 - rare), 0.6 * rare]
    shares = {2: [1 - rare, rare], 4: cells}
    return answered(MANY, split(MANY, devices, rng), lambda question: shares[question.size], rng)


def accuracy_on_copies(fitted, rare):
    """Share of right predictions among records whose features are all the same bit."""
    right = 0.0
    for bit in (0, 1):
        score = fitted.log_prior + sum(table[bit] for table in fitted.terms)
        common = 0.6 if bit == 0 else 0.4
        right += [common * (1 - rare), (1 - common) * rare][int(score.argmax())]
    return right


def test_few_reports_of_many_features_do_not_outvote_skewed_classes():
    """The features tell too little to name the rare class. Without the pull, the models lose 18 points; with it 2."""
    rng, rare, lost = np.random.default_rng(1), 0.2, []
    for _ in range(40):
        found = about_copies(60, rng)
        alone = 1 - rare if class_shares(found).share.argmax() == 0 else rare
        lost.append(alone - accuracy_on_copies(fit(found, "posterior"), rare))
    assert np.mean(lost) < 0.05


def test_with_more_reports_the_pull_vanishes(monkeypatch):
    monkeypatch.setattr(posterior_tables, "SHARP", np.inf)
    found = about_copies(10_000_000, np.random.default_rng(1))
    pulled = tables(found)
    monkeypatch.setattr(posterior_tables, "MANY", np.inf)
    for one, other in zip(pulled.likelihood, tables(found).likelihood, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


def test_the_more_skewed_the_classes_the_higher_the_stakes():
    found = []
    for share in (0.5, 0.6, 0.9):
        joint = [np.outer(np.sum(np.reshape(one, (-1, 2)), axis=1), [share, 1 - share]) for one in JOINT[1:]]
        sums = [np.array([100 * share, 100 * (1 - share)]), *joint]
        found.append(posterior_tables.stakes(summed(CAMPAIGN, [one.ravel() * 1e4 for one in sums], 1_000_000)))
    assert found == pytest.approx([0.0, 0.1 / 0.4, 0.4 / 0.1], abs=1e-2)


def test_features_with_little_noise_have_the_tables_of_simplex():
    """The limit of the noise is a fifth of an average cell: of 2,000 reports 50 with 8 cells, 100 with 4."""
    for noise, feature, is_sharp in ((45.0, 0, True), (55.0, 0, False), (55.0, 1, True), (105.0, 1, False)):
        joint = [np.array(one) * 20 for one in JOINT]
        found = summed(CAMPAIGN, joint, 2_000, noise**2)
        exact, ours = (POSTPROCESSES[name](found, FEATURES).likelihood[feature] for name in ("simplex", "posterior"))
        assert np.array_equal(exact, ours) == is_sharp


def test_many_features_at_high_stakes_need_less_noise_for_the_tables_of_simplex(monkeypatch):
    """Two features at r = 1/4 against a tenth of that: √5 times fewer, 45 of 2,000 reports instead of 100."""
    monkeypatch.setattr(posterior_tables, "CALM", 0.1)
    for noise, is_sharp in ((40.0, True), (60.0, False)):
        found = summed(CAMPAIGN, [np.array(one) * 20 for one in JOINT], 2_000, noise**2)
        exact, ours = (POSTPROCESSES[name](found, FEATURES).likelihood[1] for name in ("simplex", "posterior"))
        assert np.array_equal(exact, ours) == is_sharp


WEAK = build_schema(
    Label("class", ["one", "two"]), [Categorical(f"feature {number}", ["0", "1"], substitute=0) for number in range(36)]
)
LARGE = opened(Publisher(schema=WEAK).campaign(mechanism="direct", epsilon_micro=1_000_000))


def weak_features(devices, rng):
    """Estimates about 36 features of which the first 4 tell of the class and the others nothing."""

    def shares_of(question):
        rate = 0.7 if question.feature in range(4) else 0.5
        return [0.5, 0.5] if question.size == 2 else np.array([rate, 1 - rate, 1 - rate, rate]) / 2

    return answered(LARGE, devices // len(LARGE.questions), shares_of, rng)


def test_many_features_without_zeros_need_less_noise_for_the_tables_of_simplex(monkeypatch):
    """A cell has 9 standard deviations: below 5 · 36/11, above 5. The 32 features tell nothing.

    The mean contrast of ``posterior`` is 0.53 to 0.56 of that of ``simplex`` in six fleets.
    """
    found = weak_features(100_000, np.random.default_rng(1))
    exact, ours = (POSTPROCESSES[name](found, range(36)).likelihood[4:] for name in ("simplex", "posterior"))
    noise, kept = (np.mean([abs(np.log(table[0, 0] / table[0, 1])) for table in one]) for one in (exact, ours))
    assert kept < 0.7 * noise
    monkeypatch.setattr(posterior_tables, "MANY", 36)
    for one, other in zip(exact, POSTPROCESSES["posterior"](found, range(36)).likelihood[4:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_table_of_many_zeros_and_a_model_of_few_features_need_no_less_noise():
    """Every record of a value has one class: half of the cells are zeros."""
    found = answered(LARGE, 10_000, lambda question: [0.5, 0.5] if question.size == 2 else [0.5, 0, 0, 0.5])
    exact, ours = (POSTPROCESSES[name](found, [0]).likelihood[0] for name in ("simplex", "posterior"))
    np.testing.assert_array_equal(exact, ours)
    # A model sums five features, so the noise of the others does not enter it: its tables are those of ``simplex``.
    found = weak_features(100_000, np.random.default_rng(1))
    exact = POSTPROCESSES["simplex"](found, range(5)).likelihood
    for one, other in zip(exact, posterior_tables.posterior_tables(found, range(5), 5).likelihood, strict=True):
        np.testing.assert_array_equal(one, other)
    of_all = posterior_tables.posterior_tables(found, range(5)).likelihood
    assert any(not np.array_equal(one, other) for one, other in zip(exact, of_all, strict=True))


def telling(strength, rng, devices=409, features=30):
    """Codes, class codes and schema of records of ``features`` numbers in four bins that depend on each other.

    Two classes of 37 and 63 %. The numbers are log-normal, so most records are in the two lowest bins; a fifth of their
    variance is of one common number. ``strength``: distance of the classes' means in standard deviations.
    """
    labels = (rng.random(devices) < 0.63).astype(np.int64)
    common = rng.normal(size=(devices, 1))
    numbers = np.sqrt(0.2) * common + np.sqrt(0.8) * rng.normal(size=(devices, features)) - strength * labels[:, None]
    codes = np.clip(np.exp(0.4 * numbers) / 0.6, 0, 3).astype(np.int64)
    schema = build_schema(
        Label("y", ["a", "b"]), [Categorical(f"f{place}", list("0123"), substitute=0) for place in range(features)]
    )
    return codes, labels, schema


def associations(strength, epsilon, repeats):
    """What all tables tell beyond the class's entropy in so many campaigns, in standard deviations."""
    rng, found = np.random.default_rng(9), []
    for _ in range(repeats):
        codes, labels, schema = telling(strength, rng)
        campaign = bench.campaign_of(schema, epsilon)
        statistics = estimate(campaign, bench.tally_of(campaign, codes, labels, rng))
        prior = posterior_tables.posterior_prior(statistics)
        joints = [joint_table(statistics, feature) for feature in range(len(schema.observed))]
        margins = [np.maximum(joint.share.sum(axis=1), 0.02) for joint in joints]
        told = posterior_tables.association(joints, margins, prior)
        found.append((told.nats + prior @ np.log(prior)) / told.sd)
    return np.array(found)


def test_features_that_tell_nothing_hardly_ever_count_as_clear():
    assert (associations(0.0, "4", 20) >= posterior_tables.CLEAR).mean() <= 0.1
    assert (associations(1.5, "4", 10) >= posterior_tables.CLEAR).mean() >= 0.7


def test_many_features_that_clearly_tell_the_class_are_not_pulled_to_independence(monkeypatch):
    """409 devices, 30 features, ε = 4, 12 splits: 4.3 points below ``simplex`` before the rule."""
    rng = np.random.default_rng(3)
    differences = {True: [], False: []}
    for _ in range(12):
        codes, labels, schema = telling(1.5, rng)
        new = telling(1.5, rng, 2000)[:2]
        campaign = bench.campaign_of(schema, "4")
        statistics = estimate(campaign, bench.tally_of(campaign, codes, labels, rng))
        sharp = bench.right(*fit(statistics, "simplex"), *new)
        for is_ruled, clear in ((True, posterior_tables.CLEAR), (False, np.inf)):
            with monkeypatch.context() as patch:
                patch.setattr(posterior_tables, "CLEAR", clear)
                differences[is_ruled].append(bench.right(*fit(statistics, "posterior"), *new) - sharp)
    assert np.mean(differences[True]) > -1
    assert np.mean(differences[False]) < -1


SHARE = np.array([0.6, 0.3, 0.1])
MEAN = np.array([-0.4, 0.1, 0.5])
VARIANCE = np.array([0.05, 0.1, 0.02])


def moments_with(noise, seed=None):
    """Moments of three classes; their estimates have errors of this variance if there is a seed."""
    first, second = SHARE * MEAN, SHARE * (VARIANCE + MEAN**2)
    if seed is not None:
        errors = np.random.default_rng(seed).normal(0, noise**0.5, (2, 3))
        first, second = first + errors[0], second + errors[1]
    return Moments(first, second, np.full(3, noise), np.full(3, noise), SHARE)


def test_moments_without_noise_stay_and_with_more_noise_are_nearer_to_the_pooled_mean():
    found = [shrunk(moments_with(noise)) for noise in (1e-14, 1e-4, 1e-3, 1e-2, 1.0, 1e6)]
    spreads = [np.ptp(mean) for mean, _ in found]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 1e-3
    assert np.ptp(np.log(found[-1][1])) < 1e-3
    pooled = SHARE @ MEAN
    assert np.abs(found[3][0] - pooled).max() < np.abs(MEAN - pooled).max()
    mean, variance = shrunk(moments_with(1e-14))
    assert mean == pytest.approx(MEAN, abs=1e-6)
    assert variance == pytest.approx(VARIANCE, abs=1e-6)
    # Second moments below 0 and first moments beyond 1, with little noise stated.
    of = Moments(np.array([3.0, -2.0, 0.0]), np.array([-1.0, 5.0, 0.0]), np.full(3, 1e-6), np.full(3, 1e-6), SHARE)
    mean, variance = shrunk(of)
    assert (np.abs(mean) <= 1).all()
    assert np.isfinite(variance).all()
    assert (variance > 0).all()


def test_fewer_variances_are_near_zero_than_in_the_moments_alone():
    """Noise of the size of the moments themselves, 200 draws: no variance falls to a fiftieth of the pooled one."""
    raw, kept = [], []
    for seed in range(200):
        of = moments_with(0.01, seed)
        raw.append(of.second / SHARE - (of.first / SHARE) ** 2)
        kept.append(shrunk(of)[1])
    least = (VARIANCE @ SHARE) / 50
    assert (np.array(raw) < least).mean() > 0.2
    assert (np.array(kept) < least).mean() < 0.01
    assert (np.array(kept) > 0).all()


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_of_the_classes_does_not_matter(order):
    of = moments_with(0.01, seed=4)
    mean, variance = shrunk(of)
    other = shrunk(Moments(*(part[order] for part in of)))
    np.testing.assert_allclose(other[0], mean[order], rtol=1e-9)
    np.testing.assert_allclose(other[1], variance[order], rtol=1e-9)
