"""A workspace: the folder of whoever publishes, with keys, trust roots and the history of documents.

    keys/            0700: key files, each 0600 (publishing/keys.py); keys/retired/ holds those replaced
    roots/           1.hst … N.hst: every root, by number, so that a device can follow from any of them
    root.hst         the newest of them, which new devices pin
    pending/         a root that lacks signatures; never more than one
    history.json     every document signed here: role, name, version, digest; versions rise by themselves
    published/       a copy of every document, by digest, written before anything leaves
    lock             held while publishing

A version is used up before its document leaves the workspace: after a crash a number may be missing,
but never are there two documents of one version, which devices refuse as ``equivocation``. A root is in
force once it lies in roots/; what follows from that (root.hst, retired keys) is done again whenever the
workspace is locked, so a crash in between leaves nothing undone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aggregator.files import read_file, sync_folder, write_output
from aggregator.passphrases import passphrase_from
from aggregator.planning.completeness import check_complete
from aggregator.publishing.history import Published, history_bytes, latest_of_each, read_history
from aggregator.publishing.keys import KeyFile, key_file, no_passphrase, read_key, write_key
from aggregator.publishing.lifetimes import header_for
from aggregator.publishing.signatures import Standing, draft, standing, successor, to_bytes
from protocol import canonical
from protocol.document import DAY_SECONDS, check_understood, is_text
from protocol.documents import campaign, model, trust
from protocol.documents.envelope import KEY_BYTES, PAYLOAD_TYPES, SIZE_LIMITS, SigningKey, read_envelope, seal
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT_LIFETIME_SECONDS = 3650 * DAY_SECONDS
EXTENSIONS = {"root": ".hst", "campaign": ".hsc", "model": ".hsm"}
_FOLDERS = ("published", "roots", "pending")
_UNDERSTOOD = {"campaign": campaign.UNDERSTOOD, "model": model.UNDERSTOOD}


class Workspace(NamedTuple):
    """An opened workspace.

    Attributes:
        path: the folder.
        root_bytes: the signed trust root in force, as devices get it.
        root: the same, parsed.
        passphrase: opens encrypted keys; asked when something is signed.
    """

    path: Path
    root_bytes: bytes
    root: trust.Root
    passphrase: Callable[[], bytes] = no_passphrase

    def history(self) -> list[Published]:
        """Everything that was signed here, oldest first.

        Raises:
            StorageError: ``workspace_damaged``, ``workspace_newer``.
        """
        return read_history(self.path / "history.json")

    def latest(self, role: str, name: str) -> Published | None:
        """The newest document of a role and name."""
        return next((item for item in latest_of_each(self.history()) if (item.role, item.name) == (role, name)), None)

    def copy_path(self, item: Published) -> Path:
        """Where the copy of a document lies."""
        return self.path / "published" / f"{item.digest.hex()}{EXTENSIONS[item.role]}"

    def copy(self, item: Published) -> bytes:
        """The signed file of a document in the history.

        Raises:
            StorageError: ``workspace_damaged``: it is gone, or another.
        """
        with suppress(InputError, DocumentError):
            raw = read_file(self.copy_path(item), SIZE_LIMITS[item.role])
            if sha256(read_envelope(raw, item.role).payload).digest() == item.digest:
                return raw
        raise StorageError("workspace_damaged", f"the copy of {item.role} '{item.name}' {item.version} is lost")

    def roots(self) -> list[bytes]:
        """Every root from the first to the one in force, as files.

        Raises:
            StorageError: ``workspace_damaged``: one is gone.
        """
        numbered = [self.path / "roots" / f"{number}.hst" for number in range(1, self.root.header.version)]
        lost = [path.name for path in numbered if not path.is_file()]
        if lost:
            raise StorageError("workspace_damaged", f"'roots/{lost[0]}' is lost; restore it from a backup")
        return [*(path.read_bytes() for path in numbered), self.root_bytes]

    def key_files(self, role: str | None = None) -> list[KeyFile]:
        """The key files here, of one role or all, named by the root in force or not.

        Raises:
            StorageError: ``workspace_damaged``, ``workspace_newer``.
        """
        found = [self._read_key(path) for path in sorted((self.path / "keys").glob("*.key"))]
        return [each for each in found if role in (None, each.role)]

    def _read_key(self, path: Path) -> KeyFile:
        reason, problem = "workspace_damaged", ""
        try:
            found = read_key(path)
            if path.name.split(".")[0].split("-")[0] == found.role:
                return found
            problem = "it is a key of another role"
        except InputError as error:
            reason = "workspace_newer" if error.reason == "key_newer" else "workspace_damaged"
            problem = error.detail
        raise StorageError(reason, f"'keys/{path.name}' can not be used: {problem}")

    def signing_keys(self, role: str) -> list[KeyFile]:
        """The key files here that the root in force names for a role; none if they are kept elsewhere.

        Raises:
            StorageError: ``workspace_damaged``: there are keys of that role, and the root names none of them.
        """
        here = self.key_files(role)
        named = [each for each in here if each.public in self.root.roles[role].keys]
        if here and not named:
            raise StorageError("workspace_damaged", f"the {role} key is not one that the trust root names")
        return named

    def standing(self, role: str, raw: bytes) -> Standing:
        """Whose signatures of a campaign or model hold under the root in force, and how many are needed."""
        return standing(read_envelope(raw, role), self.root.roles[role])

    def publish(self, role: str, name: str, now: int, payload_for: Callable[[int, bytes | None], bytes]) -> bytes:
        """Sign the next version of a document with every key here, record it, and return the file's bytes.

        Where the role's threshold is above the number of keys here the file is a draft, which devices
        refuse until more signatures are gathered; its version is used up all the same.

        Args:
            role: ``campaign`` or ``model``.
            name: versions rise by one per role and name.
            now: seconds since 1970: the time at which devices would have to accept it.
            payload_for: makes the payload from its version and the digest of the document before.

        Raises:
            StorageError: ``workspace_damaged``, ``io_failed``.
            InputError: ``passphrase_missing``, ``passphrase_wrong``, ``mechanism_incomplete``.
            DocumentError: what a device would refuse it for, but for signatures; then nothing was recorded.
        """
        with self.locked() as current:
            before = current.latest(role, name)
            version = before.version + 1 if before else 1
            payload = payload_for(version, before.digest if before else None)
            keys = [each.open(current.passphrase) for each in current.signing_keys(role)]
            raw = to_bytes(draft(PAYLOAD_TYPES[role], payload, keys), role)
            verdict = current.judge(role, payload, now)
            item = Published(role, name, version, verdict.digest, verdict.header.issued_at)
            write_output(current.copy_path(item), raw, force=True)
            current.record(item)
        return raw

    def judge(self, role: str, payload: bytes, now: int) -> trust.Verdict:
        """What a device would say of a payload if its signatures held: a key of the moment stands for the role's.

        Raises:
            DocumentError: what a device would refuse it for.
            InputError: ``mechanism_incomplete``, of a campaign.
        """
        if role == "campaign":
            check_complete(campaign.parse_campaign(payload).questions)
        state = trust.pin(self.root_bytes, now)
        key = SigningKey.from_seed(bytes(KEY_BYTES))
        roles = {**state.root.roles, role: trust.Role(frozenset([key.public]), 1)}
        trusting = state._replace(root=state.root._replace(roles=roles))
        return trust.verify(trusting, seal(PAYLOAD_TYPES[role], payload, [key]), role, now, _UNDERSTOOD[role])

    def check_signed(self, raw: bytes) -> None:
        """Refuse a campaign that this workspace did not sign, whatever its dates.

        One that is in the history counts, though its keys have been replaced since.

        Raises:
            DocumentError: ``bad_signature`` and the other reasons of a foreign or damaged file.
        """
        digest = sha256(read_envelope(raw, "campaign").payload).digest()
        if not any((item.role, item.digest) == ("campaign", digest) for item in self.history()):
            signed_campaign(self.root_bytes, raw)

    def record(self, item: Published) -> None:
        """Add a line to the history. Run while locked."""
        write_output(self.path / "history.json", history_bytes([*self.history(), item]), force=True)

    @contextmanager
    def locked(self) -> Iterator[Workspace]:
        """Hold the workspace against other processes; gives it as it stands then.

        Raises:
            StorageError: ``io_failed``, and as :func:`open_workspace`.
        """
        handle = -1
        with suppress(OSError):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if handle < 0:
            raise StorageError("io_failed", f"the workspace at '{self.path}' can not be written")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            current = open_workspace(self.path, self.passphrase)
            current.settle()
            yield current
        finally:
            os.close(handle)

    def settle(self) -> None:
        """Do what follows from the roots in roots/, again or for the first time. Run while locked.

        ``root.hst`` becomes the newest; keys that an earlier root named and this one does not are retired;
        a pending root that is in force, or came too late, is no longer pending.

        Raises:
            StorageError: ``io_failed``.
        """
        with _writing(self.path):
            for folder in _FOLDERS:
                (self.path / folder).mkdir(exist_ok=True)
            numbered = self.path / "roots" / f"{self.root.header.version}.hst"
            for path in (numbered, self.path / "root.hst"):
                if not path.is_file() or path.read_bytes() != self.root_bytes:
                    write_output(path, self.root_bytes, force=True)
            for path in (self.path / "pending").glob("*.hst"):
                if int(path.stem) <= self.root.header.version:
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
            found = self._read_key(path)
            if found.public in before[found.role]:
                (self.path / "keys" / "retired").mkdir(mode=0o700, exist_ok=True)
                path.replace(self.path / "keys" / "retired" / f"{found.role}-{found.id}.key")
        sync_folder(self.path / "keys")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Failures of the system as ``io_failed``."""
    problem = ""
    try:
        yield
        return
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else "unknown cause"
    raise StorageError("io_failed", f"'{path}' could not be written: {problem}")


def create_workspace(
    path: str | Path,
    *,
    name: str,
    now: int,
    lifetime_seconds: int = ROOT_LIFETIME_SECONDS,
    passphrase: bytes | str | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Workspace:
    """Make keys, a self-signed trust root and an empty history, all or nothing.

    Args:
        path: a folder that does not exist, or is empty.
        name: of the trust root; devices keep to one name.
        now: seconds since 1970.
        lifetime_seconds: how long the root is valid.
        passphrase: encrypts the keys; None keeps them in the clear.
        entropy: returns so many bytes from the operating system; a test may pass another source.

    Raises:
        StorageError: ``workspace_exists``; ``io_failed``; ``memory_short``.
        InputError: ``name_invalid``; ``passphrase_missing``: it is empty.
    """
    path = Path(path).absolute()
    passphrase = passphrase.encode() if isinstance(passphrase, str) else passphrase
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise StorageError("workspace_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
    if not is_text(name):
        raise InputError("name_invalid", "the name is empty, too long, or does not print")
    keys = {role: SigningKey.from_seed(entropy(KEY_BYTES)) for role in trust.ROLES}
    header = header_for(name, 1, now, lifetime_seconds)
    roles = {role: trust.Role(frozenset([key.public]), 1) for role, key in keys.items()}
    root = seal(PAYLOAD_TYPES["root"], canonical.pack(trust.Root(header, roles).to_payload()), [keys["root"]])
    trust.pin(root, now)
    _lay_out(path, [key_file(role, key, passphrase, entropy=entropy) for role, key in keys.items()], root)
    return open_workspace(path, passphrase)


def _lay_out(path: Path, keys: list[KeyFile], root: bytes) -> None:
    """Fill a hidden folder beside the workspace's place, then rename it into that place."""
    hidden = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with _writing(path):
            hidden.mkdir(mode=0o755)
            (hidden / "keys").mkdir(mode=0o700)
            for folder in _FOLDERS:
                (hidden / folder).mkdir(mode=0o755)
            for key in keys:
                write_key(hidden / "keys" / f"{key.role}.key", key)
            for place in (hidden / "roots" / "1.hst", hidden / "root.hst"):
                write_output(place, root)
            write_output(hidden / "history.json", history_bytes([]))
            hidden.rename(path)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def open_workspace(path: str | Path, passphrase: Callable[[], bytes] | bytes | str | None = None) -> Workspace:
    """Open an existing workspace. Reads no key until something is signed.

    Args:
        path: the folder.
        passphrase: opens encrypted keys; or what returns it when something is signed. Without one it is the first
            line of the file that ``HEARSAY_PASSPHRASE_FILE`` names, if it names one by then.

    Raises:
        StorageError: ``not_a_workspace``, ``workspace_damaged``.
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


def signed_campaign(root_bytes: bytes, raw: bytes) -> campaign.Campaign:
    """A campaign that the root's campaign keys have signed, whatever its dates and the root's.

    The aggregator still counts, and makes a model from, what was answered before a campaign expired;
    dates are for devices, which ask :func:`protocol.documents.trust.verify`.

    Raises:
        DocumentError: ``bad_signature``, ``malformed``, ``unsupported_version``, ``wrong_role``,
            ``too_large``, ``unknown_crit``, ``invalid_campaign``, ``epsilon_understated``.
    """
    envelope = read_envelope(raw, "campaign")
    found = standing(envelope, trust.restore(root_bytes, {}, 0).root.roles["campaign"])
    if not found.complete:
        raise DocumentError("bad_signature", f"{len(found.signers)} of the {found.needed} needed signatures hold")
    parsed = campaign.parse_campaign(envelope.payload)
    check_understood(parsed.header, campaign.UNDERSTOOD)
    return parsed
