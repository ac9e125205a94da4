"""Joined features: tables of combinations, from the device's record to the class that both sides predict."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from support.estimated import answered
from support.failures import failure, reason_of
from support.publisher import NOW

import aggregator
from aggregator.estimates.joining import join, of_features
from aggregator.models.comparison import compare
from aggregator.models.encoding import MISSING, observe, recognise
from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.scoring import Model, model_of
from aggregator.planning.feature_selection.codings import Way
from aggregator.planning.feature_selection.forward_selection import Candidate, best_of
from aggregator.planning.feature_selection.from_pilot import as_json, design
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import AskedFeature, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.models import check_parted, expanded
from aggregator.publishing.schemas.schema_file import SchemaFile, parse_schema_text
from aggregator.publishing.workspace import create_workspace
from edge_sdk.classifier import Classifier
from protocol.documents.asked import groupings, plain, with_joins, without_members
from protocol.documents.campaign import parse_campaign
from protocol.documents.model import DiscreteModel, build_payload, parse_model
from protocol.documents.payload import Header
from protocol.errors import InputError
from protocol.features import Categorical, Joined, Numeric
from protocol.schema import Label, build_schema

LABEL = Label("label", ["e", "p"])
SCHEMA = build_schema(
    LABEL,
    [
        Categorical("odor", ["a", "n", "f"], unlisted="other"),
        Numeric("width", "0", "10", [0], substitute=None),
        Categorical("cap", ["x", "y"], substitute=0),
    ],
)
RECORDS = [
    dict(zip(("odor", "width", "cap"), values, strict=True))
    for values in product(["a", "n", "f", None, "zz"], [1, 9, None, "?"], ["x", "y", None, "zz"])
]


def test_codes_of_combinations_are_distinct_and_those_partly_known_match_what_is_known():
    joined = Joined(SCHEMA.features)
    whole = list(product(*(range(feature.size) for feature in SCHEMA.features)))
    assert [joined.code(codes) for codes in whole] == list(range(joined.size))
    assert (
        joined.labels()[1::7] == [" × ".join(names) for names in product(*(f.labels() for f in SCHEMA.features))][1::7]
    )
    partly = list(product(*((None, *range(feature.size)) for feature in SCHEMA.features)))
    codes = [joined.code(each) for each in partly]
    assert codes[0] is None
    assert len(set(codes)) == len(codes)
    for known, code in zip(partly[1:], codes[1:], strict=True):
        agreeing = [each for each in whole if all(a in (None, b) for a, b in zip(known, each, strict=True))]
        assert joined.matching(code) == [joined.code(each) for each in agreeing]


@pytest.mark.parametrize("joins", [[(0, 1)], [(0, 2)], [(0, 1, 2)], [(0, 1), (0, 2), (1, 2)]])
@pytest.mark.parametrize("groups", [(), ((0, 1, 1, 0, 2), None, None)])
def test_frames_and_devices_have_the_same_codes_and_scores(joins, groups):
    """All records; the terms of partly known records are sums over the table, the same to the last bit."""
    asked = with_joins(SCHEMA._replace(groups=groups), joins)
    frame = pd.DataFrame(RECORDS, dtype=object)
    assert [asked.observe(record).codes for record in RECORDS] == list(map(tuple, observe(frame, asked).codes.tolist()))
    known = [tuple(MISSING if each is None else each[0] for each in asked.recognise(record)) for record in RECORDS]
    assert known == list(map(tuple, recognise(frame, asked).codes.tolist()))
    if len(joins) > 1:
        return
    read = without_members(with_joins(SCHEMA, joins))
    rng = np.random.default_rng(5)
    tables = [np.log(rng.dirichlet(np.ones(feature.size), 2).T) for feature in read.observed]
    document = parse_model(model_payload(read, tables))
    scores = [Classifier(document, lambda: NOW).scores(record) for record in RECORDS]
    assert scores == Model.of(document).scores(frame).tolist()


def model_payload(schema, tables):
    likelihood = tuple(tuple(map(tuple, each.tolist())) for each in tables)
    header = Header("m", 1, NOW, NOW, NOW + 10**6)
    return build_payload(DiscreteModel(header, bytes(32), schema, (-0.5, -1.0), likelihood, bytes(32), None, {}))


def campaign(ask, name="c", schema=SCHEMA):
    parameters = CampaignParameters(
        name, 4_000_000, "direct", class_question=False, ask=dict.fromkeys(ask, AskedFeature())
    )
    return parse_campaign(build_campaign(schema, parameters, 1, NOW))


XOR = build_schema(LABEL, [Categorical(name, ["0", "1"], substitute=0) for name in "abc"])


def exclusive(rng, count):
    """Records whose class is whether a and b differ, with one error in twenty; c tells nothing."""
    a, b, c = rng.integers(0, 2, (3, count))
    label = (a ^ b) ^ (rng.random(count) < 0.05)
    return pd.DataFrame({"a": a, "b": b, "c": c, "label": np.array(["e", "p"])[label]})


def statistics_of(made, records, rng):
    """Estimates of a campaign on :data:`XOR` from 20,000 answers per question."""
    codes = observe(records, made.schema).codes
    labels = (records["label"] == "p").to_numpy(np.int64)

    def shares(question):
        cells = codes[:, question.feature] * 2 + labels
        return np.bincount(cells, minlength=question.size) / len(cells)

    return answered(made, 20_000, shares, rng)


def test_a_joint_table_tells_what_single_features_do_not_and_stores_of_both_kinds_add_up():
    rng = np.random.default_rng(3)
    records, test = exclusive(rng, 20_000), exclusive(rng, 2_000)
    alone, pairs = campaign(["a", "b", "c"], "alone", XOR), campaign(["b × a", "b × c", "c"], "pairs", XOR)
    assert [feature.name for feature in pairs.schema.observed] == ["c", "a × b", "b × c"]
    whole = join([statistics_of(each, records, rng) for each in (alone, pairs)], one_population=True).statistics
    assert [feature.name for feature in whole.schema.observed] == ["a", "b", "c", "a × b", "b × c"]
    counted = {name: sum(one.n for one in whole.questions if one.subject.feature == place) for place, name in
               enumerate(["a", "b", "c", "a × b", "b × c"])}  # fmt: skip
    assert counted == {"a": 20_000, "b": 20_000, "c": 40_000, "a × b": 20_000, "b × c": 20_000}
    error = failure(check_parted, whole.schema)
    assert (error.reason, "'a' was asked" in error.detail) == ("not_fittable", True)
    assert reason_of(InputError, check_parted, of_features(whole, ["a × b", "b × c"]).schema) == "not_fittable"
    right = {}
    for names in (["a", "b", "c"], ["a × b", "c"]):
        chosen = of_features(whole, names)
        check_parted(chosen.schema)
        model = model_of(chosen, "posterior")
        right[len(names)] = model.accuracy(test)
    assert right[3] < 0.6 < 0.93 < right[2]
    assert {row.parameter for row in compare(model, model, chosen, chosen)} >= {"P(a × b=0 × 1 | label=e)"}
    assert [term.get("joins") for term in to_json(model)["terms"]] == [None, ["a", "b"]]
    assert reason_of(InputError, to_sklearn, model) == "not_exportable"
    unlike = model_of(of_features(whole, ["a × b"]), "posterior"), model_of(of_features(whole, ["a", "b"]), "posterior")
    assert reason_of(InputError, compare, *unlike) == "schemas_differ"


def test_a_model_of_groups_has_all_combinations_and_divides_a_groups_probability_equally():
    asked = resolve(SCHEMA, {"odor × cap": AskedFeature(), "odor": AskedFeature((("a", "n"),), share=0)}).schema
    [groups] = groupings(asked)
    assert groups == (0, 1, 0, 1, 2, 3, 2, 3, 2, 3)
    table = np.log(np.array([[0.4, 0.1], [0.2, 0.2], [0.3, 0.3], [0.1, 0.4]]))
    whole = np.exp(expanded(table, groups))
    assert np.allclose(whole.sum(axis=0), 1)
    assert np.allclose(whole[[0, 2]], 0.5 * np.exp(table[0]))
    assert plain(asked).parts == ((0,), (1,))
    again = resolve(asked, {})
    assert (again.schema, sorted(again.shares)) == (asked, [2])


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (["odor × odr"], "near: 'odor'"),
        (["odor × odor"], "two to 3 of the features"),
        (["odor × cap", "cap × odor"], "named twice"),
        (["a × b × c × d"], "two to 3 of the features"),
        ({"odor": AskedFeature(share=0)}, "in no join"),
        ({"odor × cap": AskedFeature(share=0)}, "in no join"),
        ({"odor × cap": AskedFeature((("a",),))}, "groups and bins of its members"),
    ],
)
def test_joins_that_can_not_be_asked_about(ask, says):
    four = build_schema(LABEL, [Categorical(name, ["0", "1"]) for name in "abcd"])
    schema = four if "a × b × c × d" in ask else SCHEMA
    error = failure(resolve, schema, ask if isinstance(ask, dict) else dict.fromkeys(ask, AskedFeature()))
    assert (error.reason, says in error.detail) == ("ask_invalid", True)


def test_campaigns_that_join_nothing_say_so(tmp_path):
    work = create_workspace(tmp_path / "w", name="w", now=NOW)
    wanted = {"epsilon": 1, "name": "c", "now": NOW, "ask": ["odor × cap", "width"]}
    for terms in ({"family": "gaussian", "mechanism": "bit"}, {"family": "gaussian", "mechanism": "auto"}):
        assert reason_of(InputError, aggregator.make_campaign, work, SCHEMA, **wanted, **terms) == "ask_invalid"
    made = aggregator.make_campaign(work, SCHEMA, **wanted, mechanism="auto", family="auto").campaign
    assert made.fit.family == "discrete"
    read = without_members(with_joins(SCHEMA, [(0, 2)]))
    tables = [np.zeros((feature.size, 2)) for feature in read.observed]
    model = work.publish("model", "m", NOW, lambda _version, _before: model_payload(read, tables))
    assert aggregator.make_evaluation(work, model, epsilon=1, now=NOW).campaign.schema.joins == ()
    terms = wanted | {"nodes": "clinics", "max_records": 9, "family": "discrete"}
    assert reason_of(InputError, aggregator.make_node_campaign, work, SCHEMA, **terms) == "ask_invalid"


def test_a_pilot_chooses_a_join_and_its_schema_file_asks_so():
    """Each of 200 records: class = a xor b but for one in twenty. The join is right about 95 % of them, others 50 %."""
    pilot = exclusive(np.random.default_rng(7), 200)
    made = design(pilot, SchemaFile("x", XOR), 1_000_000, 200_000, seed=1, judge=False)
    assert {name for name in made.file.ask if "×" in name} == {"a × b"}
    assert made.best.accuracy > 0.85
    again = parse_schema_text(schema_text(made.file))
    assert resolve(again.schema, again.ask).schema.parts[-1] == (0, 1)
    assert [each["joins"] for each in as_json(made)["path"] if each["chosen"]] == [[["a", "b"]]]


@pytest.mark.parametrize(("won", "lost", "is_joined"), [(16, 20, 0), (16, 16, 0), (18, 16, 0), (20, 16, 1), (30, 0, 1)])
def test_a_join_is_chosen_if_it_is_clearly_better_than_all_sets_without(won, lost, is_joined):
    """Of 100 records it is right about ``won`` more and ``lost`` fewer: the limit is half an error, about 3 records."""
    alone = Candidate((Way(0), Way(1)), np.repeat([1.0, 0.0], [60, 40]))
    right = np.repeat([0.0, 1.0, 1.0, 0.0], [lost, 60 - lost, won, 40 - won])
    joined = Candidate(alone.ways, right, ((0, 1),))
    assert (best_of([alone, joined]) is joined) == bool(is_joined)
