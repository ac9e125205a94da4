"""``hearsay nodes``: sign the list of nodes whose summaries count, and campaigns for these nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.nodes.campaign import campaign
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, check_files, forced, print_table, say, signatures, warn_of_draft, when
from aggregator.common.facts import Fact

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


def _signs(verb: str) -> Callable[[Callable[..., SignedList]], Callable[..., None]]:
    """Make a command from a function that signs a list. ``verb`` (``added``) comes before the number of nodes."""

    def decorated(function: Callable[..., SignedList]) -> Callable[..., None]:
        @options.together(options.workspace, options.output, options.life(365, "list"))
        @options.together(options.passphrase, options.force, options.json)
        @wraps(function)
        def command(workspace: Path, output: Path, **own: Any) -> None:
            check_files(output)
            made = function(signer_of(workspace), now=int(time.time()), **own)
            made.save(output, force=forced())
            header = made.document.header
            facts = {"file": str(output), "list": header.name, "version": header.version}
            facts |= {"nodes": len(made.document.nodes), verb: made.changed}
            say([*map(Fact, facts, facts.values()), Fact("expires", header.expires, when(header.expires))])
            warn_of_draft(made.standing, output)

        return command

    return decorated


@nodes.command()
@LIST
@KEYS
@_signs("added")
def new(signer: Workspace, **own: Any) -> SignedList:
    """Sign the first version of a node list, from public keys.

    A file has one key on each line. Of a folder all files that end in .key.pub are read. Look at who gave you a key:
    whoever holds its secret part can send sums up to the campaign's --max-records.

    \b
    Example:
      hearsay nodes new clinics keys --workspace work -o clinics.hsl
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import make_node_list

    return make_node_list(signer, **own)


@nodes.command()
@LIST
@KEYS
@_signs("added")
def add(signer: Workspace, **own: Any) -> SignedList:
    """Sign the next version of a node list, with more nodes.

    \b
    Example:
      hearsay nodes add clinics east.key.pub --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import add_nodes

    return add_nodes(signer, **own)


@nodes.command()
@LIST
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@_signs("removed")
def remove(signer: Workspace, **own: Any) -> SignedList:
    """Sign the next version of a node list, without some nodes: a key was stolen, or a clinic left.

    NODE is the id of a node, 16 hexadecimal digits (hearsay nodes show). An aggregator that is given the new list
    counts no summary of a removed node any more, also none that it has already.

    \b
    Example:
      hearsay nodes remove clinics 56475aa75463474c --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import remove_nodes

    return remove_nodes(signer, **own)


@nodes.command()
@LIST
@_signs("changed")
def renew(signer: Workspace, **own: Any) -> SignedList:
    """Sign the next version of a node list with the same nodes and another date of expiry.

    \b
    Example:
      hearsay nodes renew clinics --workspace work -o clinics.hsl --force
    """  # noqa: D301
    from aggregator.nodes.campaigns.lists import renew_nodes

    return renew_nodes(signer, **own)


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

    opened = signer_of(workspace)
    item, found = opened.latest(ROLE, name), current_list(opened, name)
    if item is None or found is None:
        raise unknown_list(opened, name)
    held, header = opened.standing(ROLE, opened.copy(item)), found.header
    listed = [(hint.hex(), public.hex()) for hint, public in sorted(found.nodes.items())]
    say(
        [
            Fact("list", header.name),
            Fact("version", header.version),
            Fact("issued_at", header.issued_at, when(header.issued_at), "issued"),
            Fact("expires", header.expires, when(header.expires)),
            signatures(held),
            Fact("nodes", dict(listed), len(listed)),
        ]
    )
    if not as_json():
        click.echo()
        print_table(("node", "public key"), listed)
