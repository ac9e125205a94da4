"""``hearsay trust``: change and show the trust root, which says who may sign what."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli import options
from aggregator.cli.inputs import signer_of
from aggregator.cli.options import PATH, existing_passphrase
from aggregator.cli.output import (
    KINDS,
    as_json,
    counted,
    document_facts,
    note,
    print_json,
    print_table,
    say,
    signatures,
    warn,
    when,
)
from aggregator.common.facts import Fact, Facts, said, stated
from aggregator.common.files import read_file
from aggregator.publishing.keys import MAX_KEY_BYTES, parse_public, read_key
from aggregator.publishing.roots import ALL, NextRoot, RootChange, change_root, gather_copies, lacking, pending
from aggregator.publishing.roots import discard as forget
from aggregator.publishing.roots import resign as sign_again
from protocol.documents.envelope import SIGNERS, SIZE_LIMITS, keyid, role_of
from protocol.documents.payload import DAY_SECONDS
from protocol.documents.trust import ROLES, Root
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace


SOON_SECONDS = 90 * DAY_SECONDS
ELSEWHERE = "elsewhere"
ENCRYPTED = "here, encrypted"
role_argument = click.argument("role", type=click.Choice(ROLES))
threshold_option = click.option("--threshold", type=int, help="How many of the role's keys must sign from now on.")


@click.group()
def trust() -> None:
    """Say who may sign what: every change is the next version of the trust root.

    Enough keys of the root before and of the new root sign it, so that devices can follow from any version to the
    newest. If the workspace has too few keys, the next root waits in its folder pending/ for signatures
    (hearsay sign). hearsay trust gather then brings it into force.

    \b
    Example:
      hearsay trust show --workspace work
      hearsay trust add-key campaign --key alice.key.pub --threshold 2 --workspace work
    """  # noqa: D301


def _root_command(function: Callable[..., RootChange]) -> Callable[..., None]:
    """Make a command from a function that returns a change of the root: add options, make the next root, print it."""

    @options.workspace
    @options.life(3650, "root")
    @click.option("--sign-with", type=PATH, multiple=True, help="Root key kept elsewhere; repeatable.")
    @options.passphrase
    @options.json
    @wraps(function)
    def command(workspace: Path, days: int, sign_with: tuple[Path, ...], **own: Any) -> None:
        from aggregator.publishing.workspace import open_workspace

        change = function(**own)
        passphrase, now = existing_passphrase(), int(time.time())
        opened = open_workspace(workspace, passphrase)
        signers = [read_key(path).open(passphrase) for path in sign_with]
        _say_root(change_root(opened, change, now, days * DAY_SECONDS, signers=signers), workspace, now)

    return command


@trust.command("add-key")
@role_argument
@click.option("--key", type=PATH, help="Public key, .key.pub; default: make one here.")
@threshold_option
@_root_command
def add_key(role: str, key: Path | None, threshold: int | None) -> RootChange:
    """Let one more key sign for a role.

    \b
    Example:
      hearsay trust add-key campaign --key alice.key.pub --threshold 2 --workspace work
    """  # noqa: D301
    add = () if key is None else (_public(key, role),)
    return RootChange(role, add=add, fresh=0 if add else 1, threshold=threshold)


@trust.command()
@role_argument
@click.argument("keyids", metavar="KEYID...", nargs=-1, required=True)
@threshold_option
@_root_command
def revoke(role: str, keyids: tuple[str, ...], threshold: int | None) -> RootChange:
    """Remove keys from a role: lost or stolen keys, or keys of people who left.

    Devices that get the new root refuse documents that have too few signatures without these keys. hearsay trust
    resign signs the newest version of each again.

    \b
    Example:
      hearsay trust revoke campaign 56475aa75463474c --workspace work
    """  # noqa: D301
    return RootChange(role, drop=tuple(each.lower() for each in keyids), threshold=threshold)


@trust.command()
@role_argument
@click.option("--key", "keys", type=PATH, multiple=True, help="Public key; repeatable.")
@click.option(
    "--keys", "count", type=click.IntRange(1, 16), help="Number of keys to make here; default: 1 without --key."
)
@threshold_option
@_root_command
def rotate(role: str, keys: tuple[Path, ...], count: int | None, threshold: int | None) -> RootChange:
    """Replace all keys of a role. --threshold changes its threshold, which otherwise stays.

    Devices then forget which versions of the role's documents they have seen. A thief of the old keys may have
    signed a far higher version, and devices would refuse your lower versions otherwise.

    \b
    Example:
      hearsay trust rotate campaign --workspace work
    """  # noqa: D301
    add = tuple(_public(path, role) for path in keys)
    fresh = count if count is not None else 0 if add else 1
    return RootChange(role, add=add, fresh=fresh, drop=ALL, threshold=threshold)


@trust.command()
@role_argument
@click.argument("number", type=int)
@_root_command
def threshold(role: str, number: int) -> RootChange:
    """Set how many keys of a role must sign.

    \b
    Example:
      hearsay trust threshold campaign 2 --workspace work
    """  # noqa: D301
    return RootChange(role, threshold=number)


@trust.command()
@_root_command
def renew() -> RootChange:
    """Give the root a new date of expiry, with the same keys.

    \b
    Example:
      hearsay trust renew --days 730 --workspace work
    """  # noqa: D301
    return RootChange()


def _public(path: Path, role: str) -> bytes:
    """Return the public key in a .pub file, which must be made for the role ``role``."""
    return parse_public(read_file(path, MAX_KEY_BYTES), role)


@trust.command()
@options.workspace
@options.json
def show(workspace: Path) -> None:
    """Show the trust root in force: keys, thresholds, dates, and the documents that lack signatures.

    \b
    Example:
      hearsay trust show --workspace work
    """  # noqa: D301
    opened = signer_of(workspace)
    root, waiting = opened.root, pending(opened)
    now = int(time.time())
    undersigned = lacking(opened, now)
    rows = _key_rows(opened)
    say(
        [
            Fact("name", root.header.name),
            Fact("version", root.header.version),
            Fact("expires", root.header.expires, when(root.header.expires)),
            *(
                said(f"{name} needs", f"{role.threshold} of {counted(len(role.keys), 'key')}")
                for name, role in root.roles.items()
            ),
            stated("roles", _roles(root, rows)),
            stated("pending", None if waiting is None else Facts("", _root_facts(waiting)).to_json()),
            stated("lacking", [Facts("", tuple(document_facts(item))).to_json() for item in undersigned]),
        ]
    )
    if as_json():
        return
    click.echo()
    print_table(("role", "key", "kept"), rows)
    if waiting is not None:
        click.echo()
        say([Fact("pending root", waiting.root.header.version), *_root_facts(waiting)])
    for item in undersigned:
        note(f"{item.role} '{item.name}', version {item.version}, lacks signatures; hearsay trust resign signs it")
    if root.header.expires < now + SOON_SECONDS:
        warn("the root expires soon, and then devices accept nothing new; hearsay trust renew gives it another date")


def _roles(root: Root, rows: list[tuple[str, str, str]]) -> dict[str, object]:
    return {
        name: {
            "threshold": role.threshold,
            "keys": [
                {"id": hint, "here": kept != ELSEWHERE, "encrypted": kept == ENCRYPTED}
                for owner, hint, kept in rows
                if owner == name
            ],
        }
        for name, role in root.roles.items()
    }


def _key_rows(opened: Workspace) -> list[tuple[str, str, str]]:
    """Return one row per key: role, key id, and where the secret part is."""
    here = {(each.role, each.public): each.encrypted for each in opened.key_files()}
    kept = {None: ELSEWHERE, False: "here", True: ENCRYPTED}
    return [
        (name, keyid(public).hex(), kept[here.get((name, public))])
        for name, role in opened.root.roles.items()
        for public in sorted(role.keys, key=keyid)
    ]


@trust.command()
@click.argument("files", type=PATH, nargs=-1, required=True)
@options.workspace
@options.json
def gather(files: tuple[Path, ...], workspace: Path) -> None:
    """Read signed copies of one document into the workspace, and join their signatures.

    A root with enough signatures comes into force. A campaign, model or node list with enough signatures is
    published by hearsay publish --to. Copies may come in any order and repeatedly.

    \b
    Example:
      hearsay trust gather work/pending/2.hst from-alice.hst --workspace work
    """  # noqa: D301
    copies = [read_file(file, max(SIZE_LIMITS.values())) for file in files]
    role = role_of(copies[0])
    if role is None:
        raise InputError("unknown_file", f"'{files[0]}' is no trust root, campaign, model or node list")
    if role not in SIGNERS:
        raise InputError("wrong_role", f"'{files[0]}' is of the kind '{KINDS[role]}', which has one signature for ever")
    opened = signer_of(workspace)
    found = gather_copies(opened, role, copies)
    if isinstance(found, NextRoot):
        _say_root(found, workspace, int(time.time()))
        return
    item, held = found
    say([*document_facts(item), Fact("document", str(opened.copy_path(item))), signatures(held)])


@trust.command()
@options.workspace
@options.json
def discard(workspace: Path) -> None:
    """Delete the root that waits for signatures. Nobody may sign it any more: another root will take its number.

    \b
    Example:
      hearsay trust discard --workspace work
    """  # noqa: D301
    say({"discarded": forget(signer_of(workspace))})


@trust.command()
@options.workspace
@options.passphrase
@options.json
def resign(workspace: Path) -> None:
    """Sign the newest campaigns, models and node lists again, if they lack signatures under the root in force.

    Payloads, ids and versions stay the same, so enrolled devices go on. Once a document has enough signatures, new
    devices accept it, and hearsay publish --to publishes it.

    \b
    Example:
      hearsay trust resign --workspace work
    """  # noqa: D301
    opened = signer_of(workspace)
    redone = sign_again(opened, int(time.time()))
    if as_json():
        facts = (
            (*document_facts(item), Fact("document", str(opened.copy_path(item))), signatures(held))
            for item, held in redone
        )
        print_json({"signed": [Facts("", each).to_json() for each in facts]})
        return
    rows = [(item.role, item.name, item.version, str(held)) for item, held in redone]
    if rows:
        print_table(("kind", "name", "version", "signatures"), rows)
    else:
        note("every document has the signatures that it needs")


def _root_facts(found: NextRoot) -> tuple[Fact, ...]:
    return Fact("file", str(found.path)), signatures(found.before, "root_before"), signatures(found.own, "itself")


def _say_root(found: NextRoot, workspace: Path, now: int) -> None:
    header = found.root.header
    facts = Fact("version", header.version), Fact("in_force", found.in_force)
    say([*facts, Fact("expires", header.expires, when(header.expires)), *_root_facts(found)])
    if not found.in_force:
        note(f"hearsay sign {found.path} --key KEY adds a signature; hearsay trust gather brings the root into force")
    elif left := lacking(signer_of(workspace), now):
        note(f"{counted(len(left), 'document')} must be signed again: hearsay trust resign --workspace {workspace}")
