"""Vectors of a model's own values."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.documents.model import float_array
from protocol.features import Categorical, Numeric
from vectors.makers import PUBLISHER, Collection

GOOD = PUBLISHER.model()
BODY = canonical.unpack(read_envelope(GOOD, "model").payload)


def make(cases: Collection) -> None:
    """All of them."""
    cases.add("good", GOOD, role="model")
    parameters = BODY["parameters"]
    prior, tables = parameters["log_prior"], parameters["log_likelihood"]
    for name, changes in {
        "parameters_absent": {"parameters": None},
        "prior_absent": {"parameters": {"log_likelihood": tables}},
        "prior_of_another_shape": {"parameters": {**parameters, "log_prior": float_array([0, 0, 0], [3])}},
        "prior_claims_another_shape": {"parameters": {**parameters, "log_prior": {**prior, "sh": [3]}}},
        "prior_of_another_type": {"parameters": {**parameters, "log_prior": {**prior, "dt": "<f8"}}},
        "prior_with_a_byte_more": {"parameters": {**parameters, "log_prior": {**prior, "b": prior["b"] + b"\0"}}},
        "prior_with_an_unknown_key": {"parameters": {**parameters, "log_prior": {**prior, "zz": 1}}},
        "prior_not_a_number": {"parameters": {**parameters, "log_prior": float_array([0, nan], [2])}},
        "prior_infinite": {"parameters": {**parameters, "log_prior": float_array([0, -inf], [2])}},
        "a_table_too_few": {"parameters": {**parameters, "log_likelihood": tables[:1]}},
        "a_table_too_many": {"parameters": {**parameters, "log_likelihood": [*tables, tables[0]]}},
        "tables_exchanged": {"parameters": {**parameters, "log_likelihood": tables[::-1]}},
        "statistics_id_of_31_bytes": {"statistics_id": bytes(31)},
        "campaign_is_text": {"campaign": "00" * 32},
        "previous_is_false": {"previous": False},
        "unknown_family": {"family": "gaussian"},
        "unknown_projection": {"projection": {}},
        "card_is_a_list": {"card": []},
        "label_is_a_feature": {"label": {**BODY["label"], "name": "odor"}},
    }.items():
        cases.add(name, _signed({**BODY, **changes}), role="model", reason="invalid_model")
    without = {key: value for key, value in BODY.items() if key != "previous"}
    cases.add("previous_absent", _signed(without), role="model", reason="invalid_model")
    cases.add("previous_is_a_digest", _signed({**BODY, "previous": bytes(32)}), role="model")
    _normal_families(cases)


def _normal_families(cases: Collection) -> None:
    """Models with normal distributions, and with distributions that are cut to [−1, 1]."""
    mean, variance = float_array([-1, 0.5], [2]), float_array([0.25, 0.01], [2])
    table = float_array([-0.5, -1.5, -1, -0.25], [2, 2])
    good = {"log_prior": BODY["parameters"]["log_prior"], "log_likelihood": [None, table]}
    good |= {"mean": [mean, None], "variance": [variance, None]}
    features = [Numeric("width", "0", "10", [0]).to_dict(), Categorical("ring", ["o", "p"], substitute=0).to_dict()]
    body = {**BODY, "features": features, "parameters": good}
    cut = {**body, "family": "truncated-gaussian"}
    cases.add("gaussian", _signed({**body, "family": "gaussian"}), role="model")
    cases.add("truncated_gaussian", _signed(cut), role="model")
    wide = float_array([-1, 1.5], [2])
    cases.add(
        "gaussian_of_any_mean",
        _signed({**body, "family": "gaussian", "parameters": {**good, "mean": [wide, None]}}),
        role="model",
    )
    for name, changes in {
        "truncated_mean_outside": {"mean": [wide, None]},
        "truncated_variance_zero": {"variance": [float_array([0.25, 0], [2]), None]},
        "truncated_table_for_a_number": {"log_likelihood": [table, table]},
        "truncated_mean_of_a_category": {"mean": [mean, mean]},
        "truncated_mean_absent": {"mean": [None, None]},
    }.items():
        wrong = {**cut, "parameters": {**good, **changes}}
        cases.add(name, _signed(wrong), role="model", reason="invalid_model")
    cases.add(
        "truncated_spelled_otherwise", _signed({**cut, "family": "truncated"}), role="model", reason="invalid_model"
    )


def _signed(body: dict[str, Any]) -> bytes:
    return PUBLISHER.sign("model", canonical.pack(body))
