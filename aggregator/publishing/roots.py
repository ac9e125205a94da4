"""Changing the trust root: adding, revoking and replacing keys, thresholds and dates, one version at a time.

Root N + 1 counts when the thresholds of both N and N + 1 have signed it (docs/formats.md, section 5).
Where the keys here are enough it is in force at once; else it is *pending*: signatures are added to it
one by one and it is handed back with :func:`gather_copies`. There is one pending root at most, since devices
take two different roots of one number for treason (``equivocation``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from aggregator.files import read_file, write_output
from aggregator.publishing.history import latest_of_each
from aggregator.publishing.keys import KeyFile, key_file, write_key
from aggregator.publishing.lifetimes import header_for
from aggregator.publishing.signatures import Standing, draft, joined, root_of, signed, standing, successor, to_bytes
from protocol import canonical
from protocol.document import read_payload
from protocol.documents import trust
from protocol.documents.envelope import (
    KEY_BYTES,
    MAX_SIGNATURES,
    PAYLOAD_TYPES,
    SIZE_LIMITS,
    SigningKey,
    keyid,
    read_envelope,
)
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from aggregator.publishing.history import Published
    from aggregator.publishing.workspace import Workspace
    from protocol.documents.envelope import Envelope
    from protocol.documents.trust import Role, Root


class Step(NamedTuple):
    """A next root.

    Attributes:
        root: what it says.
        path: its file in the workspace: in roots/ if it is in force, else in pending/.
        in_force: whether enough keys have signed it.
        before, own: signatures that count for the root before it, and for itself.
    """

    root: Root
    path: Path
    in_force: bool
    before: Standing
    own: Standing


class Change(NamedTuple):
    """What a next root says otherwise than the one in force; None leaves a thing as it is.

    Attributes:
        role: whose keys or threshold change; None changes the dates alone.
        add: public keys.
        fresh: how many keys to make here, and add.
        drop: key ids in hexadecimal; ``all`` drops every key that the role had.
        threshold: of the role.
    """

    role: str | None = None
    add: tuple[bytes, ...] = ()
    fresh: int = 0
    drop: Sequence[str] | str = ()
    threshold: int | None = None


ALL = "all"


def change_root(
    workspace: Workspace,
    change: Change,
    now: int,
    lifetime_seconds: int,
    *,
    signers: Iterable[SigningKey] = (),
    entropy: Callable[[int], bytes] = os.urandom,
) -> Step:
    """Make the next root, sign it with every root key at hand, and put it in force if that is enough.

    Args:
        workspace: whose root; its version at this moment counts.
        change: see :class:`Change`.
        now: seconds since 1970.
        lifetime_seconds: of the new root.
        signers: root keys that are kept elsewhere, opened.
        entropy: for the keys that are made here.

    Raises:
        InputError: ``key_unknown``, ``key_repeated``, ``role_invalid``; ``passphrase_missing``,
            ``passphrase_wrong``.
        StorageError: ``root_pending``: the one made before lacks signatures; ``workspace_damaged``, ``io_failed``.
    """
    with workspace.locked() as current:
        if pending_path(current).exists():
            raise StorageError(
                "root_pending", f"root {current.root.header.version + 1} waits for signatures; gather or discard them"
            )
        made = [SigningKey.from_seed(entropy(KEY_BYTES)) for _ in range(change.fresh)]
        roles = dict(current.root.roles)
        if change.role is not None:
            added = change._replace(add=(*change.add, *(key.public for key in made)))
            roles[change.role] = _changed(change.role, roles[change.role], added)
        before = current.root.header
        root = trust.Root(header_for(before.name, before.version + 1, now, lifetime_seconds), roles)
        files = _kept(current, change.role or "root", made, entropy)
        keys = [*signers, *_root_keys_here(current, root), *(made if change.role == "root" else ())]
        envelope = _signed_by(draft(PAYLOAD_TYPES["root"], canonical.pack(root.to_payload())), current, root, keys)
        for file in files:
            write_key(current.path / "keys" / f"{file.role}-{file.id}.key", file)
        return _put(current, envelope, root)


def _changed(name: str, role: Role, change: Change) -> Role:
    """A role with other keys or another threshold.

    Raises:
        InputError: ``key_unknown``, ``key_repeated``, ``role_invalid``.
    """
    by_id = {keyid(public).hex(): public for public in role.keys}
    dropped = set(by_id) if change.drop == ALL else set(change.drop)
    for hint in dropped - set(by_id):
        raise InputError("key_unknown", f"the role {name} has no key '{hint[:64]}'; hearsay trust show lists them")
    kept = {public for hint, public in by_id.items() if hint not in dropped}
    if len(kept.union(change.add)) < len(kept) + len(change.add):
        raise InputError("key_repeated", f"the role {name} has that key already")
    keys = frozenset(kept.union(change.add))
    threshold = role.threshold if change.threshold is None else change.threshold
    if not 1 <= threshold <= len(keys) <= MAX_SIGNATURES:
        raise InputError(
            "role_invalid",
            f"the role {name} would have {len(keys)} keys and need {threshold} of them; "
            f"it has 1 to {MAX_SIGNATURES} keys, and needs 1 or more of these",
        )
    return trust.Role(keys, threshold)


def _kept(current: Workspace, role: str, made: list[SigningKey], entropy: Callable[[int], bytes]) -> list[KeyFile]:
    """New keys as they will be kept: under the workspace's passphrase if it has one."""
    sealed = [each for each in current.key_files() if each.encrypted]
    passphrase = None
    if made and sealed:
        passphrase = current.passphrase()
        sealed[0].open(lambda: passphrase or b"")  # not under a passphrase that was mistyped
    return [key_file(role, key, passphrase, entropy=entropy) for key in made]


def _root_keys_here(current: Workspace, root: Root) -> list[SigningKey]:
    """The keys here that count for the root in force or for the next."""
    wanted = current.root.roles["root"].keys | root.roles["root"].keys
    return [each.open(current.passphrase) for each in current.key_files("root") if each.public in wanted]


def _signed_by(envelope: Envelope, current: Workspace, root: Root, keys: Iterable[SigningKey]) -> Envelope:
    """Signed by the keys that count for either root; those that count for both first, since there are 16 places."""
    old, new = current.root.roles["root"].keys, root.roles["root"].keys
    counting = [key for key in dict.fromkeys(keys) if key.public in old | new]
    counting.sort(key=lambda key: (key.public in old) + (key.public in new), reverse=True)
    for key in counting[:MAX_SIGNATURES]:
        envelope = signed(envelope, key)
    return envelope


def _put(current: Workspace, envelope: Envelope, root: Root) -> Step:
    """Write a next root to where its signatures allow: roots/ if they are enough, else pending/."""
    before = standing(envelope, current.root.roles["root"])
    own = standing(envelope, root.roles["root"])
    raw = to_bytes(envelope, "root")
    path = pending_path(current)
    if before.complete and own.complete:
        path = current.path / "roots" / path.name
        successor(current.root, raw)
    write_output(path, raw, force=True)
    step = Step(root, path, before.complete and own.complete, before, own)
    if step.in_force:
        current._replace(root_bytes=raw, root=root).settle()
    return step


def pending_path(workspace: Workspace) -> Path:
    """Where the next root waits for signatures."""
    return workspace.path / "pending" / f"{workspace.root.header.version + 1}.hst"


def pending(workspace: Workspace) -> Step | None:
    """The root that waits for signatures.

    Raises:
        StorageError: ``workspace_damaged``.
    """
    path = pending_path(workspace)
    if not path.exists():
        return None
    problem = ""
    try:
        envelope = read_envelope(read_file(path, SIZE_LIMITS["root"]), "root")
        root = root_of(envelope)
        return Step(
            root, path, False, standing(envelope, workspace.root.roles["root"]), standing(envelope, root.roles["root"])
        )
    except DocumentError as error:
        problem = error.detail
    raise StorageError("workspace_damaged", f"'pending/{path.name}' can not be used: {problem}")


def discard(workspace: Workspace) -> int:
    """Forget the pending root, so that another of its number can be made. Returns that number.

    Raises:
        InputError: ``nothing_pending``.
    """
    with workspace.locked() as current:
        path = pending_path(current)
        if not path.exists():
            raise InputError("nothing_pending", "no root waits for signatures")
        path.unlink()
        return current.root.header.version + 1


def gather_copies(workspace: Workspace, role: str, copies: Sequence[bytes]) -> Step | tuple[Published, Standing]:
    """Join the signatures of copies of one document, the workspace's own among them.

    A root that has enough of them comes into force. One made elsewhere may come so too, if it is the next.

    Args:
        workspace: where the document was made.
        role: root, campaign or model.
        copies: files, at least one, in any order.

    Returns:
        Of a root the step, of another document its line of the history and whose signatures hold.

    Raises:
        InputError: ``document_unknown``: it was not made here; ``copies_differ``.
        StorageError: ``workspace_damaged``, ``io_failed``.
        DocumentError: a copy is malformed, or a root is not the next.
    """
    envelopes = [read_envelope(raw, role) for raw in copies]
    if len({envelope.payload for envelope in envelopes}) != 1:
        raise InputError("copies_differ", "the files are not copies of one document")
    with workspace.locked() as current:
        if role == "root":
            return _gather_root(current, envelopes)
        return _gather_document(current, role, envelopes)


def _gather_root(current: Workspace, envelopes: list[Envelope]) -> Step:
    root = root_of(envelopes[0])
    if envelopes[0].payload == read_envelope(current.root_bytes, "root").payload:
        own = standing(read_envelope(current.root_bytes, "root"), root.roles["root"])
        path = current.path / "roots" / f"{root.header.version}.hst"
        return Step(root, path, in_force=True, before=own, own=own)
    waiting = pending(current)
    if waiting is not None:
        here = read_envelope(read_file(waiting.path, SIZE_LIMITS["root"]), "root")
        if here.payload != envelopes[0].payload:
            raise InputError("document_unknown", f"it is not the root {waiting.root.header.version} that waits here")
        envelopes.append(here)
    whole = joined(envelopes, current.root.roles["root"].keys | root.roles["root"].keys)
    if waiting is None:
        successor(current.root, to_bytes(whole, "root"))
    return _put(current, whole, root)


def _gather_document(current: Workspace, role: str, envelopes: list[Envelope]) -> tuple[Published, Standing]:
    _, header = read_payload(envelopes[0].payload)
    for item in current.history():
        if (item.role, item.name, item.version) == (role, header.name, header.version):
            own = read_envelope(current.copy(item), role)
            if own.payload == envelopes[0].payload:
                whole = joined([own, *envelopes], current.root.roles[role].keys)
                write_output(current.copy_path(item), to_bytes(whole, role), force=True)
                return item, standing(whole, current.root.roles[role])
    raise InputError("document_unknown", f"the {role} was not made in this workspace")


def resign(workspace: Workspace, now: int) -> list[tuple[Published, Standing]]:
    """Sign again, with the keys here, what the root in force does not cover: same payloads, new signatures.

    Of every name the newest version, if it has not expired. Versions, ids and floors stay as they are.

    Returns:
        What was lacking signatures before, with what it has now.

    Raises:
        StorageError, InputError: as :meth:`Workspace.publish`.
    """
    redone = []
    with workspace.locked() as current:
        opened: dict[str, list[SigningKey]] = {}
        for item in lacking(current, now):
            role = current.root.roles[item.role]
            if item.role not in opened:
                opened[item.role] = [each.open(current.passphrase) for each in current.signing_keys(item.role)]
            envelope = joined([read_envelope(current.copy(item), item.role)], role.keys)
            for key in opened[item.role]:
                envelope = signed(envelope, key)
            write_output(current.copy_path(item), to_bytes(envelope, item.role), force=True)
            redone.append((item, standing(envelope, role)))
    return redone


def lacking(workspace: Workspace, now: int) -> list[Published]:
    """The newest documents, not expired, that have too few signatures for the root in force, or whose copy is lost."""
    return [item for item in latest_of_each(workspace.history()) if not _covered(workspace, item, now)]


def _covered(workspace: Workspace, item: Published, now: int) -> bool:
    try:
        raw = workspace.copy(item)
    except StorageError:
        return False  # whoever signs it again is told
    _, header = read_payload(read_envelope(raw, item.role).payload)
    return now >= header.expires or workspace.standing(item.role, raw).complete
