"""Key files: a signing key, in the clear or under a passphrase, and its public part as one line of text.

A key file is a canonical msgpack map. :func:`write_key` lets only its owner read the file.

    in the clear   hearsay_key 1, role, seed (32 bytes)
    encrypted      hearsay_key 2, role, public, sealed

``sealed`` is the map {role, seed} under a passphrase (:mod:`aggregator.common.sealing`). A public key is the text
``hearsay-key-1 ROLE 64-HEX-DIGITS``, to be mailed or read aloud.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.files import PRIVATE, read_file, write_output
from aggregator.common.sealing import STANDARD, Cost, check_sealed, open_secret, seal_secret
from protocol import canonical
from protocol.documents import trust
from protocol.documents.envelope import KEY_BYTES, SigningKey, keyid
from protocol.errors import DocumentError, InputError, StorageError

CLEAR, ENCRYPTED = 1, 2
PUBLIC_WORD = "hearsay-key-1"
MAX_KEY_BYTES = 4096
COST = STANDARD
"""Time and memory that it takes to open a new key file."""


def no_passphrase() -> bytes:
    """Raise InputError ``passphrase_missing``: the default of functions that may need one to open an encrypted key."""
    raise InputError("passphrase_missing", "the key is encrypted, and no passphrase was given")


class KeyFile(NamedTuple):
    """A key file that was read. An encrypted key is not opened yet. Its ``repr`` shows no secret.

    ``role``: what the key signs: root, campaign or model; or dealer. ``public``: of an encrypted file it is verified
    when the key is opened. ``seed`` is None, and ``sealed`` (role and seed under a passphrase) not empty, if the file
    is encrypted.
    """

    role: str
    public: bytes
    seed: bytes | None = None
    sealed: bytes = b""

    @property
    def encrypted(self) -> bool:
        """Whether the seed is encrypted, so that signing needs a passphrase."""
        return self.seed is None

    @property
    def id(self) -> str:
        """The key id in hexadecimal."""
        return keyid(self.public).hex()

    def open(self, passphrase: Callable[[], bytes] = no_passphrase) -> SigningKey:
        """Decrypt the seed if needed, and return the key that signs. ``passphrase`` is called for an encrypted seed.

        Raises InputError ``passphrase_wrong`` (also if the file was altered), ``passphrase_missing``; StorageError
        ``memory_short``.
        """
        seed = self._unsealed(passphrase()) if self.seed is None else self.seed
        return SigningKey.from_seed(seed)

    def _unsealed(self, passphrase: bytes) -> bytes:
        seed: Any = None
        with suppress(DocumentError):
            body = canonical.unpack(open_secret(self.sealed, passphrase))
            if isinstance(body, dict) and body.get("role") == self.role:
                seed = body.get("seed")
        if isinstance(seed, bytes) and len(seed) == KEY_BYTES and SigningKey.from_seed(seed).public == self.public:
            return seed
        raise InputError("passphrase_wrong", f"the {self.role} key {self.id} is not the one that was sealed")

    def to_bytes(self) -> bytes:
        """Return the bytes to write to a file; :func:`parse_key` reads them."""
        if self.seed is not None:
            return canonical.pack({"hearsay_key": CLEAR, "role": self.role, "seed": self.seed})
        return canonical.pack(
            {"hearsay_key": ENCRYPTED, "role": self.role, "public": self.public, "sealed": self.sealed}
        )

    def __repr__(self) -> str:
        return f"<{'encrypted ' if self.encrypted else ''}{self.role} key {self.id}>"


def key_file(
    role: str,
    key: SigningKey,
    passphrase: bytes | None = None,
    *,
    cost: Cost | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> KeyFile:
    """Return the key file of a signing key, in the clear or, with a passphrase, under it.

    ``role``: root, campaign, model or dealer. ``cost``: time and memory to open it; None for :data:`COST`. ``entropy``
    returns random bytes. Raises InputError ``passphrase_missing``; StorageError ``memory_short``.
    """
    if passphrase is None:
        return KeyFile(role, key.public, key.seed)
    body = canonical.pack({"role": role, "seed": key.seed})
    sealed = seal_secret(body, passphrase, entropy=entropy, cost=COST if cost is None else cost)
    return KeyFile(role, key.public, None, sealed)


def parse_key(raw: bytes, roles: Collection[str] = trust.ROLES) -> KeyFile:
    """Parse the bytes of a key file of one of these roles. An encrypted key stays encrypted.

    Raises InputError ``key_invalid``: the bytes are no key file or a damaged one, or opening it would take more time or
    memory than the limit; ``key_newer``: newer software made the file.
    """
    body: Any = None
    try:
        body = canonical.unpack(raw)
    except DocumentError:
        body = None
    if not isinstance(body, dict) or type(body.get("hearsay_key")) is not int or body["hearsay_key"] < CLEAR:
        raise InputError("key_invalid", "it is not a key file")
    if body["hearsay_key"] > ENCRYPTED:
        raise InputError("key_newer", "the key file was made by newer software; update this one")
    role = body.get("role")
    if not isinstance(role, str) or role not in roles:
        raise InputError("key_invalid", "the key file is damaged: it is for no role")
    if body["hearsay_key"] == CLEAR:
        seed = _bytes(body, "seed", KEY_BYTES)
        return KeyFile(role, SigningKey.from_seed(seed).public, seed)
    public, sealed = _bytes(body, "public", KEY_BYTES), _bytes(body, "sealed")
    problem = ""
    try:
        check_sealed(sealed)
    except StorageError as error:
        problem = error.detail
    if problem:
        raise InputError("key_invalid", f"the key file is damaged: {problem}")
    return KeyFile(role, public, None, sealed)


def _bytes(body: dict[str, Any], name: str, length: int | None = None) -> bytes:
    found = body.get(name)
    if not isinstance(found, bytes) or (length is not None and len(found) != length):
        raise InputError("key_invalid", f"the key file is damaged: '{name}' is missing or of another length")
    return found


def read_key(path: Path, roles: Collection[str] = trust.ROLES) -> KeyFile:
    """Read a key file and parse it. Raises the errors of :func:`.read_file` and :func:`parse_key`."""
    return parse_key(read_file(path, MAX_KEY_BYTES), roles)


def read_workspace_key(path: Path) -> KeyFile:
    """Read a workspace's key file, named after its role. Raises ``workspace_damaged``, ``workspace_newer``."""
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


def write_key(path: Path, key: KeyFile, *, force: bool = False) -> None:
    """Write a key file that only its owner may read. Raises the errors of :func:`.files.check_output`."""
    write_output(path, key.to_bytes(), force=force, mode=PRIVATE)


def public_line(key: KeyFile) -> str:
    """Return the public part of a key as one line for the keeper of a trust root: ``hearsay-key-1 ROLE HEX``."""
    return f"{PUBLIC_WORD} {key.role} {key.public.hex()}\n"


def parse_public(raw: bytes, role: str) -> bytes:
    """Return the public key, 32 bytes, from a line that :func:`public_line` made for this role.

    Raises InputError ``key_invalid``: the bytes are no line of a public key; ``wrong_key``: the key is for another
    role.
    """
    words = raw.decode("ascii", "replace").split()
    if len(words) != 3 or words[0] != PUBLIC_WORD or len(words[2]) != 2 * KEY_BYTES:
        raise InputError("key_invalid", "it is no public key; hearsay key new writes one beside the key, as .pub")
    if words[1] != role:
        raise InputError("wrong_key", f"the key is not one for the role {role}")
    try:
        return bytes.fromhex(words[2])
    except ValueError:
        pass
    raise InputError("key_invalid", "it is no public key: its digits are not hexadecimal")
