"""A rehearsal's reports are counted as real ones are, and say what the records say."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from aggregator.cli.app import hearsay
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.tally.scope import Scope

DAY = 86_400
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
    sign("schema.toml --epsilon 8 --mechanism direct", "c.hsc")
    return tmp_path


def sign(options, file):
    done = run(f"campaign {options} --workspace work -o {file}")
    assert done.exit_code == 0, done.output


def ingest(campaign, file, store):
    return run(f"ingest {campaign} {file} --store {store} --workspace work --json")


def test_the_reports_say_what_the_records_say(boats):
    """Three in four boats are dry. Some 1000 answers about the class, 3 in 10,000 of them noise: within 6 points."""
    made = run("rehearse c.hsc boats.csv --devices 2000 --seed 1 -o r.hsr --json")
    found = json.loads(made.stdout)
    today = int(time.time()) // DAY
    assert found.pop("first_period") == found.pop("last_period") in (today - 1, today)
    assert found == {"devices": 2000, "reports": 2000, "written": "r.hsr"}
    assert "made up" in made.stderr
    assert ingest("c.hsc", "r.hsr", "store").exit_code == 0
    found = open_store(boats / "store").statistics()
    assert found.reports == 2000
    shares = found.questions[0].estimate / found.questions[0].n
    assert abs(shares[0] - 0.75) < 0.06
    told = run("status --store store")
    assert "devices needed" not in told.stdout
    assert "note: alarms do not look for drift: hearsay diff --periods " in told.stderr
    assert "devices needed" in run("status --store store --interval 0.02").stdout
    for seed, name in ((1, "a"), (2, "b")):
        assert run(f"rehearse c.hsc boats.csv --devices 2000 --seed {seed} -o {name}.hsr").exit_code == 0
    first, again, other = ((boats / f"{name}.hsr").read_bytes() for name in "rab")
    assert first == again != other


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


def test_absent_columns_unknown_cells_and_numbers_outside_the_bounds_are_told(boats):
    """Before, the feature was missing in every report, or a bound in every report, without a word."""
    depth = '[[features]]\nname = "depth"\nkind = "numeric"\nlow = 0\nhigh = 9\nbins = 3\n'
    (boats / "schema.toml").write_text(SCHEMA + depth, "utf-8")
    sign("schema.toml --epsilon 8 --mechanism direct", "d.hsc")
    (boats / "renamed.csv").write_text(" sound,depth,state\nnone,3,dry\nnone,99,dry\ndrip,1,wet\n", "utf-8")
    said = run("rehearse d.hsc renamed.csv -o r.hsr").stderr
    assert "no column 'sound': it counts as missing in every record; near: ' sound'\n" in said
    assert "column 'depth': 1 of 3 numbers are outside the schema's bounds, 0 to 9" in said
    (boats / "odd.csv").write_text("sound,state\nhum,dry\n", "utf-8")
    assert "1 of 1 cells" in run("rehearse c.hsc odd.csv -o odd.hsr").stderr


def day(number):
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() + number * DAY))


def test_devices_answer_on_each_day_and_their_records_move_from_one_file_to_the_other(boats):
    """Of 2,000 answers of a day some 500 are about the class: within 9 points (four standard errors) of the shares."""
    (boats / "later.csv").write_text("sound,state\ndrip,wet\n", "utf-8")
    made = run(
        f"rehearse c.hsc boats.csv --devices 2000 --period {day(0)} --days 5 --drift later.csv --seed 1 -o r.hsr --json"
    )
    found = json.loads(made.stdout)
    assert (found["reports"], found["last_period"] - found["first_period"]) == (10_000, 4)
    assert "have not begun" in made.stderr
    store = create_store(boats / "store", (boats / "c.hsc").read_bytes())
    taken = store.ingest([boats / "r.hsr"], now=int(time.time()) + 5 * DAY)
    assert (taken.proven, taken.rejected) == (10_000, {})
    shares = []
    for period in range(found["first_period"], found["last_period"] + 1):
        classes = store.statistics(Scope(first=period, last=period)).questions[0]
        shares.append(classes.estimate[0] / classes.n)
    assert shares == pytest.approx([0.75 * (1 - moved / 4) for moved in range(5)], abs=0.09)


def test_a_rehearsal_of_days_to_come_can_be_counted(boats):
    """Before, ingest set all reports aside but those of the first day, and no option helped."""
    made = run(f"rehearse c.hsc boats.csv --devices 100 --period {day(-3)} --days 6 --seed 1 -o r.hsr --json")
    assert "warning: 3 of 6 periods are left out: the campaign does not have them; " in made.stderr
    last = json.loads(made.stdout)["last_period"]
    assert f"--now {last}, as if {last} (" in made.stderr
    for number, now in enumerate((str(last), day(2))):
        taken = run(f"ingest c.hsc r.hsr --store s{number} --workspace work --json --now {now}")
        assert (json.loads(taken.stdout)["accepted"], json.loads(taken.stdout)["rejected"]) == (300, {})
        assert "--now is for a rehearsal" in taken.stderr
    assert json.loads(ingest("c.hsc", "r.hsr", "store").stdout)["rejected"] == {"report_too_early": 200}


def test_in_a_series_each_device_answers_once_in_all_days(boats):
    sign("schema.toml --epsilon 8 --mechanism direct --series year", "s.hsc")
    made = run(f"rehearse s.hsc boats.csv --devices 1001 --period {day(0)} --days 4 -o r.hsr --json")
    assert json.loads(made.stdout)["reports"] == 1001
    store = create_store(boats / "store", (boats / "s.hsc").read_bytes())
    assert store.ingest([boats / "r.hsr"], now=int(time.time()) + 4 * DAY).proven == 1001


def test_a_day_that_the_campaign_does_not_have_is_refused(boats):
    """Before, reports of an expired campaign were written, and every one of them was too late."""
    sign("--end boats", "end.hsc")
    assert run("rehearse end.hsc boats.csv -o r.hsr").stderr.startswith("campaign_ended")
    refused = run(f"rehearse c.hsc boats.csv --period {day(4000)} -o r.hsr")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("periods_absent: the campaign has none of these periods; it has ")
    assert not (boats / "r.hsr").exists()
    assert run("rehearse c.hsc boats.csv --drift boats.csv -o r.hsr").exit_code == 2
