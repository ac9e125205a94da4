"""The unit files of docs/systemd: commands that exist, one folder, one user, a sandbox that leaves what is needed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.publisher import DAY, Publisher
from support.units import UNITS, command_line, entries

from edge_sdk import Device
from edge_sdk.cli.files import run_program
from edge_sdk.cli.table import build_parser
from protocol.errors import InputError

GUIDE = UNITS.parent / "how-to" / "raspberry-pi.md"
SERVICES = sorted(UNITS.glob("*.service"))
TIMERS = sorted(UNITS.glob("*.timer"))
PROGRAM = "/opt/hearsay/bin/hearsay-edge"


def arguments_of(line):
    """What `hearsay-edge` is given in a command line, variables and instance names filled in."""
    after = line.split(PROGRAM, 1)[1].rstrip("'")
    filled = after.replace("${HEARSAY_SOURCE}", "https://example.org/hearsay").replace("%i", "pumps")
    return shlex.split(filled.replace("$HEARSAY_OPTIONS", "--token /etc/hearsay/token"))


def commands():
    """Every command line of `hearsay-edge` in the units and the guide."""
    units = [line for path in SERVICES for line in entries(path)["Service", "ExecStart"]]
    guide = [line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("sudo ")]
    return [line.split(" #")[0] for line in (*units, *guide) if PROGRAM + " " in line]


def test_there_are_the_units_and_commands_that_the_guide_names():
    named = re.findall(r"`docs/systemd/([^`]+)`|systemd/(hearsay[\w@.-]+)", GUIDE.read_text("utf-8"))
    assert {a or b for a, b in named} == {path.name for path in UNITS.iterdir()}
    assert (len(SERVICES), len(TIMERS)) == (3, 2)
    assert len(commands()) >= 6
    with pytest.raises(SystemExit):
        build_parser().parse_args(arguments_of(f"{PROGRAM} --state /var/lib/hearsay synchronise x"))


@pytest.mark.parametrize("line", commands())
def test_a_command_takes_the_arguments_that_it_is_given(line):
    options = build_parser().parse_args(arguments_of(line))
    assert callable(options.run)
    assert options.state == Path("/var/lib/hearsay")


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_is_the_devices_own_user_in_its_own_folder_and_a_closed_sandbox(path):
    found = {key: values for (section, key), values in entries(path).items() if section == "Service"}
    assert found["User"] == found["Group"] == found["StateDirectory"] == ["hearsay"]
    assert (found["StateDirectoryMode"], found["Type"]) == (["0700"], ["oneshot"])
    lines = (UNITS / "hearsay.sysusers").read_text("utf-8").splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith("#")] == [["u", "hearsay"]]
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "ProtectClock", "RestrictNamespaces"):
        assert found[key] == ["yes"], key
    assert (found["ProtectSystem"], found["CapabilityBoundingSet"]) == (["strict"], [""])
    assert "ProcSubset" not in found  # the boot's id is read from /proc/sys


@pytest.fixture
def enrolled(tmp_path):
    """A provisioned state that is enrolled in the campaign ``pumps``."""
    publisher = Publisher(now=int(time.time()) - DAY)
    (tmp_path / "root.hst").write_bytes(publisher.root())
    with Device.provision(tmp_path / "state", trust=publisher.root()) as device:
        device.enrol(publisher.campaign(name="pumps"))
    return tmp_path


def report(folder, program):
    """What the report unit runs, on a state of this test, with a measuring program of its own."""
    (folder / "measure").write_text(program, "utf-8")
    (folder / "measure").chmod(0o755)
    words = command_line(UNITS / "hearsay-report@.service", {}, "pumps")
    places = {
        PROGRAM: [sys.executable, "-m", "edge_sdk.cli.main"],
        "/var/lib/hearsay": [folder / "state"],
        "/etc/hearsay/measure": [folder / "measure"],
    }
    command = [part for word in words for part in places.get(word, [word])]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=folder)
    with Device.open(folder / "state") as device:
        return done, device.status().spooled


BROKEN = {
    "crashes": "#!/bin/sh\nexit 3\n",
    "crashes in the middle": '#!/bin/sh\nprintf \'{"odor": "n", \'\nexit 1\n',
    "crashes after a record": '#!/bin/sh\necho \'{"odor": "SECRET"}\'\nexit 1\n',
    "prints no record": "#!/bin/sh\necho sensor: SECRET\n",
    "is no program": "SECRET",
    "is ended": "#!/bin/sh\nkill -9 $$\n",
}


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_a_measuring_program_that_fails_is_a_report_of_the_empty_record(enrolled, program):
    done, waiting = report(enrolled, program)
    assert (waiting, done.returncode) == (1, 1)
    assert done.stderr.startswith("measure_failed: measure: ")
    assert "SECRET" not in done.stdout + done.stderr
    assert json.loads(done.stdout)["answered_before"] is False
    assert done.stderr.endswith("the empty record is reported\n")


WORKS = '#!/bin/sh\necho \'{"odor": "n", "width": 2, "label": "e"}\'\n'


@pytest.mark.parametrize("first", [WORKS, BROKEN["crashes"]], ids=["works", "fails"])
def test_a_measuring_program_that_fails_after_the_answer_is_no_failure_of_the_report(enrolled, first):
    """The answer of the period stays, of whatever record it was, and the message says so."""
    done, waiting = report(enrolled, first)
    assert (waiting, done.returncode, done.stderr == "") == ((1, 0, True) if first == WORKS else (1, 1, False))
    before = json.loads(done.stdout)
    done, waiting = report(enrolled, BROKEN["crashes"])
    said = json.loads(done.stdout)
    assert (waiting, done.returncode, said["report"], said["answered_before"]) == (1, 0, before["report"], True)
    assert [(each["reason"], each["status"]) for each in said["refusals"]] == [("measure_failed", 0)]
    assert "is reported" not in done.stderr
    assert "answered before" in done.stderr


def test_a_program_that_hangs_or_never_ends_printing_is_ended(tmp_path):
    place = tmp_path / "measure"
    for script in ("sleep 60 & sleep 60", "exec yes"):
        place.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        place.chmod(0o755)
        with pytest.raises(InputError, match="measure_failed"):
            run_program(str(place), 1000, seconds=0.3)


IMAGE = re.search(r"### Images.*?```bash\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)[1]


def test_an_image_makes_a_device_of_its_own_at_its_first_start_and_never_again(tmp_path):
    """The guide's lines prepare the image; the unit's commands are the first start. A lost folder is not made anew."""
    image, state = tmp_path / "image", tmp_path / "image" / "var" / "lib" / "hearsay"
    for folder in ("etc/systemd/system", "var/lib"):
        (image / folder).mkdir(parents=True)
    (tmp_path / "policy.toml").write_text("# defaults\n")
    (tmp_path / "root.hst").write_bytes(Publisher(now=1).root(lifetime=1 << 33))
    (tmp_path / "systemd").symlink_to(UNITS)
    # What needs systemd or root is left out.
    script = f"set -eu\nIMAGE={shlex.quote(str(image))}\nchroot() {{ :; }}\nsystemctl() {{ :; }}\n{IMAGE}"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)
    found = entries(image / "etc" / "systemd" / "system" / "hearsay-provision.service")
    (condition,), (mount,) = found["Unit", "ConditionPathExists"], found["Unit", "RequiresMountsFor"]
    assert condition == f"{mount}/provision.hst"
    asked, told = state / "provision.hst", []

    def start():
        if not asked.exists():
            return
        for line in (*found["Service", "ExecStart"], *found["Service", "ExecStartPost"]):
            here = line.replace(PROGRAM, f"{sys.executable} -m edge_sdk.cli.main").replace(mount, str(state))
            told.append(subprocess.run(shlex.split(here), capture_output=True, text=True, check=True).stdout)

    root = asked.read_bytes()
    start()
    assert "new device    yes" in told[0]
    asked.write_bytes(root)  # as if the power was cut before the file was removed
    start()
    assert "new device    no" in told[2]
    shutil.rmtree(state)
    state.mkdir()
    start()
    assert (len(told), list(state.iterdir())) == (4, [])


def test_only_the_service_that_sees_no_record_has_a_network():
    sending, reporting = (entries(UNITS / name) for name in ("hearsay-edge.service", "hearsay-report@.service"))
    assert reporting["Service", "PrivateNetwork"] == ["yes"]
    assert ("Service", "PrivateNetwork") not in sending
    assert " report " in reporting["Service", "ExecStart"][0]
    assert " sync " in sending["Service", "ExecStart"][0]


@pytest.mark.parametrize("path", TIMERS, ids=lambda path: path.name)
def test_a_timer_has_its_service_and_is_spread(path):
    assert path.with_suffix(".service") in SERVICES
    found = entries(path)
    assert found["Install", "WantedBy"] == ["timers.target"]
    assert found["Timer", "RandomizedDelaySec"] != ["0"]
    assert found["Timer", "OnBootSec"]


def test_systemd_understands_every_line_and_finds_little_exposed(tmp_path):
    """Its scale of exposure goes from 0, closed, to 10; a service without a sandbox has 9.6."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    for path in (*SERVICES, *TIMERS):  # a program that is here, and templates with an instance
        text = path.read_text("utf-8").replace(PROGRAM, sys.executable)
        (tmp_path / path.name.replace("@", "@pumps")).write_text(text, "utf-8")
    command = ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "hearsay" in line]) == (0, [])
    for path in sorted(tmp_path.glob("*.service")):
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=15", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-200:]
