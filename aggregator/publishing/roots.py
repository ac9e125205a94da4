"""Changing the trust root: adding, revoking and replacing keys, thresholds and dates, one version at a time.

Root N + 1 is valid once enough keys of root N and enough keys of root N + 1 have signed it (docs/formats.md, section
5). Until then it is *pending*: people add signatures to copies, and :func:`gather_copies` joins them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aggregator.common.files import read_file, write_output
from aggregator.publishing.keys import KeyFile, key_file, write_key
from aggregator.publishing.signatures import (
    Signatures,
    header_for,
    joined,
    root_of,
    signed,
    signed_root,
    standing,
    successor,
    to_bytes,
)
from aggregator.publishing.workspace import Published, latest_of_each
from protocol.documents import trust
from protocol.documents.envelope import (
    KEY_BYTES,
    MAX_SIGNATURES,
    SIGNERS,
    SIZE_LIMITS,
    Envelope,
    SigningKey,
    keyid,
    read_envelope,
)
from protocol.documents.payload import read_payload
from protocol.documents.trust import Role, Root
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace


class NextRoot(NamedTuple):
    """The next root and its signatures.

    ``path``: its file in roots/ if it is ``in_force`` (enough keys have signed), else in pending/. ``before``, ``own``:
    its signatures by keys of the root before and by its own keys.
    """

    root: Root
    path: Path
    in_force: bool
    before: Signatures
    own: Signatures


class RootChange(NamedTuple):
    """The differences between the next root and the root in force.

    ``role``: whose keys or threshold change; None changes only the dates. ``add``: public keys to add. ``fresh``:
    number of keys to make in the workspace and add. ``drop``: key ids to remove, in hexadecimal; :data:`ALL` removes
    every key of the role. ``threshold``: the new one; None keeps it.
    """

    role: str | None = None
    add: tuple[bytes, ...] = ()
    fresh: int = 0
    drop: Sequence[str] | str = ()
    threshold: int | None = None


ALL = "all"


def change_root(
    workspace: Workspace,
    change: RootChange,
    now: int,
    lifetime_seconds: int,
    *,
    signers: Iterable[SigningKey] = (),
    entropy: Callable[[int], bytes] = os.urandom,
) -> NextRoot:
    """Make the next root and sign it with all available root keys, at most 16. Enough signatures put it in force.

    New keys are written to the folder keys/ before the root, and removed if the root can not be written. ``signers``:
    opened root keys from outside of the workspace. ``entropy`` returns a given number of random bytes, for new keys.
    Raises InputError: ``key_unknown``, ``key_repeated``, ``role_invalid``; ``terms_invalid``: the lifetime is less than
    a day; ``passphrase_missing``, ``passphrase_wrong``. Raises StorageError: ``root_pending``: an earlier next root
    lacks signatures; ``memory_short``.
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
            roles[change.role] = _changed_role(change.role, roles[change.role], added)
        before = current.root.header
        root = trust.Root(header_for(before.name, before.version + 1, now, lifetime_seconds), roles)
        files = _new_key_files(current, change.role or "root", made, entropy)
        keys = [*signers, *_root_keys_here(current, root), *(made if change.role == "root" else ())]
        envelope = signed_root(current.root, root, keys)
        with _new_keys(current, files):
            return _write_root(current, envelope, root)


def _changed_role(name: str, role: Role, change: RootChange) -> Role:
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
            f"the role {name} would need {threshold} signatures and have {len(keys)} of 1 to {MAX_SIGNATURES} keys; "
            "give --threshold N, from 1 to the number of keys, or other keys",
        )
    return trust.Role(keys, threshold)


def _new_key_files(
    current: Workspace, role: str, made: list[SigningKey], entropy: Callable[[int], bytes]
) -> list[KeyFile]:
    """Return key files for new keys, encrypted by the workspace's passphrase if it has any encrypted key file."""
    sealed = [each for each in current.key_files() if each.encrypted]
    passphrase = None
    if made and sealed:
        passphrase = current.passphrase()
        sealed[0].open(lambda: passphrase or b"")  # raises if the passphrase is not the one of the existing keys
    return [key_file(role, key, passphrase, entropy=entropy) for key in made]


@contextmanager
def _new_keys(current: Workspace, files: list[KeyFile]) -> Iterator[None]:
    """Write key files, and remove them if the body of ``with`` fails and wrote no root that names the keys."""
    written = []
    try:
        for file in files:
            path = current.path / "keys" / f"{file.role}-{file.id}.key"
            write_key(path, file)
            written.append(path)
        yield
    except BaseException:
        waiting = pending_path(current)
        if not any(path.exists() for path in (waiting, current.path / "roots" / waiting.name)):
            for path in written:
                path.unlink(missing_ok=True)
        raise


def _root_keys_here(current: Workspace, root: Root) -> list[SigningKey]:
    wanted = current.root.roles["root"].keys | root.roles["root"].keys
    return [each.open(current.passphrase) for each in current.key_files("root") if each.public in wanted]


def _write_root(current: Workspace, envelope: Envelope, root: Root) -> NextRoot:
    """Write the next root to roots/ if it has enough signatures, else to pending/. In roots/ it is in force."""
    before = standing(envelope, current.root.roles["root"])
    own = standing(envelope, root.roles["root"])
    raw = to_bytes(envelope, "root")
    path = pending_path(current)
    if before.complete and own.complete:
        path = current.path / "roots" / path.name
        successor(current.root, raw)
    made = NextRoot(root, path, before.complete and own.complete, before, own)
    try:
        write_output(path, raw, force=True)
        if made.in_force:
            current._replace(root_bytes=raw, root=root).apply_newest_root()
        return made
    except StorageError as error:
        if not (made.in_force and path.exists()):
            raise
        reason, problem = error.reason, error.detail
    rest = "do not repeat the command; hearsay trust resign brings root.hst and keys/ in line once that is mended"
    raise StorageError(reason, f"root {root.header.version} is in force, but {problem}; {rest}")


def pending_path(workspace: Workspace) -> Path:
    """Return the path at which the next root waits for signatures. There is a file only while a root waits."""
    return workspace.path / "pending" / f"{workspace.root.header.version + 1}.hst"


def pending(workspace: Workspace) -> NextRoot | None:
    """Return the root that waits for signatures, or None. Raises ``workspace_damaged`` if its file is no root."""
    path = pending_path(workspace)
    if not path.exists():
        return None
    problem = ""
    try:
        envelope = read_envelope(read_file(path, SIZE_LIMITS["root"]), "root")
        root = root_of(envelope)
        return NextRoot(
            root, path, False, standing(envelope, workspace.root.roles["root"]), standing(envelope, root.roles["root"])
        )
    except DocumentError as error:
        problem = error.detail
    raise StorageError("workspace_damaged", f"'pending/{path.name}' can not be used: {problem}")


def discard(workspace: Workspace) -> int:
    """Delete the pending root, so that another one can get its number, which is returned; else ``nothing_pending``."""
    with workspace.locked() as current:
        path = pending_path(current)
        if not path.exists():
            raise InputError("nothing_pending", "no root waits for signatures")
        path.unlink()
        return current.root.header.version + 1


def gather_copies(workspace: Workspace, role: str, copies: Sequence[bytes]) -> NextRoot | tuple[Published, Signatures]:
    """Join the signatures of copies of one document, including the workspace's own copy, in any order.

    A root with enough signatures comes into force; the result is then :class:`NextRoot`, for other documents the entry
    in the history, and the signatures. A root that was made outside of this workspace is accepted only if it is the
    next one, the copies hold enough signatures, and no other root is pending. Raises InputError: ``document_unknown``:
    the workspace did not make the document, or another root is pending; ``copies_differ``: there is no copy, or the
    copies are of several documents. Raises DocumentError: a copy is no signed document, or a root does not follow from
    the root before (:func:`successor`).
    """
    envelopes = [read_envelope(raw, role) for raw in copies]
    if len({envelope.payload for envelope in envelopes}) != 1:
        raise InputError("copies_differ", "the files are not copies of one document")
    with workspace.locked() as current:
        if role == "root":
            return _gather_root(current, envelopes)
        return _gather_document(current, role, envelopes)


def _gather_root(current: Workspace, envelopes: list[Envelope]) -> NextRoot:
    root = root_of(envelopes[0])
    if envelopes[0].payload == read_envelope(current.root_bytes, "root").payload:
        own = standing(read_envelope(current.root_bytes, "root"), root.roles["root"])
        path = current.path / "roots" / f"{root.header.version}.hst"
        return NextRoot(root, path, in_force=True, before=own, own=own)
    waiting = pending(current)
    if waiting is not None:
        here = read_envelope(read_file(waiting.path, SIZE_LIMITS["root"]), "root")
        if here.payload != envelopes[0].payload:
            raise InputError("document_unknown", f"it is not the root {waiting.root.header.version} that waits here")
        envelopes.append(here)
    complete = joined(envelopes, current.root.roles["root"].keys | root.roles["root"].keys)
    if waiting is None:
        successor(current.root, to_bytes(complete, "root"))
    return _write_root(current, complete, root)


def _gather_document(current: Workspace, role: str, envelopes: list[Envelope]) -> tuple[Published, Signatures]:
    _, header = read_payload(envelopes[0].payload)
    for item in current.history():
        if (item.role, item.name, item.version) == (role, header.name, header.version):
            own = read_envelope(current.copy(item), role)
            if own.payload == envelopes[0].payload:
                signers = current.root.roles[SIGNERS[role]]
                complete = joined([own, *envelopes], signers.keys)
                write_output(current.copy_path(item), to_bytes(complete, role), force=True)
                return item, standing(complete, signers)
    raise InputError("document_unknown", f"the {role} was not made in this workspace")


def resign(workspace: Workspace, now: int) -> list[tuple[Published, Signatures]]:
    """Add signatures of the workspace's keys to documents that have too few for the root in force, and return these.

    The newest version of every name is signed, if it has not expired, and returned with its signatures, maybe still too
    few. Ids stay. Raises InputError ``passphrase_missing``, ``passphrase_wrong``; what was signed stays signed.
    """
    redone = []
    with workspace.locked() as current:
        opened: dict[str, list[SigningKey]] = {}
        for item in lacking(current, now):
            name = SIGNERS[item.role]
            role = current.root.roles[name]
            if name not in opened:
                opened[name] = [each.open(current.passphrase) for each in current.signing_keys(name)]
            envelope = joined([read_envelope(current.copy(item), item.role)], role.keys)
            for key in opened[name]:
                envelope = signed(envelope, key)
            write_output(current.copy_path(item), to_bytes(envelope, item.role), force=True)
            redone.append((item, standing(envelope, role)))
    return redone


def lacking(workspace: Workspace, now: int) -> list[Published]:
    """List the newest documents, lost copies too, that need more signatures for the root and have not expired."""
    return [item for item in latest_of_each(workspace.history()) if not _is_covered(workspace, item, now)]


def _is_covered(workspace: Workspace, item: Published, now: int) -> bool:
    try:
        raw = workspace.copy(item)
    except StorageError:
        return False  # The copy is lost or malformed. The attempt to sign it again will report that.
    _, header = read_payload(read_envelope(raw, item.role).payload)
    return now >= header.expires or workspace.standing(item.role, raw).complete
