"""From files of summaries to a signed model: in Python and on the command line."""

import json
import shutil
from random import Random

import numpy as np
import pytest
from support.cards import check_card
from support.commands import run as run_command
from support.failures import refusal
from support.node_fleets import MEANS, ODOR, PRIOR, keys, list_of, summaries_of
from support.node_publishing import round_of
from support.nodes import TERMS, node_campaign
from support.publisher import NOW, Publisher
from support.reports import opened

from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.nodes.statistics.federation import federated, noise_variances
from aggregator.nodes.statistics.totals import Totals
from aggregator.nodes.store.opening import open_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.operations import models as gathering
from edge_sdk.node.exchanging import exchange, totals
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.documents.envelope import keyid, read_envelope
from protocol.errors import DocumentError, InputError, PolicyError
from protocol.nodes.summary import parse_node_list, read_summary
from protocol.nodes.terms import SMOOTH, released_vectors, shares, variance_of_squares
from protocol.questions import CHANGE_FEATURES, MOMENT, SQUARE


def taken(made, folder, files=None, **options):
    gathering.ingest(
        made.campaign,
        files or folder / "inbox",
        folder / "store",
        workspace=made.workspace,
        nodes=made.listed,
        now=NOW,
        **options,
    )
    return folder / "store"


@pytest.mark.parametrize("family", [DISCRETE, GAUSSIAN])
def test_a_model_of_the_nodes_records_is_signed(tmp_path, family):
    made = round_of(tmp_path, family=family, epsilon_micro=4_000_000)
    store = taken(made, tmp_path)
    statistics = gathering.count(store)
    source = statistics.source
    assert (source.nodes, source.summaries, source.batch) == (8, 8, 8)
    assert source.reports == pytest.approx(4000, abs=200)
    signed = gathering.make_model(made.workspace, store, now=NOW)
    card = signed.document.card
    check_card(signed, "federated")
    assert (card["trust"], card["nodes"], card["summaries"], card["epsilon_total"]) == ("federated", 8, 8, "4")
    assert np.exp(signed.document.log_prior) == pytest.approx(PRIOR, abs=0.05)
    terms = signed.document.terms if family == GAUSSIAN else signed.document.log_likelihood
    assert np.exp(np.array(terms[0])) == pytest.approx(ODOR, abs=0.06)
    if family == GAUSSIAN:
        assert terms[1].mean == pytest.approx(MEANS, abs=0.06)
    frame = statistics.frame()
    assert (frame["low"] <= frame["estimate"]).sum() >= frame["low"].notna().sum()


def test_the_smallest_batch_counts_nodes(tmp_path):
    made = round_of(tmp_path, min_batch_size=8)
    store = taken(made, tmp_path, made.summaries[:7])
    with pytest.raises(PolicyError, match="batch_too_small: usable nodes so far: 7"):
        gathering.make_model(made.workspace, store, now=NOW)
    taken(made, tmp_path)
    gathering.make_model(made.workspace, store, now=NOW)
    with pytest.raises(PolicyError, match="batch_too_small: usable nodes so far: 1"):
        gathering.make_model(made.workspace, store, now=NOW, robust="krum:1")


def run(*arguments, status=0):
    found = run_command(*arguments, status=status)
    return found.stderr if status else found.stdout


@pytest.fixture
def at_now(monkeypatch):
    monkeypatch.setattr("time.time", lambda: float(NOW))


@pytest.mark.usefixtures("at_now")
def test_status_names_the_node_that_states_another_epsilon(tmp_path):
    made = round_of(tmp_path)
    liar, name = made.nodes[3], keyid(made.nodes[3].public).hex()
    made.summaries[3].write_bytes(summaries_of(made.document, [liar], epsilon_micro=999_999)[0])
    store = taken(made, tmp_path)
    shown = run("status", "--store", store)
    assert f"of them with ε = 0.999999 for one record more or less  1: {name}\n" in shown
    assert "of them with ε = 1 for one record more or less         7\n" in shown
    found = json.loads(run("status", "--store", store, "--json"))["epsilon_nodes"]
    assert (found["0.999999"], len(found["1"])) == ([name], 7)
    assert "left out by the rule  1\n" in run("estimate", "--store", store, "--robust", "median")
    assert json.loads(run("estimate", "--store", store, "--robust", "median", "--json"))["robust_left_out"] == 1


@pytest.mark.usefixtures("at_now")
def test_the_commands_of_a_store_of_summaries(tmp_path):
    made = round_of(tmp_path)
    store, work = tmp_path / "store", tmp_path / "work"
    trust = work / "root.hst"
    (tmp_path / "inbox" / "junk.hsn").write_bytes(b"no summary")
    ingest = ("ingest", made.campaign, tmp_path / "inbox", "--store", store)
    assert "nodes_unknown" in run(*ingest, status=1)
    found = json.loads(run(*ingest, "--nodes", made.listed, "--trust", trust, "--json"))
    assert (found["accepted"], found["rejected"]) == (8, {"invalid_message": 1})
    assert "summaries repeated" in run(*ingest)
    shown = json.loads(run("status", "--store", store, "--json"))
    assert (shown["listed"], shown["nodes"], shown["periods"][0]["missing"]) == (8, 8, [])
    assert "smallest batch" in run("status", "--store", store)
    assert json.loads(run("estimate", "--store", store, "--json"))["nodes"] == 8
    assert "set aside: invalid_message" in run("estimate", "--store", store)
    assert run("estimate", "--store", store, "--csv").startswith("question,")
    run("publish", "--store", store, "--workspace", work, "-o", tmp_path / "m.hsm")
    run("publish", "--store", store, "--workspace", work, "-o", tmp_path / "r.hsm", "--robust", "median")
    run("export", "--store", store, "--format", "hsn", "-o", tmp_path / "all.hsn")
    assert json.loads(run(*ingest[:2], tmp_path / "all.hsn", *ingest[3:], "--json"))["replayed"] == 8
    listed = json.loads(run("quarantine", "ls", "--store", store, "--json"))
    assert [(one["reason"], one["offset"]) for one in listed["kept"]] == [("invalid_message", 0)]
    assert "junk.hsn" in run("quarantine", "ls", "--store", store)
    assert "junk.hsn" in run("quarantine", "ls", "--store", store, "--pieces")


@pytest.mark.usefixtures("at_now")
def test_commands_for_reports_refuse_a_store_of_summaries(tmp_path):
    made = round_of(tmp_path, nodes=2)
    store = taken(made, tmp_path)
    for command in (
        ("forget", "--before", "1"),
        ("quarantine", "retry"),
        ("quarantine", "rm", "--all"),
        ("quarantine", "show", "x"),
        ("refine", "--devices", "5", "--epsilon", "1", "-o", tmp_path / "x.toml"),
    ):
        assert "nodes" in run(*command, "--store", store, status=1), command
    run("export", "--store", store, "--format", "csv", "-o", tmp_path / "x.csv", status=2)
    run("status", "--store", store, "--interval", "0.1", status=2)
    run("ingest", made.campaign, tmp_path / "inbox", "--store", store, "--buckets", "2", status=2)


def test_the_list_of_nodes_needs_the_signature_of_the_trust_root(tmp_path):
    made = round_of(tmp_path, nodes=2)
    (tmp_path / "foreign.hsl").write_bytes(list_of(Publisher(), keys(2)))
    for options in ({"workspace": made.workspace}, {"trust": tmp_path / "work" / "root.hst"}):
        given = {**options, "nodes": tmp_path / "foreign.hsl", "now": NOW}
        assert refusal(gathering.ingest, made.campaign, made.summaries, tmp_path / "s", **given) == "bad_signature"
        assert not (tmp_path / "s").exists()


@pytest.mark.usefixtures("at_now")
def test_a_model_of_nodes_on_a_foreign_list_is_not_signed(tmp_path):
    """``ingest`` without --trust takes any list. So publishing checks it: the list decides who counts."""
    made = round_of(tmp_path)
    foreign, stores = tmp_path / "foreign.hsl", (tmp_path / "s", tmp_path / "t")
    foreign.write_bytes(list_of(Publisher(), made.nodes))
    note = run_command("ingest", made.campaign, tmp_path / "inbox", "--nodes", foreign, "--store", stores[0]).stderr
    assert "the list that says which nodes count, were not checked" in note
    run("ingest", made.campaign, tmp_path / "inbox", "--nodes", made.listed, "--store", stores[1])
    for rule in (None, "median"):
        with pytest.raises(DocumentError, match="bad_signature") as refused:
            gathering.make_model(made.workspace, stores[0], now=NOW, robust=rule)
        assert "list of nodes" in refused.value.detail
    output = ("--workspace", tmp_path / "work", "-o", tmp_path / "m.hsm")
    assert "bad_signature" in run("publish", "--store", stores[0], *output, status=1)
    assert not (tmp_path / "m.hsm").exists()
    assert gathering.make_model(made.workspace, stores[1], now=NOW).document.card["nodes"] == len(made.nodes)


def test_robust_rules_are_for_summaries(tmp_path):
    made = round_of(tmp_path)
    store = taken(made, tmp_path)
    plain = gathering.count(store)
    for rule in ("trimmed-mean:0.2", "median"):
        found = gathering.count(store, robust=rule)
        assert found.reports == pytest.approx(plain.reports, rel=0.1)
        assert found.statistics_id != plain.statistics_id
        assert "times those of plain addition" in found.source.card()["robust_loss"]
    assert gathering.count(store, robust="krum:2").source.nodes == 1
    for rule, reason in (("mean", "robust_invalid"), ("trimmed-mean:0.5", "robust_invalid"),
                         ("krum:3", "nodes_too_few"), ("trimmed-mean:0.1", "nodes_too_few")):  # fmt: skip
        with pytest.raises((InputError, PolicyError), match=reason):
            gathering.count(store, robust=rule)


# Nodes that exchange summaries without an aggregator end where an aggregator does


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


@pytest.mark.slow
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
