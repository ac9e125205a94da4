"""Two collectors that agreed to work together: their public files, and the verify key that both can compute.

Each collector gives away a public file. The leader makes the *pair* of both, which a publisher puts into a campaign: a
random salt, and the digest of the verify key. The key itself follows from the salt and a secret that only the two can
compute (X25519), so it is fixed before any report, and devices do not know it. Source: docs/formats.md, section 12.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from nacl import bindings

from protocol import canonical
from protocol.documents.envelope import KEY_BYTES, SigningKey
from protocol.documents.payload import is_text
from protocol.documents.shared_terms import LEADER, SALT_BYTES, Collector, SharedTerms
from protocol.errors import DocumentError, InputError
from protocol.shared.shape import box_key
from protocol.stream import hmac_sha256

FORMAT = 1
MAX_BYTES = 16_384
_KEY_TAG = b"hearsay/1/verify-key"
_PUBLIC_KEYS = {"hearsay_collector", "contact", "key", "name"}
_PAIR_KEYS = {"hearsay_collectors", "collectors", "salt", "verify_key"}


class Pair(NamedTuple):
    """Two collectors for one campaign.

    Attributes:
        collectors: the leader and the helper.
        salt: 32 random bytes.
        verify_key: SHA-256 of the verify key, 32 bytes.
    """

    collectors: tuple[Collector, Collector]
    salt: bytes
    verify_key: bytes


def private_box_key(own: SigningKey) -> bytes:
    """Return the X25519 secret key that follows from a collector's key pair."""
    return bytes(bindings.crypto_sign_ed25519_sk_to_curve25519(own.secret))


def common_secret(own: SigningKey, other: bytes) -> bytes:
    """Return the 32 bytes that two collectors, and nobody else, can compute: X25519 and HSalsa20 (libsodium).

    Raises:
        InputError: ``key_invalid``: ``other`` is no Ed25519 public key.
    """
    return bytes(bindings.crypto_box_beforenm(box_key(other), private_box_key(own)))


def verify_key_of(own: SigningKey, collectors: tuple[Collector, Collector], salt: bytes) -> bytes:
    """Return the verify key of two collectors. Either of them runs this.

    Raises:
        InputError: ``not_this_collector``: the key pair is of neither.
    """
    keys = [one.key for one in collectors]
    if own.public not in keys:
        raise InputError("not_this_collector", "this folder's key is of neither of the campaign's collectors")
    other = keys[1 - keys.index(own.public)]
    return hmac_sha256(common_secret(own, other), _KEY_TAG + salt + b"".join(keys))


def new_pair(own: SigningKey, leader: Collector, helper: Collector, salt: bytes) -> Pair:
    """Return the pair of two collectors. The leader runs this once for each campaign.

    Args:
        own: the leader's key pair.
        leader, helper: what the collectors say of themselves.
        salt: 32 fresh random bytes.

    Raises:
        InputError: ``key_invalid``: the helper's key can not be used; ``collectors_invalid``: both have one key.
    """
    if leader.key == helper.key:
        raise InputError(
            "collectors_invalid", "the two collectors have the same key, so one of them would see everything"
        )
    collectors = (leader, helper)
    return Pair(collectors, salt, sha256(verify_key_of(own, collectors, salt)).digest())


def made_up_pair() -> Pair:
    """Return a pair of collectors that nobody runs, for totals that numpy draws."""
    leader, helper = (SigningKey.from_seed(bytes([number]) * KEY_BYTES) for number in (1, 2))
    collectors = [Collector(name, "nobody", key.public) for name, key in (("leader", leader), ("helper", helper))]
    return new_pair(leader, collectors[0], collectors[1], bytes(32))


def role_in(terms: SharedTerms, own: SigningKey) -> tuple[int, bytes]:
    """Return a collector's number in a campaign and the campaign's verify key.

    Raises:
        InputError: ``not_this_collector``: the campaign names other collectors, or was made with another verify key.
    """
    key = verify_key_of(own, terms.collectors, terms.salt)
    if sha256(key).digest() != terms.verify_key:
        raise InputError("not_this_collector", "the campaign states another verify key than its collectors have")
    return [one.key for one in terms.collectors].index(own.public), key


def write_public(collector: Collector) -> bytes:
    """Return the bytes of a collector's public file."""
    return canonical.pack({"hearsay_collector": FORMAT, **collector._asdict()})


def read_public(raw: bytes) -> Collector:
    """Parse a collector's public file.

    Raises:
        InputError: ``collectors_invalid``: it is no such file, or its key can not be used.
    """
    body = _map(raw, _PUBLIC_KEYS, "hearsay_collector")
    return _collector({name: body[name] for name in Collector._fields})


def write_pair(pair: Pair) -> bytes:
    """Return the bytes of the file that a publisher puts into a campaign."""
    collectors = [one._asdict() for one in pair.collectors]
    return canonical.pack(
        {"hearsay_collectors": FORMAT, "collectors": collectors, "salt": pair.salt, "verify_key": pair.verify_key}
    )


def read_pair(raw: bytes) -> Pair:
    """Parse the file of a pair.

    Raises:
        InputError: ``collectors_invalid``: it is no such file, or a key can not be used.
    """
    body = _map(raw, _PAIR_KEYS, "hearsay_collectors")
    listed = body["collectors"]
    if not isinstance(listed, list) or len(listed) != 2:
        raise _invalid()
    leader, helper = (_collector(one) for one in listed)
    salt, verify_key = body["salt"], body["verify_key"]
    if not (_is_bytes(salt, SALT_BYTES) and _is_bytes(verify_key, KEY_BYTES)) or leader.key == helper.key:
        raise _invalid()
    return Pair((leader, helper), salt, verify_key)


def _map(raw: bytes, keys: set[str], mark: str) -> dict[str, Any]:
    body: Any = None
    if len(raw) <= MAX_BYTES:
        try:
            body = canonical.unpack(raw, 64)
        except DocumentError:
            body = None
    if not isinstance(body, dict) or body.keys() != keys or body[mark] is True or body[mark] != FORMAT:
        raise _invalid()
    return body


def _collector(entry: object) -> Collector:
    if not isinstance(entry, dict) or entry.keys() != set(Collector._fields):
        raise _invalid()
    if not all(is_text(text) and text.strip() for text in (entry["name"], entry["contact"])):
        raise _invalid()
    if not _is_bytes(entry["key"], KEY_BYTES):
        raise _invalid()
    box_key(entry["key"])
    return Collector(**entry)


def _is_bytes(value: object, length: int) -> bool:
    return isinstance(value, bytes) and len(value) == length


def _invalid() -> InputError:
    return InputError("collectors_invalid", "it is no file of collectors; hearsay collector new and pair make them")


__all__ = [
    "LEADER",
    "Pair",
    "made_up_pair",
    "new_pair",
    "read_pair",
    "read_public",
    "role_in",
    "write_pair",
    "write_public",
]
