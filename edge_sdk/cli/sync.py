"""The command ``hearsay-edge sync``: its arguments, and its run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_sdk.cli.commands import open_device
from edge_sdk.cli.files import read_file

_MAX_TOKEN_BYTES = 8192
_MAX_SECONDS = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sync`` to its parser."""
    parser.add_argument("source", metavar="URL|DIR", help="where the source's tree begins: https://…, or a folder")
    parser.add_argument(
        "--campaign", action="append", default=[], metavar="NAME", help="enrol in this campaign; may be repeated"
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="install this model; may be repeated"
    )
    parser.add_argument("--post", action="store_true", help="send by POST instead of PUT")
    parser.add_argument("--token", type=Path, metavar="FILE", help="holds what to show the server as bearer of")
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="longest time for one document or batch over the web; 300"
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError
    return seconds


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Fetch, send and acknowledge. The key ``refusals`` of the result lists the refused steps."""
    from edge_sdk.sync.run import sync
    from edge_sdk.transport.registry import open_transport, read_token

    token = None if options.token is None else read_token(read_file(options.token, _MAX_TOKEN_BYTES))
    method = "POST" if options.post else "PUT"
    transport = open_transport(options.source, method=method, token=token, seconds=options.seconds)
    with open_device(options) as device:
        return sync(device, transport, campaigns=options.campaign, models=options.model).to_json()
