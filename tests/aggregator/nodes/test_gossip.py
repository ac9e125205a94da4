"""Nodes that exchange summaries without an aggregator end where an aggregator does: equal sets, totals and models."""

import shutil
from random import Random

import pytest
from support.node_fleets import keys, summaries_of
from support.node_publishing import round_of
from support.nodes import TERMS, node_campaign
from support.publisher import NOW
from support.reports import opened

from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.nodes.statistics.federation import federated, noise_variances
from aggregator.nodes.statistics.totals import Totals
from aggregator.nodes.store.opening import open_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.operations import models as gathering
from edge_sdk.node.exchanging import exchange, totals
from protocol import SCALE
from protocol.documents.envelope import read_envelope
from protocol.nodes.summary import parse_node_list, read_summary
from protocol.nodes.terms import SMOOTH, released_vectors, shares, variance_of_squares
from protocol.questions import CHANGE_FEATURES, MOMENT, SQUARE

PEERS = 4


def gossip(made, folder, seed):
    """The files of four peers that begin with two summaries each and exchange in a random order until all are equal."""
    random = Random(seed)
    campaign = opened(made.campaign.read_bytes())
    nodes = parse_node_list(read_envelope(made.listed.read_bytes(), "nodes").payload)
    folder.mkdir()
    own = [str(folder / f"{number}.hsn") for number in range(PEERS)]
    for number, path in enumerate(own):
        exchange(campaign, nodes, NOW, path, [str(each) for each in made.summaries[number::PEERS]])
    digests = set()
    while len(digests) != 1:
        for _ in range(PEERS):
            first, second = random.sample(own, 2)
            exchange(campaign, nodes, NOW, first, [second])
        digests = {exchange(campaign, nodes, NOW, path, []).digest for path in own}
    found = exchange(campaign, nodes, NOW, own[0], [])
    (only,) = totals(found.summaries, campaign)
    total = Totals.of(campaign, [read_summary(each.read_bytes())[1] for each in made.summaries]).total()
    assert (only.nodes, only.sums) == (total.nodes, total.numbers)
    return [(folder / f"{number}.hsn").read_bytes() for number in range(PEERS)]


def test_all_at_once_online_and_gossip_make_one_model(tmp_path):
    """The signed model's bytes: from all files at once, one by one, and from any peer's file after any exchanges."""
    made = round_of(tmp_path)
    files = [gossip(made, tmp_path / f"peers {seed}", seed) for seed in range(2)]
    assert len({raw for each in files for raw in each}) == 1
    (tmp_path / "peer.hsn").write_bytes(files[0][0])
    models, exported = set(), set()
    for number, given in enumerate(([*made.summaries], made.summaries[::-1], [tmp_path / "peer.hsn"])):
        work, store = tmp_path / f"work {number}", tmp_path / f"store {number}"
        shutil.copytree(tmp_path / "work", work)
        for part in [given] if number == 0 else [[file] for file in given]:
            gathering.ingest(made.campaign, part, store, nodes=made.listed, now=NOW)
        models.add(gathering.make_model(work, store, now=NOW).raw)
        open_envelope_store(NodeStore, store).export(tmp_path / f"{number}.out")
        exported.add((tmp_path / f"{number}.out").read_bytes())
    assert len(models) == 1
    assert exported == {files[0][0]}, "an aggregator's export is a peer's file"


def test_the_stated_noise_of_smooth_sums_of_squares_is_the_bound():
    campaign = node_campaign(terms=TERMS._replace(sensitivity=SMOOTH), epsilon_micro=8_000_000)
    share, subjects = shares(campaign)[0], released_vectors(campaign)
    variances = noise_variances(campaign, campaign.epsilon_micro)
    summaries = [read_summary(raw)[1] for raw in summaries_of(campaign, keys(3), 50)]
    statistics = federated(campaign, Totals.of(campaign, summaries).total())
    assert statistics.source.card()["adjacency"] == "change-features"
    found = {(one.kind, one.power): variance for one, variance in zip(subjects, variances, strict=True)}
    assert found[MOMENT, SQUARE] == variance_of_squares(share)
    assert found[MOMENT, 1] == pytest.approx(8 * (SCALE * 10**6 / share) ** 2, rel=1e-6), "Δ is 2S"


def test_the_sheet_of_a_campaign_for_smooth_noise_covers_changed_features_alone():
    sheet = node_sheet(node_campaign(terms=TERMS._replace(sensitivity=SMOOTH)))
    assert sheet.booked_micro == {CHANGE_FEATURES: 1_000_000}
    assert sheet.holds
    assert sheet.vectors[0].losses == {CHANGE_FEATURES: 0}, "neighbours never differ in the class counts"
    assert sheet.vectors[0].deviation > 0
