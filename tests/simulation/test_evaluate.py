"""Private evaluation from a published model to a confusion matrix, through files and the command line."""

from __future__ import annotations

import json

import pytest
from support.commands import invoke

from edge_sdk.classifier import Classifier
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from simulation.demo import load_records
from simulation.fleet import device_reports, write_batches

pytestmark = pytest.mark.xdist_group("evaluate")  # its demo is made once


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate") / "demo"
    assert invoke("demo", "--output", folder, "--devices", "600").exit_code == 0
    return folder


def share_right(model, people):
    """Share of these people whom the model classifies rightly."""
    envelope = read_envelope(model, "model")
    classifier = Classifier(parse_model(envelope.payload), lambda: 0)
    return sum(classifier.predict(row) == label for row, label in people) / len(people)


def test_the_round_of_an_evaluation(demo, tmp_path):
    asked = invoke(
        "evaluate", "ask", demo / "tumours.hsm", "--workspace", demo / "workspace", "--epsilon", "4",
        "-o", tmp_path / "o.hsc", "--json",
    )  # fmt: skip
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["name"] == "tumours-outcome"
    raw, root = (tmp_path / "o.hsc").read_bytes(), (demo / "workspace" / "root.hst").read_bytes()
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    frame, schema = load_records()
    rows = frame.to_dict("records")
    people = [(row, row["diagnosis"]) for row in rows]
    model = (demo / "tumours.hsm").read_bytes()
    reports = device_reports(root, raw, people, now=campaign.header.issued_at, model=model)
    files = write_batches(tmp_path, campaign, reports)
    assert invoke("ingest", tmp_path / "o.hsc", *files, "--store", tmp_path / "s").exit_code == 0
    shown = invoke("evaluate", "show", "--store", tmp_path / "s", "--json")
    none = invoke("evaluate", "show", "--store", tmp_path / "s", "--periods", "..1", "--memory", "64MiB")
    assert none.exit_code == 1
    assert none.stderr.startswith("periods_absent: ")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["reports"] == len(people)
    # A count of independent answers, divided by n(p − q) with p − q = 0.93: by Hoeffding's inequality a false alarm
    # has probability at most 2·exp(−2·569·(0.13·0.93)²) = 1.2e-7, whatever model the fresh noise of the demo made.
    assert abs(found["accuracy"]["estimate"] - share_right(model, people)) < 0.13
    assert found["accuracy"]["low"] < found["accuracy"]["estimate"] < found["accuracy"]["high"]
    assert sum(cell["share"] for cell in found["confusion"]) == pytest.approx(1)
    assert {(cell["true"], cell["predicted"]) for cell in found["confusion"]} == {
        (a, b) for a in schema.label.classes for b in schema.label.classes
    }
    assert "95 % interval" in invoke("evaluate", "show", "--store", tmp_path / "s").stdout
    refused = invoke("publish", "--store", tmp_path / "s", "--workspace", demo / "workspace", "-o", tmp_path / "m.hsm")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("not_fittable: ")


def test_refusals_are_one_line(demo, tmp_path):
    for arguments, reason in (
        (["show", "--store", demo / "store"], "not_an_evaluation"),
        (["show", "--store", demo], "not_a_store"),
        (["ask", demo / "tumours.hsc", "--workspace", demo / "workspace", "--epsilon", "1"], "wrong_role"),
        (["ask", demo / "tumours.hsm", "--workspace", demo / "workspace", "--epsilon", "17"], "epsilon_invalid"),
    ):
        if arguments[0] == "ask":
            arguments += ["-o", tmp_path / "x.hsc"]
        refused = invoke("evaluate", *arguments)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(f"{reason}: ")
        assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "x.hsc").exists()


@pytest.mark.parametrize("engine", ["device", "vector"])
def test_simulate_evaluates_on_held_out_people(tmp_path, engine):
    rows = [f"{'nnna'[i % 4]},{i % 10},e\n" if i % 2 else f"{'fffa'[i // 2 % 4]},{i % 9 + 1},p\n" for i in range(240)]
    (tmp_path / "m.csv").write_text("odor,width,label\n" + "".join(rows))
    found = json.loads(
        invoke(
            "simulate", tmp_path / "m.csv", "--label", "label", "--epsilon", "8", "--evaluate", "--engine", engine,
            "--seed", "3", "--json",
        ).stdout
    )  # fmt: skip
    assert found["accuracy_private_low"] - 0.05 < found["accuracy"] < found["accuracy_private_high"] + 0.05
    assert found["accuracy_private"] == pytest.approx(found["accuracy"], abs=0.1)
