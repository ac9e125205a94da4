"""``hearsay key``: signing keys that are kept outside of a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.options import PATH, existing_passphrase, new_passphrase, shared
from aggregator.cli.output import check_files, say, write_file
from aggregator.publishing.keys import key_file, public_line, read_key, write_key
from protocol.documents.envelope import KEY_BYTES, SigningKey
from protocol.documents.trust import ROLES


@click.group()
def key() -> None:
    """Make and protect signing keys that are kept outside of a workspace.

    \b
    Example:
      hearsay key new alice.key --role campaign
      hearsay trust add-key campaign --key alice.key.pub --threshold 2 --workspace work
    """  # noqa: D301


@key.command()
@click.argument("output", type=PATH, metavar="OUT.key")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the key will sign.")
@options.passphrase
@options.no_passphrase
@options.json
def new(output: Path, role: str) -> None:
    """Make a key pair: the file OUT.key, which stays secret, and OUT.key.pub beside it for the keeper of the root.

    The key is encrypted under a passphrase, except with --no-passphrase.

    \b
    Example:
      hearsay key new alice.key --role campaign
    """  # noqa: D301
    public = output.with_name(f"{output.name}.pub")
    check_files(output, public)
    passphrase = new_passphrase()
    made = key_file(role, SigningKey.from_seed(os.urandom(KEY_BYTES)), passphrase)
    write_key(output, made)
    write_file(public, public_line(made).encode())
    say({"key": str(output), "public": str(public), "role": role, "id": made.id, "encrypted": made.encrypted})


@key.command()
@click.argument("file", type=PATH, metavar="FILE.key")
@options.passphrase
@shared("--new-passphrase-file", type=PATH, help="File with the new passphrase.")
@options.no_passphrase
@options.json
def protect(file: Path) -> None:
    """Give a key file a new passphrase, or with --no-passphrase none. The key stays the same.

    For a workspace: run it on each file in the folder keys. All keys of a workspace need one passphrase.

    \b
    Example:
      hearsay key protect work/keys/root.key
    """  # noqa: D301
    before = read_key(file)
    opened = before.open(existing_passphrase())
    passphrase = new_passphrase(option="new_passphrase_file")
    after = key_file(before.role, opened, passphrase)
    write_key(file, after, force=True)
    say({"key": str(file), "role": after.role, "id": after.id, "encrypted": after.encrypted})
