"""``hearsay init``: make the workspace of a publisher."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from aggregator.cli import options
from aggregator.cli.options import PATH, new_passphrase
from aggregator.cli.output import as_json, say, when
from protocol.documents.payload import DAY_SECONDS
from protocol.documents.trust import ROLES


@click.command()
@click.argument("folder", type=PATH)
@click.option("--name", help="Name of the trust root; default: the folder's name.")
@options.life(3650, "root")
@options.passphrase
@options.no_passphrase
@options.json
def init(folder: Path, name: str | None, days: int) -> None:
    """Make a workspace: signing keys and the trust root that devices pin.

    The folder must not exist, or be empty. Back it up. Its keys are encrypted under a passphrase, which is asked
    for. With --no-passphrase they are not encrypted, and everybody who can read the files can sign for you.

    \b
    Example:
      hearsay init work
      hearsay init work --no-passphrase
    """  # noqa: D301
    from aggregator.publishing.workspace import create_workspace

    now = int(time.time())
    passphrase = new_passphrase()
    workspace = create_workspace(
        folder,
        name=folder.absolute().name if name is None else name,
        now=now,
        lifetime_seconds=days * DAY_SECONDS,
        passphrase=passphrase,
    )
    facts: dict[str, Any] = {"workspace": str(folder), "trust_root": str(folder / "root.hst")}
    facts["name"] = workspace.root.header.name
    keys = {each.role: each.id for each in workspace.key_files()}
    facts.update({f"{role}_key": keys[role] for role in ROLES})
    facts["encrypted"] = passphrase is not None
    expires = workspace.root.header.expires
    facts["expires"] = expires if as_json() else when(expires)
    say(facts)
