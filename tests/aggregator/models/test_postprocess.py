"""Post-processing returns probabilities for every estimate; the projection is the nearest point of the simplex."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.estimated import summed
from support.examples import examples
from support.failures import reason_of
from support.publisher import Publisher
from support.reports import made

from aggregator.estimates.reports import estimate
from aggregator.models.fitting import fit
from aggregator.models.postprocess.joint_tables import HALF, project_to_simplex
from aggregator.models.postprocess.methods import NEED_CLASS_QUESTION, POSTPROCESSES
from aggregator.reports.tally.tally import Tally
from protocol.canonical import pack, unpack
from protocol.documents.campaign import parse_campaign
from protocol.errors import InputError

CAMPAIGNS = {mechanism: made(mechanism=mechanism, epsilon_micro=500_000) for mechanism in ("direct", "oue")}


@st.composite
def statistics(draw):
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
    return estimate(campaign, Tally(campaign.id, tuple(asked), tuple(counts)))


def prior(name, found):
    """P(class) from the named post-processing."""
    return POSTPROCESSES[name](found, []).prior


def likelihood(name, found):
    """P(value | class) of every feature from the named post-processing."""
    return list(POSTPROCESSES[name](found, range(len(found.schema.observed))).likelihood)


@given(statistics(), st.sampled_from(sorted(POSTPROCESSES)))
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
    campaign = CAMPAIGNS["direct"]
    found = estimate(campaign, Tally(campaign.id, (100,) * 3, tuple(counts)))
    assert prior("paper", found).tolist() == pytest.approx([0.5, 0.5])
    assert prior("simplex", found)[0] > 0.6


def test_nothing_asked_is_nothing_known():
    found = estimate(CAMPAIGNS["oue"], Tally.zero(CAMPAIGNS["oue"]))
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
    for gone in range(3):
        left = tuple(item for index, item in enumerate(found.questions) if index != gone)
        assert reason_of(InputError, fit, replace(found, questions=left), name) == "not_fittable"


def test_an_unknown_name_is_refused():
    assert reason_of(InputError, fit, exact([[60, 40], [0] * 8, [0] * 4]), "magic") == "postprocess_unknown"


numbers = st.floats(-1000, 1000, allow_nan=False).map(lambda x: round(x, 3))


@given(st.lists(numbers, min_size=1, max_size=12), st.floats(0.001, 1000), st.integers(0, 2**32))
def test_the_projection_is_possible_and_nearer_than_any_other_point(values, total, seed):
    point = np.array(values)
    nearest = project_to_simplex(point, total)
    assert (nearest >= 0).all()
    assert nearest.sum() == pytest.approx(total, rel=1e-9, abs=1e-6)
    distance = float(((nearest - point) ** 2).sum())
    for other in np.random.default_rng(seed).dirichlet(np.ones(len(values)), 20) * total:
        assert distance <= float(((other - point) ** 2).sum()) * (1 + 1e-9) + 1e-6


@examples(50)
@given(st.lists(st.integers(-8, 8), min_size=3, max_size=3), st.integers(1, 8))
def test_the_projection_is_the_best_of_a_grid(values, total):
    """Brute force over every point of the simplex whose coordinates are multiples of total/24."""
    point = np.array(values, float)
    step = total / 24
    grid = np.array([(i * step, j * step, (24 - i - j) * step) for i in range(25) for j in range(25 - i)])
    best = float(((grid - point) ** 2).sum(axis=1).min())
    found = float(((project_to_simplex(point, total) - point) ** 2).sum())
    assert found <= best + 1e-9
    # The optimum is at most one step from a grid point, so the best grid point is not much worse.
    assert best <= (np.sqrt(found) + np.sqrt(2) * step) ** 2 + 1e-9


def test_the_projection_on_nothing_is_nothing():
    assert project_to_simplex(np.array([3.0, -1.0]), 0).tolist() == [0, 0]
    assert project_to_simplex(np.array([-5.0]), 7).tolist() == [7]
