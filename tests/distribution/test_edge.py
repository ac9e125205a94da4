"""The device's own wheel: what is in it, that it needs nothing else, and that it says nothing twice."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from support.publisher import Publisher

from protocol import VERSION

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BESIDE = ("msgpack", "pynacl", "cffi", "pycparser")
"""What the wheel depends on, and PyNaCl on: copied from here, so that the test needs no network."""


def load():
    specification = importlib.util.spec_from_file_location("edge_wheel", ROOT / "distribution" / "edge.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


edge = load()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return edge.build(tmp_path_factory.mktemp("dist"))


README = (ROOT / "README.md").read_text("utf-8")
LINE = re.search(r"`pip install (.+?)`", README.split("\n## On a device\n", 1)[1])[1]


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """An environment made by the README's line: the distribution and what it depends on, not even pip."""
    place = tmp_path_factory.mktemp("device")
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/python3*/site-packages")
    for name in BESIDE:
        for file in importlib.metadata.files(name):
            if file.suffix != ".pyc" and ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", place / "bin" / "python"]
    builder = tmp_path_factory.mktemp("builder")  # seen while it is built, instead of one from the network
    for top in {file.parts[0] for file in importlib.metadata.files("setuptools") if file.suffix != ".pth"}:
        (builder / top).symlink_to(importlib.metadata.distribution("setuptools").locate_file(top))
    offline = ["--quiet", "--no-index", "--no-build-isolation"]
    environment = {**os.environ, "PYTHONPATH": str(builder)}
    subprocess.run([*pip, "install", *offline, *LINE.split()], cwd=ROOT, env=environment, check=True)
    subprocess.run([*pip, "check"], check=True)
    return place / "bin"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_holds_the_two_packages_of_this_tree_byte_for_byte_and_is_small(wheel, tmp_path):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 450_000
    with zipfile.ZipFile(wheel) as file:
        assert sum(entry.file_size for entry in file.infolist()) < 1_250_000
        held = {name: file.read(name) for name in file.namelist() if ".dist-info/" not in name}
    assert held == {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for package in ("protocol", "edge_sdk")
        for path in (ROOT / package).rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    assert edge.build(tmp_path).read_bytes() == wheel.read_bytes()


def test_what_it_says_of_itself_is_what_the_tree_says(wheel):
    with zipfile.ZipFile(wheel) as file:
        held = {name.rpartition("/")[2]: file.read(name).decode() for name in file.namelist() if ".dist-info/" in name}
    metadata, own = Parser().parsestr(held["METADATA"]), PROJECT["project"]
    assert (metadata["Name"], metadata["Version"]) == ("hearsay-bayes-edge", VERSION)
    assert metadata["Requires-Python"] == own["requires-python"]
    assert metadata["License-Expression"] == own["license"]
    assert metadata.get_all("Requires-Dist") == own["dependencies"]
    assert metadata["Provides-Extra"] is None
    assert metadata.get_payload() == (ROOT / "distribution" / "README.md").read_text("utf-8")
    assert held["entry_points.txt"] == "[console_scripts]\nhearsay-edge = edge_sdk.cli.main:main\n"
    builder = tomllib.loads((ROOT / "distribution" / "pyproject.toml").read_text("utf-8"))
    assert builder == {"build-system": builder["build-system"]}
    assert builder["build-system"]["requires"] == PROJECT["build-system"]["requires"]


def test_the_readme_installs_on_a_device_what_has_no_aggregator(device):
    """Its line made this environment; the tree's own distribution, `.`, would bring all packages."""
    (packages,) = device.parent.glob("lib/python3*/site-packages")
    names = {path.name.split(".")[0].split("-")[0] for path in packages.iterdir()}
    assert {"protocol", "edge_sdk", "hearsay_bayes_edge"} <= names
    assert not names & {"aggregator", "simulation", "research", "hearsay", "hearsay_bayes", "numpy", "setuptools"}
    assert "provision" in run(device / "hearsay-edge", "--help")
    found = "from importlib.util import find_spec; print([n for n in ('aggregator', 'numpy', 'click') if find_spec(n)])"
    assert run(device / "python", "-c", found, cwd=device) == "[]\n"
    assert not (device / "hearsay").exists()


def test_a_device_lives_with_nothing_but_the_wheel(device, tmp_path):
    """Its commands one after another, each a process of its own, on documents valid today."""
    publisher = Publisher(now=1)
    for name, document in (("root.hst", publisher.root), ("c.hsc", publisher.campaign), ("m.hsm", publisher.model)):
        (tmp_path / name).write_bytes(document(lifetime=1 << 33))

    def command(*arguments, record=""):
        return run(device / "hearsay-edge", "--state", "state", *arguments, cwd=tmp_path, input=record)

    command("provision", "root.hst")
    command("enrol", "c.hsc")
    command("report", "--campaign", "mushrooms", record='{"odor": "n", "width": 2, "label": "e"}')
    assert command("drain", "out.hsr").split() == ["reports", "1", "file", "out.hsr"]
    command("install", "m.hsm")
    assert command("predict", record='{"odor": "f"}').split()[:2] == ["class", "'p'"]
    assert (tmp_path / "out.hsr").stat().st_size == 44 + 18 + 44
