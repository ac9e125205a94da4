"""Encrypt secrets under a passphrase with Argon2id and XSalsa20-Poly1305 of PyNaCl.

A sealed (encrypted) secret is one canonical msgpack map (docs/formats.md), which states the costs of its passphrase.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from nacl.exceptions import CryptoError
from nacl.pwhash import argon2id
from nacl.secret import SecretBox

from protocol import canonical
from protocol.errors import DocumentError, InputError, StorageError

FORMAT = 1
MAX_PASSES = 16
MAX_MEMORY_BYTES = 1 << 30
_KEYS = {"hearsay_sealed", "salt", "passes", "memory", "nonce", "box"}


class Cost(NamedTuple):
    """Cost of one attempt at a passphrase: ``passes`` (Argon2id's opslimit), and memory in bytes (its memlimit)."""

    passes: int
    memory: int


STANDARD = Cost(argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE)
"""libsodium's costs "moderate": 256 MiB, under a second on a desktop."""


def seal_secret(
    secret: bytes, passphrase: bytes, *, entropy: Callable[[int], bytes] = os.urandom, cost: Cost = STANDARD
) -> bytes:
    """Encrypt a secret under a passphrase, in the format of this module. ``entropy(n)`` returns n random bytes.

    Run by the keeper of keys or enrolment secrets. Raises InputError ``passphrase_missing``: the passphrase is empty.
    Raises StorageError ``memory_short``: there is not enough memory to derive a key.
    """
    if not passphrase:
        raise InputError("passphrase_missing", "the passphrase is empty")
    salt, nonce = entropy(argon2id.SALTBYTES), entropy(SecretBox.NONCE_SIZE)
    box = SecretBox(_key(passphrase, salt, cost)).encrypt(secret, nonce).ciphertext
    body = {"hearsay_sealed": FORMAT, "salt": salt, **cost._asdict(), "nonce": nonce, "box": box}
    return canonical.pack(body)


def open_secret(raw: bytes, passphrase: bytes) -> bytes:
    """Decrypt a secret that was sealed under the passphrase.

    Raises InputError ``passphrase_wrong``: the passphrase is wrong, or the file was altered; ``passphrase_missing``.
    Raises StorageError ``memory_short``, and as :func:`check_sealed`.
    """
    if not passphrase:
        raise InputError("passphrase_missing", "the passphrase is empty")
    salt, cost, nonce, box = _parse(raw)
    try:
        return bytes(SecretBox(_key(passphrase, salt, cost)).decrypt(box, nonce))
    except CryptoError:
        pass
    raise InputError("passphrase_wrong", "the passphrase does not open it, or the file was altered")


def check_sealed(raw: bytes) -> None:
    """Check an encrypted secret's form and costs, without a passphrase. Raises ``sealed_damaged``, ``sealed_newer``."""
    _parse(raw)


def _key(passphrase: bytes, salt: bytes, cost: Cost) -> bytes:
    with suppress(CryptoError, MemoryError):
        return bytes(argon2id.kdf(SecretBox.KEY_SIZE, passphrase, salt, opslimit=cost.passes, memlimit=cost.memory))
    raise StorageError("memory_short", f"a passphrase needs {cost.memory >> 20} MiB of memory")


def _parse(raw: bytes) -> tuple[bytes, Cost, bytes, bytes]:
    body: Any = None
    with suppress(DocumentError):
        body = canonical.unpack(raw, 1 + 2 * len(_KEYS))
    if not isinstance(body, dict) or type(body.get("hearsay_sealed")) is not int:
        body = {"hearsay_sealed": 0}
    if body["hearsay_sealed"] > FORMAT:
        raise StorageError("sealed_newer", "it was sealed by newer software; update this one")
    if body.keys() != _KEYS or body["hearsay_sealed"] != FORMAT:
        raise StorageError("sealed_damaged", "it is no sealed secret, or was damaged")
    salt, nonce, box = body["salt"], body["nonce"], body["box"]
    cost = Cost(body["passes"], body["memory"])
    lengths = (argon2id.SALTBYTES, SecretBox.NONCE_SIZE)
    if not all(isinstance(field, bytes) for field in (salt, nonce, box)) or (len(salt), len(nonce)) != lengths:
        raise StorageError("sealed_damaged", "it is no sealed secret, or was damaged")
    if not (_within(cost.passes, 1, MAX_PASSES) and _within(cost.memory, argon2id.MEMLIMIT_MIN, MAX_MEMORY_BYTES)):
        raise StorageError("sealed_damaged", "opening it would cost more than this software allows")
    return salt, cost, nonce, box


def _within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
