"""The post-processings ``printed``, ``halves`` and ``floored``: tables computed by hand, and any noisy sums at all."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.estimated import summed
from support.examples import examples
from support.reports import made

from aggregator.estimates.source import Origin
from aggregator.estimates.sums import Curator, NoisySum, of_sums
from aggregator.models.fitting import fit
from aggregator.models.postprocess.methods import POSTPROCESSES
from aggregator.models.postprocess.noisy_sums import CELLS, CLASSES, LEAST_CELL, VARIANCES
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Fit
from protocol.features import Categorical, Numeric
from protocol.questions import CLASS, MOMENT, ONE_PER_CLASS, PRESENT, SQUARE, discrete_subjects, gaussian_subjects
from protocol.schema import Label, build_schema

NAMES = ("printed", "halves", "floored")
LABEL = Label("y", ["n", "p"])
MIXED = build_schema(
    LABEL, [Categorical("c", ["r", "g", "b"], substitute=0), Numeric("x", "-1", "1", [0], substitute=0)]
)
GAPS = build_schema(LABEL, [Numeric("x", "-1", "1", [0], substitute=None)])


def statistics(schema, sums, noise_variance, *, floor_micro=100, records=None):
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


EXACT = [[60, 40], [30, 10, 20, 10, 10, 20], [6, -8], [15, 12]]
"""60 and 40 records; the category's cells [[30, 10], [20, 10], [10, 20]]; Σx and Σx² of both classes."""


def test_printed_divides_every_sum_by_the_noisy_count_of_the_class():
    noisy = [[60, 40], [36, 10, -3, 10, 10, 22], [6, -8], [15, 12]]
    found = fit(statistics(MIXED, noisy, 2.0), "printed")
    assert np.exp(found.log_prior) == pytest.approx([0.6, 0.4])
    table = [[36 / 60, 10 / 40], [LEAST_CELL / 60, 10 / 40], [10 / 60, 22 / 40]]
    np.testing.assert_allclose(np.exp(found.terms[0]), table)
    assert found.terms[1].mean == pytest.approx([6 / 60, -8 / 40])
    assert found.terms[1].variance == pytest.approx([15 / 60 - 0.01, 12 / 40 - 0.04])


def test_printed_counts_a_class_of_negative_size_as_one_record():
    found = fit(statistics(MIXED, [[99, -7], [50, 1, 20, 1, 29, 1], [6, -8], [15, 12]], 2.0, records=92), "printed")
    assert np.exp(found.log_prior) == pytest.approx([0.99, 0.01])
    assert np.exp(found.terms[0])[:, 1] == pytest.approx([1, 1, 1])  # three records of a class of one
    assert found.terms[1].mean[1] == pytest.approx(-8)
    assert found.terms[1].variance[1] == pytest.approx(1e-4)  # 12 − 64 is below the fit's floor


def test_halves_are_the_fractions_of_printed_with_half_a_record_in_every_cell():
    noisy = statistics(MIXED, [[60, -4], [36, 10, -3, 0, 0.25, 22], [6, -8], [15, 12]], 2.0)
    found = fit(noisy, "halves")
    assert np.exp(found.log_prior) == pytest.approx([60 / 61, 1 / 61])
    np.testing.assert_allclose(np.exp(found.terms[0]), [[36 / 60, 10], [0.5 / 60, 0.5], [0.5 / 60, 22]])
    of_printed = fit(noisy, "printed").terms[1]
    np.testing.assert_array_equal(found.terms[1], of_printed)


def test_floored_without_noise_is_the_plain_fit():
    found = fit(statistics(MIXED, EXACT, 0.0), "floored")
    assert np.exp(found.log_prior) == pytest.approx([0.6, 0.4])
    np.testing.assert_allclose(np.exp(found.terms[0]), [[0.5, 0.25], [1 / 3, 0.25], [1 / 6, 0.5]])
    assert found.terms[1].mean == pytest.approx([0.1, -0.2])
    assert found.terms[1].variance == pytest.approx([0.24, 0.26])


def test_floored_raises_cells_and_variances_to_their_part_of_the_noise():
    """A class has 60 records by the class counts and 90 by the cells, whose sum has three times the noise variance."""
    noisy = [[60, 40], [90, 10, -50, 10, 50, 20], [6, -8], [3, 12]]
    sd = 50.0
    found = fit(statistics(MIXED, noisy, sd**2), "floored")
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


def test_floored_raises_a_class_to_its_part_of_the_noise():
    schema = build_schema(LABEL, [Categorical("c", ["r", "b"], substitute=0)])
    sd = 30.0
    found = fit(statistics(schema, [[140, -40], [100, -60, 40, 20]], sd**2), "floored")
    shown = np.exp(found.log_prior)
    combined = np.sqrt(2 / 3) * sd / 100  # of votes with variances 1 and 2
    assert shown[1] / shown[0] == pytest.approx(CLASSES * combined / 1.4, rel=0.01)  # and a little sampling


def test_a_number_that_may_be_missing_is_divided_by_those_that_have_it():
    sums = {CLASS: [60, 40], PRESENT: [30, 20, 30, 20], MOMENT: [6, -8], SQUARE: [15, 12]}
    listed = [
        sums[SQUARE if subject.power == SQUARE else subject.kind] for subject in gaussian_subjects(GAPS, ONE_PER_CLASS)
    ]
    for name in NAMES:
        found = fit(statistics(GAPS, listed, 0.0), name)
        assert found.terms[0].mean == pytest.approx([0.2, -0.4])
        assert found.terms[0].variance == pytest.approx([0.5 - 0.04, 0.6 - 0.16])


@pytest.mark.parametrize("name", NAMES)
def test_numbers_without_answers_say_nothing_of_the_class(name):
    found = statistics(MIXED, EXACT, 4.0)
    silent = tuple(
        replace(item, n=0, estimate=item.estimate * 0) if item.subject.feature == 1 else item
        for item in found.questions
    )
    term = fit(replace(found, questions=silent), name).terms[1]
    assert term.mean.tolist() == [0, 0]
    assert term.variance == pytest.approx([1 / 3] * 2)


def test_noise_of_infinite_variance_gives_no_floor():
    found = statistics(MIXED, EXACT, 4.0)
    wild = tuple(
        replace(item, noise_variance=np.full(2, np.inf)) if item.subject.feature == 1 else item
        for item in found.questions
    )
    term = fit(replace(found, questions=wild), "floored").terms[1]
    assert np.isfinite(term.mean).all()
    assert term.variance == pytest.approx(0.25 - term.mean[0] ** 2, abs=0.1)


wild_sums = st.floats(-1e6, 1e6, allow_nan=False).map(round) | st.just(0)


@examples(60)
@given(
    st.tuples(*(st.lists(wild_sums, min_size=size, max_size=size) for size in (2, 6, 2, 2))),
    st.sampled_from([0.0, 1e-6, 1.0, 1e4, 1e12]),
)
def test_any_noisy_sums_give_distributions(sums, variance):
    found = statistics(MIXED, list(sums), variance)
    for name in NAMES:
        model = fit(found, name)
        assert np.exp(model.log_prior).sum() == pytest.approx(1)
        assert np.isfinite(model.terms[0]).all()
        assert np.isfinite(model.terms[1].mean).all()
        assert (model.terms[1].variance >= 1e-4).all()
    np.testing.assert_allclose(np.exp(model.terms[0]).sum(axis=0), 1)
    assert (np.abs(model.terms[1].mean) <= 1).all()
    assert (model.terms[1].variance <= 1).all()


@examples(30)
@given(st.tuples(*(st.lists(st.integers(-500, 500), min_size=size, max_size=size) for size in (2, 8, 4))))
def test_any_table_of_answers_gives_probabilities(sums):
    found = summed(made(), list(sums), 100, 25.0)
    for name in NAMES:
        tables = POSTPROCESSES[name](found, range(2))
        assert (tables.prior > 0).all()
        assert all((table > 0).all() for table in tables.likelihood)


@pytest.mark.parametrize("name", ["simplex", "posterior"])
@pytest.mark.parametrize("counted", [(3000, 2000), (9000, 6000)])
def test_no_mean_is_cut_or_stretched_by_a_noisy_number_of_records(name, counted):
    """The class counts say 5,000 or 15,000 of 10,000 records. The other tables are right, and their noise is smaller.

    Means came out as [0.2, −0.4] in place of [0.1, −0.2], or as half as much.
    """
    few = [1e6, *[1.0] * 3]
    right = [[100 * number for number in one] for one in EXACT[1:]]
    term = fit(statistics(MIXED, [counted, *right], few), name).terms[1]
    assert term.mean == pytest.approx([0.1, -0.2], abs=0.005)
    there = [[0, 0, 6000, 4000], [600, -800], [1500, 1200]]
    term = fit(statistics(GAPS, [counted, *there], few), name).terms[0]
    assert term.mean == pytest.approx([0.1, -0.2], abs=0.005)
    assert term.variance == pytest.approx([0.24, 0.26], abs=0.005)
    prior = np.exp(fit(statistics(MIXED, [counted, *right], few), name).log_prior)
    assert prior == pytest.approx([0.6, 0.4], abs=0.002)
