"""A workspace: the folder of whoever publishes, with keys, trust root and the history of documents.

    keys/            0700: root.key, campaign.key, model.key, each 0600
    root.hst         the trust root that devices pin
    history.json     every document signed here: role, name, version, digest; versions rise by themselves
    published/       a copy of every document, by digest, written before anything leaves
    lock             held while publishing

A version is used up before its document leaves the workspace: after a crash a number may be missing,
but never are there two documents of one version, which devices refuse as ``equivocation``.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.files import read_file, write_output
from protocol import campaign, canonical, model, trust
from protocol.document import DAY_SECONDS, Header, check_understood, is_text
from protocol.envelope import KEY_BYTES, PAYLOAD_TYPES, SIZE_LIMITS, SigningKey, read_envelope, seal, verified_by
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY_FORMAT = 1
HISTORY_FORMAT = 1
ROOT_LIFETIME_SECONDS = 3650 * DAY_SECONDS
MAX_HISTORY_BYTES = 64 << 20
EXTENSIONS = {"root": ".hst", "campaign": ".hsc", "model": ".hsm"}
_UNDERSTOOD = {"campaign": campaign.UNDERSTOOD, "model": model.UNDERSTOOD}


class Published(NamedTuple):
    """One line of the history. ``digest`` is SHA-256 of the payload: a campaign's id."""

    role: str
    name: str
    version: int
    digest: bytes
    issued_at: int


class Workspace(NamedTuple):
    """An opened workspace.

    Attributes:
        path: the folder.
        root_bytes: the signed trust root, as devices get it.
        root: the same, parsed.
    """

    path: Path
    root_bytes: bytes
    root: trust.Root

    def history(self) -> list[Published]:
        """Everything that was signed here, oldest first.

        Raises:
            StorageError: ``workspace_damaged``, ``workspace_newer``.
        """
        return _read_history(self.path / "history.json")

    def latest(self, role: str, name: str) -> Published | None:
        """The newest document of a role and name."""
        return max(
            (item for item in self.history() if (item.role, item.name) == (role, name)),
            key=lambda item: item.version,
            default=None,
        )

    def publish(self, role: str, name: str, now: int, payload_for: Callable[[int, bytes | None], bytes]) -> bytes:
        """Sign the next version of a document, record it, and return the file's bytes.

        Args:
            role: ``campaign`` or ``model``.
            name: versions rise by one per role and name.
            now: seconds since 1970: the time at which devices would have to accept it.
            payload_for: makes the payload from its version and the digest of the document before.

        Raises:
            StorageError: ``workspace_damaged``, ``io_failed``.
            DocumentError: what a device would refuse it for; then nothing was recorded.
        """
        with self._locked():
            before = self.latest(role, name)
            version = before.version + 1 if before else 1
            payload = payload_for(version, before.digest if before else None)
            raw = seal(PAYLOAD_TYPES[role], payload, [self._key(role)])
            verdict = trust.verify(trust.pin(self.root_bytes, now), raw, role, now, _UNDERSTOOD[role])
            copy = self.path / "published" / f"{verdict.digest.hex()}{EXTENSIONS[role]}"
            write_output(copy, raw, force=True)
            self._record(Published(role, name, version, verdict.digest, verdict.header.issued_at))
        return raw

    def check_signed(self, raw: bytes) -> None:
        """Refuse a campaign that this workspace did not sign, whatever its dates.

        Raises:
            DocumentError: ``bad_signature`` and the other reasons of a foreign or damaged file.
        """
        signed_campaign(self.root_bytes, raw)

    def _record(self, item: Published) -> None:
        entries = [*self.history(), item]
        write_output(self.path / "history.json", _history_bytes(entries), force=True)

    def _key(self, role: str) -> SigningKey:
        key = _parse_key(read_file(self.path / "keys" / f"{role}.key", 4096), role)
        if key.public not in self.root.roles[role].keys:
            raise StorageError("workspace_damaged", f"the {role} key is not one that the trust root names")
        return key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the workspace against another process that publishes at the same time."""
        handle = -1
        with suppress(OSError):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if handle < 0:
            raise StorageError("io_failed", f"the workspace at '{self.path}' can not be written")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def create_workspace(
    path: str | Path,
    *,
    name: str,
    now: int,
    lifetime_seconds: int = ROOT_LIFETIME_SECONDS,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Workspace:
    """Make keys, a self-signed trust root and an empty history, all or nothing.

    Args:
        path: a folder that does not exist, or is empty.
        name: of the trust root; devices keep to one name.
        now: seconds since 1970.
        lifetime_seconds: how long the root is valid.
        entropy: returns so many bytes from the operating system; a test may pass another source.

    Raises:
        StorageError: ``workspace_exists``; ``io_failed``.
        InputError: ``name_invalid``.
    """
    path = Path(path).absolute()
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise StorageError("workspace_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
    if not is_text(name):
        raise InputError("name_invalid", "the name is empty, too long, or does not print")
    keys = {role: SigningKey.from_seed(entropy(KEY_BYTES)) for role in trust.ROLES}
    header = Header(name, 1, now, now, now + lifetime_seconds)
    roles = {role: trust.Role(frozenset([key.public]), 1) for role, key in keys.items()}
    root = seal(PAYLOAD_TYPES["root"], canonical.pack(trust.Root(header, roles).to_payload()), [keys["root"]])
    trust.pin(root, now)
    _lay_out(path, keys, root)
    return open_workspace(path)


def _lay_out(path: Path, keys: dict[str, SigningKey], root: bytes) -> None:
    """Fill a hidden folder beside the workspace's place, then rename it into that place."""
    hidden = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    problem = ""
    try:
        for folder, mode in ((hidden, 0o755), (hidden / "keys", 0o700), (hidden / "published", 0o755)):
            folder.mkdir(mode=mode)
        for role, key in keys.items():
            write_output(hidden / "keys" / f"{role}.key", _key_bytes(role, key), mode=0o600)
        write_output(hidden / "root.hst", root)
        write_output(hidden / "history.json", _history_bytes([]))
        hidden.rename(path)
        return
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else "unknown cause"
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    raise StorageError("io_failed", f"'{path}' could not be made: {problem}")


def open_workspace(path: str | Path) -> Workspace:
    """Open an existing workspace. Reads no key until something is signed.

    Raises:
        StorageError: ``not_a_workspace``, ``workspace_damaged``.
    """
    path = Path(path)
    if not (path / "root.hst").is_file() or not (path / "keys").is_dir():
        raise StorageError("not_a_workspace", f"'{path}' is not a workspace; make one with: hearsay init {path}")
    problem = ""
    try:
        raw = read_file(path / "root.hst", SIZE_LIMITS["root"])
        return Workspace(path, raw, trust.restore(raw, {}, 0).root)
    except DocumentError as error:
        problem = error.detail
    raise StorageError("workspace_damaged", f"'root.hst' can not be used: {problem}")


def signed_campaign(root_bytes: bytes, raw: bytes) -> campaign.Campaign:
    """A campaign that the root's campaign keys have signed, whatever its dates and the root's.

    The aggregator still counts, and makes a model from, what was answered before a campaign expired;
    dates are for devices, which ask :func:`protocol.trust.verify`.

    Raises:
        DocumentError: ``bad_signature``, ``malformed``, ``unsupported_version``, ``wrong_role``,
            ``too_large``, ``unknown_crit``, ``invalid_campaign``, ``epsilon_understated``.
    """
    role = trust.restore(root_bytes, {}, 0).root.roles["campaign"]
    envelope = read_envelope(raw, "campaign")
    signers = verified_by(envelope, role.keys)
    if len(signers) < role.threshold:
        raise DocumentError("bad_signature", f"{len(signers)} of the {role.threshold} needed signatures hold")
    parsed = campaign.parse_campaign(envelope.payload)
    check_understood(parsed.header, campaign.UNDERSTOOD)
    return parsed


def _key_bytes(role: str, key: SigningKey) -> bytes:
    """A key file: one canonical msgpack map. A later format may protect the seed."""
    return canonical.pack({"hearsay_key": KEY_FORMAT, "role": role, "seed": key.seed})


def _parse_key(raw: bytes, role: str) -> SigningKey:
    body: Any = None
    try:
        body = canonical.unpack(raw)
    except DocumentError:
        body = None
    if not isinstance(body, dict) or type(body.get("hearsay_key")) is not int:
        raise StorageError("workspace_damaged", f"the {role} key file can not be read")
    if body["hearsay_key"] > KEY_FORMAT:
        raise StorageError("workspace_newer", f"the {role} key file was made by newer software; update this one")
    seed = body.get("seed")
    if body.get("role") != role or not isinstance(seed, bytes) or len(seed) != KEY_BYTES:
        raise StorageError("workspace_damaged", f"the {role} key file can not be read")
    return SigningKey.from_seed(seed)


def _history_bytes(items: list[Published]) -> bytes:
    documents = [{**item._asdict(), "digest": item.digest.hex()} for item in items]
    return json.dumps({"format": HISTORY_FORMAT, "documents": documents}, ensure_ascii=False, indent=1).encode()


def _read_history(path: Path) -> list[Published]:
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
