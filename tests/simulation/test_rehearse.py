"""A rehearsal's reports are counted as real ones are, and say what the records say."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from aggregator.cli.app import hearsay
from aggregator.store.store import open_store

SCHEMA = """name = "boats"
[label]
name = "state"
classes = ["dry", "wet"]
[[features]]
name = "sound"
kind = "categorical"
values = ["drip", "none"]
"""


def run(line):
    return CliRunner().invoke(hearsay, line.split())


@pytest.fixture
def boats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.toml").write_text(SCHEMA, "utf-8")
    (tmp_path / "boats.csv").write_text("sound,state\n" + 3 * "none,dry\n" + "drip,wet\n", "utf-8")
    assert run("init work --no-passphrase").exit_code == 0
    signed = run("campaign schema.toml --workspace work --epsilon 8 --mechanism direct -o c.hsc")
    assert signed.exit_code == 0, signed.output
    return tmp_path


def ingest(campaign, file, store):
    return run(f"ingest {campaign} {file} --store {store} --workspace work --json")


def test_the_reports_say_what_the_records_say(boats):
    """Three in four boats are dry. Some 1000 answers about the class, 3 in 10,000 of them noise: within 6 points."""
    made = run("rehearse c.hsc boats.csv --devices 2000 --seed 1 -o r.hsr --json")
    assert json.loads(made.stdout) == {"devices": 2000, "reports": 2000, "written": "r.hsr"}
    assert "made up" in made.stderr
    assert ingest("c.hsc", "r.hsr", "store").exit_code == 0
    found = open_store(boats / "store").statistics()
    assert found.reports == 2000
    shares = found.questions[0].estimate / found.questions[0].n
    assert abs(shares[0] - 0.75) < 0.06


def test_equal_seeds_give_equal_files_and_others_do_not(boats):
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        assert run(f"rehearse c.hsc boats.csv --seed {seed} -o {name}.hsr").exit_code == 0
    a, b, c = ((boats / f"{name}.hsr").read_bytes() for name in "abc")
    assert a == b != c


def test_a_rehearsed_evaluation_takes_the_models_that_the_campaign_names(boats):
    assert run("rehearse c.hsc boats.csv --devices 2000 --seed 1 -o r.hsr").exit_code == 0
    assert ingest("c.hsc", "r.hsr", "store").exit_code == 0
    assert run("publish --store store --workspace work -o m.hsm").exit_code == 0
    asked = run("evaluate ask m.hsm --workspace work --epsilon 8 -o e.hsc")
    assert asked.exit_code == 0, asked.output
    refused = run("rehearse e.hsc boats.csv -o e.hsr")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("model_unknown")
    made = run("rehearse e.hsc boats.csv --devices 2000 --seed 1 --model m.hsm -o e.hsr")
    assert made.exit_code == 0, made.output
    assert ingest("e.hsc", "e.hsr", "outcomes").exit_code == 0
    assert json.loads(run("evaluate show --store outcomes --json").stdout)["accuracy"]["estimate"] > 0.9


def test_a_campaign_that_has_ended_asks_nobody(boats):
    assert run("campaign --end boats --workspace work -o end.hsc").exit_code == 0
    refused = run("rehearse end.hsc boats.csv -o r.hsr")
    assert refused.stderr.startswith("campaign_ended")
    assert not (boats / "r.hsr").exists()


def test_cells_without_a_meaning_are_named(boats):
    (boats / "odd.csv").write_text("sound,state\nhum,dry\n", "utf-8")
    assert "1 of 1 cells" in run("rehearse c.hsc odd.csv -o r.hsr").stderr
