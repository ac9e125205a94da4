"""``hearsay-edge`` from provisioning to prediction, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.publisher import Publisher

FOREVER = 1 << 33


@pytest.fixture
def files(tmp_path):
    publisher = Publisher(now=1)
    contents = {
        "root.hst": publisher.root(lifetime=FOREVER),
        "c.hsc": publisher.campaign(lifetime=FOREVER),
        "m.hsm": publisher.model(lifetime=FOREVER),
        "lie.hsc": publisher.campaign({"epsilon_micro": 1000}, lifetime=FOREVER),
    }
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)
    return tmp_path


def edge(folder, *arguments, text=""):
    command = [sys.executable, "-m", "edge_sdk.cli", "--state", "state", *arguments]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, check=False)


def test_the_whole_life_of_a_device(files):
    assert edge(files, "provision", "root.hst").returncode == 0
    assert "ε = 1 per day" in edge(files, "explain", "c.hsc").stdout
    enrolled = json.loads(edge(files, "enrol", "c.hsc", "--json").stdout)
    assert enrolled["epsilon_per_period"] == "1"
    record = json.dumps({"odor": "n", "width": 2, "label": "e"})
    first = json.loads(edge(files, "report", "--campaign", enrolled["id"][:6], "--json", text=record).stdout)
    (files / "record.json").write_text('{"odor": null}')
    again = json.loads(edge(files, "report", "--campaign", "mushrooms", "--json", "record.json").stdout)
    assert first == again
    assert len(bytes.fromhex(first["report"])) == 18
    assert json.loads(edge(files, "status", "--json").stdout)["unsent_reports"] == 1
    assert json.loads(edge(files, "drain", "out.hsr", "--json").stdout)["reports"] == 1
    assert (files / "out.hsr").stat().st_size == 44 + 18 + 44
    assert edge(files, "install", "m.hsm").returncode == 0
    predicted = json.loads(edge(files, "predict", "--json", text='{"odor": "f"}').stdout)
    assert predicted["class"] == "p"
    assert "epsilon spent" in edge(files, "status").stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["enrol", "lie.hsc"], "epsilon_understated"),
        (["enrol", "m.hsm"], "wrong_role"),
        (["enrol", "absent.hsc"], "file_unreadable"),
        (["enrol", "."], "file_unreadable"),
        (["install", "root.hst"], "wrong_role"),
        (["report", "--campaign", "none"], "campaign_unknown"),
        (["report", "--campaign", ""], "campaign_unknown"),
        (["predict"], "model_unknown"),
        (["drain", "absent/out.hsr"], None),
    ],
)
def test_a_refusal_is_one_line_with_its_reason(files, arguments, reason):
    assert edge(files, "provision", "root.hst").returncode == 0
    result = edge(files, *arguments, text="{}")
    if reason is None:  # nothing to drain: nothing is written and nothing refused
        assert result.returncode == 0
        return
    assert result.returncode == 1
    assert result.stderr.startswith(f"{reason}: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_before_provisioning_every_command_says_what_to_do(files):
    result = edge(files, "status")
    assert result.returncode == 1
    assert result.stderr.startswith("not_provisioned: ")
    assert not (files / "state").exists()


@pytest.mark.parametrize("arguments", [[], ["fly"], ["report"], ["enrol"]])
def test_wrong_usage_is_status_two(files, arguments):
    assert edge(files, *arguments).returncode == 2


def test_help_has_examples(files):
    assert "hearsay-edge --state /var/lib/hearsay enrol mushrooms.hsc" in edge(files, "--help").stdout


MARK = "Zq7secretMarkZq7"


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--campaign", "mushrooms", f'{{"odor":"{MARK}"}}'],
        ["report", "--campaign", "mushrooms", "-", f'{{"odor":"{MARK}"}}'],
        ["report", "--campaign", "mushrooms", f"--odor={MARK}"],
        ["predict", f'{{"odor":"{MARK * 40}"}}'],
        ["report", "--campaign", "mushrooms", f"{MARK}\0"[:-1] * 400],
    ],
)
def test_a_record_in_the_place_of_a_file_name_is_not_quoted(files, arguments):
    edge(files, "provision", "root.hst")
    edge(files, "enrol", "c.hsc")
    edge(files, "install", "m.hsm")
    result = edge(files, *arguments)
    assert result.returncode in (1, 2)
    assert MARK not in result.stdout + result.stderr
    assert result.stderr.count("\n") == 1


def test_keys_that_are_no_features_are_told_of_but_not_named(files):
    edge(files, "provision", "root.hst")
    edge(files, "enrol", "c.hsc")
    result = edge(files, "report", "--campaign", "mushrooms", text=json.dumps({"odor": "n", MARK: 1, "label": "e"}))
    assert result.returncode == 0
    assert result.stderr == "note: 1 of the record's keys are no features here and were ignored\n"


def test_nothing_to_drain_claims_no_file(files):
    edge(files, "provision", "root.hst")
    assert json.loads(edge(files, "drain", "out.hsr", "--json").stdout) == {"reports": 0, "file": None}


def test_a_terminal_without_epsilon_still_explains(files):
    edge(files, "provision", "root.hst")
    command = [sys.executable, "-m", "edge_sdk.cli", "--state", "state", "explain", "c.hsc"]
    result = subprocess.run(
        command, cwd=files, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert result.returncode == 0
    assert b"? = 1 per day" in result.stdout


@pytest.mark.parametrize(
    "command", ["provision", "explain", "enrol", "report", "drain", "install", "predict", "status"]
)
def test_every_command_shows_an_example(files, command):
    shown = edge(files, command, "--help").stdout
    assert "example:" in shown
    assert f"/var/lib/hearsay {command}" in shown
