"""Vectors of the whole way of a record: codes, numbers, inputs and report bytes, and the class that a model predicts.

What must come out is computed by ``records_from_text.py``, which shares no code with the project. The codes in
:data:`RECORDS` are written by hand.
"""

from hashlib import sha256

from support.publisher import DAY, NOW, Publisher

from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol import SCALE, canonical, mechanisms
from protocol.documents import campaign, model
from protocol.documents.asked import with_joins, without_members
from protocol.documents.campaign import WHOLE, Series
from protocol.documents.memory_terms import Memory
from protocol.documents.payload import Header
from protocol.features import Categorical, Numeric
from protocol.questions import build_questions, discrete_subjects
from protocol.schema import Component, Label, Projection, build_schema
from vectors import records_from_text
from vectors.makers import Collection

LABEL = Label("state", ["low", "mid", "high"], 1, "missing")
FEATURES = [
    Categorical("odor", ["a", "n", "", "true"], "other", None),
    Categorical("count", ["3", "4", "3.0"], "missing", 1),
    Numeric("width", "0", "10", [-20_000, 0, 30_000], "missing", None),
    Numeric("heat", "-5.5", "1e2", [0], "missing", 1000),
]
SCHEMA = build_schema(LABEL, FEATURES)
STRICT = build_schema(
    LABEL, [Categorical("odor", ["a", "n"], "refuse", None), Numeric("width", "0", "10", [0], "refuse", None)]
)
PROJECTION = Projection(
    [1, 2],
    [[3, -2], [-70_000, 65_536]],
    [1001, -5],
    17,
    [Component("one", -4, 3, [-1, 1], has_missing=True), Component("two", -SCALE, SCALE, [0, 9], has_missing=True)],
)
PROJECTED = build_schema(LABEL, [FEATURES[0], FEATURES[2], FEATURES[3]], PROJECTION)
HALF = "5.00003814697265625"
"""Of a width from 0 to 10: u is exactly ½."""
RECORDS = {
    "all_listed": ({"odor": "n", "count": "4", "width": 2.5, "heat": 99}, "high", [1, 1, 0, 1]),
    "nothing_but_a_label": ({}, "low", [4, 1, 4, 1]),
    "nothing_at_all": ({"unheard_of": 1}, None, [4, 1, 4, 1]),
    "nulls_and_an_empty_text": ({"odor": None, "count": "", "width": "", "heat": None}, "", [4, 1, 4, 1]),
    "an_empty_text_that_is_listed": ({"odor": "", "width": 10}, "mid", [2, 1, 3, 1]),
    "unlisted_values": ({"odor": "z", "count": "5", "width": " 3", "heat": "+5"}, "unheard of", [5, 1, 4, 1]),
    "values_of_no_kind": ({"odor": ["a"], "count": {"3": 1}, "width": [5], "heat": {}}, "high", [5, 1, 4, 1]),
    "booleans": ({"odor": True, "count": False, "width": True, "heat": False}, "low", [3, 1, 4, 1]),
    "whole_numbers_as_categories": ({"odor": 1, "count": 3.0, "width": 0, "heat": -5.5}, "low", [5, 0, 0, 0]),
    "a_text_of_a_whole_number_with_a_point": ({"count": "3.0", "width": "3.0", "heat": "1e1"}, "low", [4, 2, 0, 0]),
    "numbers_beyond_the_bounds": ({"odor": "a", "count": 4, "width": -1e300, "heat": 10**30}, "high", [0, 1, 0, 1]),
    "a_number_on_an_edge": ({"odor": "a", "count": 4, "width": "5", "heat": 47.25}, "mid", [0, 1, 2, 1]),
    "a_tie_that_goes_down": ({"width": HALF, "heat": 0}, "mid", [4, 1, 2, 0]),
    "a_tie_that_goes_up": ({"width": "5.00011444091796875", "heat": 0.1}, "mid", [4, 1, 2, 0]),
}
"""Record, label, and by hand the codes under :data:`SCHEMA`: odor, count, width, heat."""
GAUSSIAN = (("bit", None), ("bits", None), ("piecewise", None), ("hybrid", None), ("laplace", 1), ("laplace", 3),
            ("duchi", None))  # fmt: skip


def _bytes(*about):
    return sha256("/".join(map(str, about)).encode()).digest()


def _reports(cases, name, payload, *, models=(), secrets=(), some=None):
    body = canonical.unpack(payload)
    drawn = body["answers"] + ("memory" in body)
    for place, (record_name, (record, label, codes)) in enumerate(RECORDS.items()):
        if some is not None and place >= some and place % 4:
            continue
        secret = secrets[place % len(secrets)] if secrets else _bytes(name, record_name)
        period = (NOW // DAY) + place
        seeds = [_bytes(name, record_name, index) for index in range(drawn)]
        inputs = {"campaign": cases.keep(f"campaign.{name}", payload)}
        inputs["models"] = [cases.keep(f"model.{_bytes(each).hex()[:8]}", each) for each in models]
        inputs |= {"secret": secret.hex(), "period": period, "seeds": [seed.hex() for seed in seeds]}
        inputs |= {"record": record, "label": label}
        try:
            found = records_from_text.answers(payload, secret, period, seeds, record, label, list(models))
        except records_from_text.RefusedError as refused:
            inputs["reason"] = str(refused)
        else:
            if canonical.unpack(payload)["features"] == [each.to_dict() for each in FEATURES] and name not in (
                "groups",
                "joins",
            ):
                assert found["codes"] == codes, record_name
            inputs["expect"] = found
        cases.case(f"{name}_{record_name}", "reports_of_record", spec="formats 5", **inputs)


def _class(cases, name, payload, record):
    ranked = sorted(records_from_text.scores(payload, record), reverse=True)
    assert ranked[0] - ranked[1] > 1e-3, f"{name}: two readers may differ"
    data = cases.keep(f"model.{_bytes(payload).hex()[:8]}", payload)
    found = records_from_text.classified(payload, record)
    cases.case(name, "class_of_record", spec="formats 5", model=data, record=record, expect=found)


def _campaign(schema, mechanism, answers, **more):
    parameters = CampaignParameters("records", answers * 1_500_000, mechanism, answers, postprocess="simplex", **more)
    return build_campaign(schema, parameters, 1, NOW)


def _gaussian(schema, mechanism, approach):
    return _campaign(schema, mechanism, 3, family="gaussian", approach=approach)


def _grouped():
    body = canonical.unpack(_campaign(SCHEMA, "direct", 5))
    body |= {"groups": [{"feature": 0, "group_of": [0, 1, 1, 0, 2, 1]}], "crit": ["groups"]}
    stated = mechanisms.from_micro("direct", 1_500_000, 9).to_dict()
    body["questions"] = [
        {**each, "size": 9, "mechanism": stated} if each.get("feature") == 0 and each["kind"] == "cell" else each
        for each in body["questions"]
    ]
    return canonical.pack(body)


def _joined():
    joins = with_joins(SCHEMA._replace(groups=((0, 1, 1, 0, 2, 1), None, None, None)), [(0, 2), (1, 2, 3)])
    subjects = [one for one in discrete_subjects(joins) if one.feature in (None, 0, 4, 5)]
    questions = build_questions(subjects, 2, lambda one: mechanisms.from_micro("oue", 750_000, one.size))
    return campaign.build_payload(
        Header("joined", 1, NOW, NOW, NOW + 30 * DAY), joins, questions, epsilon_micro=1_500_000, purpose="p",
        contact="c", time_precision=DAY, min_batch_size=1, fit=campaign.Fit("discrete", "posterior"),
    )  # fmt: skip


def _numbers(about, count, least, most):
    drawn = b"".join(_bytes(about, block) for block in range(-(-count // 32)))[:count]
    return tuple(round((least + (most - least) * byte / 255) * 64) / 64 for byte in drawn)


def _table(about, size):
    return tuple(_numbers(f"{about}/{code}", 3, -6, -0.25) for code in range(size))


def _document(name, schema):
    return {
        "header": Header(name, 1, NOW, NOW, NOW + 30 * DAY), "campaign": bytes(32), "schema": schema,
        "log_prior": _numbers(name, 3, -2, -0.5), "statistics_id": bytes(32), "previous": None,
        "card": {"note": "made up for a test"},
    }  # fmt: skip


def _tables(schema):
    likelihood = tuple(_table(f"tables/{place}", feature.size) for place, feature in enumerate(schema.observed))
    return model.build_payload(model.DiscreteModel(log_likelihood=likelihood, **_document("tables", schema)))


def _normal(schema, *, is_truncated=False):
    name = "cut" if is_truncated else "normal"
    terms = tuple(
        model.Normal(_numbers(f"{name}/{place}/mean", 3, -1, 1), _numbers(f"{name}/{place}/variance", 3, 0.125, 2))
        if place in schema.numeric
        else _table(f"{name}/{place}", feature.size)
        for place, feature in enumerate(schema.observed)
    )
    document = model.GaussianModel(terms=terms, is_truncated=is_truncated, **_document(name, schema))
    return model.build_payload(document)


cases = Collection()
for mechanism, answers in (("direct", 5), ("oue", 2), ("sue", 1), ("the", 3), ("she", 1)):
    _reports(cases, f"{mechanism}_{answers}_of_5", _campaign(SCHEMA, mechanism, answers))
_reports(cases, "projected", _campaign(PROJECTED, "direct", 4))
for mechanism, approach in GAUSSIAN:
    name = f"{mechanism}{'' if approach is None else approach}"
    _reports(cases, f"gaussian_{name}", _gaussian(SCHEMA, mechanism, approach), some=4)
    _reports(cases, f"gaussian_projected_{name}", _gaussian(PROJECTED, mechanism, approach), some=3)
_reports(cases, "groups", _grouped())
_reports(cases, "joins", _joined())
_reports(cases, "refused", _campaign(STRICT, "direct", 3))

secret = bytes(range(0x20, 0x40))
for name, low, high in (("in_its_share", 3 * WHOLE // 4, WHOLE), ("in_another_share", 0, WHOLE // 4)):
    payload = Publisher(schema=SCHEMA).campaign_payload(series=Series("pilot", NOW, low, high))
    _reports(cases, f"series_{name}", payload, secrets=(secret,), some=1)
for mechanism in ("direct", "oue"):
    payload = Publisher(schema=SCHEMA).campaign_payload(mechanism=mechanism, memory=Memory(2, 17, 500_000))
    _reports(cases, f"memory_{mechanism}", payload, some=5)
models = {"tables": _tables(SCHEMA), "normal": _normal(SCHEMA), "cut": _normal(SCHEMA, is_truncated=True)}

publisher = Publisher(schema=SCHEMA)
tables = publisher.sign("model", models["tables"])
_reports(cases, "outcome", publisher.evaluation_payload(tables), models=(models["tables"],))
each = {name: publisher.sign("model", payload) for name, payload in models.items()}
compared = publisher.comparison_payload(each)
named = {sha256(payload).digest(): payload for payload in models.values()}
order = tuple(named[digest] for digest in canonical.unpack(compared)["models"])
_reports(cases, "right", compared, models=order)
for name, payload in {
    **models,
    "of_components": _tables(PROJECTED),
    "of_joins": _tables(without_members(with_joins(SCHEMA, [(0, 2), (1, 3)]))),
    "of_one_join": _tables(without_members(with_joins(SCHEMA, [(0, 1, 3)]))),
    "normal_of_components": _normal(PROJECTED),
}.items():
    for record_name, (record, _label, _codes) in RECORDS.items():
        _class(cases, f"class_by_{name}_of_{record_name}", payload, record)
