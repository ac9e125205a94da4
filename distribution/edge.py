"""The device's own wheel, `hearsay-edge`: `protocol` and `edge_sdk`, from this tree, and nothing of the aggregator.

    pip install ./distribution                  # on a device that has this tree
    python distribution/edge.py [FOLDER]        # make edge: a wheel to copy to devices; the default is dist/

Both go through :func:`build_wheel`, which pip calls (PEP 517; pyproject.toml beside this names it). The two packages,
the licence and the read-me are copied beside a project file that is derived from the tree's own: version, dependencies
and the rest are read there and typed nowhere a second time. The wheel is built from that copy, by setuptools: what this
interpreter has if that is new enough, else pip fetches it. The same tree and setuptools give the same bytes.
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
NAME = "hearsay-edge"
PACKAGES = ("protocol", "edge_sdk")
DESCRIPTION = "The device side of Hearsay: locally private reports about records, and signed models to classify with."
SHARED = ("version", "readme", "requires-python", "license", "license-files", "keywords", "dependencies")
"""What the device's distribution takes from the tree's project as it stands."""
FIRST_DAY_OF_ZIP = "315532800"
"""1980-01-01: the oldest time a zip file can tell, given to every file so that no clock is in the wheel."""


def project_file(tree: dict[str, Any]) -> str:
    """The device's pyproject.toml from the tree's own, parsed. Strings and lists of JSON are those of TOML."""
    project = tree["project"]
    script = project["scripts"][NAME]
    packages = [f"{package}*" for package in PACKAGES]
    typed = {name: files for name, files in tree["tool"]["setuptools"]["package-data"].items() if name in PACKAGES}
    lines = [
        "[build-system]",
        *(f"{key} = {json.dumps(value)}" for key, value in tree["build-system"].items()),
        "[project]",
        f"name = {json.dumps(NAME)}",
        f"description = {json.dumps(DESCRIPTION)}",
        *(f"{key} = {json.dumps(project[key])}" for key in SHARED),
        "[project.scripts]",
        f"{NAME} = {json.dumps(script)}",
        "[tool.setuptools]",
        f"packages = {{ find = {{ include = {json.dumps(packages)} }} }}",
        "[tool.setuptools.package-data]",
        *(f"{name} = {json.dumps(files)}" for name, files in typed.items()),
    ]
    return "\n".join(lines) + "\n"


def stage(folder: Path) -> None:
    """Put the device's distribution as a source tree into an empty folder."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (tree["project"]["readme"], *tree["project"]["license-files"]):
        shutil.copy(ROOT / name, folder)
    (folder / "pyproject.toml").write_text(project_file(tree), "utf-8")


def has_builder() -> bool:
    """Whether this interpreter's setuptools is as new as the project file asks for."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = int(re.fullmatch(r"setuptools>=(\d+)", *tree["build-system"]["requires"])[1])  # type: ignore[index]
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= wanted
    except importlib.metadata.PackageNotFoundError:
        return False


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel into a folder and return its name. Run by pip, in a process of its own."""
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
        subprocess.CalledProcessError: pip could not; it has said why.
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
