"""Statistics of several campaigns on one schema: what adds up, what is refused, and the model of all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from support.asked import SCHEMA, answered, people
from support.cards import check_card
from support.commands import run
from support.failures import reason, refusal
from support.node_fleets import keys, list_of, summaries_of_frames
from support.nodes import node_payload
from support.publisher import NOW, Publisher
from support.reports import opened
from support.shared import COLLECTOR_KEYS, PAIR

import aggregator
from aggregator.collectors.campaigns import make_shared_campaign
from aggregator.collectors.total import Total, sign_total
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.joining import join
from aggregator.estimates.reports import estimate
from aggregator.estimates.source import joined_card
from aggregator.estimates.statistics import JOINED_ID
from aggregator.models.encoding import EncodedFrame, label_codes, observe
from aggregator.models.scoring import Model
from aggregator.operations.models import open_any
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import draw, inputs_of
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import open_workspace
from aggregator.reports.tally.tally import Tally
from edge_sdk import Device
from protocol.documents.campaign import DISCRETE, GAUSSIAN, parse_campaign
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope, seal
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from simulation.drawn import collected

GROUPS = AskedFeature(groups=(("a", "l"), ("n",)))
OTHERS = AskedFeature(groups=(("a",), ("l", "n")))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Three stores: cap and odor in groups; odor in the same groups and width; everything, odor value by value."""
    folder = tmp_path_factory.mktemp("several")
    work = folder / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(4000)
    asks = {"one": {"cap": AskedFeature(), "odor": GROUPS}, "two": {"odor": GROUPS, "width": AskedFeature()}, "all": {}}
    halves = {"one": frame.iloc[:2000], "two": frame.iloc[2000:], "all": frame.iloc[:500]}
    stores = {
        name: answered(work, folder, halves[name], name=name, seed=seed, ask=ask)
        for seed, (name, ask) in enumerate(asks.items())
    }
    other = SCHEMA._replace(label=Label("label", ["e", "p"], substitute=1))
    stores["other"] = answered(work, folder, frame.iloc[:100], name="other", schema=other)
    for name in ("first", "second"):
        half = halves["one" if name == "first" else "two"]
        stores[name] = answered(work, folder, half, name=name, ask=asks["one"], series="s")
    return work, frame, stores


def counted(world, *names):
    return [aggregator.count(world[2][name]) for name in names]


def test_answers_to_one_question_add_up_and_the_classes_have_all_answers(world):
    one, two = counted(world, "one", "two")
    both = join([one, two], one_population=True, disjoint=True).statistics
    assert [feature.name for feature in both.schema.features] == ["cap", "odor", "width"]
    assert both.schema.groups == ((None, (0, 0, 1, 2, 2), None))
    n, of_one, of_two = (
        {found.subject.feature: found.n for found in statistics.questions} for statistics in (both, one, two)
    )
    assert n == {None: of_one[None] + of_two[None], 0: of_one[0], 1: of_one[1] + of_two[0], 2: of_two[1]}
    assert both.reports == 4000
    odor, *parts = (_about(statistics, place) for statistics, place in ((both, 1), (one, 1), (two, 0)))
    assert np.allclose(odor.estimate, parts[0].estimate + parts[1].estimate)
    assert np.array_equal(_about(both, 0).estimate, _about(one, 0).estimate)
    alone, pooled = class_shares(one), class_shares(both)
    assert len([vote for found in both.questions for vote in found.classes]) == 6
    assert (pooled.variance < 0.65 * alone.variance).all()
    assert np.allclose(pooled.share, (world[1].label.value_counts(normalize=True))[["e", "p"]], atol=0.05)  # 4 sd
    card = joined_card([part.sources[0] for part in (one, two)])
    assert (card["epsilon_total"], card["mechanisms"], card["unproven"]) == ("4", ["direct"], 0)


def _about(statistics, feature):
    return next(found for found in statistics.questions if found.subject.feature == feature)


def test_one_series_needs_no_declaration(world):
    parts = counted(world, "first", "second")
    found, declared = (join(parts, **told).statistics for told in ({}, {"one_population": True, "disjoint": True}))
    for question, same in zip(found.questions, declared.questions, strict=True):
        assert question.scatter == same.scatter
    for names in (("one", "two"), ("one", "first")):
        assert refusal(join, counted(world, *names)) == "population_undeclared"
    assert refusal(join, []) == "argument_invalid"
    for other, why in (("all", "groups_differ"), ("other", "schema_differs"), ("one", "source_repeated")):
        assert refusal(join, counted(world, "one", other), one_population=True) == why


def test_joined_statistics_are_joined_again(world):
    one, two, first = counted(world, "one", "two", "first")
    twice = join([join([one, two], one_population=True).statistics, first], one_population=True).statistics
    once = join([one, two, first], one_population=True).statistics
    assert twice.statistics_id == once.statistics_id
    for left, right in zip(twice.questions, once.questions, strict=True):
        assert left.subject == right.subject
        assert np.allclose(left.estimate, right.estimate)


def test_the_model_of_several_stores(world):
    work, frame, stores = world
    model = aggregator.make_model(work, [stores["one"], stores["two"]], one_population=True, name="both", now=NOW)
    document, card = model.document, model.document.card
    assert [feature.name for feature in document.schema.features] == ["cap", "odor", "width"]
    campaigns = [aggregator.open_store(stores[name]).campaign for name in ("one", "two")]
    assert document.campaign == max(campaign.id for campaign in campaigns)  # both were issued at one time
    assert card["campaigns"] == [f"{one.header.name}@1 {one.id.hex()}" for one in campaigns]
    assert card["reports"] == 4000
    ids = sorted(statistics.statistics_id for statistics in counted(world, "one", "two"))
    assert document.statistics_id == sha256(JOINED_ID + b"".join(ids)).digest()
    assert model.model.accuracy(frame) > 0.85
    with Device.open(None, trust=aggregator.open_workspace(work).root_bytes, clock=lambda: NOW) as device:
        installed = device.install(model.raw)
        record = frame.iloc[0].to_dict()
        assert installed.predict(record) == model.model.predict(frame.head(1))[0]


def test_every_campaign_must_be_this_workspaces(world, tmp_path):
    work, _, stores = world
    kept = [aggregator.open_store(stores[name]) for name in ("one", "two")]
    both = join(counted(world, "one", "two"), one_population=True).statistics
    for files in ([kept[0].campaign_bytes], [kept[0].campaign_bytes] * 2, kept[0].campaign_bytes):
        assert refusal(publish_model, aggregator.open_workspace(work), both, files, NOW) == "other_campaign"


def test_the_commands(world, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    work, _, stores = world
    several = ("--store", stores["one"], "--store", stores["two"])
    made = run("publish", *several, "--one-population", "--workspace", work, "--name", "m", "-o", tmp_path / "m.hsm",
               "--json")  # fmt: skip
    assert json.loads(made.stdout)["reports"] == 4000
    assert json.loads(made.stdout)["homogeneity"]["differs"] is False
    shown = run("estimate", *several, "--one-population").output
    assert "of them for 'one', version 1" in shown
    assert "homogeneity of 2 sources" in shown
    found = json.loads(run("estimate", *several, "--one-population", "--json").stdout)
    assert found["reports"] == 4000
    assert len(found["sources"]) == 2
    refused = run("publish", *several, "--workspace", work, "-o", tmp_path / "n.hsm", status=1)
    assert refused.stderr.startswith("population_undeclared")
    series = ("--store", stores["first"], "--store", stores["second"])
    run("publish", *series, "--workspace", work, "--name", "n", "-o", tmp_path / "n.hsm")
    run("publish", "--store", stores["one"], "--one-population", "--workspace", work, "-o", tmp_path / "o", status=2)
    for command in (("estimate",), ("evaluate", "show")):
        run(*command, "--store", stores["one"], "--one-population", status=2)
        run(*command, "--store", stores["one"], "--disjoint", status=2)
        assert "Missing option '--store'" in run(*command, status=2).stderr


def test_a_series_of_real_devices_through_files(tmp_path, monkeypatch):
    """Two campaigns of one series ask halves of a fleet about different features: each device answers one of them, and
    the model is of all answers."""
    monkeypatch.setattr("time.time", lambda: NOW)
    work, frame = tmp_path / "work", people(60)
    aggregator.create_workspace(work, name="w", now=NOW)
    root = aggregator.open_workspace(work).root_bytes
    terms = {"epsilon": 4, "mechanism": "direct", "series": "s", "now": NOW}
    first = aggregator.make_campaign(work, SCHEMA, name="first", share="0:1/2", ask="cap,odor", **terms)
    second = aggregator.make_campaign(work, SCHEMA, name="second", share="1/2:1", ask="odor,width", **terms)
    answers = []
    for number, record in enumerate(frame.to_dict("records")):
        with Device.open(None, trust=root, clock=lambda: NOW) as device:
            said = [reason(device.report, device.enrol(made.raw).id, record) for made in (first, second)]
            assert said in ([None, "series_answered"], ["series_not_member", None])
            answers.append(said.index(None))
            assert device.drain(tmp_path / f"{number}.hsr") == 1
    files = [[tmp_path / f"{device}.hsr" for device, own in enumerate(answers) if own == half] for half in (0, 1)]
    for made, own in zip((first, second), files, strict=True):
        aggregator.ingest(made.raw, own, tmp_path / made.campaign.header.name, workspace=work, now=NOW)
    run("publish", "--store", tmp_path / "first", "--store", tmp_path / "second", "--workspace", work, "-o",
        tmp_path / "m.hsm")  # fmt: skip
    shown = json.loads(run("show", tmp_path / "m.hsm", "--json").stdout)["payload"]
    assert shown["card"]["reports"] == 60
    assert [feature["name"] for feature in shown["features"]] == ["cap", "odor", "width"]
    assert len(shown["card"]["campaigns"]) == 2


def answers_of(campaign, encoded, labels, rows, generator):
    """Statistics of one answer of each of the people with the indices ``rows``, without files."""
    asked = generator.permutation(len(rows)) % len(campaign.questions)
    counts = []
    for place, question in enumerate(campaign.questions):
        mine = rows[asked == place]
        chosen = EncodedFrame(encoded.codes[mine], encoded.numbers[mine])
        inputs = inputs_of(campaign.schema, question.subject, chosen, labels[mine], labels[mine])
        drawn = draw(question.mechanism, inputs, generator)
        counts.append(tuple(np.bincount(drawn, minlength=question.size).tolist()))
    tally = Tally(campaign.id, tuple(int((asked == place).sum()) for place in range(len(counts))), tuple(counts))
    return estimate(campaign, tally)


@pytest.mark.slow
def test_numbers_of_campaigns_that_ask_about_different_features_are_as_uncertain_as_stated():
    """200 pairs of campaigns about different features: the mean square of (estimate − truth)/sd is 1.

    It is 1 ± 0.45 with a false-alarm rate of 1e-5 for each of two numbers (normal deviates: the standard deviation is
    √(2/200) = 0.1). With variances of half the size it would be 2.
    """
    generator = np.random.default_rng(8)
    parameters = CampaignParameters("c", 2_000_000, "direct")
    campaigns = [
        parse_campaign(build_campaign(SCHEMA, parameters._replace(name=name, ask=ask), 1, NOW))
        for name, ask in (
            ("one", {"cap": AskedFeature(), "odor": GROUPS}),
            ("two", {"odor": GROUPS, "width": AskedFeature()}),
        )
    ]
    frame = people(20_000)
    labels = label_codes(frame, SCHEMA.label)
    encoded = [observe(frame, campaign.schema) for campaign in campaigns]
    edible = labels == 0
    truth = edible.mean(), (edible & frame.odor.isin(["a", "l"]).to_numpy()).mean()
    squares = []
    for _ in range(200):
        rows = generator.integers(0, len(frame), 1200)
        parts = [
            answers_of(campaign, codes, labels, half, generator)
            for campaign, codes, half in zip(campaigns, encoded, (rows[:500], rows[500:]), strict=True)
        ]
        both = join(parts, one_population=True, disjoint=True).statistics
        shares, odor = class_shares(both), _about(both, 1)
        squares.append(
            [
                (shares.share[0] - truth[0]) ** 2 / shares.variance[0],
                (odor.estimate[0] / odor.n - truth[1]) ** 2 / (odor.variance[0] / odor.n**2),
            ]
        )
    found = np.mean(squares, axis=0)
    assert (np.abs(found - 1) < 0.45).all(), found
    assert (np.abs(2 * found - 1) > 0.45).all(), "half the variances would be seen"


# Mixed fleets: features of devices' reports and features of nodes' sums in one model; one feature of both


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Devices that answered about cap, others about everything; nodes with odor and width, others with everything."""
    folder = tmp_path_factory.mktemp("mixed")
    work = folder / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(6000)
    stores = {
        "cap": answered(work, folder, frame.iloc[:2000], name="cap", ask={"cap": AskedFeature()}),
        "all": answered(work, folder, frame.iloc[2000:3000], name="all"),
        "numbers": answered(work, folder, frame.iloc[2000:3000], name="numbers", family="gaussian", mechanism="hybrid"),
    }
    part = build_schema(SCHEMA.label, SCHEMA.features[1:])
    for name, schema, family in (("some", part, DISCRETE), ("whole", SCHEMA, DISCRETE), ("sums", SCHEMA, GAUSSIAN)):
        stores[name] = of_nodes(work, folder, frame.iloc[3000:], schema, family, name)
    made = make_shared_campaign(work, SCHEMA, name="totals", pair=PAIR, epsilon=4, min_batch_size=1, now=NOW)
    labels, period = label_codes(frame, SCHEMA.label), made.campaign.period_at(NOW)
    drawn = collected(made.campaign, observe(frame, SCHEMA), labels, period, np.random.default_rng(2))
    total = Total(made.campaign.id, period, len(frame), drawn.numbers, {})
    (folder / "t.hsz").write_bytes(sign_total(total, COLLECTOR_KEYS[0]))
    aggregator.ingest(made.raw, folder / "t.hsz", folder / "totals", workspace=work, now=NOW)
    stores["totals"] = folder / "totals"
    return work, frame, stores


def of_nodes(work, folder, frame, schema, family, name):
    publisher = Publisher(schema=schema)
    signer = open_workspace(work)
    raw = signer.publish("campaign", name, NOW, lambda *_: node_payload(publisher, family, name=name))
    campaign = opened(raw)
    holders = dict(zip(keys(10), np.array_split(np.arange(len(frame)), 10), strict=True))
    content = summaries_of_frames(campaign, {key: frame.iloc[rows] for key, rows in holders.items()})
    (folder / f"{name}.hsn").write_bytes(b"".join(content))
    signers = [each.open(signer.passphrase) for each in signer.signing_keys("campaign")]
    listed = seal(PAYLOAD_TYPES["nodes"], read_envelope(list_of(publisher, list(holders)), "nodes").payload, signers)
    aggregator.ingest(raw, folder / f"{name}.hsn", folder / name, nodes=listed, now=NOW)
    return folder / name


def test_a_model_of_devices_and_nodes_has_the_features_of_both(mixed):
    work, frame, stores = mixed
    both = join(counted(mixed, "cap", "some"), one_population=True).statistics
    assert [feature.name for feature in both.schema.features] == ["cap", "odor", "width"]
    assert {found.subject.feature: found.n > 2500 for found in both.questions} == {
        None: True,
        0: False,
        1: True,
        2: True,
    }
    signed = aggregator.make_model(work, [stores["cap"], stores["some"]], one_population=True, now=NOW)
    card = signed.document.card
    assert (card["nodes"], len(card["campaigns"]), len(card["costs"])) == (10, 2, 2)
    check_card(signed, "local; federated")
    assert Model.of(signed.document).accuracy(frame) > 0.8
    assert "mechanisms" in card


@pytest.mark.parametrize("kind", ["all", "whole", "totals"])
def test_counts_of_records_join_sources_of_every_kind(mixed, kind):
    work, frame, stores = mixed
    campaign = open_any(stores[kind]).campaign
    signer, table = open_workspace(work), frame.iloc[:200].astype(object).where(frame.notna(), "?").astype(str)
    made = aggregator.count_records(signer, table, campaign, name=f"counts of {kind}", consent="they agreed", now=NOW)
    joined = aggregator.make_model(work, stores[kind], counts=[made.raw], one_population=True, now=NOW)
    assert "no sign of different populations" in joined.document.card["homogeneity"]
    assert Model.of(joined.document).accuracy(frame) > 0.8


@pytest.mark.parametrize("kinds", [("all", "whole"), ("all", "totals"), ("all", "whole", "totals")])
def test_one_feature_of_all_is_weighted_by_planned_variance(mixed, kinds):
    """Reports of devices, sums of nodes and totals of two collectors: the weights of decision 53, exactly."""
    parts = counted(mixed, *kinds)
    both, homogeneity = join(parts, one_population=True, postprocess="posterior")
    assert not homogeneity.differs
    for one in both.questions:
        about = [each for part in parts for each in part.questions if each.subject == one.subject]
        assert len(about) == len(kinds) - (one.subject.feature is None and "totals" in kinds)
        assert one.n == sum(each.n for each in about)
        weights = [1 / each.planned_variance for each in about]
        share = sum(w * each.estimate / each.n for w, each in zip(weights, about, strict=True)) / sum(weights)
        np.testing.assert_allclose(one.estimate / one.n, share, rtol=1e-6, atol=1e-9)
        noise = sum((w / each.n) ** 2 * each.noise_variance for w, each in zip(weights, about, strict=True))
        if len(about) > 1:
            np.testing.assert_allclose(one.noise_variance / one.n**2, noise / sum(weights) ** 2, rtol=0.2)


def test_a_model_of_all_three_says_so(mixed):
    signed = aggregator.make_model(
        mixed[0], [mixed[2][kind] for kind in ("cap", "some", "totals")], one_population=True, now=NOW
    )
    check_card(signed, "local; federated; shared")
    assert Model.of(signed.document).accuracy(mixed[1]) > 0.8


def test_moments_of_devices_and_nodes_are_joined_number_by_number(mixed):
    local, nodes = counted(mixed, "numbers", "sums")
    both = join([local, nodes], one_population=True).statistics
    moments = [one for one in both.questions if one.subject.kind == "moment"]
    assert {(one.subject.size, one.subject.of_class is not None) for one in moments} == {(1, True)}
    assert len(moments) == 4
    for one in moments:
        assert float(one.high[0]) > float(one.low[0])
    whole = aggregator.make_model(mixed[0], [mixed[2]["numbers"], mixed[2]["sums"]], one_population=True, now=NOW)
    assert Model.of(whole.document).accuracy(mixed[1]) > 0.8


def test_nodes_state_a_part_of_the_schema_and_devices_all_of_it(mixed):
    local, some, whole = counted(mixed, "cap", "some", "whole")
    assert refusal(join, [local, some]) == "population_undeclared"
    assert len(join([whole, some], one_population=True).statistics.schema.features) == 3
    other = build_schema(SCHEMA.label, [Categorical("cap", ["x", "z"])])
    changed = some.source.campaign._replace(stated=other)
    foreign = replace(some, sources=(replace(some.source, campaign=changed),))
    assert refusal(join, [local, foreign], one_population=True) == "schema_differs"


def test_both_kinds_of_store_on_the_command_line(mixed, tmp_path):
    work, _, stores = mixed
    both = ("--store", stores["cap"], "--store", stores["some"], "--one-population")
    assert "homogeneity of 2 sources" in run("estimate", *both).stdout
    run("publish", *both, "--workspace", work, "-o", tmp_path / "m.hsm")
    run("publish", *both, "--workspace", work, "-o", tmp_path / "r.hsm", "--robust", "trimmed-mean:0.1")
    assert "robust_invalid" in run("estimate", "--store", stores["cap"], "--robust", "median", status=1).stderr
