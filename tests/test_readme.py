"""What the README shows is what the software says."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from support.publisher import NOW, Publisher

from edge_sdk import Device, Policy
from edge_sdk.policy import load_policy

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
        features=["odor", "width"],
        campaigns=["mushrooms*"],
        spool_days=90,
    )
    assert Policy() == Policy.of(epsilon_per_period=4, epsilon_lifetime=100, shortest_period="60s", smallest_batch=1)


def test_the_python_lines_run(tmp_path):
    code, synchronised = (
        block.replace("/var/lib/hearsay", str(tmp_path / "state"))
        .replace("outbox/", f"{tmp_path}/")
        .replace("https://example.org/hearsay", str(tmp_path))
        for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    )
    publisher = Publisher(now=1)
    scope = {
        "root_bytes": publisher.root(lifetime=1 << 33),
        "campaign_bytes": publisher.campaign(lifetime=1 << 33),
        "model_bytes": publisher.model(lifetime=1 << 33),
    }
    exec(code, scope)
    assert scope["device"].status().spooled == 0
    exec(synchronised, scope)
    assert [(each.step, each.reason) for each in scope["outcome"].refusals] == [
        ("campaigns/mushrooms.hsc", "not_published")
    ]
    scope["device"].close()
    assert (tmp_path / "today.hsr").stat().st_size == 44 + 18 + 44


def test_every_command_of_the_readme_exists():
    listed = set(re.findall(r"^ {4}hearsay (\w+)", README, re.MULTILINE))
    assert len(listed) >= 7
    for command in listed:
        result = subprocess.run(
            [sys.executable, "-m", "aggregator.entry", command, "--help"], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, command
        assert "Example" in result.stdout, command
