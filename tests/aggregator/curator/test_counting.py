"""Counts of a pilot's records: what is signed, what a lying file does, and the model of pilot and fleet together."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.asked import SCHEMA, answered, people
from support.commands import run
from support.failures import reason, refusal
from support.publisher import NOW

import aggregator
from aggregator.curator.budget import BudgetFile, record_bytes
from aggregator.curator.counting import Counted, count_records, open_counts
from aggregator.estimates.conditional import conditionals
from aggregator.models.population import Population, check_pilot
from aggregator.models.scoring import model_of
from aggregator.operations.models import counts_of, together
from aggregator.planning.power_analysis.rehearsal import with_pilot
from aggregator.publishing.workspace import open_workspace
from protocol import canonical
from protocol.documents.counts import ROLE, build_counts, parse_counts
from protocol.documents.envelope import PAYLOAD_TYPES, read_envelope, seal
from protocol.schema import Label

CONSENT = "the people of the spring pilot"


def text_of(frame):
    return frame.astype(object).where(frame.notna(), "?").astype(str)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A workspace, a store of 3000 people's answers, its campaign, and the records of 200 others."""
    folder = tmp_path_factory.mktemp("counted")
    work = folder / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(3200)
    store = answered(work, folder, frame.iloc[:3000], name="c", seed=1)
    campaign = aggregator.open_store(store).campaign
    return open_workspace(work), store, campaign, text_of(frame.iloc[3000:])


def counted(world, rows=slice(None), **options):
    work, _, campaign, table = world
    given = {"consent": CONSENT, "now": NOW, **options}
    return count_records(work, table.iloc[rows], campaign, **given)


def test_exact_counts_are_joined_and_the_card_says_whose_they_are(world):
    work, store, campaign, table = world
    made = counted(world, name="spring")
    alone = open_counts(made.raw, [campaign], NOW, workspace=work)
    classes = [int((table.label == name).sum()) for name in ("e", "p")]
    assert list(alone.questions[0].estimate) == classes == list(made.counts.vectors[0])
    assert all(question.n == 200 and not question.noise_variance.any() for question in alone.questions)
    own = aggregator.count(store)
    joined = together([own, alone], one_population=True, disjoint=True).statistics
    asked = {question.subject: question for question in own.questions}
    for question in joined.questions:
        if question.subject in asked:
            assert (
                question.variance / question.n**2 < (asked[question.subject].variance / asked[question.subject].n ** 2)
            ).all()
    model = aggregator.make_model(work, store, counts=[made.raw], one_population=True, now=NOW)
    card = model.document.card
    assert card["records"] == [f"'spring', version 1: 200 records, counted exactly, by consent: {CONSENT}"]
    assert "no sign of different populations" in card["homogeneity"]
    assert (card["reports"], card["trust"]) == (3200, "local; pilot")
    for name, bits in card["influence_noise"].items():  # each source's noise is drawn, and not its answers
        assert float(bits) < max(0.05, float(card["influence"][name]) / 2)
    assert refusal(aggregator.make_model, work, store, counts=[made.raw], now=NOW) == "population_undeclared"


def test_a_plan_joins_a_pilot_as_publish_does(world):
    work, store, campaign, table = world
    own, alone = aggregator.count(store), open_counts(counted(world).raw, [campaign], NOW, workspace=work)
    joined = together([own, alone], one_population=True).statistics
    records = Population.of_frame(check_pilot(table, campaign.schema), campaign.schema)
    planned = with_pilot(own, campaign, records, np.ones(200, np.int64))
    for one, other in zip(*(model_of(each, "posterior").terms for each in (joined, planned)), strict=True):
        np.testing.assert_allclose(one, other)


def test_a_share_of_trust_is_a_smaller_number_of_records(world):
    work, store, campaign, _ = world
    raw = counted(world, name="half").raw
    half, whole = (open_counts(raw, [campaign], NOW, workspace=work, weight=weight) for weight in (0.5, 1.0))
    for one, all_ in zip(half.questions, whole.questions, strict=True):
        assert one.n == 100
        assert np.allclose(one.estimate / one.n, all_.estimate / all_.n)
        assert np.allclose(one.variance / one.n**2, 2 * all_.variance / all_.n**2)
    found = [together([aggregator.count(store), each], one_population=True, disjoint=True) for each in (half, whole)]
    widths = [
        np.concatenate(
            [
                each.population.high - each.population.low
                for each in conditionals(one.statistics.questions, one.statistics.schema)
            ]
        )
        for one in found
    ]
    assert (widths[0] > widths[1]).all()
    assert found[0].homogeneity.chance == found[1].homogeneity.chance
    assert "share of trust 0.5" in half.source.card()["records"][0]
    known = {
        open_counts(raw, [campaign], NOW, workspace=work, weight=one).source.statistics_id for one in (1, 1.0, True)
    }
    assert len(known) == 1
    for weight in (0, 1.5, float("nan")):
        assert refusal(open_counts, raw, [campaign], NOW, workspace=work, weight=weight) == "argument_invalid"


def test_counts_that_can_not_be_are_refused(world):
    work, _, campaign, _ = world
    made = counted(world, name="lie")
    true = made.counts
    first, second, *rest = true.vectors
    moved = (second[0] + 1, *second[1:])
    swapped = (second[1], second[0], *second[2:])
    lies = [
        {"records": true.records + 1},
        {"vectors": (first, moved, *rest)},
        {"vectors": (first, swapped, *rest)},
        {"vectors": (first, (-1, second[0] + second[2] + 1, 0, *second[3:]), *rest)},
        {"vectors": true.vectors[:-1]},
        {"vectors": (*true.vectors, first)},
        {"crit": []},
        {"noise": ...},
    ]
    for lie in lies:
        assert refusal(open_counts, sealed(work, made, **lie), [campaign], NOW, workspace=work) == "counts_invalid", lie
    other = sealed(work, made, campaign=bytes(32))
    assert refusal(open_counts, other, [campaign], NOW, workspace=work) == "other_campaign"
    good = made.raw
    assert refusal(open_counts, good, [campaign], NOW + 400 * 86400, workspace=work) == "expired"
    assert refusal(open_counts, good, [campaign], NOW - 1, workspace=work) == "not_yet_valid"
    assert refusal(open_counts, good, [campaign], NOW) == "argument_invalid"
    foreign = seal(PAYLOAD_TYPES[ROLE], b"no msgpack", [each.open(None) for each in work.signing_keys("campaign")])
    assert refusal(open_counts, foreign, [campaign], NOW, trust=work.root_bytes) == "bad_signature"
    for change in ({"consent": ""}, {"people": b""}, {"records": 0}, {"vectors": ((1, 2.0),)}):
        assert refusal(build_counts, true._replace(**change)) in ("counts_invalid", "not_canonical")


def test_nobody_is_counted_twice(world):
    work, store, campaign, table = world
    files = [counted(world, name=name, rows=rows).raw for name, rows in (("a", slice(0, 100)), ("b", slice(100, 200)))]
    again = table.iloc[list(range(99, -1, -1))].assign(serial="1")  # the same people in another order, with a column
    same = count_records(work, again, campaign, consent=CONSENT, name="c", now=NOW).raw
    own = aggregator.count(store)

    def joined(*given):
        parts = [open_counts(each, [campaign], NOW, workspace=work) for each in given]
        return together([own, *parts], one_population=True).statistics

    assert joined(*files).reports == 3200
    for again in (files[0], same):
        assert refusal(joined, *files[:1], again) == "source_repeated"
    raws = [aggregator.open_store(store).campaign_bytes]
    [alone] = counts_of(files[:1], raws, workspace=work, now=NOW)
    disjoint = together([own, alone], one_population=True, disjoint=True).statistics
    for apart, may_overlap in zip(disjoint.questions, joined(files[0]).questions, strict=True):
        assert apart.scatter <= may_overlap.scatter + 1e-9
    newer = counted(world, name="a", rows=slice(100, 160)).raw
    assert refusal(joined, files[0]) == "rollback"  # who withdrew after version 1 is not in version 2
    both = [open_counts(each, [campaign], NOW, trust=work.root_bytes) for each in (files[0], newer)]
    assert refusal(together, [own, *both], one_population=True) == "source_repeated"


def test_what_is_not_counted_is_said_and_what_is_not_allowed_refused(world):
    work, _, campaign, table = world
    assert reason(lambda: counted(world, consent="")) == "consent_missing"
    assert reason(lambda: counted(world, consent="a\nb")) == "consent_missing"
    assert reason(lambda: counted(world, rows=slice(0, 29))) == "pilot_too_small"
    assert reason(lambda: count_records(work, table.drop(columns="label"), campaign, consent="x")) == "label_missing"
    assert (
        refusal(count_records, work, table, campaign._replace(questions=(), answers=0, epsilon_micro=0))
        == "not_fittable"
    )
    strange = table.copy()
    strange.iloc[0, strange.columns.get_loc("odor")] = "no such value"
    strange.iloc[1] = strange.iloc[2]
    made = count_records(work, strange, campaign, consent=CONSENT, name="strange", now=NOW)
    plain = counted(world, name="plain")
    assert made.substituted + made.left_out > plain.substituted + plain.left_out
    assert made.repeats > 0


@pytest.mark.parametrize("adjacency", ["change", "add-remove"])
def test_noisy_counts_are_paid_and_need_no_consent(world, tmp_path, adjacency):
    work, store, campaign, table = world
    with BudgetFile.create(tmp_path / "b.hsb", name="ward", epsilon_micro=1_000_000, adjacency=adjacency) as budget:
        assert (
            reason(lambda: count_records(work, table, campaign, epsilon_micro=500_000, budget=budget)) == "data_unknown"
        )
        budget.assign(budget.digest(record_bytes(table)))
        made = count_records(
            work, table, campaign, epsilon_micro=500_000, budget=budget, name=f"n {adjacency}", now=NOW
        )
        assert budget.remaining().epsilon_micro == 500_000
        given = {"epsilon_micro": 500_000, "budget": budget}
        assert reason(lambda: counted(world, **given)) == "consent_missing"
    found = open_counts(made.raw, [campaign], NOW, workspace=work)
    assert isinstance(found.source, Counted)
    half = open_counts(made.raw, [campaign], NOW, workspace=work, weight=0.5)
    assert [question.stated_n for question in half.questions] == [made.counts.records // 2] * len(half.questions)
    assert all((question.noise_variance > 0).all() for question in found.questions)
    joined = together([aggregator.count(store), found], one_population=True).statistics
    card = joined.sources[1].card()
    assert "ε = 0.5" in card["records"][0]
    assert card["trust"] == "central"
    lie = replace(found.source, content=made.counts)
    assert lie.statistics_id == found.statistics_id
    first, second, *rest = made.counts.vectors
    lies = [
        {"vectors": ((10**9, *first[1:]), second, *rest)},
        {"vectors": (first, (-5000, *second[1:]), *rest)},
        {"records": made.counts.records + 5000 if adjacency == "add-remove" else 0},
        {"noise": made.counts.noise._replace(division="mine")},
        {"noise": made.counts.noise._replace(adjacency="none")},
    ]
    for lie in lies:
        assert refusal(open_counts, sealed(work, made, **lie), [campaign], NOW, workspace=work) == "counts_invalid", lie


def test_noisy_counts_tell_nothing_of_the_records_without_noise(world, tmp_path):
    """Records of one budget have one digest, whatever they are; and none is left out, since that would be told."""
    work, _, _, table = world
    schema = SCHEMA._replace(label=Label("label", ["e", "p"], unlisted="refuse"))
    campaign = aggregator.make_campaign(work, schema, name="strict", epsilon=4, mechanism="direct", now=NOW).campaign
    refused = table.copy()
    refused.iloc[0, refused.columns.get_loc("label")] = "no such class"
    with BudgetFile.create(tmp_path / "b.hsb", name="ward", epsilon_micro=2_000_000, adjacency="change") as budget:
        for each in (table, table.iloc[1:], refused):
            budget.assign(budget.digest(record_bytes(each)))
        paid = {"epsilon_micro": 500_000, "budget": budget, "now": NOW}
        assert reason(lambda: count_records(work, refused, campaign, **paid)) == "value_refused"
        assert budget.remaining().epsilon_micro == 2_000_000
        one, other = (count_records(work, each, campaign, **paid).counts for each in (table, table.iloc[1:]))
    assert one.people == other.people


def sealed(work, made, **changes):
    """The counts with other content, encoded without a check, signed by the workspace's own key."""
    body = canonical.unpack(read_envelope(made.raw, ROLE).payload)
    body |= {key: value._asdict() if key == "noise" else value for key, value in changes.items() if value is not ...}
    body = {key: value for key, value in body.items() if changes.get(key) is not ...}
    body["vectors"] = list(map(list, body["vectors"]))
    keys = [each.open(None) for each in work.signing_keys("model")]
    return seal(PAYLOAD_TYPES[ROLE], canonical.pack(body), keys)


def test_the_commands(world, tmp_path):
    work, store, _, table = world
    table.to_csv(tmp_path / "pilot.csv", index=False)
    out = tmp_path / "p.hsu"
    options = ["--campaign", "c", "--workspace", work.path, "-o", out, "--name", "shown"]
    run("count", tmp_path / "pilot.csv", *options, status=1)
    assert (
        json.loads(run("count", tmp_path / "pilot.csv", *options, "--consent", CONSENT, "--json").stdout)["records"]
        == 200
    )
    assert CONSENT in run("show", out).stdout
    assert "counts of records 'shown'" in run("verify", out, "--trust", work.path / "root.hst").stdout
    joined = ["--store", store, "--counts", out, "--one-population", "--workspace", work.path]
    assert CONSENT in run("publish", *joined, "-o", tmp_path / "m.hsm").stdout
    assert "of them records of 'shown'" in run("estimate", *joined).stdout
    page = tmp_path / "page.html"
    run("report", store, "--counts", out, "--one-population", "--workspace", work.path, "-o", page)
    assert CONSENT in page.read_text()
    assert parse_counts(read_envelope(out.read_bytes(), ROLE).payload).consent == CONSENT
    for wrong in (["--counts", out], ["--store", store, "--weight", "0.5"], ["--store", store, "--trust", "x"]):
        run("estimate", *wrong, status=2)
