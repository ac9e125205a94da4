"""The command ``hearsay-edge sync``: its arguments, and its run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_sdk.cli.commands import open_device
from edge_sdk.cli.files import read_file
from edge_sdk.cli.node import open_node
from edge_sdk.storage.documents import DEVICE
from protocol.epsilon import MICRO, millionths

_MAX_TOKEN_BYTES = 8192
_MAX_SECONDS = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command ``sync`` to ``parser``, the parser of this command."""
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
    seconds = (millionths(text) or 0) / MICRO
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError
    return seconds


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Send the device's reports to the source ``options.source``, and fetch newer documents from it.

    Return the outcome of the run; its key ``refusals`` lists the refused steps.

    Raises:
        InputError: ``file_unreadable``, ``token_invalid``: the token's file; ``address_invalid``: the source;
            ``argument_invalid``: a name that is no printable text of 1 … 1024 bytes.
        HearsayError: the transport or the device can not be opened, or the device's status can not be read.
    """
    from edge_sdk.carriers import open_transport, read_token
    from edge_sdk.sync import sync

    token = None if options.token is None else read_token(read_file(options.token, _MAX_TOKEN_BYTES))
    method = "POST" if options.post else "PUT"
    transport = open_transport(options.source, method=method, token=token, seconds=options.seconds)
    with open_device(options) as device:
        is_device = device.status().kind == DEVICE
    # A state without a campaign may take its first one in this run, and it may be for nodes.
    with (open_device if is_device else open_node)(options) as device:
        done = sync(device, transport, campaigns=options.campaign, models=options.model).to_json()
        status = device.status()
    for each in done["refusals"]:
        # A document of yesterday at the source is its publisher's: the device takes the next one. Under a root whose
        # time is over the device takes nothing more.
        if each["reason"] == "expired" and not status.root_expired:
            each["status"] = 0
    return {**done, "warnings": list(status.warnings)}
