"""The family ``truncated-gaussian``: densities that integrate to 1, the same on the device and at the aggregator."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from support.publisher import NOW, Publisher

from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.scoring import Model
from edge_sdk.classifier import Classifier
from protocol.documents.model import GaussianModel, Normal, build_payload, log_mass, parse_model
from protocol.errors import DocumentError, InputError
from protocol.features import Numeric
from protocol.schema import Label, build_schema

SCHEMA = build_schema(Label("y", ["a", "b"]), [Numeric("x", "0", "10", [0], substitute=0)])


def document(mean, variance, *, is_truncated=True):
    term = Normal(mean, variance)
    prior = (math.log(0.5),) * 2
    common = (Publisher().header("m"), bytes(32), SCHEMA, prior, (term,), bytes(32), None, {})
    return GaussianModel(*common, is_truncated=is_truncated)


@pytest.mark.parametrize("mean", [-1.0, -0.3, 0.0, 0.999, 1.0])
@pytest.mark.parametrize("variance", [1e-12, 0.01, 1.0, 1e6, 3e38])
def test_the_density_integrates_to_one(mean, variance):
    points = np.unique(np.concatenate([np.linspace(-1, 1, 20001), mean + np.linspace(-8, 8, 20001) * variance**0.5]))
    points = points[np.abs(points) <= 1]
    log_density = (
        -0.5 * math.log(2 * math.pi * variance) - log_mass(mean, variance) - (points - mean) ** 2 / 2 / variance
    )
    assert abs(np.trapezoid(np.exp(log_density), points) - 1) < 1e-4


def test_device_and_aggregator_score_alike_and_unlike_an_uncut_distribution():
    body = document((-0.9, 0.4), (0.5, 0.25))
    cut = parse_model(build_payload(body))
    assert cut.is_truncated
    frame = pd.DataFrame({"x": [0.0, 2.5, 5.0, 9.0, 10.0, None]})
    wide = Model.of(cut).scores(frame)
    device = Classifier(cut, lambda: NOW)
    narrow = [device.scores({"x": None if math.isnan(x) else x}) for x in frame.x]
    assert np.abs(wide - np.array(narrow)).max() < 1e-12
    plain = Model.of(document((-0.9, 0.4), (0.5, 0.25), is_truncated=False)).scores(frame)
    masses = np.array([log_mass(m, v) for m, v in zip(*cut.terms[0], strict=True)])
    assert np.allclose(plain[:5] - wide[:5], masses)
    assert np.allclose(plain[5], wide[5])
    assert to_json(Model.of(cut))["terms"][0]["kind"] == "truncated-normal"


def test_a_mean_outside_is_refused_only_where_the_distribution_is_cut():
    build_payload(document((-1.5, 0.0), (1.0, 1.0), is_truncated=False))
    with pytest.raises(DocumentError, match="invalid_model"):
        build_payload(document((-1.5, 0.0), (1.0, 1.0)))


def test_scikit_learn_has_no_form_for_it():
    pytest.importorskip("sklearn")
    with pytest.raises(InputError, match="not_exportable"):
        to_sklearn(Model.of(document((-0.5, 0.4), (0.5, 0.25))))
