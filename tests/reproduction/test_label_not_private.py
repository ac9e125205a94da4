"""The class-visible Gaussian form is in the reproduction only: no package has it, and no campaign can ask for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregator.models.baselines import plain_gaussian_model
from aggregator.models.encoding import EncodedFrame
from aggregator.models.population import Population
from aggregator.publishing.campaigns import CampaignParameters, campaign_subjects
from aggregator.publishing.mechanisms.draws import inputs_of
from benchmarks.reproduce.continuous import APPROACHES, LABEL_NOT_PRIVATE, label_not_private
from benchmarks.shared.fleets import campaign_of
from protocol import SCALE
from protocol.batches.report import FIXED_BYTES
from protocol.documents.campaign import GAUSSIAN
from protocol.epsilon import MICRO
from protocol.features import Numeric
from protocol.schema import Label, build_schema

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
MECHANISMS = [
    ("laplace", 1),
    ("laplace", 3),
    *((name, None) for name in ("bits", "bit", "piecewise", "hybrid", "duchi")),
]
ID_PERIOD_QUESTION = 8 + 4 + 2
SCHEMA = build_schema(Label("class", ["a", "b"]), [Numeric(name, "-1", "1", [0]) for name in ("x", "y")])


def people_of(numbers, labels):
    codes = np.zeros_like(numbers)
    encoded, labels = EncodedFrame(codes, numbers), np.asarray(labels)
    return Population(encoded, labels, encoded, labels)


def test_the_name_is_in_the_reproduction_and_in_no_package():
    def naming(folder):
        return [path for path in (ROOT / folder).rglob("*.py") if LABEL_NOT_PRIVATE in path.read_text("utf-8")]

    assert naming("benchmarks/reproduce")
    assert [path for package in PACKAGES for path in naming(package)] == []


@pytest.mark.parametrize("answers", ["one", "all"])
@pytest.mark.parametrize(("mechanism", "approach"), MECHANISMS)
def test_the_class_passes_through_a_private_mechanism_in_every_question_of_a_gaussian_campaign(
    mechanism, approach, answers
):
    """Two people who differ in their class alone: each question that could tell them apart is answered with noise."""
    epsilon = 1
    count = 1 if answers == "one" else len(campaign_subjects(SCHEMA, GAUSSIAN, mechanism, approach))
    parameters = CampaignParameters("g", epsilon * MICRO, mechanism, family=GAUSSIAN, approach=approach, answers=count)
    campaign = campaign_of(SCHEMA, parameters)
    numbers = np.array([[SCALE // 2, SCALE]] * 2, np.int64)
    told_apart = 0
    for question in campaign.questions:
        first, second = inputs_of(SCHEMA, question.subject, EncodedFrame(numbers * 0, numbers), np.array([0, 1]))
        told_apart += not np.array_equal(first, second)
        assert not question.mechanism.privacy_loss().exceeds(epsilon * MICRO // count)
    assert told_apart == len(campaign.questions)


@pytest.mark.parametrize(("mechanism", "approach"), MECHANISMS)
def test_a_report_has_no_room_for_a_class(mechanism, approach):
    """Beside the answer a report has its id, its period and the number of its question, and nothing else."""
    parameters = CampaignParameters("g", MICRO, mechanism, family=GAUSSIAN, approach=approach)
    campaign = campaign_of(SCHEMA, parameters)
    layout = campaign.layout
    assert FIXED_BYTES == ID_PERIOD_QUESTION
    assert layout.record_length == len(layout.prefix) + FIXED_BYTES + layout.answer_bytes


@pytest.mark.parametrize("approach", APPROACHES)
def test_the_form_shows_the_classes_whatever_epsilon_is(approach):
    rng = np.random.default_rng(1)
    people = people_of(rng.integers(-SCALE, SCALE, (50, 2)), [0] * 13 + [1] * 37)
    model = label_not_private(approach, 1e-3, SCHEMA, people, rng)
    assert np.exp(model.log_prior) == pytest.approx([0.26, 0.74])


@pytest.mark.parametrize("approach", APPROACHES)
def test_its_moments_are_unbiased(approach):
    """At a very large ε means and variances are those of the records. 0.12 is more than five standard errors."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 20_000)
    numbers = rng.integers(-SCALE, SCALE, (20_000, 2)) // 2 + labels[:, np.newaxis] * SCALE // 4
    people = people_of(numbers, labels)
    model = label_not_private(approach, 500.0, SCHEMA, people, rng)
    plain = plain_gaussian_model(people.reported, people.labels, SCHEMA, 0.0)
    for (means, variances), (true_means, true_variances) in zip(model.terms, plain.terms, strict=True):
        assert means == pytest.approx(true_means, abs=0.12)
        assert variances == pytest.approx(true_variances, abs=0.12)


def test_noise_that_is_not_private_is_in_the_benchmarks_alone():
    assert not [
        path
        for name in ("protocol", "edge_sdk", "aggregator", "simulation")
        for path in (ROOT / name).rglob("*.py")
        if "not_private" in path.read_text("utf-8")
    ]
    assert "NOT PRIVATE" in (ROOT / "benchmarks" / "federated" / "figures.py").read_text("utf-8")
