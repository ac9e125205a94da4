"""``hearsay serve``: a web server to try devices."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.options import PATH, read_size
from aggregator.cli.output import printable, say, warn
from aggregator.common.files import read_file
from protocol.errors import InputError

_SIZE: dict[str, Any] = {"callback": read_size, "show_default": True, "metavar": "SIZE"}
MAX_TOKEN_BYTES = 4096


@click.command()
@click.argument("tree", type=PATH, metavar="DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this machine to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--token", "token_file", type=PATH, metavar="FILE", help="File with the token that uploads must carry.")
@click.option("--largest", default="16MiB", help="Size of the largest batch file to take.", **_SIZE)
@click.option("--room", default="1GiB", help="Most bytes of all files in DIR/reports.", **_SIZE)
@options.json
def serve(tree: Path, host: str, port: int, token_file: Path | None, largest: int, room: int) -> None:
    """Serve a published folder and take reports into it, to try hearsay-edge sync on this machine.

    It is not for the internet. It has no TLS: anybody between it and a device could answer instead, and the device
    would delete reports that never arrived. By default it listens to this machine alone. For devices in the
    field see docs/how-to/serving.md, with nginx as an example. Ctrl-C ends it.

    \b
    Example:
      hearsay serve www     # first: hearsay publish --to www --workspace work
      hearsay-edge --state state sync http://127.0.0.1:8080 --campaign mushrooms
      hearsay ingest c.hsc www/reports/*.hsr --store store --workspace work
    """  # noqa: D301
    from aggregator.serving import Limits, TreeServer

    token = None if token_file is None else _read_token(token_file)
    limits, daily = Limits(largest, room), partial(_say_endings, tree)
    with TreeServer(tree, host, port, token=token, limits=limits, log=_log, problem=warn, daily=daily) as server:
        say({"address": server.url, "reports": str(tree / "reports")})
        if not ip_address(str(server.server_address[0])).is_loopback:
            warn("this address can be reached by others; this server speaks no TLS and is not for the internet")
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, _stop)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _say_endings(tree: Path) -> None:
    from aggregator.publishing.tree import endings_in

    now = int(time.time())
    for each in endings_in(tree, now):
        warn(each.warning(now))


def _stop(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _read_token(path: Path) -> str:
    token = read_file(path, MAX_TOKEN_BYTES).strip()
    if not token or not all(0x21 <= byte <= 0x7E for byte in token):
        raise InputError("token_invalid", "the token's file holds one word of ASCII, at most 4096 characters")
    return token.decode("ascii")


def _log(method: str, place: str, status: int) -> None:
    """Print one line per request without the device's address, which says more about a device than its report."""
    click.echo(printable(f"{status} {method} {place}"), err=True)
