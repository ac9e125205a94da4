"""``hearsay nodes``: sign the list of nodes whose summaries count, and campaigns for these nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.nodes.campaign import campaign
from aggregator.cli.options import PATH
from aggregator.cli.output import (
    as_json,
    check_files,
    forced,
    print_facts,
    print_json,
    print_table,
    say,
    warn_of_draft,
    when,
)

if TYPE_CHECKING:
    from aggregator.nodes.campaigns.lists import SignedList
    from aggregator.publishing.workspace import Workspace


KEYS = click.argument("keys", metavar="KEY.pub...", type=PATH, nargs=-1, required=True)
LIST = click.argument("name", metavar="LIST")


@click.group()
def nodes() -> None:
    """Say which nodes count, and ask them for sums over their records.

    A node is a computer that holds many people's records, for example a gateway in a clinic. Per period it sends one
    signed summary of noisy sums. Only summaries of listed nodes count. hearsay-edge node key prints a node's public
    key, which its owner hands to you.

    \b
    Example:
      hearsay nodes new clinics north.key.pub south.key.pub --workspace work -o clinics.hsl
      hearsay nodes campaign schema.toml --workspace work --list clinics --epsilon 1 --max-records 100000 -o c.hsc
    """  # noqa: D301


nodes.add_command(campaign)


def _list_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all commands share that sign a node list."""
    for option in (options.json, options.force, options.passphrase, options.life(365, "list"), options.output):
        function = option(function)
    return options.workspace(function)


@nodes.command()
@LIST
@KEYS
@_list_options
def new(name: str, keys: tuple[Path, ...], workspace: Path, output: Path, days: int) -> None:
    """Sign the first version of a node list, from public keys.

    A file has one key on each line. Of a folder all files that end in .key.pub are read. Look at who gave you a key:
    whoever holds its secret part can send sums up to the campaign's --max-records.

    \b
    Example:
      hearsay nodes new clinics keys --workspace work -o clinics.hsl
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import make_node_list

    check_files(output)
    signer = _signer(workspace)
    made = make_node_list(signer, name, keys, days=days, now=int(time.time()))
    _say(made, output, "added")


@nodes.command()
@LIST
@KEYS
@_list_options
def add(name: str, keys: tuple[Path, ...], workspace: Path, output: Path, days: int) -> None:
    """Sign the next version of a node list, with more nodes.

    \b
    Example:
      hearsay nodes add clinics east.key.pub --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import add_nodes

    check_files(output)
    made = add_nodes(_signer(workspace), name, keys, days=days, now=int(time.time()))
    _say(made, output, "added")


@nodes.command()
@LIST
@click.argument("ids", metavar="NODE...", nargs=-1, required=True)
@_list_options
def remove(name: str, ids: tuple[str, ...], workspace: Path, output: Path, days: int) -> None:
    """Sign the next version of a node list, without some nodes: a key was stolen, or a clinic left.

    NODE is the id of a node, 16 hexadecimal digits (hearsay nodes show). An aggregator that is given the new list
    counts no summary of a removed node any more, also none that it has already.

    \b
    Example:
      hearsay nodes remove clinics 56475aa75463474c --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import remove_nodes

    check_files(output)
    made = remove_nodes(_signer(workspace), name, ids, days=days, now=int(time.time()))
    _say(made, output, "removed")


@nodes.command()
@LIST
@_list_options
def renew(name: str, workspace: Path, output: Path, days: int) -> None:
    """Sign the next version of a node list with the same nodes and another date of expiry.

    \b
    Example:
      hearsay nodes renew clinics --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import renew_nodes

    check_files(output)
    made = renew_nodes(_signer(workspace), name, days=days, now=int(time.time()))
    _say(made, output, "changed")


@nodes.command()
@LIST
@options.workspace
@options.json
def show(name: str, workspace: Path) -> None:
    """Show the newest version of a node list that the workspace has signed. Of a file: hearsay show LIST.hsl.

    \b
    Example:
      hearsay nodes show clinics --workspace work
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import ROLE, current_list, unknown_list
    from aggregator.publishing.workspace import open_workspace

    opened = open_workspace(workspace)
    item, found = opened.latest(ROLE, name), current_list(opened, name)
    if item is None or found is None:
        raise unknown_list(opened, name)
    held = opened.standing(ROLE, opened.copy(item))
    header = found.header
    if as_json():
        facts: dict[str, Any] = {"list": header.name, "version": header.version, "issued_at": header.issued_at}
        facts |= {"expires": header.expires, "signatures": held.to_output(as_json=True)}
        print_json({**facts, "nodes": {hint.hex(): public.hex() for hint, public in sorted(found.nodes.items())}})
        return
    print_facts(
        {
            "list": header.name,
            "version": header.version,
            "issued": when(header.issued_at),
            "expires": when(header.expires),
            "signatures": str(held),
            "nodes": len(found.nodes),
        }
    )
    click.echo()
    print_table(("node", "public key"), [(hint.hex(), public.hex()) for hint, public in sorted(found.nodes.items())])


def _signer(workspace: Path) -> Workspace:
    """The opened workspace that signs."""
    return signer_of(workspace)


def _say(made: SignedList, output: Path, verb: str) -> None:
    """Write a signed list to its file, and print what it holds and how many nodes were added or removed."""
    made.save(output, force=forced())
    header = made.document.header
    facts: dict[str, Any] = {"file": str(output), "list": header.name, "version": header.version}
    facts |= {"nodes": len(made.document.nodes), verb: made.changed}
    facts["expires"] = header.expires if as_json() else when(header.expires)
    say(facts)
    warn_of_draft(made.standing, output)
