"""docs/design.md names the halls that are there; docs/reference/surface.md is what the software offers, and works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from support.publisher import Publisher

from docs import generate_surface

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs" / "design.md").read_text("utf-8")
SURFACE = generate_surface.PAGE.read_text("utf-8")
MOST_LINES = 250


def test_the_design_is_short():
    assert DESIGN.count("\n") <= MOST_LINES
    assert "## Planned" not in DESIGN


def test_the_tables_name_every_package_and_every_hall_once_and_no_other():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    children = [*(ROOT / "aggregator").glob("*/__init__.py"), *(ROOT / "aggregator").glob("*.py")]
    halls = {path.parent.name if path.stem == "__init__" else path.stem for path in children} - {"aggregator", "entry"}
    assert sorted(re.findall(r"^\| `(\w+)/` \|", DESIGN, re.MULTILINE)) == sorted(packages)
    assert sorted(re.findall(r"^\| `(\w+)` \|", DESIGN, re.MULTILINE)) == sorted(halls)


def test_the_surface_is_current():
    assert generate_surface.page() == SURFACE, "make docs writes docs/reference/surface.md again"


def test_the_extras_are_those_of_the_distribution():
    told = re.search(r"extras: (.*?)\.\s", SURFACE, re.DOTALL)[1]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"`(\w+)`", told)) == set(declared)


def test_the_python_lines_of_the_surface_work(tmp_path, monkeypatch):
    device, mechanism = re.findall(r"```python\n(.*?)```", SURFACE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    publisher = Publisher(now=1)
    scope = {
        "state_dir": tmp_path / "state",
        "root_bytes": publisher.root(lifetime=1 << 33),
        "campaign_bytes": publisher.campaign(lifetime=1 << 33),
        "model_bytes": publisher.model(lifetime=1 << 33),
        "record": {"odor": "n", "label": "e"},
        "path": tmp_path / "1.hsr",
    }
    exec(device.replace("https://example.org/hearsay", str(tmp_path / "source")), scope)
    assert scope["n"] == 1
    scope["device"].close()
    exec(mechanism, {"value": 3, "seed": bytes(32)})
