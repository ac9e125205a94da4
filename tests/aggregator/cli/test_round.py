"""The whole round by commands: a campaign, reports of honest devices, estimates, a signed model that scores."""

import json
import re

import pandas as pd
import pytest
from support.commands import mushrooms, run
from support.publisher import DAY, NOW
from support.reports import batch, header, opened, report

import aggregator
from aggregator.publishing.workspace import create_workspace
from edge_sdk import Device
from edge_sdk.classifier import Classifier
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


def test_the_model_has_learnt_what_devices_said(round_trip):
    model = aggregator.Model.load(round_trip / "m.hsm", round_trip / "work" / "root.hst")
    frame = pd.DataFrame({"odor": ["n", "f", None], "width": [1.0, 9.0, float("nan")], "class": ["e", "p", "e"]})
    assert model.predict(frame).tolist() == ["e", "p", "e"]
    assert model.accuracy(frame) == 1.0
    assert model.predict_proba(frame)[0, 0] > 0.9
    assert model.document is not None
    assert model.document.campaign == opened((round_trip / "c.hsc").read_bytes()).id


def test_a_device_computes_the_very_same_scores(round_trip):
    path = round_trip / "m.hsm"
    model = aggregator.Model.load(path, round_trip / "work" / "root.hst")
    device = Classifier(parse_model(read_envelope(path.read_bytes(), "model").payload), clock=lambda: 0)
    records = [
        {"odor": odor, "width": width} for odor in ("a", "n", "f", None, "z") for width in (0, 4.99, 5, 12, None)
    ]
    frame = pd.DataFrame(records)
    assert model.scores(frame).tolist() == [device.scores(record) for record in records]
    assert model.predict(frame).tolist() == [device.predict(record) for record in records]


def test_ingest_is_idempotent_and_says_what_it_did(round_trip):
    before = run("estimate", "--store", round_trip / "store", "--json")
    again = run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", "--store", round_trip / "store", "--json")
    summary = last_json(again)
    assert (summary["files"], summary["files_repeated"], summary["accepted"]) == (1, 1, 0)
    assert summary["unreadable"] == []
    assert again.stderr == "note: the campaign's signature was not checked; --trust or --workspace does\n"
    assert run("estimate", "--store", round_trip / "store", "--json").stdout == before.stdout


def test_files_that_can_not_be_read_are_named_and_the_others_are_added(round_trip, tmp_path):
    (tmp_path / "empty.hsr").write_bytes(b"")
    names = ["absent.hsr", "gone/folder", "empty.hsr"]
    files = [tmp_path / name for name in names]
    trusted = ["--workspace", round_trip / "work"]
    store = ["--store", tmp_path / "store"]
    result = run("ingest", round_trip / "c.hsc", *files, round_trip / "a.hsr", *store, *trusted)
    assert result.stderr == "note: 3 of 4 files could not be read; --strict makes that an error\n"
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines() if "  " in line)
    assert (facts["files"], facts["files not read"], facts["reports read"]) == ("4", "3", "500")
    assert facts["of them from damaged files"] == "0"
    words = {name: next(line for line in result.stdout.splitlines() if name in line) for name in names}
    assert "file_not_found  there is no such file" in words["absent.hsr"]
    assert "file_not_found" in words["gone/folder"]
    assert "empty_file" in words["empty.hsr"]
    given = ["ingest", round_trip / "c.hsc", files[0], round_trip / "b.hsr", *store, *trusted]
    again = run(*given, "--json", "--strict", status=1)
    assert again.stderr == "unreadable: 1 of 2 files could not be read\n"
    told = last_json(again)
    assert told["unreadable"] == [{"file": str(files[0]), "reason": "file_not_found"}]
    assert told["accepted"] == told["unproven"] > 300
    text = run("estimate", *store).stdout
    assert f"of them from damaged files  {told['unproven']}\n" in text


def test_records_that_a_whole_file_replaces_are_told(round_trip, tmp_path):
    (tmp_path / "cut.hsr").write_bytes((round_trip / "a.hsr").read_bytes()[:-7])
    store = ["--store", tmp_path / "store"]
    run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", tmp_path / "cut.hsr", *store)
    found = last_json(run("estimate", *store, "--json"))
    assert (found["reports"], found["unproven"], found["superseded"]) == (500, 0, 500)
    assert "superseded by whole files   500\n" in run("estimate", *store).stdout


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


def test_intervals_end_where_shares_do_and_periods_without_reports_are_refused(round_trip, tmp_path):
    """No device has a share of 102 % or of −3 %. Periods without reports have no estimates to show."""
    store = ["--store", tmp_path / "store"]
    run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", *store)
    text = run("estimate", *store).stdout
    ends = [float(end) for line in text.splitlines() for pair in re.findall(r"(\S+) to (\S+)", line) for end in pair
            if re.fullmatch(r"-?[0-9.]+", end)]  # fmt: skip
    assert min(ends) >= 0
    for form in ((), ("--csv",)):
        nothing = run("estimate", *store, "--periods", "..1", *form, status=1)
        assert (nothing.stderr.split(":")[0], nothing.stdout) == ("periods_absent", "")


def test_the_card_says_how_the_model_was_made(round_trip):
    card = parse_model(read_envelope((round_trip / "m.hsm").read_bytes(), "model").payload).card
    assert (card["epsilon_total"], card["epsilon_per_answer"], card["postprocess"]) == ("4", "4", "posterior")
    assert card["reports"] == last_json(run("estimate", "--store", round_trip / "store", "--json"))["reports"]
    assert set(card["rejected"]) == {"truncated"}
    assert card["mechanisms"] == ["direct"]
    assert card["software"].startswith("hearsay ")


def test_a_workspace_publishes_no_model_of_a_foreign_campaign(round_trip, tmp_path):
    run("init", tmp_path / "other", "--no-passphrase")
    result = run("publish", "--store", round_trip / "store", "--workspace", tmp_path / "other", "-o",
                 tmp_path / "m.hsm", status=1)  # fmt: skip
    assert result.stderr.startswith("bad_signature: ")
    assert not (tmp_path / "m.hsm").exists()
    refused = run("ingest", round_trip / "c.hsc", round_trip / "a.hsr", "--store", tmp_path / "store",
                  "--trust", tmp_path / "other" / "root.hst", status=1)  # fmt: skip
    assert refused.stderr.startswith("bad_signature: ")
    assert not (tmp_path / "store").exists()


def test_a_store_keeps_to_one_campaign(round_trip):
    run("campaign", round_trip / "s.toml", "--workspace", round_trip / "work", "--epsilon", "1", "--mechanism", "oue",
        "-o", round_trip / "c2.hsc")  # fmt: skip
    result = run("ingest", round_trip / "c2.hsc", round_trip / "a.hsr", "--store", round_trip / "store", status=1)
    assert result.stderr.startswith("other_campaign: ")


def test_a_batch_that_is_too_small_is_neither_shown_nor_published(round_trip, tmp_path):
    run("campaign", round_trip / "s.toml", "--workspace", round_trip / "work", "--epsilon", "1", "--mechanism",
        "direct", "--min-batch-size", "5", "-o", tmp_path / "c.hsc")  # fmt: skip
    campaign = opened((tmp_path / "c.hsc").read_bytes())
    period = campaign.period_at(campaign.header.issued_at)
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, n, period=period) for n in range(4)]))
    run("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / "store")
    for command in (["estimate", "--json"], ["publish", "--workspace", round_trip / "work", "-o", tmp_path / "m.hsm"]):
        result = run(*command, "--store", tmp_path / "store", status=1)
        assert result.stderr.startswith("batch_too_small: ")
    assert not (tmp_path / "m.hsm").exists()


def test_an_empty_store_shows_what_was_set_aside(round_trip, tmp_path):
    (tmp_path / "x.hsr").write_bytes(b"no batch")
    run("ingest", round_trip / "c.hsc", tmp_path / "x.hsr", "--store", tmp_path / "store")
    found = last_json(run("estimate", "--store", tmp_path / "store", "--json"))
    assert (found["reports"], found["rejected"]) == (0, {"invalid_message": 1})
    assert all(value is None for value in found["questions"][0]["variances"])
    assert "set aside: invalid_message" in run("estimate", "--store", tmp_path / "store").stdout


@pytest.mark.parametrize("name", ["c.hsc", "m.hsm", "a.hsr", "b.hsr", "work/root.hst"])
def test_show_says_that_nothing_is_verified(round_trip, name):
    text = run("show", round_trip / name).stdout
    assert text.startswith("UNVERIFIED ")
    found = last_json(run("show", round_trip / name, "--json"))
    assert found["verified"] is False
    assert found["kind"] == {"c.hsc": "campaign", "m.hsm": "model", "work/root.hst": "root"}.get(name, "reports")


def test_show_tells_whole_batches_from_cut_ones(round_trip):
    whole = last_json(run("show", round_trip / "a.hsr", "--json"))
    assert (whole["reports"], whole["damaged_bytes"]) == (500, 0)
    assert [entry["proven"] for entry in whole["batches"]] == [True]
    cut = last_json(run("show", round_trip / "b.hsr", "--json"))
    assert cut["batches"][0]["proven"] is False
    assert cut["damaged_bytes"] > 0
    assert cut["batches"][0]["campaign"] == header(opened((round_trip / "c.hsc").read_bytes())).campaign.hex()


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


def test_one_report_is_not_called_reports(round_trip, tmp_path):
    campaign = opened((round_trip / "c.hsc").read_bytes())
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, 1)]) + batch(campaign, []))
    text = run("show", tmp_path / "a.hsr").stdout
    assert re.findall(r"[01] reports?$", text, re.MULTILINE) == ["1 report", "0 reports"]


def test_a_report_file_is_not_signed_so_nothing_of_it_can_be_verified(round_trip):
    for name in ("a.hsr", "b.hsr"):
        result = run("verify", round_trip / name, "--trust", round_trip / "work" / "root.hst", status=1)
        assert result.stderr.startswith("not_signed: ")
        assert "report file" in result.stderr
        assert result.stdout == ""


def test_every_document_may_live_for_one_day(tmp_path):
    """The least that --days takes is a document that devices accept: root, campaign, evaluation, end, next root."""
    work, trust = tmp_path / "work", tmp_path / "work" / "root.hst"
    run("init", work, "--days", "1", "--no-passphrase")
    (tmp_path / "s.toml").write_text(SCHEMA)
    run("campaign", tmp_path / "s.toml", "--workspace", work, "--epsilon", "4", "--mechanism", "direct",
        "--days", "1", "-o", tmp_path / "c.hsc")  # fmt: skip
    raw = (tmp_path / "c.hsc").read_bytes()
    campaign = opened(raw)
    (tmp_path / "a.hsr").write_bytes(
        batch(
            campaign,
            [report(campaign, device, 0, period=campaign.period_at(campaign.header.issued_at)) for device in range(40)],
        )
    )
    run("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / "store", "--workspace", work)
    run("publish", "--store", tmp_path / "store", "--workspace", work, "--days", "1", "-o", tmp_path / "m.hsm")
    run("evaluate", "ask", tmp_path / "m.hsm", "--workspace", work, "--epsilon", "1", "--days", "1",
        "-o", tmp_path / "e.hsc")  # fmt: skip
    run("campaign", "--end", "mushrooms", "--workspace", work, "-o", tmp_path / "end.hsc")
    with Device.provision(tmp_path / "device", trust=trust.read_bytes()) as device:
        device.enrol(raw)
        device.install((tmp_path / "m.hsm").read_bytes())
    for name in ("c.hsc", "m.hsm", "e.hsc", "end.hsc"):
        run("verify", tmp_path / name, "--trust", trust)
    run("trust", "renew", "--workspace", work, "--days", "1")


def test_a_document_of_less_than_a_day_is_refused_in_python(tmp_path):
    with pytest.raises(InputError, match=r"^terms_invalid"):
        create_workspace(tmp_path / "w", name="w", now=NOW, lifetime_seconds=DAY - 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], ("all", False)),
        (["--periods", "0..4294967295", "--memory", "64MiB"], ("all", False)),
        (["--periods", "0.."], ("all", False)),
        (["--periods", "1..", "--proven-only"], ("1..", True)),
        (["--periods", "..4000000000"], ("..4000000000", False)),
        (["--periods", "1..4000000000"], ("1..4000000000", False)),
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
