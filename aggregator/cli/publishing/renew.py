"""``hearsay renew``: sign anew what is about to expire."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import PATH
from aggregator.cli.output import as_json, note, print_json, print_table, warn, when
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.publishing.endings import Renewed


_ROLES = ("root", "nodes", "campaign")


@click.command()
@options.workspace
@click.option(
    "--ahead", type=click.IntRange(1, 3650), default=7, show_default=True, metavar="DAYS",
    help="Renew what expires within so many days.",
)  # fmt: skip
@click.option(
    "--only", "roles", type=click.Choice(_ROLES), multiple=True, help="Renew documents of this kind; may be repeated."
)
@click.option("--expired", is_flag=True, help="Also campaigns and node lists that expired in the last 30 days.")
@click.option("--dry-run", is_flag=True, help="Sign nothing; say what would be done.")
@click.option("--to", "tree", type=PATH, help="Folder that devices fetch from, to update afterwards.")
@options.passphrase
@options.json
def renew(
    workspace: Path, ahead: int, roles: tuple[str, ...], tree: Path | None, *, expired: bool, dry_run: bool
) -> None:
    """Sign the next version of the root, node lists and campaigns that are about to expire. For cron.

    Each lives as long again as the version before, and is otherwise the same. A second run does nothing. Where
    something could not be renewed the status is 1, and a line says what to do; all else was renewed.

    The next version of a campaign has an id of its own. Devices answer it after the present period, which they have
    answered, and spend further ε within their owners' limits. Its reports belong into a store of their own, which
    publish --store adds to the earlier one. A campaign that is to end needs no renewal: leave its kind out with
    --only, or end it with hearsay campaign --end. Models are not renewed: publish one from newer reports.

    \b
    Example:
      hearsay renew --workspace work --dry-run
      hearsay renew --workspace work --to www --passphrase-file /etc/hearsay/passphrase   # daily, by cron
    """  # noqa: D301
    from aggregator.publishing.endings import renew as renew_all
    from aggregator.publishing.tree import write_tree

    now = int(time.time())
    opened = signer_of(workspace)
    done = renew_all(opened, now, ahead * DAY_SECONDS, roles=roles or _ROLES, expired=expired, dry_run=dry_run)
    changed = () if tree is None or dry_run else write_tree(signer_of(workspace), tree).written
    if as_json():
        shown = [_facts(each, dry_run=dry_run) for each in done]
        print_json({"documents": shown, "dry_run": dry_run, "files_changed": list(changed)})
    else:
        _print(done, dry_run=dry_run)
    left = [each for each in done if each.problem]
    for each in left:
        warn(f"{each.ending.role} '{each.ending.name}': {each.problem}")
    if any(each.version is not None and each.ending.role == "campaign" for each in done):
        note("a renewed campaign has an id of its own: ingest its reports into a store of their own")
    if any(expired or each.ending.expires > now or each.ending.role == "root" for each in left):
        raise InputError("not_renewed", "not every document that ends soon was renewed; the lines before say why")


def _facts(each: Renewed, *, dry_run: bool) -> dict[str, Any]:
    return {
        "kind": each.ending.role,
        "name": each.ending.name,
        "version": each.ending.version,
        "expires": each.ending.expires,
        "renewed": each.version is not None,
        "would_renew": dry_run and not each.problem,
        "new_version": each.version,
        "new_expires": each.expires,
        "document": None if each.path is None else str(each.path),
        "problem": each.problem or None,
    }


def _print(done: list[Renewed], *, dry_run: bool) -> None:
    if not done:
        click.echo("nothing expires soon")
        return
    rows = [
        (
            each.ending.role,
            each.ending.name,
            each.ending.version,
            when(each.ending.expires),
            "left" if each.version is None and each.problem else "would be renewed" if dry_run else each.version,
            "" if each.expires is None else when(each.expires),
        )
        for each in done
    ]
    print_table(("kind", "name", "version", "expires", "new version", "new expiry"), rows, numeric=("version",))
