"""The console script ``hearsay``, which starts the command line.

It prints one line if the aggregator's libraries are not installed, or if it is interrupted while modules are loaded.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from aggregator.cli.streams import prepare_streams
from aggregator.common.extras import missing_extra

NEEDED = ("click", "numpy", "pandas", "pyarrow", "rich")
"""Libraries of the extra ``aggregator``. A device does not have them."""


def main() -> None:
    """Run the command line, or print which libraries to install and exit with status 1. Ends the process."""
    prepare_streams()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        sys.stderr.write(f"{missing_extra(f'{names} not installed', 'aggregator')}\n")
        sys.exit(1)
    try:
        from aggregator.cli.app import hearsay
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was written\n")
        sys.exit(130)
    hearsay(prog_name="hearsay")


if __name__ == "__main__":
    main()
