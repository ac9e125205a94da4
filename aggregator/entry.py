"""The console script ``hearsay``: one clear line if the aggregator's libraries are not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from io import TextIOWrapper

NEEDED = ("click", "numpy", "pandas", "pyarrow", "rich")
"""What the extra ``aggregator`` installs and a device does not have."""


def main() -> None:
    """Run the command line, or say what to install. Ends the process."""
    _replace_what_does_not_encode()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(f"missing_extra: {', '.join(missing)} not installed; run pip install 'hearsay[aggregator]'\n")
        sys.exit(1)
    from aggregator.cli.app import hearsay

    hearsay(prog_name="hearsay")


def _replace_what_does_not_encode() -> None:
    """Let an old locale print ``?`` for ε instead of ending a command in the middle of its output."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
