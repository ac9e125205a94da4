"""Statistics without reports pass through every later step: tables, JSON, fits, expected accuracy, a signed model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.estimated import nobody, summed
from support.failures import reason_of
from support.publisher import NOW, Publisher
from support.reports import made, opened

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.sums import Table, of_tables
from aggregator.models.fitting import fit
from aggregator.models.foresight import foresee
from aggregator.models.measured_accuracy import accuracy_of, evaluate
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import create_workspace
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError, PolicyError

SMALL = Publisher().schema
SUMS = ([600, 400], [300, 10, 100, 90, 100, 100, 100, 200], [400, 100, 200, 300])
N = 1000


def test_a_node_s_sums_are_fitted_and_shown_without_any_report():
    statistics = summed(made(), SUMS, N, noise_variance=25.0)
    assert np.exp(fit(statistics, "simplex").log_prior) == pytest.approx([0.6, 0.4], abs=0.01)
    assert 0.5 < foresee(statistics, "simplex").accuracy <= 1
    shares = class_shares(statistics)
    assert shares.share == pytest.approx([0.6, 0.4], abs=0.02)
    # All three questions are about the same N records, almost without noise: the variance is that of one sample of N.
    np.testing.assert_allclose(class_shares(summed(made(), SUMS, N)).variance, 0.24 / N, rtol=0.05)
    frame = statistics.frame()
    assert frame.loc[frame["kind"] != "prior", "estimate"].sum() == pytest.approx(3 * N)
    assert frame.loc[frame["kind"] == "prior", "parameter"].tolist() == shares.share.tolist()
    said = json.loads(json.dumps(statistics.to_json(), allow_nan=False))
    assert (said["nodes"], said["reports"], said["questions"][0]["counts"]) == (1, N, [600, 400])
    assert "these records" in str(statistics.populations)
    assert "Estimates" in statistics._repr_html_()
    assert reason_of(InputError, accuracy_of, summed(made(), SUMS, N).questions[0]) == "mechanism_unknown"
    assert reason_of(InputError, evaluate, summed(made(), SUMS, N)) == "not_an_evaluation"


def test_a_model_is_signed_for_the_campaign_of_its_statistics_alone_with_the_source_s_own_card(tmp_path):
    workspace = create_workspace(tmp_path / "work", name="w", now=NOW)
    terms = [CampaignParameters(name, 1_000_000, "direct") for name in ("a", "b")]
    raws = [publish_campaign(workspace, SMALL, each, NOW) for each in terms]
    campaign = opened(raws[0])
    statistics = summed(campaign, [np.full(question.size, N / question.size) for question in campaign.questions], N)
    document = parse_model(read_envelope(publish_model(workspace, statistics, raws[0], NOW), "model").payload)
    assert document.statistics_id == statistics.statistics_id
    assert (document.card["estimator"], document.card["reports"]) == ("noisy sums", N)
    assert "mechanisms" not in document.card, "what is true of reports alone is not said of sums"
    assert reason_of(PolicyError, publish_model, workspace, nobody(campaign), raws[0], NOW) == "batch_too_small"
    assert reason_of(InputError, publish_model, workspace, statistics, raws[1], NOW) == "other_campaign"


# --- counts of another program ---

RECORDS = 2000
SHARES = np.array([[0.3, 0.1], [0.1, 0.3], [0.1, 0.1], [0.0, 0.0]])
"""odor (a, n, f, missing) by class; width has the same classes in two bins."""
WORDS = {"trust": "an enclave counted", "threats": "whoever breaks the enclave sees all"}


def tables(noise, generator=None, records=RECORDS):
    """The tables of a random sample, with normal noise of the given variance."""
    generator = generator or np.random.default_rng(1)
    odor = generator.multinomial(records, SHARES.ravel()).reshape(4, 2).astype(float)
    halves = np.stack([odor.sum(axis=0) // 2, odor.sum(axis=0) - odor.sum(axis=0) // 2])
    exact = {"label": odor.sum(axis=0, keepdims=True), "odor": odor, "width": halves}
    return {name: Table(each + generator.normal(0, noise**0.5, each.shape), noise) for name, each in exact.items()}


def counted(made, **changes):
    return of_tables(SMALL, made, **{"records": RECORDS, "name": "counted", **WORDS, **changes})


def test_intervals_of_foreign_counts_hold_the_truth_nineteen_times_in_twenty():
    """Of 400 intervals that hold it with probability 0.93 fewer than 344 do with probability below 1e-6."""
    generator, held = np.random.default_rng(2), np.zeros(2)
    for _ in range(400):
        made = tables(400.0, generator)
        odor = counted(made).questions[1]
        truth = RECORDS * SHARES[0, 0]
        held += np.array([odor.interval.low[0] <= truth <= odor.interval.high[0], abs(odor.estimate[0] - truth) <= 5])
    assert held[1] < 344 <= held[0]


def test_a_model_of_foreign_counts_says_whose_they_are_and_what_they_rest_on(tmp_path):
    workspace = create_workspace(tmp_path / "work", name="work", now=NOW)
    statistics = counted(tables(400.0), entries={"epsilon_total": "2"})
    document = parse_model(read_envelope(publish_model(workspace, statistics, None, NOW), "model").payload)
    assert {key: document.card[key] for key in WORDS} == WORDS
    assert (document.card["estimator"], document.card["epsilon_total"]) == ("tables of another program", "2")
    assert document.header.name == "counted"
    assert document.statistics_id == statistics.source.statistics_id
    assert foresee(statistics, "floored") is not None
    first, again, other = counted(tables(0.0)), counted(tables(0.0)), counted(tables(0.0, np.random.default_rng(9)))
    assert first.source.statistics_id == again.source.statistics_id != other.source.statistics_id
    assert first.source.origin.id != counted(tables(0.0), trust="somebody").source.origin.id


@pytest.mark.parametrize(
    ("wrong", "changes"),
    [
        ({"odor": ...}, {}),
        ({"more": Table(np.zeros((1, 2)), 1.0)}, {}),
        ({"odor": Table(np.zeros((3, 2)), 1.0)}, {}),
        ({"odor": Table(np.full((4, 2), np.nan), 1.0)}, {}),
        ({"odor": Table(np.full((4, 2), 1e300), 1.0)}, {}),
        ({"odor": Table(np.zeros((4, 2)), -1.0)}, {}),
        ({"odor": Table(np.zeros((4, 2)), float("nan"))}, {}),
        ({}, {"records": 0}),
        ({}, {"trust": " "}),
        ({}, {"threats": ""}),
    ],
)
def test_foreign_counts_that_say_too_little_are_refused(wrong, changes):
    made = {name: table for name, table in {**tables(1.0), **wrong}.items() if table is not ...}
    assert reason_of(InputError, lambda: counted(made, **changes)) == "argument_invalid"
