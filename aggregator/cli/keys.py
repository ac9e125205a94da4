"""Commands about keys and signatures: ``init``, ``key``, ``sign``."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.making import force_option, json_option, say
from aggregator.cli.output import note, warn, when
from aggregator.cli.passphrase import asked, chosen, no_passphrase_option, passphrase_option
from protocol.document import DAY_SECONDS
from protocol.documents.envelope import KEY_BYTES, SIZE_LIMITS, read_envelope, role_of
from protocol.documents.trust import ROLES
from protocol.errors import InputError

if TYPE_CHECKING:
    from protocol.document import Header
    from protocol.documents.envelope import Envelope


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the trust root; default: the folder's name.")
@click.option("--days", type=click.IntRange(1, 36_500), default=3650, show_default=True, help="Life of the root.")
@passphrase_option
@no_passphrase_option
@json_option
def init(
    folder: Path,
    name: str | None,
    days: int,
    passphrase_file: Path | None,
    *,
    no_passphrase: bool,
    as_json: bool,
) -> None:
    """Make a workspace: signing keys and the trust root that devices pin.

    The folder must not exist, or be empty; back it up. Its keys are encrypted under a passphrase, which is
    asked for, unless --no-passphrase says otherwise: then whoever can read them can sign for you.

    \b
    Example:
      hearsay init work
      hearsay init work --no-passphrase
    """  # noqa: D301
    from aggregator.publishing.workspace import create_workspace

    now = int(time.time())
    passphrase = chosen(passphrase_file, refuse=no_passphrase)
    workspace = create_workspace(
        folder,
        name=name or folder.absolute().name,
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
    facts["expires"] = expires if as_json else when(expires)
    say(facts, as_json=as_json)


@click.group()
def key() -> None:
    """Make and protect signing keys that are kept outside of a workspace.

    \b
    Example:
      hearsay key new alice.key --role campaign
      hearsay trust add-key campaign --key alice.key.pub --threshold 2 --workspace work
    """  # noqa: D301


@key.command()
@click.argument("output", type=click.Path(path_type=Path), metavar="OUT.key")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the key will sign.")
@passphrase_option
@no_passphrase_option
@json_option
def new(output: Path, role: str, passphrase_file: Path | None, *, no_passphrase: bool, as_json: bool) -> None:
    """Make a key pair: OUT.key, to be kept secret, and OUT.key.pub for whoever keeps the trust root.

    The key is encrypted under a passphrase unless --no-passphrase says otherwise.

    \b
    Example:
      hearsay key new alice.key --role campaign
    """  # noqa: D301
    import os

    from aggregator.files import check_output, write_output
    from aggregator.publishing.keys import key_file, public_line, write_key
    from protocol.documents.envelope import SigningKey

    public = output.with_name(f"{output.name}.pub")
    for path in (output, public):
        check_output(path, force=False)
    passphrase = chosen(passphrase_file, refuse=no_passphrase)
    made = key_file(role, SigningKey.from_seed(os.urandom(KEY_BYTES)), passphrase)
    write_key(output, made)
    write_output(public, public_line(made).encode())
    say(
        {"key": str(output), "public": str(public), "role": role, "id": made.id, "encrypted": made.encrypted},
        as_json=as_json,
    )


@key.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.key")
@passphrase_option
@click.option("--new-passphrase-file", type=click.Path(path_type=Path), help="File with the new passphrase.")
@no_passphrase_option
@json_option
def protect(
    file: Path,
    passphrase_file: Path | None,
    new_passphrase_file: Path | None,
    *,
    no_passphrase: bool,
    as_json: bool,
) -> None:
    """Put a key file under a new passphrase, or with --no-passphrase under none. The key stays the same.

    For a workspace: each file in its folder keys, all under one passphrase.

    \b
    Example:
      hearsay key protect work/keys/root.key
    """  # noqa: D301
    from aggregator.publishing.keys import key_file, read_key, write_key

    before = read_key(file)
    opened = before.open(asked(passphrase_file))
    passphrase = chosen(new_passphrase_file, refuse=no_passphrase)
    after = key_file(before.role, opened, passphrase)
    write_key(file, after, force=True)
    say({"key": str(file), "role": after.role, "id": after.id, "encrypted": after.encrypted}, as_json=as_json)


@click.command()
@click.argument("document", type=click.Path(path_type=Path))
@click.option("--key", "key_path", type=click.Path(path_type=Path), required=True, help="Key file to sign with.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: the document itself is replaced.")
@click.option("--trust", "trust_file", type=click.Path(path_type=Path), help="Trust root, to say how many are needed.")
@passphrase_option
@force_option
@json_option
def sign(
    document: Path,
    key_path: Path,
    output: Path | None,
    trust_file: Path | None,
    passphrase_file: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Add one signature to a trust root, campaign or model. Needs the key file, and no workspace.

    Look at the document first (hearsay show): your signature says that devices may obey it. A document
    that no device would accept is not signed. Signing twice with one key changes nothing.

    \b
    Example:
      hearsay sign c.hsc --key alice.key --trust work/root.hst
    """  # noqa: D301
    from aggregator.files import check_output, read_file, write_output
    from aggregator.publishing.keys import read_key
    from aggregator.publishing.signatures import check_payload, signed, to_bytes

    raw = read_file(document, max(SIZE_LIMITS.values()))
    role = role_of(raw)
    if role is None:
        raise InputError("unknown_file", f"'{document}' is no trust root, campaign or model")
    place = document if output is None else output
    check_output(place, force=force or output is None)
    envelope = read_envelope(raw, role)
    header = check_payload(envelope, role)
    found = read_key(key_path)
    if found.role != role:
        raise InputError("wrong_key", f"the key is for a {found.role}, and the document is a {role}")
    after = signed(envelope, found.open(asked(passphrase_file)))
    if after != envelope or place != document:
        write_output(place, to_bytes(after, role), force=force or output is None)
    _say_signed(place, role, header, after, trust_file, found.id, added=after != envelope, as_json=as_json)


def _say_signed(
    place: Path,
    role: str,
    header: Header,
    after: Envelope,
    trust_file: Path | None,
    hint: str,
    *,
    added: bool,
    as_json: bool,
) -> None:
    from aggregator.files import read_file
    from aggregator.publishing.signatures import root_of, standing
    from protocol.documents.trust import restore

    facts: dict[str, Any] = {"document": str(place), "kind": role, "name": header.name, "version": header.version}
    facts |= {"id": sha256(after.payload).hexdigest(), "expires": header.expires if as_json else when(header.expires)}
    facts |= {"key": hint, "added": added, "signatures": len(after.signatures)}
    counted = []
    if trust_file is not None:
        trusted = restore(read_file(trust_file, SIZE_LIMITS["root"]), {}, 0).root.roles[role]
        counted.append(("trusted", standing(after, trusted)))
    if role == "root":
        counted.append(("itself", standing(after, root_of(after).roles["root"])))
    for name, held in counted:
        facts[name] = held.said(as_json=as_json)
    say(facts, as_json=as_json)
    if not added:
        note("the key had signed it already; nothing was changed")
    if counted and not any(hint in held.signers for _, held in counted):
        warn("no trust root that was looked at names this key: its signature counts for nothing there")
