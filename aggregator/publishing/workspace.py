"""A workspace: the publisher's folder with keys, trust roots and the history of signed documents.

    keys/            0700: key files, each 0600 (publishing/keys.py); keys/retired/ holds replaced keys
    roots/           1.hst … N.hst: every root by number, so that a device can follow from any root
    root.hst         the newest root, which new devices pin
    pending/         at most one root that lacks signatures
    history.json     role, name, version and digest of every signed document; the next version follows from it
    published/       a copy of every document, by digest, written before the document is handed out
    lock             locked by every process that changes the workspace

A document counts as signed once its copy is in published/, and is handed out only after its version is recorded. So two
documents never have one name and version, which devices would refuse as ``equivocation``; only the use of an old copy
of the whole workspace breaks this. A root is in force once its file is in roots/. Each time the workspace is locked,
what follows from these copies and roots (entries of the history, root.hst, retired keys) is brought in line. So a
crash, or an old history that is restored alone, does no harm.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aggregator.common.files import new_folder, read_file, storage_errors, sync_folder, write_output
from aggregator.common.notebooks import facts, table
from aggregator.common.passphrases import passphrase_from
from aggregator.publishing.keys import KeyFile, key_file, no_passphrase, read_workspace_key, write_key
from aggregator.publishing.signatures import (
    UNDERSTOOD,
    Signatures,
    check_signatures,
    draft,
    header_for,
    standing,
    successor,
    to_bytes,
)
from protocol import canonical
from protocol.documents import campaign, counts, trust
from protocol.documents.envelope import (
    KEY_BYTES,
    PAYLOAD_TYPES,
    SIGNERS,
    SIZE_LIMITS,
    SigningKey,
    keyid,
    read_envelope,
    seal,
)
from protocol.documents.payload import DAY_SECONDS, is_text, read_payload
from protocol.errors import DocumentError, InputError, StorageError
from protocol.nodes import summary as node_list
from protocol.words import date

HISTORY_FORMAT = 1
MAX_HISTORY_BYTES = 64 << 20


class Published(NamedTuple):
    """One entry of a workspace's history: a document that was signed.

    ``role``: campaign, model, or nodes for a node list. ``digest``: SHA-256 of the payload; for a campaign that is its
    id. ``issued_at``: in seconds since 1970.
    """

    role: str
    name: str
    version: int
    digest: bytes
    issued_at: int


def history_bytes(items: list[Published]) -> bytes:
    """Return the content of a history file with the entries ``items``: JSON text as bytes."""
    documents = [{**item._asdict(), "digest": item.digest.hex()} for item in items]
    return json.dumps({"format": HISTORY_FORMAT, "documents": documents}, ensure_ascii=False, indent=1).encode()


def read_history(path: Path) -> list[Published]:
    """Return the entries of a history file, oldest first.

    Raises StorageError ``workspace_damaged``: the file is missing (an empty history would use version numbers again),
    unreadable, above :data:`MAX_HISTORY_BYTES` or malformed; ``workspace_newer``: newer software wrote it.
    """
    items: list[Published] = []
    newer = False
    try:
        body = json.loads(read_file(path, MAX_HISTORY_BYTES))
        newer = body["format"] > HISTORY_FORMAT
        items = [
            Published(
                str(entry["role"]),
                str(entry["name"]),
                int(entry["version"]),
                bytes.fromhex(entry["digest"]),
                int(entry["issued_at"]),
            )
            for entry in body["documents"]
        ]
        if not newer:
            return items
    except (ValueError, KeyError, TypeError):
        pass
    if newer:
        raise StorageError("workspace_newer", "the history was written by newer software; update this one")
    raise StorageError("workspace_damaged", f"'{path.name}' is missing or can not be read; restore it from a backup")


def latest_of_each(items: list[Published]) -> list[Published]:
    """Return the newest version of every document among ``items``, sorted by role, then by name."""
    newest: dict[tuple[str, str], Published] = {}
    for item in items:
        known = newest.get((item.role, item.name))
        if known is None or item.version > known.version:
            newest[item.role, item.name] = item
    return [newest[each] for each in sorted(newest)]


ROOT_LIFETIME_SECONDS = 3650 * DAY_SECONDS
EXTENSIONS = {"root": ".hst", "campaign": ".hsc", "model": ".hsm", "nodes": ".hsl", "counts": ".hsu"}
_SEPARATE = ("local", "federated", "distributed", "central")
"""Kinds of trust of models that come from one source."""
_FOLDERS = ("published", "roots", "pending")


class Workspace(NamedTuple):
    """An opened workspace, with the trust root in force as devices get it (``root_bytes``) and parsed (``root``).

    Methods and functions that read its history, copies, roots or key files may raise the StorageError
    ``workspace_damaged`` or ``workspace_newer``; functions that take a workspace do not repeat that. ``passphrase``
    returns the passphrase of encrypted keys; it is called when a key is opened or made.
    """

    path: Path
    root_bytes: bytes
    root: trust.Root
    passphrase: Callable[[], bytes] = no_passphrase

    def _repr_html_(self) -> str:
        header = self.root.header
        about = {
            "folder": self.path,
            "root": f"{header.name}, version {header.version}",
            "expires": date(header.expires),
        }
        here = {(each.role, each.public): "encrypted" if each.encrypted else "here" for each in self.key_files()}
        keys = [
            (name, f"{role.threshold} of {len(role.keys)}", keyid(public).hex(), here.get((name, public), "elsewhere"))
            for name, role in self.root.roles.items()
            for public in sorted(role.keys, key=keyid)
        ]
        newest = [(item.role, item.name, item.version, date(item.issued_at)) for item in latest_of_each(self.history())]
        documents = table(("newest documents", "name", "version", "issued"), newest)
        return facts("Workspace", about) + table(("role", "signatures needed", "key", "secret part"), keys) + documents

    def history(self) -> list[Published]:
        """Return all campaigns, models and node lists that were signed in the workspace, oldest first."""
        return read_history(self.path / "history.json")

    def latest(self, role: str, name: str) -> Published | None:
        """Return the history's entry of the newest version of a document, or None if no version was signed."""
        return next((item for item in latest_of_each(self.history()) if (item.role, item.name) == (role, name)), None)

    def copy_path(self, item: Published) -> Path:
        """Return the path in the workspace at which the copy of the document ``item`` is kept. The file may be lost."""
        return self.path / "published" / f"{item.digest.hex()}{EXTENSIONS[item.role]}"

    def copy(self, item: Published) -> bytes:
        """Return the bytes of the signed file of a document; ``item`` is its entry in the history."""
        with suppress(InputError, DocumentError):
            raw = read_file(self.copy_path(item), SIZE_LIMITS[item.role])
            if sha256(read_envelope(raw, item.role).payload).digest() == item.digest:
                return raw
        raise StorageError("workspace_damaged", f"the copy of {item.role} '{item.name}' {item.version} is lost")

    def roots(self) -> list[bytes]:
        """Return the bytes of every root, from the first one to the root in force."""
        numbered = [self.path / "roots" / f"{number}.hst" for number in range(1, self.root.header.version)]
        lost = [path.name for path in numbered if not path.is_file()]
        if lost:
            raise StorageError("workspace_damaged", f"'roots/{lost[0]}' is lost; restore it from a backup")
        return [*(path.read_bytes() for path in numbered), self.root_bytes]

    def key_files(self, role: str | None = None) -> list[KeyFile]:
        """Return the key files in keys/, of one role or of all, also those that the root in force does not name."""
        found = [read_workspace_key(path) for path in sorted((self.path / "keys").glob("*.key"))]
        return [each for each in found if role in (None, each.role)]

    def signing_keys(self, role: str) -> list[KeyFile]:
        """Return the key files that the root in force names for a role; empty if all are kept elsewhere."""
        here = self.key_files(role)
        named = [each for each in here if each.public in self.root.roles[role].keys]
        if here and not named:
            raise StorageError("workspace_damaged", f"the {role} key is not one that the trust root names")
        return named

    def standing(self, role: str, raw: bytes) -> Signatures:
        """Return the valid signatures of a document under the root in force."""
        return standing(read_envelope(raw, role), self.root.roles[SIGNERS[role]])

    def publish(
        self,
        role: str,
        name: str,
        now: int,
        payload_for: Callable[[int, bytes | None], bytes],
        *,
        rehearse: bool = False,
    ) -> bytes:
        """Sign the next version of a document with every key of its role here, record it, and return its file.

        If the role needs more signatures than the workspace has keys, the file is a draft, which devices refuse until
        it has enough signatures. Its version is recorded all the same. Raises InputError: ``name_taken``;
        ``passphrase_missing``, ``passphrase_wrong``; ``mechanism_incomplete``. Raises DocumentError ``too_large``, or
        :meth:`judge` refuses the payload; nothing is recorded then.

        Args:
            role: one of :data:`protocol.documents.envelope.SIGNERS`, but not ``root``.
            name: name of the document. Its version is one more than the last version of this role and name.
            payload_for: makes the payload from the version and the digest of the version before, None for the first.
            rehearse: write nothing. A caller who can sign only once finds errors so before.
        """
        with self.locked() as current:
            before = current.latest(role, name)
            version = before.version + 1 if before else 1
            payload = payload_for(version, before.digest if before else None)
            if before is not None:
                _check_kind(current, before, payload)
            keys = [each.open(current.passphrase) for each in current.signing_keys(SIGNERS[role])]
            raw = to_bytes(draft(PAYLOAD_TYPES[role], payload, keys), role)
            verdict = current.judge(role, payload, now)
            if not rehearse:
                item = Published(role, name, version, verdict.digest, verdict.header.issued_at)
                write_output(current.copy_path(item), raw, force=True)
                current.record(item)
        return raw

    def judge(self, role: str, payload: bytes, now: int) -> trust.Verdict:
        """Check a payload as devices would, and return their verdict, without signatures and without a model's values.

        Earlier versions do not matter. A temporary key signs in place of the role's keys. Raises DocumentError as the
        devices' checks; InputError ``mechanism_incomplete``.
        """
        if role == "campaign":
            from aggregator.publishing.mechanisms.completeness import check_complete

            check_complete(campaign.parse_campaign(payload).questions)
        elif role == "nodes":
            node_list.parse_node_list(payload)
        elif role == "counts":
            counts.parse_counts(payload)
        state = trust.pin(self.root_bytes, now)
        temporary = SigningKey.from_seed(bytes(KEY_BYTES))
        roles = {**state.root.roles, SIGNERS[role]: trust.Role(frozenset([temporary.public]), 1)}
        trusting = state._replace(root=state.root._replace(roles=roles))
        return trust.verify(trusting, seal(PAYLOAD_TYPES[role], payload, [temporary]), role, now, UNDERSTOOD[role])

    def check_signed(self, raw: bytes, role: str = "campaign") -> None:
        """Refuse a document that is not in the history and lacks signatures for the root in force.

        A document in the history is accepted even if its keys have been replaced since. Dates are not checked. Raises
        the errors of :func:`check_signatures`.
        """
        digest = sha256(read_envelope(raw, role).payload).digest()
        if not any((item.role, item.digest) == (role, digest) for item in self.history()):
            check_signatures(self.root_bytes, raw, role)

    def record(self, item: Published) -> None:
        """Add ``item`` to the history, and write the history. Call it only inside :meth:`locked`."""
        write_output(self.path / "history.json", history_bytes([*self.history(), item]), force=True)

    @contextmanager
    def locked(self) -> Iterator[Workspace]:
        """Lock the workspace against other processes in a ``with`` block, which gets it as it is on disk then."""
        with storage_errors(f"the workspace at '{self.path}' can not be written"):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            current = open_workspace(self.path, self.passphrase)
            current.apply_newest_root()
            current.complete_history()
            yield current
        finally:
            os.close(handle)

    def complete_history(self) -> None:
        """Add to the history documents of which only a copy exists. Call it only inside :meth:`locked`."""
        known = self.history()
        digests = {item.digest.hex() for item in known}
        newest = {(item.role, item.name): item.version for item in latest_of_each(known)}
        with storage_errors(f"'{self.path}' could not be read"):
            strange = [each for each in (self.path / "published").iterdir() if each.stem not in digests]
        lacking: dict[tuple[str, str, int], Published] = {}
        for item in sorted(filter(None, map(_copied_document, strange)), key=lambda item: item.issued_at):
            if item.version > newest.get((item.role, item.name), 0):
                lacking[item.role, item.name, item.version] = item
        if lacking:
            items = sorted(lacking.values(), key=lambda item: (item.issued_at, item.role, item.name, item.version))
            write_output(self.path / "history.json", history_bytes([*known, *items]), force=True)

    def apply_newest_root(self) -> None:
        """Bring ``root.hst``, keys/ and pending/ in line with the newest root. Call only inside :meth:`locked`."""
        with storage_errors(f"'{self.path}' could not be written"):
            for folder in _FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
            numbered = self.path / "roots" / f"{self.root.header.version}.hst"
            for path in (numbered, self.path / "root.hst"):
                if not path.is_file() or path.read_bytes() != self.root_bytes:
                    write_output(path, self.root_bytes, force=True)
            for path in (self.path / "pending").glob("*.hst"):
                if path.stem.isdecimal() and int(path.stem) <= self.root.header.version:
                    path.unlink()
            self._retire_keys()

    def _retire_keys(self) -> None:
        before: dict[str, set[bytes]] = {role: set() for role in trust.ROLES}
        for raw in self.roots()[:-1]:
            for name, role in trust.restore(raw, {}, 0).root.roles.items():
                before[name] |= role.keys - self.root.roles[name].keys
        if not any(before.values()):
            return
        for path in sorted((self.path / "keys").glob("*.key")):
            found = read_workspace_key(path)
            if found.public in before[found.role]:
                (self.path / "keys" / "retired").mkdir(mode=0o700, exist_ok=True)
                path.replace(self.path / "keys" / "retired" / f"{found.role}-{found.id}.key")
        sync_folder(self.path / "keys")


def _copied_document(path: Path) -> Published | None:
    """Return the history's entry of a copy in published/, or None if this software did not write the file."""
    role = next((role for role, extension in EXTENSIONS.items() if extension == path.suffix), None)
    with suppress(InputError, DocumentError):
        if role not in (None, "root"):
            payload = read_envelope(read_file(path, SIZE_LIMITS[role]), role).payload
            digest, (_, header) = sha256(payload).digest(), read_payload(payload)
            if digest.hex() == path.stem:
                return Published(role, header.name, header.version, digest, header.issued_at)
    return None


def create_workspace(
    path: str | Path,
    *,
    name: str,
    now: int,
    lifetime_seconds: int = ROOT_LIFETIME_SECONDS,
    passphrase: bytes | str | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Workspace:
    """Make a workspace with keys, a self-signed trust root and an empty history. It appears complete or not at all.

    Raises StorageError ``workspace_exists``: the path is no folder, or a folder with content. Raises InputError:
    ``output_invalid``; ``name_invalid``; ``passphrase_missing``; ``terms_invalid``.

    Args:
        name: name of the trust root. Devices accept newer roots of the same name only.
        lifetime_seconds: how long the root is valid.
        passphrase: encrypts the keys; None keeps the keys in the clear.
        entropy: returns a given number of random bytes of the operating system; tests pass another source.
    """
    path = Path(path).absolute()
    passphrase = passphrase.encode() if isinstance(passphrase, str) else passphrase
    if "\0" in str(path):
        raise InputError("output_invalid", "the path of a folder can not have a zero byte; choose another name")
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise StorageError("workspace_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
    if not is_text(name):
        raise InputError("name_invalid", "the name is empty, too long, or does not print")
    keys = {role: SigningKey.from_seed(entropy(KEY_BYTES)) for role in trust.ROLES}
    header = header_for(name, 1, now, lifetime_seconds)
    roles = {role: trust.Role(frozenset([key.public]), 1) for role, key in keys.items()}
    root = seal(PAYLOAD_TYPES["root"], canonical.pack(trust.Root(header, roles).to_payload()), [keys["root"]])
    trust.pin(root, now)
    _create_folder(path, [key_file(role, key, passphrase, entropy=entropy) for role, key in keys.items()], root)
    return open_workspace(path, passphrase)


def _create_folder(path: Path, keys: list[KeyFile], root: bytes) -> None:
    """Fill a hidden folder beside the path of the workspace, then rename the folder to that path."""
    with new_folder(path, f"'{path}' could not be written", mode=0o755) as hidden:
        (hidden / "keys").mkdir(mode=0o700)
        for folder in _FOLDERS:
            (hidden / folder).mkdir(mode=0o755)
        for key in keys:
            write_key(hidden / "keys" / f"{key.role}.key", key)
        for place in (hidden / "roots" / "1.hst", hidden / "root.hst"):
            write_output(place, root)
        write_output(hidden / "history.json", history_bytes([]))


def open_workspace(path: str | Path, passphrase: Callable[[], bytes] | bytes | str | None = None) -> Workspace:
    """Open an existing workspace. No key file is read yet.

    ``passphrase``: of encrypted keys, or a function that returns it when something is signed; None: as
    :func:`.passphrase_from`. Raises StorageError ``not_a_workspace``; ``workspace_damaged``: a root does not follow.
    """
    path = Path(path)
    if not (path / "root.hst").is_file() or not (path / "keys").is_dir():
        raise StorageError("not_a_workspace", f"'{path}' is not a workspace; make one with: hearsay init {path}")
    name, problem = "root.hst", ""
    try:
        raw = read_file(path / name, SIZE_LIMITS["root"])
        root = trust.restore(raw, {}, 0).root
        while (path / "roots" / f"{root.header.version + 1}.hst").is_file():
            name = f"roots/{root.header.version + 1}.hst"
            raw = read_file(path / name, SIZE_LIMITS["root"])
            root = successor(root, raw)
        return Workspace(path, raw, root, passphrase_from(passphrase))
    except DocumentError as error:
        problem = error.detail
    raise StorageError("workspace_damaged", f"'{name}' can not be used: {problem}")


def _check_kind(workspace: Workspace, before: Published, payload: bytes) -> None:
    """Refuse a next version of a campaign for others (devices or nodes), or of a model from others' data."""
    try:
        known = read_envelope(workspace.copy(before), before.role).payload
    except (StorageError, DocumentError):  # there is no copy that can be read
        known = b""
    kinds = [_kind_of(before.role, each) for each in (known, payload)]
    if all(kinds) and kinds[0] != kinds[1]:
        problem = f"the {before.role} '{before.name}' of this workspace is {kinds[0]}, and this one is {kinds[1]}"
        advice = "versions of one name replace each other on devices; give another --name (in Python name=)"
        raise InputError("name_taken", f"{problem}; {advice}")


def _kind_of(role: str, payload: bytes) -> str:
    """Return in words who answers a campaign, or whose data made a model; empty if unknown or of no importance."""
    try:
        found = canonical.unpack(payload)
    except DocumentError:
        return ""
    if role == "campaign" and "nodes" in found:
        return "for nodes"
    if role == "campaign" and found.get("questions"):  # one that has ended asks nobody
        return "for devices"
    stated = found.get("card", {}).get("trust") if role == "model" else None
    return f"of trust '{stated}'" if stated in _SEPARATE else ""  # joined sources have several kinds
