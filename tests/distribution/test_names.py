"""What this software is called where it is installed by name, and the command that every message names to extend it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

from aggregator.common import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TAKEN = re.compile(r"""install[^\n]{0,60}['"]hearsay(-edge)?(\[|['"])|pip install hearsay(-edge)?[\s'"`]""")
"""A line that installs `hearsay` or `hearsay-edge` by name: on the package index those are, or may become, others'."""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Pretend that this software was installed, with what pip recorded of its origin."""
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "aggregator" / "extras.py"))
    monkeypatch.setattr(extras, "_pip", lambda *words: " ".join(("pip install", *words)))

    def pretend(origin):
        folder = tmp_path / "hearsay_bayes-0.1.0.dist-info"
        folder.mkdir()
        if origin is not None:
            (folder / "direct_url.json").write_text(json.dumps(origin), "utf-8")
        monkeypatch.setattr(extras, "distribution", lambda name: {PROJECT["name"]: Distribution.at(folder)}[name])

    return pretend


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install hearsay-bayes[cluster]"),
        ({"url": "file:///home/ann/a%20tree", "dir_info": {}}, "pip install /home/ann/a tree[cluster]"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "pip install -e /src[cluster]"),
        (
            {"url": "https://example.org/h.whl", "archive_info": {}},
            "pip install hearsay-bayes[cluster] @ https://example.org/h.whl",
        ),
        (
            {"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}, "subdirectory": "x"},
            "pip install hearsay-bayes[cluster] @ git+https://example.org/h.git@ab12#subdirectory=x",
        ),
    ],
)
def test_an_extra_is_installed_from_where_this_software_is_from(installed, origin, command):
    installed(origin)
    assert extras.install_command("cluster") == command
    assert str(extras.missing_extra("a cluster takes Dask", "cluster")) == (
        f"missing_extra: a cluster takes Dask: {command}"
    )


def test_without_an_origin_no_command_is_invented(installed, monkeypatch):
    installed(None)

    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", nothing)
    assert "pip" not in extras.install_command("cluster")


def test_in_a_source_tree_the_tree_is_installed():
    assert extras.install_command("masked").endswith(f"install -e '{ROOT}[masked]'")


@pytest.mark.slow
def test_pip_takes_the_command():
    words = extras.install_command("masked").replace("'", "").split(" install ")[1].split()
    tried = ["--dry-run", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *tried, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"Would install {PROJECT['name']}" in done.stdout


def test_the_name_is_one_and_the_projects_own_extras_refer_to_it():
    assert extras.DISTRIBUTION == PROJECT["name"] == "hearsay-bayes"
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert everything.startswith("hearsay-bayes[")


def test_no_text_installs_another_projects_distribution():
    assert TAKEN.search("run pip install 'hearsay[cluster]'")
    packages = ("aggregator", "edge_sdk", "protocol", "simulation", "research")
    folders = (*packages, "docs", "examples", "benchmarks", "distribution")
    files = [*(path for folder in folders for path in (ROOT / folder).rglob("*")), *ROOT.glob("*")]
    said = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in (".py", ".md", ".toml", "") and path.is_file() and TAKEN.search(path.read_text("utf-8"))
    }
    assert not said
