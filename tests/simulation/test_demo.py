"""The demo, and private evaluations of its model, from files to a confusion matrix and a ranking."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from numpy.random import default_rng
from support.commands import REFUSED, invoke, run, told
from support.failures import failure
from support.reports import opened

import aggregator
from aggregator import open_store
from aggregator.models.measured_accuracy import rank
from aggregator.models.scoring import Model
from aggregator.operations.campaigns import end_campaign
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.workspace import open_workspace
from edge_sdk.classifier import Classifier
from protocol.documents.envelope import read_envelope
from protocol.documents.model import build_payload, parse_model
from protocol.documents.payload import read_payload
from protocol.schema import Label
from simulation.demo import hearsay_command, load_records
from simulation.fleet import device_reports, write_batches
from simulation.local import SimulationConfig, gather, make_evaluation_task

pytestmark = pytest.mark.xdist_group("demo")  # made once


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    return folder, told("demo", "--output", folder, "--devices", 1200, "--epsilon", 8)


@pytest.fixture(scope="module")
def demo(made):
    """The demo's folder. At ε = 8 its model is right for 91 % of the people, ± 2, whatever the noise."""
    return made[0]


def test_every_device_is_counted_once_though_files_arrive_twice_and_cut(made):
    folder, outcome = made
    assert outcome["reports"] == 1200
    # 1000 + 200 devices in two batches, both sent again in one file. The file that is cut short proves
    # nothing that whole batches have not proven already, so its records are passed over.
    assert outcome["rejected"] == {"report_replayed": 1200, "truncated": 1}
    assert open_store(folder / "store").statistics().reports == 1200


def test_the_private_model_beats_the_majority(made):
    """With 1,200 devices at ε = 8 the accuracy is 91 %, ± 2, and that of the majority 63 %, ± 3.5.

    In 400 simulated demos the difference had mean 0.286 and standard deviation 0.039: a false alarm is seven standard
    deviations away.
    """
    folder, outcome = made
    assert outcome["accuracy_majority"] < min(outcome["accuracy_nonprivate"], outcome["accuracy"])
    model = Model.load(folder / "tumours.hsm", folder / "workspace" / "root.hst")
    assert 0.75 < model.accuracy(load_records()[0]) <= 1  # 0.91, ± 0.01 with the noise of the devices
    assert model.document.card["reports"] == outcome["reports"] == 1200


def test_the_file_that_is_cut_short_is_always_noticed(tmp_path):
    outcome = told("demo", "--mechanism", "she", "--devices", 25, "--output", tmp_path / "out")
    assert outcome["reports"] == 25
    assert outcome["rejected"] == {"report_replayed": 50, "truncated": 1}


@pytest.mark.slow
def test_the_commands_it_ends_with_can_be_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/bin")
    script = Path(sys.executable).with_name("hearsay")
    done = subprocess.run(
        [script, "demo", "--devices", "10", "--output", "my folder"], capture_output=True, text=True, check=True
    )
    commands = [line.strip() for line in done.stdout.splitlines() if " show " in line or " verify " in line]
    assert len(commands) == 2
    for command in commands:
        assert command.startswith(f"{script} ")
        assert subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False).returncode == 0


def test_the_command_is_short_where_the_shell_knows_it(tmp_path, monkeypatch):
    script = tmp_path / "hearsay"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hearsay_command() == "hearsay"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert hearsay_command() == str(script)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent" / "python"))
    assert hearsay_command() == f"{tmp_path / 'absent' / 'python'} -m aggregator.entry"


def test_a_wrong_epsilon_is_one_line(tmp_path):
    result = invoke("demo", "--output", tmp_path / "x", "--epsilon", "17")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("epsilon_invalid: ")
    assert list(tmp_path.iterdir()) == []


def share_right(model, people):
    """Share of these people whom the model classifies rightly."""
    envelope = read_envelope(model, "model")
    classifier = Classifier(parse_model(envelope.payload), lambda: 0)
    return sum(classifier.predict(row) == label for row, label in people) / len(people)


@pytest.mark.slow
def test_the_round_of_an_evaluation(demo, tmp_path):
    asked = invoke(
        "evaluate", "ask", demo / "tumours.hsm", "--workspace", demo / "workspace", "--epsilon", "4",
        "-o", tmp_path / "o.hsc", "--json",
    )  # fmt: skip
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["name"] == "tumours-outcome"
    raw, root = (tmp_path / "o.hsc").read_bytes(), (demo / "workspace" / "root.hst").read_bytes()
    campaign = opened(raw)
    frame, schema = load_records()
    rows = frame.to_dict("records")
    people = [(row, row["diagnosis"]) for row in rows]
    model = (demo / "tumours.hsm").read_bytes()
    reports = device_reports(root, raw, people, now=campaign.header.issued_at, models=[model])
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
    assert [one["name"] for one in found["recall"]] == list(schema.label.classes)
    assert all(0 <= one["low"] <= one["high"] <= 1 for one in found["recall"])
    shown = invoke("evaluate", "show", "--store", tmp_path / "s").stdout
    assert "95 % interval" in shown
    assert "recall" in shown
    refused = invoke("publish", "--store", tmp_path / "s", "--workspace", demo / "workspace", "-o", tmp_path / "m.hsm")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("not_fittable: ")


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


# Several models -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(demo):
    """Files of three models that the demo's workspace signed: one, the same under another name, one that is wrong."""
    work = open_workspace(demo / "workspace")
    raw = (demo / "tumours.hsm").read_bytes()
    model = parse_model(read_envelope(raw, "model").payload)
    made = {"tumours": demo / "tumours.hsm"}
    for name, turned in (("again", False), ("wrong", True)):
        tables = [tuple(tuple(row[::-1] if turned else row) for row in table) for table in model.log_likelihood]
        prior = model.log_prior[::-1] if turned else model.log_prior

        def payload_for(version, _before, name=name, tables=tables, prior=prior):
            header = model.header._replace(name=name, version=version)
            changed = model._replace(header=header, log_likelihood=tuple(tables), log_prior=prior)
            return build_payload(changed)

        made[name] = demo / f"{name}.hsm"
        made[name].write_bytes(work.publish("model", name, model.header.issued_at, payload_for))
    return made


def asked(demo, output, *arguments):
    common = ["--workspace", demo / "workspace", "--epsilon", "4", "-o", output]
    return invoke("evaluate", "ask", *common, *arguments)


@pytest.mark.slow
def test_the_round_of_a_comparison(demo, models, tmp_path):
    """Real devices, real bytes, the real store; the accuracies that are printed are those of the models."""
    files = list(models.values())
    made = invoke(
        "evaluate", "ask", *files, "--workspace", demo / "workspace", "--epsilon", "8", "--weights", "2,1,1",
        "-o", tmp_path / "c.hsc", "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert (told["name"], list(told["models"])) == ("tumours-comparison", list(models))
    raw, root = (tmp_path / "c.hsc").read_bytes(), (demo / "workspace" / "root.hst").read_bytes()
    campaign = opened(raw)
    frame, _ = load_records()
    people = [(row, row["diagnosis"]) for row in frame.iloc[::3].to_dict("records")]
    installed = [file.read_bytes() for file in files]
    reports = device_reports(root, raw, people, now=campaign.header.issued_at, models=installed)
    batches = write_batches(tmp_path, campaign, reports)
    assert invoke("ingest", tmp_path / "c.hsc", *batches, "--store", tmp_path / "s").exit_code == 0
    found = json.loads(invoke("evaluate", "show", "--store", tmp_path / "s", "--json").stdout)
    assert (found["reports"], found["models"][-1]["name"]) == (len(people), "wrong")
    # Some 95, 47 and 47 answers, each 1 with probability near 0.9, 0.9 and 0.1; the noise of ε = 8 is negligible. From
    # binomial probabilities, summed over the numbers of answers: an estimate is wrong by 0.35 with a probability below
    # 1e-8, and below 1e-7 if the models are right for 85 %. The wrong model can be best with a probability below 1e-10.
    for one in found["models"]:
        right = share_right(models[one["name"]].read_bytes(), people)
        assert abs(one["accuracy"]["estimate"] - right) < 0.35, one["name"]
    first, second, wrong = found["models"]
    assert (first["can_be_best"], wrong["can_be_best"]) == (True, False)
    # The other two are equally good. In up to 5 % of the runs the second is told from the first by chance, so both
    # outcomes must be right. An interval always holds the difference of the estimates themselves.
    for one, best_other in ((first, second), (second, first), (wrong, first)):
        minus, ends = one["accuracy"]["estimate"] - best_other["accuracy"]["estimate"], one["minus_best_other"]
        assert ends["low"] <= minus <= ends["high"]
        assert one["can_be_best"] is (ends["high"] > 0)
    shown = invoke("evaluate", "show", "--store", tmp_path / "s").stdout
    names = [f"'{one['name']}'" for one in found["models"]]
    if second["can_be_best"]:
        assert f"These can not be told from the best: {names[0]}, {names[1]}." in shown
        assert "Not the best: 'wrong'." in shown
    else:
        assert f"{names[0]} is right most often of the models that are compared." in shown
    assert "minus the best other" in shown
    twice = invoke("evaluate", "show", "--store", tmp_path / "s", "--store", tmp_path / "s")
    assert twice.stderr.startswith("source_repeated: ")
    assert invoke("evaluate", "show").exit_code == 2
    described = invoke("show", tmp_path / "c.hsc").stdout
    assert "'again', " in described
    privacy = json.loads(
        invoke("verify", tmp_path / "c.hsc", "--trust", demo / "workspace" / "root.hst", "--privacy", "--json").stdout
    )["privacy"]
    assert (privacy["holds"], len(privacy["models"]), privacy["model"]) == (True, 3, None)


def test_what_can_not_be_asked_or_shown_is_refused_in_one_line(demo, models, tmp_path):
    one, other = models["tumours"], models["again"]
    for arguments, said in (
        ([one, "--epsilon", "17"], "epsilon_invalid: "),
        ([demo / "tumours.hsc"], "wrong_role: "),
        ([one, demo / "tumours.hsc"], "wrong_role: "),
        ([one, one], "models_invalid: .* is named twice"),
        ([one, *[other] * 16], "models_invalid: .*1 to 16 models"),
        ([one, "--weights", "1"], "weights_invalid: .*several models"),
        ([one, other, "--weights", "1"], "weights_invalid: .*one per question"),
        ([one, other, "--weights", "1,0"], "weights_invalid: "),
        ([one, other, "--weights", "1,x"], "weights_invalid: .*2,1,1"),
    ):
        refused = asked(demo, tmp_path / "x.hsc", *arguments)
        assert refused.exit_code in REFUSED
        assert re.match(said, refused.stderr), refused.output
        assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "x.hsc").exists()
    assert asked(demo, tmp_path / "x.hsc", one, other, "--weights", "1,999999999").exit_code == 0
    for store, reason in ((demo / "store", "not_an_evaluation: "), (demo, "not_a_store: ")):
        refused = run("evaluate", "show", "--store", store, status=1)
        assert refused.stderr.startswith(reason)
        assert refused.stderr.count("\n") == 1


def test_two_models_of_one_name_and_models_of_two_labels_are_refused(demo, models, tmp_path):
    work = open_workspace(demo / "workspace")
    model = parse_model(read_envelope(models["again"].read_bytes(), "model").payload)
    label = model.schema.label

    def signed(name, schema):
        def payload_for(version, _before):
            header = model.header._replace(name=name, version=version)
            return build_payload(model._replace(header=header, schema=schema))

        path = tmp_path / f"{name}.hsm"
        path.write_bytes(work.publish("model", name, model.header.issued_at, payload_for))
        return path

    newer = signed("again", model.schema)
    refused = asked(demo, tmp_path / "x.hsc", models["again"], newer)
    assert refused.stderr.startswith("models_invalid: two of the models are called 'again'")
    turned = signed("turned", model.schema._replace(label=Label(label.name, label.classes[::-1])))
    refused = asked(demo, tmp_path / "x.hsc", models["tumours"], turned)
    assert refused.stderr.startswith("schemas_differ: ")


def test_python_ranks_like_the_command(demo, models, tmp_path):
    made = aggregator.make_evaluation(
        demo / "workspace",
        [path.read_bytes() for path in models.values()],
        epsilon=1,
        name="in python",
        weights=[1, 2, 3],
    )
    store = create_store(tmp_path / "s", made.raw)
    assert failure(aggregator.evaluate, store).reason == "batch_too_small"
    assert failure(aggregator.evaluate, []).reason == "argument_invalid"
    (width,) = {made.campaign.assignment.interval(2, 0)[1] - made.campaign.assignment.interval(2, 0)[0]}
    assert width == 1 << 31
    named = set(read_payload(read_envelope(made.raw, "campaign").payload)[1].crit)
    assert named == {"models"}
    assert end_campaign(demo / "workspace", "in python").campaign.model_names == tuple(models)


@pytest.mark.parametrize(("engine", "copies", "within"), [("device", 0.1, 0.6), ("vector", 20, 0.04)])
def test_a_simulated_fleet_compares_models_through_real_bytes(demo, models, engine, copies, within):
    """57 people by devices, 11,380 by numpy: ``within`` is five standard errors, false alarm below 1e-5."""
    frame, _ = load_records()
    work = open_workspace(demo / "workspace")
    now = work.history()[-1].issued_at
    config = SimulationConfig(
        work, CampaignParameters("unused", 1_000_000, "direct"), engine, "posterior", now, default_rng(7)
    )
    fleet = pd.concat([frame] * copies) if copies > 1 else frame.iloc[::10]
    raws = [path.read_bytes() for path in models.values()]
    parameters = CampaignParameters(f"by {engine}", 4_000_000)
    found = rank(gather(config, make_evaluation_task(config, raws, parameters), fleet, raws))
    assert found.reports == len(fleet)
    people = [(row, row["diagnosis"]) for row in frame.to_dict("records")]
    for one in found.models:
        right = share_right(models[one.name].read_bytes(), people)
        assert abs(one.accuracy.estimate - right) < within, one.name


def test_an_earlier_demo_is_replaced_and_nothing_else_is(demo, tmp_path):
    """The last test: it replaces the demo of the others."""
    assert "always the most frequent class" in run("demo", "--output", demo, "--devices", 50).stdout
    other = tmp_path / "precious"
    other.mkdir()
    (other / "file").write_text("kept")
    refused = run("demo", "--output", other, "--devices", 50, status=1)
    assert refused.stderr.startswith("file_exists: ")
    assert (other / "file").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
