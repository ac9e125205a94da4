"""What the README shows is what the software says."""

from __future__ import annotations

import re
import textwrap
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
from click.testing import CliRunner
from support.failures import reason
from support.publisher import NOW, Publisher
from support.reports import batch, report

import aggregator
from aggregator import sealing
from aggregator.cli.app import hearsay
from aggregator.publishing import keys
from edge_sdk import Device, Policy
from edge_sdk.policy.policy_file import load_policy
from edge_sdk.timekeeping.clock import system_uptime


class Tomorrow(date):
    """A date whose today is the next day."""

    @classmethod
    def today(cls):
        return date.today() + timedelta(days=1)


README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_explanation_is_the_real_one(tmp_path):
    shown = README.split("<!-- explain -->\n")[1].split("<!-- /explain -->")[0]
    with Device.open(tmp_path, trust=Publisher().root(), clock=lambda: NOW) as device:
        assert textwrap.dedent(shown).strip() in device.explain(Publisher().campaign())


def test_the_policy_is_read_and_the_defaults_are_as_told(tmp_path):
    (tmp_path / "policy.toml").write_text(re.search(r"```toml\n(.*?)```", README, re.DOTALL)[1], "utf-8")
    assert load_policy(tmp_path / "policy.toml") == Policy.of(
        epsilon_per_period=2,
        epsilon_lifetime=50,
        epsilon_per_day=4,
        shortest_period="1h",
        smallest_batch=100,
        features=["odor", "width", "label"],
        campaigns=["mushrooms*"],
        spool_days=90,
    )
    assert Policy() == Policy.of(epsilon_per_period=4, epsilon_lifetime=100, shortest_period="60s", smallest_batch=1)


def test_the_python_lines_run_in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    provisioned, code, synchronised = (
        block.replace("/var/lib/hearsay", str(tmp_path / "state")).replace("https://example.org/hearsay", str(tmp_path))
        for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    )
    (tmp_path / "roots").mkdir()
    publisher = Publisher(now=1)
    scope = {
        "root_bytes": publisher.root(lifetime=1 << 33),
        "campaign_bytes": publisher.campaign(lifetime=1 << 33),
        "model_bytes": publisher.model(lifetime=1 << 33),
    }
    exec(provisioned, scope)
    exec(code, scope)
    assert scope["device"].status().spooled == 0
    exec(synchronised, scope)
    assert [(each.step, each.reason) for each in scope["outcome"].refusals] == [
        ("campaigns/mushrooms.hsc", "not_published")
    ]
    scope["device"].close()
    exec(code, scope)  # the same day again
    scope["device"].close()
    boot, up = system_uptime()
    monkeypatch.setattr("edge_sdk.timekeeping.clock.system_clock", lambda: int(time.time()) + 86_400)
    monkeypatch.setattr("edge_sdk.timekeeping.clock.system_uptime", lambda: (boot, up + 86_400))
    monkeypatch.setattr("datetime.date", Tomorrow)
    exec(code, scope)
    scope["device"].close()
    assert [path.stat().st_size for path in tmp_path.glob("20??-??-??.hsr")] == 2 * [44 + 18 + 44]


def test_a_start_as_the_readme_shows_it_never_begins_a_new_device(tmp_path):
    """The data partition is not mounted: nothing is there, the marker of the installation neither."""
    state = tmp_path / "state"
    provisioned, code, _ = (
        block.replace("/var/lib/hearsay", str(state)) for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    )
    scope = {"root_bytes": Publisher(now=1).root(lifetime=1 << 33)}
    exec(provisioned, scope)
    state.rename(tmp_path / "not mounted")
    assert reason(exec, code, scope) == "not_provisioned"
    state.mkdir()  # the mount point
    assert reason(exec, code, scope) == "not_provisioned"
    assert list(state.iterdir()) == []


def test_every_command_of_the_readme_exists():
    listed = set(re.findall(r"^ {4}hearsay (\w+)", README, re.MULTILINE))
    assert len(listed) >= 7
    for command in listed:
        result = CliRunner().invoke(hearsay, [command, "--help"])
        assert result.exit_code == 0, command
        assert "Example" in result.stdout, command


def test_the_commands_of_who_may_sign_do_what_they_say(tmp_path, monkeypatch):
    """In order, with a passphrase from a file and the key id that Alice's key really has."""
    shown = README.split("## Who may sign\n")[1].split("\n## ")[0]
    (tmp_path / "schema.toml").write_text(
        'name = "mushrooms"\n[label]\nname = "class"\nclasses = ["e", "p"]\n'
        '[[features]]\nname = "odor"\nkind = "categorical"\nvalues = ["a", "n"]\n',
        "utf-8",
    )
    (tmp_path / "passphrase").write_text("correct horse", "utf-8")
    monkeypatch.setenv("HEARSAY_PASSPHRASE_FILE", str(tmp_path / "passphrase"))
    monkeypatch.setattr(keys, "COST", sealing.Cost(1, 8192))
    monkeypatch.chdir(tmp_path)
    said = []
    for line in re.findall(r"^ {4}hearsay (.*?)(?: {2,}#.*)?$", shown, re.MULTILINE):
        alice = re.search(r"^id +([0-9a-f]{16})$", "".join(said), re.MULTILINE)
        words = line.replace("/srv/www/hearsay", "www").replace("56475aa75463474c", alice[1] if alice else "")
        result = CliRunner().invoke(hearsay, words.split())
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    assert (tmp_path / "www" / "campaigns" / "mushrooms.hsc").read_bytes() == (tmp_path / "end.hsc").read_bytes()
    assert sorted(path.name for path in (tmp_path / "www" / "roots").iterdir()) == ["1.hst", "2.hst", "3.hst"]


def test_the_python_lines_of_the_aggregator_run(tmp_path, monkeypatch):
    """In the month that they name, with reports of its first day."""
    first = int(datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp())
    monkeypatch.setattr("time.time", lambda: first)
    monkeypatch.setitem(aggregator.Model.load.__func__.__kwdefaults__, "clock", lambda: first)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "passphrase").write_text("correct horse", "utf-8")
    monkeypatch.setenv("HEARSAY_PASSPHRASE_FILE", str(tmp_path / "passphrase"))
    monkeypatch.setattr(keys, "COST", sealing.Cost(1, 8192))
    result = CliRunner().invoke(hearsay, ["init", "work"])  # as the README makes it: under a passphrase
    assert result.exit_code == 0, result.output
    (tmp_path / "schema.toml").write_text(
        'name = "mushrooms"\n[label]\nname = "class"\nclasses = ["e", "p"]\n'
        '[[features]]\nname = "odor"\nkind = "categorical"\nvalues = ["a", "n"]\n',
        "utf-8",
    )
    code = textwrap.dedent(README.split("<!-- python -->\n")[1].split("<!-- /python -->")[0])
    making, rest = code.split("aggregator.ingest(", 1)
    scope = {"frame": pd.DataFrame({"odor": ["a", "n"]}), "labels": ["e", "p"]}
    exec(making, scope)
    campaign = scope["made"].campaign
    for name, devices in (("a", range(30)), ("b", range(20, 60))):
        records = [report(campaign, device, period=campaign.period_at(first)) for device in devices]
        (tmp_path / f"{name}.hsr").write_bytes(batch(campaign, records))
    exec(f"aggregator.ingest({rest}", scope)
    assert scope["model"].document.card["reports"] == 60
