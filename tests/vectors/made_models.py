"""Vectors of a model's own values."""

from functools import partial
from math import inf, nan

from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.documents.model import float_array
from protocol.features import Categorical, Numeric
from vectors.makers import PUBLISHER, Collection, changed, packed

INVALID = "invalid_model"
GOOD = PUBLISHER.model()
BODY = canonical.unpack(read_envelope(GOOD, "model").payload)


def _add(cases, name, body, *, reason=None, **changes):
    cases.add(name, PUBLISHER.sign("model", packed(body, **changes)), role="model", reason=reason)


cases = Collection()
cases.add("good", GOOD, role="model")
add = partial(_add, cases)
parameters = BODY["parameters"]
prior, tables = parameters["log_prior"], parameters["log_likelihood"]
add("parameters_absent", BODY, parameters=None, reason=INVALID)
for name, changes in {
    "prior_absent": {"log_prior": ...},
    "prior_of_another_shape": {"log_prior": float_array([0, 0, 0], [3])},
    "prior_claims_another_shape": {"log_prior": {**prior, "sh": [3]}},
    "prior_of_another_type": {"log_prior": {**prior, "dt": "<f8"}},
    "prior_with_a_byte_more": {"log_prior": {**prior, "b": prior["b"] + b"\0"}},
    "prior_with_an_unknown_key": {"log_prior": {**prior, "zz": 1}},
    "prior_not_a_number": {"log_prior": float_array([0, nan], [2])},
    "prior_infinite": {"log_prior": float_array([0, -inf], [2])},
    "a_table_too_few": {"log_likelihood": tables[:1]},
    "a_table_too_many": {"log_likelihood": [*tables, tables[0]]},
    "tables_exchanged": {"log_likelihood": tables[::-1]},
}.items():
    add(name, BODY, parameters=changed(parameters, **changes), reason=INVALID)
for name, changes in {
    "statistics_id_of_31_bytes": {"statistics_id": bytes(31)},
    "campaign_is_text": {"campaign": "00" * 32},
    "previous_is_false": {"previous": False},
    "unknown_family": {"family": "gaussian"},
    "unknown_projection": {"projection": {}},
    "card_is_a_list": {"card": []},
    "label_is_a_feature": {"label": {**BODY["label"], "name": "odor"}},
    "previous_absent": {"previous": ...},
}.items():
    add(name, BODY, reason=INVALID, **changes)
add("previous_is_a_digest", BODY, previous=bytes(32))

of_two = changed(parameters, log_likelihood=[float_array([-2.0] * 16, [8, 2])])
joins = {"joins": [[0, 1]], "crit": ["joins"], "parameters": of_two}
add("a_join", BODY, **joins)
for name, changes in {
    "a_join_without_its_table": {"parameters": parameters},
    "joins_without_crit": {"crit": []},
    "crit_without_joins": {"joins": ...},
    "a_join_in_another_order": {"joins": [[1, 0]]},
    "a_join_in_a_gaussian_model": {"family": "gaussian"},
}.items():
    add(name, BODY, reason=INVALID, **{**joins, **changes})
third = [*BODY["features"], {**BODY["features"][0], "name": "cap"}]
twice = changed(parameters, log_likelihood=[float_array([-2.0] * 16, [8, 2])] * 2)
add("a_feature_in_two_joins", BODY, reason=INVALID, **{**joins, "joins": [[0, 1], [1, 2]], "features": third,
                                                       "parameters": twice})  # fmt: skip

mean, variance = float_array([-1, 0.5], [2]), float_array([0.25, 0.01], [2])
table = float_array([-0.5, -1.5, -1, -0.25], [2, 2])
good = {"log_prior": BODY["parameters"]["log_prior"], "log_likelihood": [None, table]}
good |= {"mean": [mean, None], "variance": [variance, None]}
features = [Numeric("width", "0", "10", [0]).to_dict(), Categorical("ring", ["o", "p"], substitute=0).to_dict()]
body = {**BODY, "features": features, "parameters": good}
wide = [float_array([-1, 1.5], [2]), None]
cut = "truncated-gaussian"
add("gaussian", body, family="gaussian")
add("truncated_gaussian", body, family=cut)
add("gaussian_of_any_mean", body, family="gaussian", parameters={**good, "mean": wide})
for name, changes in {
    "truncated_mean_outside": {"mean": wide},
    "truncated_variance_zero": {"variance": [float_array([0.25, 0], [2]), None]},
    "truncated_table_for_a_number": {"log_likelihood": [table, table]},
    "truncated_mean_of_a_category": {"mean": [mean, mean]},
    "truncated_mean_absent": {"mean": [None, None]},
}.items():
    add(name, body, family=cut, parameters={**good, **changes}, reason=INVALID)
add("truncated_spelled_otherwise", body, family="truncated", reason=INVALID)
