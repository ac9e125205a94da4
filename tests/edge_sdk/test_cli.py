"""``hearsay-edge`` from provisioning to prediction, and its refusals."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import commands
from support.publisher import DAY, Publisher

from edge_sdk import Device, DocumentError
from protocol import VERSION
from protocol.batches.framing import Header, write_batch
from protocol.documents.campaign import Series
from protocol.documents.provisioning import Provisioning, build_provisioning

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


def edge(folder, *arguments, text="", state=("--state", "state")):
    """A command in this folder and process: its status and what it printed."""
    with contextlib.chdir(folder):
        return subprocess.CompletedProcess(arguments, *commands.edge(*state, *arguments, text=text))


def asked(folder, *command):
    """What a command without a refusal says as JSON."""
    result = edge(folder, *command, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_the_whole_life_of_a_device(files):
    assert edge(files, "provision", "root.hst").returncode == 0
    assert "ε = 1 per day" in edge(files, "explain", "c.hsc").stdout
    enrolled = asked(files, "enrol", "c.hsc")
    assert enrolled["epsilon_per_period"] == "1"
    (files / "record.json").write_text('{"odor": null}')
    report = ("report", "--campaign")
    record = json.dumps({"odor": "n", "width": 2, "label": "e"})
    first = json.loads(edge(files, *report, enrolled["id"][:6], "--json", text=record).stdout)
    again = asked(files, *report, "mushrooms", "record.json")
    assert (first.pop("answered_before"), again.pop("answered_before")) == (False, True)
    assert first == again
    assert "answered before  yes" in edge(files, *report, "mushrooms", "record.json").stdout
    assert len(bytes.fromhex(first["report"])) == 18
    assert asked(files, "status")["unsent_reports"] == 1
    for name in ("a.hsr", "b.hsr"):
        assert asked(files, "drain", name)["reports"] == 1
        assert (files / name).stat().st_size == 44 + 18 + 44
    assert asked(files, "status")["sealed_files"] == 2
    assert asked(files, "ack", "a.hsr", "b.hsr") == {"acknowledged": 1}
    assert asked(files, "status")["unsent_reports"] == 0
    assert edge(files, "ack", "c.hsc").stderr.startswith("batch_unknown: ")
    assert edge(files, "explain", "m.hsm").stdout.startswith("Model 'mushrooms', version 1\n")
    assert edge(files, "explain", "m.hsm", "--model", "m.hsm").stderr.startswith("argument_invalid: ")
    assert asked(files, "status")["models"] == []
    assert edge(files, "install", "m.hsm").returncode == 0
    assert json.loads(edge(files, "predict", "--json", text='{"odor": "f"}').stdout)["class"] == "p"
    odd = '{"odor": "f ", "width": "3,5"}'
    said = edge(files, "predict", "--json", text=odd).stderr
    assert "note: 2 of the record's values are unknown to the model; --check names them" in said
    checked = json.loads(edge(files, "predict", "--check", "--json", text=odd).stdout)
    assert (checked["missing"], checked["unlisted"], checked["ignored"]) == ([], ["odor", "width"], 0)
    assert checked["hints"]
    good = json.dumps({"odor": "n", "width": 2, "label": "e", "extra": 1})
    for command in ((*report, "mushrooms"), ("predict",)):
        assert edge(files, *command, "--check", text=good).returncode == 0
    assert "epsilon spent" in edge(files, "status").stdout


def test_provisioning_says_whether_it_made_a_device_and_may_be_repeated(files):
    """A unit that provisions at the first start was killed before its next command, and failed at every start."""
    (files / "board").write_text("pump 7")
    for made in ("yes", "no", "no"):
        said = edge(files, "provision", "root.hst", "--machine-id", "board")
        assert (said.returncode, f"new device    {made}" in said.stdout) == (0, True)
    assert "new device    no" in edge(files, "provision", "root.hst").stdout
    late = edge(files, "provision", "root.hst", "--machine-id", "root.hst")
    assert (late.returncode, late.stderr.split(":")[0]) == (1, "already_provisioned")


def test_a_machine_without_an_id_is_told_to_name_one(files, monkeypatch):
    monkeypatch.setattr("protocol.database._MACHINE_FILES", ())
    assert "--machine-id FILE" in edge(files, "provision", "root.hst").stderr
    assert json.loads(edge(files, "status", "--json").stdout)["machine"] == "none"
    monkeypatch.undo()
    (files / "state").rename(files / "image")
    (files / "board").write_text("pump 7")
    assert edge(files, "provision", "root.hst", "--machine-id", "board").stderr == ""
    shown = json.loads(edge(files, "status", "--json").stdout)
    assert (shown["machine"], shown["copied"]) == (str(files / "board"), False)
    (files / "board").write_text("pump 8")
    copied = edge(files, "provision", "root.hst")
    assert "another machine" in copied.stderr
    assert edge(files, "install", "m.hsm").returncode == 0
    assert edge(files, "predict", text='{"odor": "f"}').returncode == 0
    assert edge(files, "enrol", "c.hsc").stderr.startswith("state_copied: ")


MARK = "Zq7secretMarkZq7"


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--campaign", "mushrooms", f'{{"odor":"{MARK}"}}'],
        ["report", "--campaign", "mushrooms", "-", f'{{"odor":"{MARK}"}}'],
        ["report", "--campaign", "mushrooms", f"--odor={MARK}"],
        ["predict", f'{{"odor":"{MARK * 40}"}}'],
        ["report", "--campaign", "mushrooms", MARK * 400],
    ],
)
def test_a_record_in_the_place_of_a_file_name_is_not_quoted_and_no_key_is_named(files, arguments):
    for command in (("provision", "root.hst"), ("enrol", "c.hsc"), ("install", "m.hsm")):
        edge(files, *command)
    result = edge(files, *arguments)
    assert result.returncode in (1, 2)
    assert MARK not in result.stdout + result.stderr
    assert result.stderr.count("\n") == 1
    result = edge(files, "report", "--campaign", "mushrooms", text=json.dumps({"odor": "n", MARK: 1, "label": "e"}))
    assert result.returncode == 0
    assert result.stderr == "note: 1 of the record's keys are no features here and were ignored\n"


@pytest.fixture
def reported(files):
    """A device that has answered once."""
    for command in (("provision", "root.hst"), ("enrol", "c.hsc"), ("report", "--campaign", "mushrooms")):
        assert edge(files, *command, text='{"odor": "n", "label": "e"}').returncode == 0
    return files


def test_the_owner_looks_back_and_opts_out(reported):
    answers = asked(reported, "history")["answers"]
    assert [(line["campaign"], line["version"], line["epsilon"]) for line in answers] == [("mushrooms", 1, "1")]
    table = edge(reported, "history").stdout.splitlines()
    assert table[0].split() == ["campaign", "version", "period", "answered", "at", "epsilon"]
    assert table[1].startswith("'mushrooms'")
    assert asked(reported, "disable") == {"disabled": True, "epsilon_spent": "1"}
    refused = edge(reported, "report", "--campaign", "mushrooms", text="{}")
    assert (refused.returncode, refused.stdout.split()[:4]) == (0, ["nothing", "to", "do", "disabled"])
    status = asked(reported, "status")
    assert (status["disabled"], status["dropped"], status["epsilon_spent"]) == (True, {"disabled": 1}, "1")
    times = {"wall", "now", "confirmed", "time_floor", "earliest", "limit_time"}
    assert {*times, "leap_left", "periods_behind", "kept_seconds", "note"} == set(status["clock"])
    assert asked(reported, "enable") == {"disabled": False, "epsilon_left": "99"}


def test_a_lost_state_is_reset_knowingly(reported):
    (reported / "state" / "state.db").unlink()
    lost = edge(reported, "status")
    assert (lost.returncode, lost.stderr.split(":")[0]) == (5, "state_lost")
    assert edge(reported, "provision", "root.hst").stderr.startswith("state_lost: ")
    assert edge(reported, "reset", "root.hst").stderr.startswith("reset_unconfirmed: ")
    assert asked(reported, "reset", "root.hst", "--count-budget-as-spent")["epsilon_counted_as_spent"] == "100"
    assert asked(reported, "status")["epsilon_left"] == "0"
    assert "counted as spent" in edge(reported, "history").stdout


def test_newer_roots_and_evidence(reported):
    publisher = Publisher(now=1)
    (reported / "2.hst").write_bytes(publisher.root(version=2, lifetime=FOREVER))
    assert asked(reported, "rotate", "2.hst") == {"root_version": 2, "ended_campaigns": []}
    (reported / "other.hsc").write_bytes(publisher.campaign(lifetime=FOREVER - 1))
    assert edge(reported, "enrol", "other.hsc").stderr.startswith("equivocation: ")
    assert asked(reported, "evidence", "proof") == {"pairs": 1, "folder": "proof"}
    assert (reported / "proof" / "1-accepted.hsc").read_bytes() == (reported / "c.hsc").read_bytes()
    assert (reported / "proof" / "1-refused.hsc").read_bytes() == (reported / "other.hsc").read_bytes()
    assert edge(reported, "evidence", "proof").stderr.startswith("file_exists: ")


COMMANDS = (
    "provision explain enrol report drain ack install predict rotate sync status history evidence disable enable reset"
)


def test_every_command_shows_an_example(files):
    assert "hearsay-edge --state /var/lib/hearsay enrol mushrooms.hsc" in edge(files, "--help").stdout
    assert edge(files, "--version").stdout == f"hearsay-edge {VERSION}\n"
    for command in COMMANDS.split():
        shown = edge(files, command, "--help").stdout
        assert "example:" in shown
        assert f"/var/lib/hearsay {command}" in shown


WRONG_KINDS = [
    (("provision", "c.hsc"), "wrong_role", "'c.hsc' is a campaign (.hsc); a trust root (.hst) is expected"),
    (
        ("provision", "root.hst", "--enrolment", "c.hsc"),
        "malformed",
        "'c.hsc' is a campaign (.hsc); a provisioning file (.hsp) is expected",
    ),
    (
        ("provision", "root.hst", "--enrolment", "note.txt"),
        "malformed",
        "'note.txt' is not a provisioning file (.hsp): there are bytes after its end",
    ),
    (
        ("reset", "root.hst", "--count-budget-as-spent", "--enrolment", "m.hsm"),
        "malformed",
        "'m.hsm' is a model (.hsm); a provisioning file (.hsp) is expected",
    ),
    (("reset", "m.hsm", "--count-budget-as-spent"), "wrong_role", "'m.hsm' is a model (.hsm); a trust root (.hst) is"),
    (("enrol", "p.hsp"), "malformed", "'p.hsp' is a provisioning file (.hsp); a campaign (.hsc) is expected"),
    (("enrol", "r.hsr"), "malformed", "'r.hsr' is a file of reports (.hsr); a campaign (.hsc) is expected"),
    (("enrol", "note.txt"), "malformed", "'note.txt' is not a campaign (.hsc): there are bytes after its end"),
    (("install", "c.hsc"), "wrong_role", "'c.hsc' is a campaign (.hsc); a model (.hsm) is expected"),
    (("explain", "c.hsc", "--model", "root.hst"), "wrong_role", "'root.hst' is a trust root (.hst); a model (.hsm) is"),
    (("rotate", "root.hst", "c.hsc"), "wrong_role", "'c.hsc' is a campaign (.hsc); a trust root (.hst) is expected"),
    (("enable", "--enrolment", "c.hsc"), "malformed", "'c.hsc' is a campaign (.hsc); a provisioning file (.hsp) is"),
]


@pytest.mark.parametrize(("arguments", "reason", "said"), WRONG_KINDS)
def test_a_file_of_the_wrong_kind_is_named_and_leaves_nothing(files, arguments, reason, said):
    (files / "note.txt").write_text("hello")
    (files / "p.hsp").write_bytes(build_provisioning(Provisioning("orchard", "one", bytes(32))))
    (files / "r.hsr").write_bytes(write_batch(Header(bytes(32), 1, 18), []))
    shown = edge(files, *arguments)
    assert (shown.returncode, shown.stdout) == (DocumentError.status, "")
    assert shown.stderr.startswith(f"{reason}: {said}")
    assert not (files / "state").exists()


@pytest.mark.parametrize("null", ["/dev/null", "/absent/null"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("status", (1, "")),
        ("status > /dev/full", (5, "output_failed")),
        ("status >&-", (0, "")),
        ("report --campaign mushrooms <&- > status", (1, "record_invalid")),
        ("report --campaign absent < /dev/null 2>&- > status; test ! -s status", (0, "")),
        ("explain ../c.hsc > said; grep -q '? = 1 per day' said", (0, "")),
    ],
)
def test_output_that_nobody_takes_is_no_error_of_the_program(reported, tmp_path, line, expected, null):
    """A container may have no null device that can be opened. Without a redirection the output goes into a closed pipe.

    The refusal of ``absent`` is not printed as a result, although standard error is closed. The encoding lacks ε.
    """
    if "full" in line and not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    (tmp_path / "here").mkdir()
    program = tmp_path / "program.py"
    program.write_text(f"import os, sys\nos.devnull = {null!r}\nfrom edge_sdk.cli.main import main\nsys.exit(main())\n")
    reading, writing = os.pipe()
    os.close(reading)
    line = f'"{sys.executable}" "{program}" --state "{reported}/state" {line}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        ["sh", "-c", line],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path / "here", env=environment,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr.split(":")[0]) == expected
    assert done.stderr.count("\n") == bool(expected[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], ""),
        (["fly"], "there is no such command"),
        (["report"], ""),
        (["enrol"], ""),
        (["--state", "", "provision", "root.hst"], "--state has no value"),
        (["sync", "tree", "--seconds", "SECRET"], "--seconds has no value"),
        (["SECRET"], "there is no such command"),
        (["status", "SECRET"], "an argument that this command does not take"),
        (["report", "--m=SECRET", "--c", "SECRET"], ""),
    ],
)
def test_wrong_usage_names_the_option_and_not_its_value(files, arguments, said):
    before = sorted(files.iterdir())
    shown = edge(files, *arguments, state=() if "--state" in arguments else ("--state", "state"))
    assert (shown.returncode, shown.stdout) == (2, "")
    assert said in shown.stderr
    assert "SECRET" not in shown.stderr
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize("place", ["id", "deep/id", "through a link"])
def test_a_machines_file_in_the_state_folder_is_noted(files, place):
    """A copy of the folder has the same file. One beside the folder is none to speak of."""
    (files / "state" / "deep").mkdir(parents=True)
    (files / "beside").write_text("pump 7")
    file = files / "state" / place
    if place == "through a link":
        (files / "state" / "id").write_text("pump 7")
        file = files / "link"
        file.symlink_to("state/id")
    file.write_text("pump 7")
    note = "note: the file of --machine-id is in the state folder"
    assert note in edge(files, "provision", "root.hst", "--machine-id", str(file.relative_to(files))).stderr
    reset = ("reset", "root.hst", "--count-budget-as-spent", "--machine-id")
    assert note in edge(files, *reset, str(file)).stderr
    assert edge(files, *reset, "beside").stderr == ""


SERIES = Series("pilot", 1)
NOTHING_DUE = {
    "period_answered": {"name": "mushrooms", "version": 2},
    "series_not_member": {"name": "other", "series": Series("another", 1, high=1)},
    "series_answered": {"name": "other", "series": SERIES},
    "expired": {"name": "other", "lifetime": 5 * DAY},
}


@pytest.mark.parametrize("why", NOTHING_DUE)
def test_where_no_answer_is_due_a_report_has_not_failed(tmp_path, why):
    """A roll-out to 1 % of the devices is no failure of the others, and neither is a campaign that is over."""
    publisher = Publisher(now=int(time.time()) - 10 * DAY)
    offered = NOTHING_DUE[why]
    with Device.provision(tmp_path / "state", trust=publisher.root(), clock=lambda: publisher.now + DAY) as device:
        first = device.enrol(publisher.campaign(series=SERIES if why == "series_answered" else None))
        second = None if why == "period_answered" else device.enrol(publisher.campaign(**offered))
    if why != "expired":
        assert edge(tmp_path, "report", "--campaign", first.id.hex(), text="{}").returncode == 0
    with Device.open(tmp_path / "state") as device:
        second = second or device.enrol(publisher.campaign(**offered))
    done = edge(tmp_path, "report", "--campaign", second.id.hex(), "--json", text="{}")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert said["nothing_to_do"] == why
    assert said["detail"]
    assert "nothing to do" in edge(tmp_path, "report", "--campaign", second.id.hex(), text="{}").stdout


@pytest.mark.parametrize(
    ("arguments", "reason", "status"),
    [
        (["enrol", "lie.hsc"], "epsilon_understated", 3),
        (["enrol", "m.hsm"], "wrong_role", 3),
        (["enrol", "absent.hsc"], "file_unreadable", 1),
        (["enrol", "."], "file_unreadable", 1),
        (["install", "root.hst"], "wrong_role", 3),
        (["report", "--campaign", "none"], "campaign_unknown", 1),
        (["report", "--campaign", ""], "campaign_unknown", 1),
        (["predict"], "model_unknown", 1),
    ],
)
def test_a_refusal_is_one_line_with_its_reason_and_the_status_of_its_class(files, arguments, reason, status):
    before = edge(files, *arguments, text="{}")
    assert (before.returncode, before.stderr.split(":")[0], (files / "state").exists()) in (
        (5, "not_provisioned", False),
        (status, reason, False),
    )
    edge(files, "provision", "root.hst")
    result = edge(files, *arguments, text="{}")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (status, "", 1)
    assert result.stderr.startswith(f"{reason}: ")
    done = edge(files, *arguments, "--json", text="{}")
    found = json.loads(done.stdout)
    assert (done.returncode, found["reason"], found["status"]) == (status, reason, status)
    assert done.stderr == f"{reason}: {found['detail']}\n"
    (files / "state" / "policy.toml").write_text('epsilon_per_period = "0.1"\n')
    assert edge(files, "enrol", "c.hsc").returncode == 4
    assert asked(files, "drain", "absent/out.hsr") == {"reports": 0, "file": None}, "nothing to drain claims no file"


@pytest.mark.parametrize(
    ("module", "program"),
    [("edge_sdk.cli.table", "edge_sdk.cli.main"), ("aggregator.cli.app", "aggregator.entry")],
)
def test_an_interruption_while_modules_are_loaded_prints_no_traceback(module, program):
    """Ctrl-C in the first moments: the module that takes longest to load is interrupted."""
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from {program} import main
sys.argv = ["program", "status"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
