"""Every example runs as it stands and comes to what its README says."""

from __future__ import annotations

import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import unknown_options

from aggregator import Model, open_store
from aggregator.collectors.collector import CollectorFolder
from edge_sdk import Device, Node
from protocol.errors import InputError, StorageError

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed_by(example, *arguments):
    """What an example prints. It must end well, without a warning."""
    command = [sys.executable, "-W", "error", EXAMPLES / example / "run.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_with_seed(example, folder, monkeypatch, capsys):
    """Run an example of nodes in this process, with noise from a seed: what it prints."""
    monkeypatch.setitem(Node.open.__func__.__wrapped__.__kwdefaults__, "entropy", random.Random(1).randbytes)
    monkeypatch.setattr("sys.argv", ["run.py", str(folder)])
    runpy.run_path(str(EXAMPLES / example / "run.py"), run_name="__main__")
    text, errors = capsys.readouterr()
    assert errors == ""
    return text


@pytest.mark.slow
def test_the_quickstart_goes_round_the_whole_loop_and_learns_something(tmp_path):
    """In 40 runs the accuracy was never below 88 %; saying "no" always gets 60 % right."""
    folder = tmp_path / "pumps"
    text = printed_by("quickstart", folder)
    assert text.startswith("800 reports read from 800 files\n")
    assert open_store(folder / "store").statistics().reports == 800
    assert Model.load(folder / "pumps.hsm", folder / "workspace" / "root.hst").classes == ("no", "yes")
    assert float(re.search(r"never seen: ([\d.]+)%", text)[1]) > 75
    for made in ("workspace/root.hst", "pumps.hsc", "inbox/0000.hsr", "store", "pumps.hsm"):
        assert (folder / made).exists()


@pytest.mark.slow
def test_the_sensors_report_through_restarts_and_learn_something(tmp_path):
    """150 sensors, 15 periods; 15 of them restart twice, after which the last period is asked again.

    In 25 simulated runs the accuracy was 94 % on average, 86 % at least; the most frequent state gets 75 %.
    """
    folder = tmp_path / "fleet"
    text = printed_by("sensor", "--folder", folder)
    assert "150 sensors, 15 periods each, 30 restarts of the 15 on disk\n2250 reports read from 150 files\n" in text
    statistics = open_store(folder / "store").statistics()
    assert (statistics.reports, dict(statistics.rejected)) == (2250, {})
    with Device.open(folder / "sensor000") as device:
        status = device.status()
    assert (status.spent_micro, status.spooled) == (60_000_000, 0)
    assert [name for name, *_ in status.models] == ["sensors"]
    model = Model.load(folder / "sensors.hsm", folder / "work" / "root.hst")
    assert model.document.schema.projection is not None
    assert all(isinstance(term, tuple) for term in model.terms)
    assert float(re.search(r"never seen: ([\d.]+)%", text)[1]) > 75
    assert text.count("live: state ") == 3


@pytest.mark.slow
def test_the_sensors_take_a_file_of_rows(tmp_path):
    draw = random.Random(5)
    rows = [f"{draw.gauss(0, 1):.3f},{draw.gauss(place, 1):.3f},{place}" for place in (0, 3) for _ in range(1500)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,state", *rows]) + "\n", "utf-8")
    text = printed_by("sensor", tmp_path / "rows.csv", "--label", "state")
    assert text.startswith("1500 windows, 4 numbers each; 300 of them are the pilot\n")


@pytest.mark.slow
def test_three_nodes_and_an_aggregator_learn_from_records_that_stay(tmp_path, monkeypatch, capsys):
    """The nodes draw from a seed. The most frequent outcome gets 75 %.

    In 400 runs without a seed the accuracy was 91.6 % ± 0.5 % and at least 88.3 %. With twice the noise 1.7 % of 300
    runs, with three times the noise 5 %, were below 85 %: a variance was lost in noise. As the noise has exponential
    tails, a run without a seed is below 85 % with a probability of about 0.017² or 0.05³, some 10⁻⁴.
    """
    folder = tmp_path / "clinics"
    text = run_with_seed("nodes", folder, monkeypatch, capsys)
    assert text.count("cost each patient ε = 2\n") == 3
    assert float(re.search(r"no clinic: ([\d.]+)%", text)[1]) > 85
    assert len(list((folder / "www" / "reports").glob("*.hsn"))) == 3
    with Node.open(folder / "north.state") as node:
        assert node.status().spent_micro == 2_000_000


@pytest.mark.slow
def test_five_clinics_learn_from_a_total_that_the_dealer_released(tmp_path, monkeypatch, capsys):
    """The noise is drawn from a seed, the keys are not: keys do not change the total. The largest class has 60 %."""
    folder = tmp_path / "clinics"
    text = run_with_seed("masked", folder, monkeypatch, capsys)
    assert text.count("cost each patient ε = 2\n") == 4
    assert "a total of 4 clinics; 1 is missing\n" in text
    assert abs(int(re.search(r"total says: (\d+)", text)[1]) - 1200) < 100
    assert float(re.search(r"no clinic: ([\d.]+)%", text)[1]) > 75
    for clinic, spent in (("north", 2_000_000), ("centre", 0)):
        with Node.open(folder / "clinics" / f"{clinic}.state") as node:
            assert node.status().spent_micro == spent


@pytest.mark.slow
def test_two_collectors_make_a_total_from_which_a_model_learns(tmp_path):
    """In 11 runs the accuracy was 92.5 to 94.6 %; saying "no" always gets 60 % right."""
    folder = tmp_path / "ward"
    text = printed_by("shared", folder)
    assert text.startswith("the leader sent 300 reports, the helper accepted 300\n")
    assert float(re.search(r"of no device: ([\d.]+)%", text)[1]) > 75
    with pytest.raises(StorageError, match="collector_exists"):
        CollectorFolder.create(folder / "leader", "x", "y")


@pytest.mark.parametrize(
    ("example", "steps"),
    [
        ("quickstart", "ask answer learn use"),
        ("nodes", "admit install ask summarise learn use"),
        ("masked", "admit install ask deal encrypt collect release learn use"),
        ("shared", "found ask answer collect learn use"),
        ("sensor", "design ask Sensor.run learn classify"),
    ],
)
def test_a_readme_names_what_is_there(example, steps):
    readme = (EXAMPLES / example / "README.md").read_text("utf-8")
    source = (EXAMPLES / example / "run.py").read_text("utf-8")
    named = re.findall(r"^\| `([\w.]+)` \|", readme, re.MULTILINE)
    assert named == steps.split()
    assert all(f"def {name.split('.')[-1]}(" in source for name in named)


def test_every_example_is_tested_here_or_in_a_file_of_its_own():
    tested = {"gossip", "masked", "mechanisms", "nodes", "quickstart", "sensor", "shared"}
    of_their_own = {name for name in ("loop", "mqtt") if (Path(__file__).parent / f"test_{name}.py").exists()}
    assert {path.name for path in EXAMPLES.iterdir()} == tested | of_their_own


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x,state\n1,a\n2,b\n", "label_missing: "),
        ("x,label\n1,a\n,b\n", "value_invalid: column 'x': the cell in line 3 "),
        ('x,label\n"4,25",a\n"5,5",b\n', "value_invalid: "),
        ("x,label\n1,a\n2,b\n", "one_class: "),
        (None, "file_not_found: "),
    ],
)
def test_the_sensor_refuses_wrong_files_in_one_line_without_a_cell(tmp_path, text, reason):
    path = tmp_path / "rows.csv"
    if text is not None:
        path.write_text(text)
    main = runpy.run_path(str(EXAMPLES / "sensor" / "run.py"), run_name="sensor")
    with pytest.raises(InputError) as refused:
        main["main"](main["_measurements"](path), "label", tmp_path / "out")
    assert str(refused.value).startswith(reason)
    assert "4,25" not in str(refused.value)


@pytest.mark.slow
def test_clinics_without_an_aggregator_end_with_equal_sums(tmp_path):
    text = printed_by("gossip", tmp_path / "clinics")
    assert "every clinic has the same file of 12 summaries" in text
    assert text.endswith("12 clinics know the same sums, none off by more than 0\n")
    assert len({(tmp_path / "clinics" / f"{number}.hsn").read_bytes() for number in range(12)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("example", ["loop", "mqtt"])
def test_the_commands_of_the_readme_have_their_options(example):
    readme = (EXAMPLES / example / "README.md").read_text("utf-8")
    assert unknown_options(readme, EXAMPLES / example) == []
    assert unknown_options(readme.replace("--campaign", "--campain"), EXAMPLES / example) != []
