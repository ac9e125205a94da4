"""Mixed fleets: features of devices' reports and features of nodes' sums in one model; one feature of both."""

from dataclasses import replace

import numpy as np
import pytest
from support.asked import SCHEMA, answered, people
from support.cards import check_card
from support.commands import run
from support.node_fleets import keys, list_of, summaries_of_frames
from support.nodes import node_payload
from support.publisher import NOW, Publisher
from support.reports import opened

import aggregator
from aggregator.estimates.joining import join
from aggregator.models.scoring import Model
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.workspace import open_workspace
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope, seal
from protocol.errors import InputError
from protocol.features import Categorical
from protocol.schema import build_schema


@pytest.fixture(scope="module")
def world(tmp_path_factory):
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


def counted(world, *names):
    return [aggregator.count(world[2][name]) for name in names]


def test_a_model_of_devices_and_nodes_has_the_features_of_both(world):
    work, frame, stores = world
    both = join(counted(world, "cap", "some"), one_population=True).statistics
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


def test_one_feature_of_both_is_weighted_by_planned_variance(world):
    local, nodes = counted(world, "all", "whole")
    both, homogeneity = join([local, nodes], one_population=True)
    assert not homogeneity.differs
    for one, a, b in zip(both.questions, local.questions, nodes.questions, strict=True):
        assert one.n == a.n + b.n
        weight = (1 / a.planned_variance) / (1 / a.planned_variance + 1 / b.planned_variance)
        share = weight * a.estimate / a.n + (1 - weight) * b.estimate / b.n
        np.testing.assert_allclose(one.estimate / one.n, share, rtol=1e-6, atol=1e-9)


def test_moments_of_devices_and_nodes_are_joined_number_by_number(world):
    local, nodes = counted(world, "numbers", "sums")
    both = join([local, nodes], one_population=True).statistics
    moments = [one for one in both.questions if one.subject.kind == "moment"]
    assert {(one.subject.size, one.subject.of_class is not None) for one in moments} == {(1, True)}
    assert len(moments) == 4
    for one in moments:
        assert float(one.high[0]) > float(one.low[0])
    whole = aggregator.make_model(world[0], [world[2]["numbers"], world[2]["sums"]], one_population=True, now=NOW)
    assert Model.of(whole.document).accuracy(world[1]) > 0.8


def test_nodes_state_a_part_of_the_schema_and_devices_all_of_it(world):
    local, some, whole = counted(world, "cap", "some", "whole")
    with pytest.raises(InputError, match="population_undeclared"):
        join([local, some])
    assert len(join([whole, some], one_population=True).statistics.schema.features) == 3
    other = build_schema(SCHEMA.label, [Categorical("cap", ["x", "z"])])
    changed = some.source.campaign._replace(stated=other)
    foreign = replace(some, sources=(replace(some.source, campaign=changed),))
    with pytest.raises(InputError, match="schema_differs"):
        join([local, foreign], one_population=True)


def test_both_kinds_of_store_on_the_command_line(world, tmp_path):
    work, _, stores = world
    both = ("--store", stores["cap"], "--store", stores["some"], "--one-population")
    assert "homogeneity of 2 sources" in run("estimate", *both).stdout
    run("publish", *both, "--workspace", work, "-o", tmp_path / "m.hsm")
    run("publish", *both, "--workspace", work, "-o", tmp_path / "r.hsm", "--robust", "trimmed-mean:0.1")
    assert "robust_invalid" in run("estimate", "--store", stores["cap"], "--robust", "median", status=1).stderr
