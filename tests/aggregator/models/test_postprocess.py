"""Post-processing returns probabilities for every estimate; tables of ``printed``, ``halves``, ``floored`` by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.estimated import nobody, summed, tallied
from support.examples import examples
from support.failures import reason_of
from support.publisher import NOW, Publisher
from support.reports import made

from aggregator.estimates.source import Origin
from aggregator.estimates.sums import Curator, NoisySum, of_sums
from aggregator.models.fitting import fit
from aggregator.models.postprocess.joint_tables import HALF, project_to_simplex
from aggregator.models.postprocess.methods import NEED_CLASS_QUESTION, POSTPROCESSES
from aggregator.models.postprocess.noisy_sums import CELLS, CLASSES, LEAST_CELL, VARIANCES
from edge_sdk import Device
from protocol.canonical import pack, unpack
from protocol.documents import model
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Fit, parse_campaign
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.questions import CLASS, MOMENT, ONE_PER_CLASS, PRESENT, SQUARE, discrete_subjects, gaussian_subjects
from protocol.schema import Label, build_schema

CAMPAIGNS = {mechanism: made(mechanism=mechanism, epsilon_micro=500_000) for mechanism in ("direct", "oue")}


@st.composite
def any_statistics(draw):
    """Statistics from any counts that reports can have, including estimates far below 0 and above n."""
    campaign = CAMPAIGNS[draw(st.sampled_from(sorted(CAMPAIGNS)))]
    asked, counts = [], []
    for question in campaign.questions:
        n = draw(st.integers(0, 500))
        if question.mechanism.name == "oue":
            counts.append(tuple(draw(st.integers(0, n)) for _ in range(question.size)))
        else:
            cuts = sorted(draw(st.integers(0, n)) for _ in range(question.size - 1))
            counts.append(tuple(b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)))
        asked.append(n)
    return tallied(campaign, counts, asked)


def prior(name, found):
    """P(class) from the named post-processing."""
    return POSTPROCESSES[name](found, []).prior


def likelihood(name, found):
    """P(value | class) of every feature from the named post-processing."""
    return list(POSTPROCESSES[name](found, range(len(found.schema.observed))).likelihood)


@given(any_statistics(), st.sampled_from(sorted(POSTPROCESSES)))
def test_tables_are_probabilities_whatever_the_noise(found, name):
    features = found.schema.features
    assert prior(name, found).shape == (2,)
    assert prior(name, found).sum() == pytest.approx(1)
    assert (prior(name, found) > 0).all()
    tables = likelihood(name, found)
    assert len(tables) == len(features)
    for table, feature in zip(tables, features, strict=True):
        assert table.shape == (feature.size, 2)
        assert (table > 0).all()
        if name not in ("printed", "halves"):  # the denominators of their fractions are the noisy class counts
            np.testing.assert_allclose(table.sum(axis=0), 1)
    logs = fit(found, name)
    assert np.isfinite(logs.log_prior).all()
    assert all(np.isfinite(table).all() for table in logs.terms)


def exact(estimates, campaign=CAMPAIGNS["direct"], n=100):
    """Statistics with given estimates."""
    return summed(campaign, estimates, n)


def test_paper_turns_what_is_not_positive_into_one():
    found = exact([[120, -20], [10, -5, 20, 0, 30, 7, 0, -1], [1, 2, 3, 6]])
    assert prior("paper", found).tolist() == [120 / 121, 1 / 121]
    tables = likelihood("paper", found)
    # Rows are values, columns classes: [[10, 1], [20, 1], [30, 7], [1, 1]].
    np.testing.assert_allclose(tables[0], [[10 / 61, 0.1], [20 / 61, 0.1], [30 / 61, 0.7], [1 / 61, 0.1]])
    np.testing.assert_allclose(tables[1], [[0.25, 0.25], [0.75, 0.75]])


def test_simplex_keeps_a_possible_table_and_adds_half_a_report_to_each_cell():
    joint = np.array([[40.0, 10.0], [20.0, 30.0]])
    tables = likelihood("simplex", exact([[60, 40], [50, 0, 0, 0, 0, 0, 0, 50], joint.ravel()]))
    expected = joint + HALF
    np.testing.assert_allclose(tables[1], expected / expected.sum(axis=0))


def test_simplex_takes_the_classes_from_all_questions():
    """The class question alone gives shares of one half; the cell questions, equally many answers, give others."""
    counts = [(50, 50), (80, 0, 10, 0, 10, 0, 0, 0), (95, 0, 5, 0)]
    found = tallied(CAMPAIGNS["direct"], counts)
    assert prior("paper", found).tolist() == pytest.approx([0.5, 0.5])
    assert prior("simplex", found)[0] > 0.6


def test_nothing_asked_is_nothing_known():
    found = nobody(CAMPAIGNS["oue"])
    for name in POSTPROCESSES:
        np.testing.assert_allclose(prior(name, found), 0.5)
        np.testing.assert_allclose(likelihood(name, found)[0], 0.25)


def test_questions_about_one_feature_are_added_up():
    """A campaign may contain two questions about one subject."""
    body = unpack(Publisher().campaign_payload())
    cell = {**body["questions"][2], "bound": 1 << 32}
    body["questions"] = [*body["questions"][:2], {**cell, "bound": 3 << 30}, cell]
    campaign = parse_campaign(pack(body))
    parts = [[60, 40], [20, 10, 20, 10, 20, 10, 5, 5], [40, 10, 20, 30], [10, 40, 30, 20]]
    both = summed(campaign, parts, 100)
    for name in POSTPROCESSES:
        table = likelihood(name, both)[1]
        np.testing.assert_allclose(table / table.sum(axis=0), 0.5)


@pytest.mark.parametrize("name", sorted(NEED_CLASS_QUESTION))
def test_what_a_campaign_does_not_ask_can_not_be_fitted(name):
    found = exact([[60, 40], [20, 10, 20, 10, 20, 10, 5, 5], [40, 10, 20, 30]])
    assert reason_of(InputError, fit, found, "magic") == "postprocess_unknown"
    for gone in range(3):
        left = tuple(item for index, item in enumerate(found.questions) if index != gone)
        assert reason_of(InputError, fit, replace(found, questions=left), name) == "not_fittable"


numbers = st.floats(-1000, 1000, allow_nan=False).map(lambda x: round(x, 3))


@given(st.lists(numbers, min_size=1, max_size=12), st.just(0.0) | st.floats(0.001, 1000))
def test_the_projection_is_the_nearest_point_of_the_simplex(values, total):
    """The nearest point takes one number off all that stay positive, and leaves nothing of those below it."""
    point = np.array(values)
    nearest = project_to_simplex(point, total)
    assert (nearest >= 0).all()
    assert nearest.sum() == pytest.approx(total, rel=1e-9, abs=1e-6)
    if total:
        taken = (point - nearest)[nearest > 0]
        assert np.ptp(taken) < 1e-6
        assert (point[nearest == 0] <= taken.max() + 1e-6).all()


NAMES = ("printed", "halves", "floored")
LABEL = Label("y", ["n", "p"])
MIXED = build_schema(
    LABEL, [Categorical("c", ["r", "g", "b"], substitute=0), Numeric("x", "-1", "1", [0], substitute=0)]
)
GAPS = build_schema(LABEL, [Numeric("x", "-1", "1", [0], substitute=None)])


def of_noisy_sums(schema, sums, noise_variance, *, floor_micro=100, records=None):
    """Statistics of noisy sums. ``sums``: one list per subject, numbers in units of the largest number.

    ``noise_variance``: of every sum, or one for each subject.
    """
    family = GAUSSIAN if schema.numeric else DISCRETE
    subjects = gaussian_subjects(schema, ONE_PER_CLASS) if schema.numeric else discrete_subjects(schema)
    assert len(subjects) == len(sums)
    variances = np.broadcast_to(noise_variance, len(sums)).tolist()
    noisy = [
        NoisySum(subject, np.array(one, float), np.full(len(one), float(variance)), tuple(map(int, one)))
        for subject, one, variance in zip(subjects, sums, variances, strict=True)
    ]
    count = max(1, int(sum(sums[0]))) if records is None else records
    source = Curator(Origin(bytes(32), "sums", "test"), count, tuple(one.released for one in noisy), {})
    return of_sums(noisy, schema, Fit(family, "floored", floor_micro), source, is_counted=records is not None)


def with_questions(found, feature, changes):
    """The same statistics with other questions about one feature; ``changes``: from a question to what it gets."""
    questions = (replace(one, **changes(one)) if one.subject.feature == feature else one for one in found.questions)
    return replace(found, questions=tuple(questions))


EXACT = [[60, 40], [30, 10, 20, 10, 10, 20], [6, -8], [15, 12]]
"""60 and 40 records; the category's cells [[30, 10], [20, 10], [10, 20]]; Σx and Σx² of both classes."""


def test_printed_divides_every_sum_by_the_noisy_count_of_the_class_of_at_least_one_record():
    noisy = [[60, 40], [36, 10, -3, 10, 10, 22], [6, -8], [15, 12]]
    found = fit(of_noisy_sums(MIXED, noisy, 2.0), "printed")
    assert np.exp(found.log_prior) == pytest.approx([0.6, 0.4])
    table = [[36 / 60, 10 / 40], [LEAST_CELL / 60, 10 / 40], [10 / 60, 22 / 40]]
    np.testing.assert_allclose(np.exp(found.terms[0]), table)
    assert found.terms[1].mean == pytest.approx([6 / 60, -8 / 40])
    assert found.terms[1].variance == pytest.approx([15 / 60 - 0.01, 12 / 40 - 0.04])
    found = fit(of_noisy_sums(MIXED, [[99, -7], [50, 1, 20, 1, 29, 1], [6, -8], [15, 12]], 2.0, records=92), "printed")
    assert np.exp(found.log_prior) == pytest.approx([0.99, 0.01])
    assert np.exp(found.terms[0])[:, 1] == pytest.approx([1, 1, 1])  # three records of a class of one
    assert found.terms[1].mean[1] == pytest.approx(-8)
    assert found.terms[1].variance[1] == pytest.approx(1e-4)  # 12 − 64 is below the fit's floor


def test_halves_are_the_fractions_of_printed_with_half_a_record_in_every_cell():
    noisy = of_noisy_sums(MIXED, [[60, -4], [36, 10, -3, 0, 0.25, 22], [6, -8], [15, 12]], 2.0)
    found = fit(noisy, "halves")
    assert np.exp(found.log_prior) == pytest.approx([60 / 61, 1 / 61])
    np.testing.assert_allclose(np.exp(found.terms[0]), [[36 / 60, 10], [0.5 / 60, 0.5], [0.5 / 60, 22]])
    of_printed = fit(noisy, "printed").terms[1]
    np.testing.assert_array_equal(found.terms[1], of_printed)


def test_floored_without_noise_is_the_plain_fit_and_raises_a_class_to_its_part_of_the_noise():
    found = fit(of_noisy_sums(MIXED, EXACT, 0.0), "floored")
    assert np.exp(found.log_prior) == pytest.approx([0.6, 0.4])
    np.testing.assert_allclose(np.exp(found.terms[0]), [[0.5, 0.25], [1 / 3, 0.25], [1 / 6, 0.5]])
    assert found.terms[1].mean == pytest.approx([0.1, -0.2])
    assert found.terms[1].variance == pytest.approx([0.24, 0.26])
    schema = build_schema(LABEL, [Categorical("c", ["r", "b"], substitute=0)])
    sd = 30.0
    found = fit(of_noisy_sums(schema, [[140, -40], [100, -60, 40, 20]], sd**2), "floored")
    shown = np.exp(found.log_prior)
    combined = np.sqrt(2 / 3) * sd / 100  # of votes with variances 1 and 2
    assert shown[1] / shown[0] == pytest.approx(CLASSES * combined / 1.4, rel=0.01)  # and a little sampling


def test_floored_raises_cells_and_variances_to_their_part_of_the_noise():
    """A class has 60 records by the class counts and 90 by the cells, whose sum has three times the noise variance."""
    noisy = [[60, 40], [90, 10, -50, 10, 50, 20], [6, -8], [3, 12]]
    sd = 50.0
    found = fit(of_noisy_sums(MIXED, noisy, sd**2), "floored")
    least = CELLS * sd
    assert least == 10
    np.testing.assert_allclose(np.exp(found.terms[0])[:, 0], np.array([90, 10, 50]) / 150)
    share = 0.75 * 0.6 + 0.25 * 0.9
    other = 0.4
    shown = np.exp(found.log_prior)
    assert shown[0] / shown[1] == pytest.approx(share / other, rel=0.002)  # sampling has a small part in the weights
    mean = 0.06 / share
    floor = VARIANCES * sd / 100 / share * np.sqrt(1 + 4 * mean**2)
    assert found.terms[1].mean[0] == pytest.approx(mean, rel=0.002)
    assert found.terms[1].variance[0] == pytest.approx(floor, rel=0.002)


def test_a_number_that_may_be_missing_is_divided_by_those_that_have_it():
    sums = {CLASS: [60, 40], PRESENT: [30, 20, 30, 20], MOMENT: [6, -8], SQUARE: [15, 12]}
    listed = [
        sums[SQUARE if subject.power == SQUARE else subject.kind] for subject in gaussian_subjects(GAPS, ONE_PER_CLASS)
    ]
    for name in NAMES:
        found = fit(of_noisy_sums(GAPS, listed, 0.0), name)
        assert found.terms[0].mean == pytest.approx([0.2, -0.4])
        assert found.terms[0].variance == pytest.approx([0.5 - 0.04, 0.6 - 0.16])


@pytest.mark.parametrize("name", [*NAMES, "simplex"])
def test_numbers_without_answers_say_nothing_of_the_class(name):
    found = of_noisy_sums(MIXED, EXACT, 4.0)
    term = fit(with_questions(found, 1, lambda item: {"n": 0, "estimate": item.estimate * 0}), name).terms[1]
    assert term.mean.tolist() == [0, 0]
    assert term.variance == pytest.approx([1 / 3] * 2)


def test_noise_of_infinite_variance_gives_no_floor():
    found = of_noisy_sums(MIXED, EXACT, 4.0)
    term = fit(with_questions(found, 1, lambda _: {"noise_variance": np.full(2, np.inf)}), "floored").terms[1]
    assert np.isfinite(term.mean).all()
    assert term.variance == pytest.approx(0.25 - term.mean[0] ** 2, abs=0.1)


wild_sums = st.floats(-1e6, 1e6, allow_nan=False).map(round) | st.just(0)


@examples(60)
@given(
    st.tuples(*(st.lists(wild_sums, min_size=size, max_size=size) for size in (2, 6, 2, 2))),
    st.sampled_from([0.0, 1e-6, 1.0, 1e4, 1e12]),
)
def test_any_noisy_sums_give_distributions(sums, variance):
    found = of_noisy_sums(MIXED, list(sums), variance)
    for name in NAMES:
        model = fit(found, name)
        assert np.exp(model.log_prior).sum() == pytest.approx(1)
        assert np.isfinite(model.terms[0]).all()
        assert np.isfinite(model.terms[1].mean).all()
        assert (model.terms[1].variance >= 1e-4).all()
    np.testing.assert_allclose(np.exp(model.terms[0]).sum(axis=0), 1)
    assert (np.abs(model.terms[1].mean) <= 1).all()
    assert (model.terms[1].variance <= 1).all()


@pytest.mark.parametrize("name", ["simplex", "posterior", "learned"])
@pytest.mark.parametrize("counted", [(3000, 2000), (9000, 6000)])
def test_no_mean_is_cut_or_stretched_by_a_noisy_number_of_records(name, counted):
    """The class counts say 5,000 or 15,000 of 10,000 records. The other tables are right, and their noise is smaller.

    Means came out as [0.2, −0.4] in place of [0.1, −0.2], or as half as much.
    """
    few = [1e6, *[1.0] * 3]
    right = [[100 * number for number in one] for one in EXACT[1:]]
    term = fit(of_noisy_sums(MIXED, [counted, *right], few), name).terms[1]
    assert term.mean == pytest.approx([0.1, -0.2], abs=0.005)
    there = [[0, 0, 6000, 4000], [600, -800], [1500, 1200]]
    term = fit(of_noisy_sums(GAPS, [counted, *there], few), name).terms[0]
    assert term.mean == pytest.approx([0.1, -0.2], abs=0.005)
    assert term.variance == pytest.approx([0.24, 0.26], abs=0.005)
    prior = np.exp(fit(of_noisy_sums(MIXED, [counted, *right], few), name).log_prior)
    assert prior == pytest.approx([0.6, 0.4], abs=0.002)


# The ten people of the sources' worked example -------------------------------------------------------


PEOPLE = [
    # age, income, gender, payment
    ("young", "low", "male", "missed"),
    ("young", "high", "female", "missed"),
    ("medium", "high", "male", "paid"),
    ("old", "medium", "male", "paid"),
    ("old", "high", "male", "paid"),
    ("old", "low", "female", "missed"),
    ("medium", "low", "female", "paid"),
    ("medium", "medium", "male", "missed"),
    ("young", "low", "male", "paid"),
    ("old", "high", "female", "paid"),
]
SHE = {"age": "young", "income": "medium", "gender": "female"}


def ten_row_schema():
    columns = {"age": ["young", "medium", "old"], "income": ["low", "medium", "high"], "gender": ["male", "female"]}
    features = [Categorical(name, values, substitute=0) for name, values in columns.items()]
    return build_schema(Label("payment", ["missed", "paid"]), features)


def exact_statistics(campaign):
    """What an aggregator would estimate without any noise: every count as it is."""
    found = [[0] * question.size for question in campaign.questions]
    for counts, question in zip(found, campaign.questions, strict=True):
        for *values, payment in PEOPLE:
            seen = campaign.schema.observe(dict(zip(("age", "income", "gender"), values, strict=True)))
            counts[question.input_of(seen, campaign.schema.label.code(payment), 2)] += 1
    return summed(campaign, found, 10)


def test_the_young_woman_of_medium_income_is_predicted_to_miss_a_payment(tmp_path):
    publisher = Publisher(schema=ten_row_schema())
    campaign = parse_campaign(publisher.campaign_payload())
    parameters = fit(exact_statistics(campaign), "paper")
    # Every count that matters here is positive, so "negatives become 1" changes none of them.
    assert np.exp(parameters.log_prior).tolist() == pytest.approx([4 / 10, 6 / 10])
    age, income, gender = (np.exp(table) for table in parameters.terms)
    assert age[0].tolist() == pytest.approx([2 / 4, 1 / 6])
    assert income[1].tolist() == pytest.approx([1 / 4, 1 / 6])
    assert gender[1].tolist() == pytest.approx([2 / 4, 2 / 6])

    document = model.DiscreteModel(
        header=publisher.header("payments"),
        campaign=campaign.id,
        schema=campaign.schema,
        log_prior=tuple(parameters.log_prior.tolist()),
        log_likelihood=tuple(tuple(map(tuple, table.tolist())) for table in parameters.terms),
        statistics_id=bytes(32),
        previous=None,
        card={},
    )
    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: NOW) as device:
        classifier = device.install(publisher.sign("model", model.build_payload(document)))
    missed, paid = (math.exp(score) for score in classifier.scores(SHE))
    assert missed == pytest.approx(0.025, abs=5e-6)
    assert paid == pytest.approx(0.00556, abs=5e-6)
    assert classifier.predict(SHE) == "missed"
