"""Extras: the libraries that parts of this software need, and the command that installs them from where it came from.

The name ``hearsay`` belongs to another project on the package index (decision 107).
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from protocol.errors import InputError

DISTRIBUTION = "hearsay-bayes"
"""The name of this software where distributions are installed by name."""


def missing_extra(what: str, extra: str) -> InputError:
    """Make the error ``missing_extra``: which library ``what`` needs, and the command that installs the ``extra``."""
    return InputError("missing_extra", f"{what}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return a shell command that installs one more ``extra`` of this software, from where it was installed before."""
    tree = Path(__file__).parents[2]
    if (tree / "pyproject.toml").is_file():  # it runs from its source: installed as editable, or not at all
        return _pip("-e", f"{tree}[{extra}]")
    try:
        return _pip(*_requirement(distribution(DISTRIBUTION), extra))
    except PackageNotFoundError:
        return f"install {DISTRIBUTION}[{extra}] from where this software is from"


def _requirement(found: Distribution, extra: str) -> tuple[str, ...]:
    """Return what pip is to install: the origin that pip recorded (PEP 610), or the name if it recorded none."""
    named = f"{DISTRIBUTION}[{extra}]"
    recorded = found.read_text("direct_url.json")
    if recorded is None:
        return (named,)
    origin = json.loads(recorded)
    url = origin["url"]
    if "dir_info" in origin:
        edited = ("-e",) if origin["dir_info"].get("editable") else ()
        return (*edited, f"{url2pathname(urlsplit(url).path)}[{extra}]")
    if "vcs_info" in origin:
        repository = origin["vcs_info"]
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    folder = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
    return (f"{named} @ {url}{folder}",)


def _pip(*arguments: str) -> str:
    """Return a shell line that runs this interpreter's pip, by its short name if a shell finds the same pip."""
    beside = Path(sys.executable).parent
    found = shutil.which("pip")
    pip = ("pip",) if found is not None and Path(found).parent == beside else (sys.executable, "-m", "pip")
    return shlex.join((*pip, "install", *arguments))
