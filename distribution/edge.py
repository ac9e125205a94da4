"""Builds the device's wheel, `hearsay-bayes-edge`: the packages `protocol` and `edge_sdk` of this tree.

    pip install ./distribution                  # on a device that has this tree
    python distribution/edge.py [FOLDER]        # make edge: a wheel to copy to devices; the default is dist/

Both commands use :func:`build_wheel`, which pip calls (PEP 517; named in the pyproject.toml of this folder). The two
packages, the licence and this folder's read-me are copied to a temporary folder. The project file there is derived from
the tree's project file, so version and dependencies are written in one place only. setuptools builds the wheel from the
copy. The installed setuptools is used if it is new enough; else pip fetches one. The same tree and the same setuptools
give the same bytes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NAME = "hearsay-bayes-edge"
PROGRAM = "hearsay-edge"
PACKAGES = ("protocol", "edge_sdk")
DESCRIPTION = "The device side of Hearsay: locally private reports about records, and signed models to classify with."
README = "README.md"
"""The device's own read-me, in this folder: the project's is longer than a device needs."""
SHARED = ("dynamic", "requires-python", "license", "license-files", "keywords", "dependencies")
"""Keys that are copied unchanged from the tree's project file."""
FIRST_DAY_OF_ZIP = "315532800"
"""1980-01-01, the earliest time in a zip file. Every file of the wheel has it, so the bytes depend on no clock."""


def project_file(tree: dict[str, Any]) -> str:
    """The text of the device's pyproject.toml, from the tree's parsed one. JSON strings and lists are valid TOML."""
    project = tree["project"]
    script = project["scripts"][PROGRAM]
    version = tree["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    packages = [f"{package}*" for package in PACKAGES]
    typed = {name: files for name, files in tree["tool"]["setuptools"]["package-data"].items() if name in PACKAGES}
    lines = [
        "[build-system]",
        *(f"{key} = {json.dumps(value)}" for key, value in tree["build-system"].items()),
        "[project]",
        f"name = {json.dumps(NAME)}",
        f"description = {json.dumps(DESCRIPTION)}",
        f"readme = {json.dumps(README)}",
        *(f"{key} = {json.dumps(project[key])}" for key in SHARED),
        "[project.scripts]",
        f"{PROGRAM} = {json.dumps(script)}",
        "[tool.setuptools]",
        f"packages = {{ find = {{ include = {json.dumps(packages)} }} }}",
        "[tool.setuptools.dynamic]",
        f"version = {{ attr = {json.dumps(version)} }}",
        "[tool.setuptools.package-data]",
        *(f"{name} = {json.dumps(files)}" for name, files in typed.items()),
    ]
    return "\n".join(lines) + "\n"


def stage(folder: Path) -> None:
    """Write the source tree of the device's distribution into an empty folder."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "distribution" / README, *(ROOT / name for name in tree["project"]["license-files"])):
        shutil.copy(file, folder)
    (folder / "pyproject.toml").write_text(project_file(tree), "utf-8")


def has_builder() -> bool:
    """Whether the installed setuptools has at least the version that the project file requires."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = int(re.fullmatch(r"setuptools>=(\d+)", *tree["build-system"]["requires"])[1])  # type: ignore[index]
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= wanted
    except importlib.metadata.PackageNotFoundError:
        return False


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel into a folder and return its name. pip runs this in a separate process."""
    del metadata_directory
    from setuptools import build_meta

    os.environ.setdefault("SOURCE_DATE_EPOCH", FIRST_DAY_OF_ZIP)
    with tempfile.TemporaryDirectory() as staging:
        stage(Path(staging))
        os.chdir(staging)
        try:
            return build_meta.build_wheel(wheel_directory, config_settings)
        finally:
            os.chdir(ROOT)


def build(folder: Path) -> Path:
    """Build the wheel into a folder and return its path.

    Raises:
        subprocess.CalledProcessError: pip failed; its message is on standard error.
    """
    with tempfile.TemporaryDirectory() as built:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        if has_builder():
            command.append("--no-build-isolation")
        subprocess.run([*command, "--wheel-dir", built, Path(__file__).parent], check=True)
        (wheel,) = Path(built).iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist", help="where the wheel goes")
    wheel = build(parser.parse_args().folder)
    print(f"{wheel}: {wheel.stat().st_size / 1000:.0f} kB")
