"""The whole round by commands: a campaign, reports of honest devices, estimates, a signed model that scores."""

import json
import re

import pandas as pd
import pytest
from support.commands import mushrooms, run
from support.failures import reason_of
from support.publisher import DAY, NOW
from support.reports import batch, header, opened, report

import aggregator
from aggregator.publishing.workspace import create_workspace
from edge_sdk import Device
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError

PEOPLE = 900
SCHEMA = mushrooms(missing="a", bins=2)


def last_json(result):
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def round_trip(tmp_path_factory):
    """A finished round in a folder: c.hsc, a.hsr, b.hsr, store, m.hsm."""
    work = tmp_path_factory.mktemp("round")
    run("init", work / "work", "--no-passphrase")
    (work / "s.toml").write_text(SCHEMA)
    run("campaign", work / "s.toml", "--workspace", work / "work", "--epsilon", "4", "--mechanism", "direct",
        "--days", "3", "-o", work / "c.hsc")  # fmt: skip
    campaign = opened((work / "c.hsc").read_bytes())
    period = campaign.period_at(campaign.header.issued_at)
    # Class e smells n and is narrow; class p smells f and is wide: inputs by question, as devices code them.
    inputs = {None: (0, 1), 0: (1 * 2 + 0, 2 * 2 + 1), 1: (0 * 2 + 0, 1 * 2 + 1)}
    records = []
    for device in range(PEOPLE):
        asked = campaign.questions[int.from_bytes(report(campaign, device, period=period)[14:16], "big")]
        records.append(report(campaign, device, inputs[asked.feature][device % 3 == 0], period=period))
    (work / "a.hsr").write_bytes(batch(campaign, records[:500]))
    (work / "b.hsr").write_bytes(batch(campaign, records[500:])[:-7])
    run("ingest", work / "c.hsc", work / "a.hsr", work / "b.hsr", "--store", work / "store",
        "--workspace", work / "work")  # fmt: skip
    run("publish", "--store", work / "store", "--workspace", work / "work", "-o", work / "m.hsm")
    return work


def test_the_model_has_learnt_what_devices_said_and_its_card_says_how_it_was_made(round_trip):
    model = aggregator.Model.load(round_trip / "m.hsm", round_trip / "work" / "root.hst")
    frame = pd.DataFrame({"odor": ["n", "f", None], "width": [1.0, 9.0, float("nan")], "class": ["e", "p", "e"]})
    assert model.predict(frame).tolist() == ["e", "p", "e"]
    assert (model.accuracy(frame), model.predict_proba(frame)[0, 0] > 0.9) == (1.0, True)
    assert model.document.campaign == opened((round_trip / "c.hsc").read_bytes()).id
    card = model.document.card
    assert (card["epsilon_total"], card["epsilon_per_answer"], card["postprocess"]) == ("4", "4", "posterior")
    assert card["reports"] == last_json(run("estimate", "--store", round_trip / "store", "--json"))["reports"]
    assert (set(card["rejected"]), card["mechanisms"]) == ({"truncated"}, ["direct"])
    assert card["software"].startswith("hearsay ")


def test_ingest_is_idempotent_and_says_what_it_did(round_trip):
    before = run("estimate", "--store", round_trip / "store", "--json")
    again = run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", "--store", round_trip / "store", "--json")
    summary = last_json(again)
    assert (summary["files"], summary["files_repeated"], summary["accepted"]) == (1, 1, 0)
    assert summary["unreadable"] == []
    assert again.stderr == "note: the campaign's signature was not checked; --trust or --workspace does\n"
    assert run("estimate", "--store", round_trip / "store", "--json").stdout == before.stdout


def test_records_that_a_whole_file_replaces_are_told_and_intervals_end_where_shares_do(round_trip, tmp_path):
    """No device has a share of 102 % or of −3 %. Periods without reports have no estimates to show."""
    (tmp_path / "cut.hsr").write_bytes((round_trip / "a.hsr").read_bytes()[:-7])
    store = ["--store", tmp_path / "store"]
    run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", tmp_path / "cut.hsr", *store)
    found = last_json(run("estimate", *store, "--json"))
    assert (found["reports"], found["unproven"], found["superseded"]) == (500, 0, 500)
    text = run("estimate", *store).stdout
    assert "superseded by whole files   500\n" in text
    ends = [float(end) for line in text.splitlines() for pair in re.findall(r"(\S+) to (\S+)", line) for end in pair
            if re.fullmatch(r"-?[0-9.]+", end)]  # fmt: skip
    assert min(ends) >= 0
    for form in ((), ("--csv",)):
        nothing = run("estimate", *store, "--periods", "..1", *form, status=1)
        assert (nothing.stderr.split(":")[0], nothing.stdout) == ("periods_absent", "")


def test_estimates_in_three_forms_agree(round_trip):
    store = round_trip / "store"
    found = last_json(run("estimate", "--store", store, "--json"))
    assert found["reports"] == sum(question["n"] for question in found["questions"]) > PEOPLE - 3
    assert {"kind", "feature", "n", "counts", "estimates", "variances"} <= set(found["questions"][0])
    (round_trip / "e.csv").write_text(run("estimate", "--store", store, "--csv").stdout)
    frame = pd.read_csv(round_trip / "e.csv")
    asked, pooled = frame[frame["kind"] != "prior"], frame[frame["kind"] == "prior"]
    assert asked["estimate"].tolist() == pytest.approx([x for q in found["questions"] for x in q["estimates"]])
    prior = next(one for one in found["parameters"] if one["kind"] == "prior")
    assert pooled["parameter"].tolist() == pytest.approx(prior["raw"])
    assert pooled["published"].tolist() == pytest.approx(prior["published"])
    whole = aggregator.open_store(store).estimates()
    pd.testing.assert_frame_equal(frame.convert_dtypes(), whole.convert_dtypes(), check_dtype=False)
    assert set(whole["kind"]) == {"class", "cell", "prior"}
    text = run("estimate", "--store", store).stdout
    assert "these devices" in text
    assert "population" in text
    assert "records do not change" in text
    assert all(cell in text for cell in frame["cell"])
    assert all(name in text for one in found["parameters"] for name in one["cells"])
    usage = run("estimate", "--store", store, "--csv", "--json", status=2)
    assert usage.stderr.startswith("usage: ")


def test_a_store_keeps_to_one_campaign_and_a_workspace_to_its_own(round_trip, tmp_path):
    run("init", tmp_path / "other", "--no-passphrase")
    terms = ("--workspace", round_trip / "work", "--epsilon", "1", "--mechanism", "oue", "-o", tmp_path / "c2.hsc")
    run("campaign", round_trip / "s.toml", *terms)
    reports, store = round_trip / "a.hsr", ("--store", round_trip / "store")
    foreign = ("--trust", tmp_path / "other" / "root.hst", "--store", tmp_path / "store")
    for arguments, reason in (
        (("publish", *store, "--workspace", tmp_path / "other", "-o", tmp_path / "m.hsm"), "bad_signature"),
        (("ingest", round_trip / "c.hsc", reports, *foreign), "bad_signature"),
        (("ingest", tmp_path / "c2.hsc", reports, *store), "other_campaign"),
    ):
        assert run(*arguments, status=1).stderr.startswith(f"{reason}: ")
    assert not (tmp_path / "m.hsm").exists()
    assert not (tmp_path / "store").exists()


def test_an_empty_store_shows_what_was_set_aside(round_trip, tmp_path):
    (tmp_path / "x.hsr").write_bytes(b"no batch")
    run("ingest", round_trip / "c.hsc", tmp_path / "x.hsr", "--store", tmp_path / "store")
    found = last_json(run("estimate", "--store", tmp_path / "store", "--json"))
    assert (found["reports"], found["rejected"]) == (0, {"invalid_message": 1})
    assert all(value is None for value in found["questions"][0]["variances"])
    assert "set aside: invalid_message" in run("estimate", "--store", tmp_path / "store").stdout


@pytest.mark.parametrize("name", ["c.hsc", "m.hsm", "a.hsr", "b.hsr", "work/root.hst"])
def test_show_says_that_nothing_is_verified(round_trip, name):
    assert run("show", round_trip / name).stdout.startswith("UNVERIFIED ")
    found = last_json(run("show", round_trip / name, "--json"))
    kind = {"c.hsc": "campaign", "m.hsm": "model", "work/root.hst": "root"}.get(name, "reports")
    assert (found["verified"], found["kind"]) == (False, kind)
    if kind == "reports":
        result = run("verify", round_trip / name, "--trust", round_trip / "work" / "root.hst", status=1)
        assert (result.stderr.split(": ")[0], result.stdout) == ("not_signed", "")
        assert "report file" in result.stderr


def test_show_tells_whole_batches_from_cut_ones(round_trip, tmp_path):
    campaign = opened((round_trip / "c.hsc").read_bytes())
    whole = last_json(run("show", round_trip / "a.hsr", "--json"))
    assert (whole["reports"], whole["damaged_bytes"]) == (500, 0)
    assert [entry["proven"] for entry in whole["batches"]] == [True]
    cut = last_json(run("show", round_trip / "b.hsr", "--json"))
    assert (cut["batches"][0]["proven"], cut["damaged_bytes"] > 0) == (False, True)
    assert cut["batches"][0]["campaign"] == header(campaign).campaign.hex()
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, 1)]) + batch(campaign, []))
    text = run("show", tmp_path / "a.hsr").stdout
    assert re.findall(r"[01] reports?$", text, re.MULTILINE) == ["1 report", "0 reports"]


@pytest.mark.parametrize("name", ["c.hsc", "m.hsm", "work/root.hst"])
def test_verify_accepts_what_the_workspace_signed_and_nothing_else(round_trip, tmp_path, name):
    path = round_trip / name
    assert run("verify", path, "--trust", round_trip / "work" / "root.hst").stdout.startswith("verified: ")
    found = last_json(run("verify", path, "--trust", round_trip / "work" / "root.hst", "--json"))
    assert (found["verified"], found["version"]) == (True, 1)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    (tmp_path / "flipped").write_bytes(raw)
    result = run("verify", tmp_path / "flipped", "--trust", round_trip / "work" / "root.hst", status=1)
    assert result.stderr.startswith("bad_signature: ")
    assert result.stdout == ""


def test_versions_rise_and_models_name_their_predecessor(round_trip, tmp_path):
    first = parse_model(read_envelope((round_trip / "m.hsm").read_bytes(), "model").payload)
    said = last_json(run("publish", "--store", round_trip / "store", "--workspace", round_trip / "work", "-o",
                         tmp_path / "m.hsm", "--postprocess", "paper", "--json"))  # fmt: skip
    assert set(said["expected_recall"]) <= set(first.schema.label.classes)
    shown = last_json(run("show", tmp_path / "m.hsm", "--json"))
    assert shown["payload"]["version"] == first.header.version + 1
    assert shown["payload"]["previous"] == last_json(run("show", round_trip / "m.hsm", "--json"))["id"]
    assert shown["payload"]["statistics_id"] == first.statistics_id.hex()
    assert shown["payload"]["card"]["postprocess"] == "paper"


def test_a_total_above_twenty_is_made_with_a_warning(round_trip, tmp_path):
    options = ["--workspace", round_trip / "work", "--mechanism", "direct", "--answers", "all", "--name", "loud"]
    loud = run(
        "campaign", round_trip / "s.toml", *options, "--epsilon", "20.000001", "-o", tmp_path / "c.hsc", "--json"
    )
    assert loud.stderr.startswith("warning: ")
    made = last_json(loud)
    assert (made["epsilon_total"], made["epsilon_per_answer"]) == ("20.000001", "6.666667")
    quiet = run("campaign", round_trip / "s.toml", *options, "--epsilon", "20", "-o", tmp_path / "d.hsc")
    assert "above 20" in loud.stderr
    assert "above 20" not in quiet.stderr
    root = round_trip / "work" / "root.hst"
    for command in (["show"], ["verify", "--trust", root], ["verify", "--privacy", "--trust", root]):
        for form in ([], ["--json"]):
            seen = run(*command, *form, tmp_path / "c.hsc").stderr.splitlines()
            assert seen == loud.stderr.splitlines()[:1]  # the other is for who made it
            assert run(*command, *form, tmp_path / "d.hsc").stderr == ""


def test_a_schema_that_refuses_values_is_warned_of_wherever_it_is_seen(round_trip, tmp_path):
    text = (round_trip / "s.toml").read_text("utf-8").replace("[label]\n", '[label]\nunlisted = "refuse"\n', 1)
    (tmp_path / "s.toml").write_text(text, "utf-8")
    options = ["--workspace", round_trip / "work", "--mechanism", "direct", "--name", "strict", "--epsilon", "1"]
    made = run("campaign", tmp_path / "s.toml", *options, "-o", tmp_path / "c.hsc", "--json")
    assert made.stderr.startswith("warning: whether there is a report depends on the record")
    assert made.stderr.count("\n") == 1
    assert "allow_refuse = true" in made.stderr
    for command in (["show"], ["verify", "--trust", round_trip / "work" / "root.hst"]):
        assert run(*command, tmp_path / "c.hsc").stderr == made.stderr


def test_a_campaign_has_one_id_under_one_name(round_trip, tmp_path):
    made = last_json(
        run("campaign", round_trip / "s.toml", "--workspace", round_trip / "work", "--epsilon", "1", "--mechanism",
            "direct", "--name", "named", "--period", "90m", "-o", tmp_path / "c.hsc", "--json")
    )  # fmt: skip
    assert made["id"] == last_json(run("show", tmp_path / "c.hsc", "--json"))["id"]
    facts = dict(
        re.split(r"  +", line, maxsplit=1)
        for line in run("show", tmp_path / "c.hsc").stdout.splitlines()[1:]
        if "  " in line
    )
    assert (facts["id"], facts["id in words"]) == (made["id"], made["id_in_words"])
    assert facts["period"] == "90 minutes"


def test_every_document_may_live_for_one_day(tmp_path, monkeypatch):
    """The least that --days takes is a document that devices accept: root, campaign, evaluation, end, next root."""
    monkeypatch.chdir(tmp_path)
    work = ("--workspace", "work")
    run("init", "work", "--days", "1", "--no-passphrase")
    (tmp_path / "s.toml").write_text(SCHEMA)
    terms = ("--epsilon", "4", "--mechanism", "direct", "--days", "1")
    run("campaign", "s.toml", *work, *terms, "-o", "c.hsc")
    campaign = opened((tmp_path / "c.hsc").read_bytes())
    period = campaign.period_at(campaign.header.issued_at)
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, n, 0, period=period) for n in range(40)]))
    run("ingest", "c.hsc", "a.hsr", "--store", "store", *work)
    run("publish", "--store", "store", *work, "--days", "1", "-o", "m.hsm")
    run("evaluate", "ask", "m.hsm", *work, "--epsilon", "1", "--days", "1", "-o", "e.hsc")
    run("campaign", "--end", "mushrooms", *work, "-o", "end.hsc")
    with Device.provision(tmp_path / "device", trust=(tmp_path / "work" / "root.hst").read_bytes()) as device:
        device.enrol((tmp_path / "c.hsc").read_bytes())
        device.install((tmp_path / "m.hsm").read_bytes())
    for name in ("c.hsc", "m.hsm", "e.hsc", "end.hsc"):
        run("verify", name, "--trust", "work/root.hst")
    run("trust", "renew", *work, "--days", "1")
    assert reason_of(InputError, create_workspace, "w", name="w", now=NOW, lifetime_seconds=DAY - 1) == "terms_invalid"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--periods", "0..4294967295", "--memory", "64MiB"], ("all", False)),
        (["--periods", "1..", "--proven-only"], ("1..", True)),
        (["--periods", "..4000000000"], ("..4000000000", False)),
    ],
)
def test_a_model_says_of_which_periods_and_which_reports_it_is(round_trip, tmp_path, options, said):
    shown = last_json(run("estimate", "--store", round_trip / "store", "--json", *options))
    run("publish", "--store", round_trip / "store", "--workspace", round_trip / "work", "-o", tmp_path / "m.hsm",
        "--name", "scopes", *options)  # fmt: skip
    made = parse_model(read_envelope((tmp_path / "m.hsm").read_bytes(), "model").payload)
    assert (made.card["periods"], made.card["proven_only"]) == said == (shown["periods"], shown["proven_only"])
    assert made.statistics_id.hex() == shown["statistics_id"]
    assert re.search(rf"^periods +{re.escape(said[0])}$", run("show", tmp_path / "m.hsm").output, re.MULTILINE)


@pytest.mark.parametrize("option", [["--periods", "1.."], ["--proven-only"], ["--memory", "64MiB"]])
def test_options_about_reports_need_a_store(round_trip, tmp_path, option):
    result = run("publish", "--to", tmp_path / "tree", "--workspace", round_trip / "work", *option, status=2)
    assert "are for a store's reports" in result.output
