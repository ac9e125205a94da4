"""``hearsay sign``: add a signature to a trust root, campaign, model or node list."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import click

from aggregator.cli import options
from aggregator.cli.options import PATH, existing_passphrase
from aggregator.cli.output import KINDS, forced, note, say, signatures, warn, when, write_file
from aggregator.common.facts import Fact
from aggregator.common.files import check_output, read_file
from aggregator.publishing.keys import read_key
from aggregator.publishing.signatures import check_payload, root_of, signed, standing, to_bytes
from protocol.documents.envelope import SIGNERS, SIZE_LIMITS, Envelope, read_envelope, role_of
from protocol.documents.payload import Header
from protocol.documents.trust import restore
from protocol.errors import InputError


@click.command()
@click.argument("document", type=PATH)
@click.option("--key", "key_path", type=PATH, required=True, help="Key file to sign with.")
@click.option("-o", "--output", type=PATH, help="File to write; default: replace the document.")
@click.option("--trust", "trust_file", type=PATH, help="Trust root, to tell how many signatures are needed.")
@options.passphrase
@options.force
@options.json
def sign(document: Path, key_path: Path, output: Path | None, trust_file: Path | None) -> None:
    """Add one signature to a trust root, campaign, model or node list. Needs only the key file, no workspace.

    Look at the document first (hearsay show): your signature tells devices to obey it. A document with invalid
    content is not signed. Dates are not checked. Signing twice with one key changes nothing. Campaign keys sign
    node lists.

    \b
    Example:
      hearsay sign c.hsc --key alice.key --trust work/root.hst
    """  # noqa: D301
    raw = read_file(document, max(SIZE_LIMITS.values()))
    role = role_of(raw)
    if role is None:
        raise InputError("unknown_file", f"'{document}' is no trust root, campaign, model or node list")
    if role not in SIGNERS:
        raise InputError(
            "wrong_role", f"'{document}' is of the kind '{KINDS[role]}', which a node or dealer signs with its own key"
        )
    place = document if output is None else output
    replaced = forced() or output is None
    check_output(place, force=replaced)
    envelope = read_envelope(raw, role)
    header = check_payload(envelope, role)
    found = read_key(key_path)
    if found.role != SIGNERS[role]:
        raise InputError(
            "wrong_key",
            f"the key is for a {found.role}, and the document is a {KINDS.get(role, role)}, for {SIGNERS[role]} keys",
        )
    after = signed(envelope, found.open(existing_passphrase()))
    if after != envelope or place != document:
        write_file(place, to_bytes(after, role), force=replaced)
    _say_signed(place, role, header, after, trust_file, found.id, added=after != envelope)


def _say_signed(
    place: Path, role: str, header: Header, after: Envelope, trust_file: Path | None, hint: str, *, added: bool
) -> None:
    """Print the document and the number of its signatures; with a trust root, or for a root, how many are needed."""
    counted = []
    if trust_file is not None:
        trusted = restore(read_file(trust_file, SIZE_LIMITS["root"]), {}, 0).root.roles[SIGNERS[role]]
        counted.append(("trusted", standing(after, trusted)))
    if role == "root":
        counted.append(("itself", standing(after, root_of(after).roles["root"])))
    say(
        [
            Fact("document", str(place)),
            Fact("kind", KINDS.get(role, role)),
            Fact("name", header.name),
            Fact("version", header.version),
            Fact("id", sha256(after.payload).digest(), sha256(after.payload).hexdigest()),
            Fact("expires", header.expires, when(header.expires)),
            Fact("key", hint),
            Fact("added", added),
            Fact("signatures", len(after.signatures)),
            *(signatures(held, name) for name, held in counted),
        ]
    )
    if not added:
        note("the key had signed it already; nothing was changed")
    if counted and not any(hint in held.signers for _, held in counted):
        warn("no trust root that was read names this key: its signature does not count there")
