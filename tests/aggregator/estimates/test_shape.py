"""Statistics without reports pass through every later step: tables, JSON, fits, expected accuracy, a signed model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.estimated import summed
from support.publisher import NOW, Publisher
from support.reports import made

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.reports import estimate
from aggregator.models.discrete import fit
from aggregator.models.foresight import foresee
from aggregator.planning.evaluation import accuracy_of, evaluate
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import create_workspace
from aggregator.tally.tally import Tally
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError, PolicyError

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


def test_a_model_of_a_node_s_sums_is_signed_with_the_source_s_own_card(tmp_path):
    workspace = create_workspace(tmp_path / "work", name="w", now=NOW)
    raw = publish_campaign(workspace, Publisher().schema, CampaignParameters("sums", 1_000_000, "direct"), NOW)
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    sums = [np.full(question.size, N / question.size) for question in campaign.questions]
    statistics = summed(campaign, sums, N)
    document = parse_model(read_envelope(publish_model(workspace, statistics, raw, NOW), "model").payload)
    assert document.statistics_id == statistics.statistics_id
    assert (document.card["estimator"], document.card["reports"]) == ("noisy sums", N)
    assert "mechanisms" not in document.card, "what is true of reports alone is not said of sums"


def test_a_model_is_signed_for_the_campaign_of_its_statistics_alone(tmp_path):
    workspace = create_workspace(tmp_path / "work", name="w", now=NOW)
    schema = Publisher().schema
    raws = [
        publish_campaign(workspace, schema, CampaignParameters(name, 1_000_000, "direct"), NOW) for name in ("a", "b")
    ]
    first = parse_campaign(read_envelope(raws[0], "campaign").payload)
    statistics = estimate(first, Tally.zero(first))
    with pytest.raises(PolicyError, match=r"^batch_too_small"):
        publish_model(workspace, statistics, raws[0], NOW)
    with pytest.raises(InputError, match=r"^other_campaign"):
        publish_model(workspace, summed(first, SUMS, N), raws[1], NOW)


def test_an_outcome_without_an_estimator_of_groups_is_refused_by_reason():
    with pytest.raises(InputError, match=r"^mechanism_unknown"):
        accuracy_of(summed(made(), SUMS, N).questions[0])
    with pytest.raises(InputError, match=r"^not_an_evaluation"):
        evaluate(summed(made(), SUMS, N))
