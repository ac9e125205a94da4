"""Signed envelopes: a payload and its Ed25519 signatures in a msgpack array.

The signatures cover DSSE's pre-authentication encoding, with lengths in *bytes*, not in characters. This module never
parses a payload. :func:`read_envelope` does not verify signatures; :func:`verified_by` does.
Source: docs/formats.md, section 5; the DSSE protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nacl import bindings, exceptions

from protocol import canonical
from protocol.errors import DocumentError, InputError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = "hsy1"
MAX_SIGNATURES = 16
KEY_BYTES = 32
KEYID_BYTES = 8
SIGNATURE_BYTES = 64
_MAX_ITEMS = 1 + 4 + 3 * MAX_SIGNATURES
"""Number of values in the largest envelope: the array, its four items, and three values per signature."""

PAYLOAD_TYPES = {
    "root": "application/vnd.hearsay.root.v1+msgpack",
    "campaign": "application/vnd.hearsay.campaign.v1+msgpack",
    "model": "application/vnd.hearsay.model.v1+msgpack",
    "nodes": "application/vnd.hearsay.nodes.v1+msgpack",
    "node": "application/vnd.hearsay.node.v1+msgpack",
    "masked": "application/vnd.hearsay.masked.v1+msgpack",
    "keys": "application/vnd.hearsay.keys.v1+msgpack",
    "release": "application/vnd.hearsay.release.v1+msgpack",
    "total": "application/vnd.hearsay.total.v1+msgpack",
    "counts": "application/vnd.hearsay.counts.v1+msgpack",
}
"""Role of a document → its payload type. The role determines whose keys must sign. ``root``, ``campaign``, ``model``:
the keys of the same role in the trust root. ``nodes`` (the list of nodes): the keys of the role ``campaign``.
``counts`` (of a pilot's records): the keys of the role ``model``. ``node`` (a node's summary) and ``masked`` (a node's
encrypted sums): the node's own key. ``keys`` (the key book) and ``release``: the key of the dealer that the campaign
names. ``total`` (of shared answers): the key of the leading collector that the campaign names."""

SIZE_LIMITS = {
    "root": 64 << 10,
    "campaign": 1 << 20,
    "model": 4 << 20,
    "nodes": 4 << 20,
    "node": 8 << 20,
    "masked": 8 << 20,
    "keys": 64 << 20,
    "release": 16 << 20,
    "total": 1 << 20,
    "counts": 4 << 20,
}
"""Role → largest size of a file in bytes, for ``node`` and ``masked`` of one envelope. It is checked before parsing."""

SIGNERS = {"root": "root", "campaign": "campaign", "model": "model", "nodes": "campaign", "counts": "model"}
"""Role of a document → role of the trust root whose keys must sign it."""


class Envelope(NamedTuple):
    """A parsed but unverified envelope. ``signatures`` holds pairs of key id and signature."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[bytes, bytes], ...]


class SigningKey(NamedTuple):
    """An Ed25519 key pair for signing: public key, 32 bytes, and libsodium's secret key, 64 bytes.

    Its ``repr`` shows only the key id.
    """

    public: bytes
    secret: bytes

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """Return the key pair that follows from a random seed of 32 bytes; others are refused as ``seed_invalid``."""
        if len(seed) != KEY_BYTES:
            raise InputError("seed_invalid", f"a seed is {KEY_BYTES} bytes")
        public, secret = bindings.crypto_sign_seed_keypair(seed)
        return cls(public, secret)

    @property
    def seed(self) -> bytes:
        """The 32-byte seed from which :meth:`from_seed` makes this key pair."""
        return self.secret[:KEY_BYTES]

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of ``message``."""
        return bytes(bindings.crypto_sign(message, self.secret)[:SIGNATURE_BYTES])

    def __repr__(self) -> str:
        return f"SigningKey({keyid(self.public).hex()})"


def keyid(public: bytes) -> bytes:
    """Return the id of a key: SHA-256(public key)[:8]. It helps to find the key and proves nothing."""
    return sha256(public).digest()[:KEYID_BYTES]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: ``DSSEv1 SP len(payload_type) SP payload_type SP len(payload) SP payload``."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload_type: str, payload: bytes, keys: Iterable[SigningKey]) -> bytes:
    """Sign a payload with 1 … 16 distinct keys and return the bytes of the envelope. The publisher runs this.

    ``payload_type`` is one of the values of :data:`PAYLOAD_TYPES`.

    Raises InputError ``signatures_invalid``: another number of distinct keys.
    """
    message = pae(payload_type, payload)
    pairs = {keyid(key.public): key.sign(message) for key in keys}
    return write_envelope(Envelope(payload_type, payload, tuple(pairs.items())))


def write_envelope(envelope: Envelope) -> bytes:
    """Encode an envelope as the bytes of a file; without 1 … 16 signatures it is ``signatures_invalid``."""
    if not 1 <= len(envelope.signatures) <= MAX_SIGNATURES:
        raise InputError("signatures_invalid", f"a document carries 1 to {MAX_SIGNATURES} signatures")
    pairs = [list(pair) for pair in envelope.signatures]
    return canonical.pack([MAGIC, envelope.payload_type, envelope.payload, pairs])


def read_envelope(raw: bytes, role: str) -> Envelope:
    """Parse the envelope of a document of ``role``, a key of :data:`PAYLOAD_TYPES`.

    Neither the signatures are verified nor the payload parsed. Raises DocumentError ``too_large``: above the role's
    :data:`SIZE_LIMITS`; ``unsupported_version``: an envelope of another version of the formats; ``wrong_role``: of
    another payload type; ``malformed``: no envelope.
    """
    if len(raw) > SIZE_LIMITS[role]:
        raise DocumentError("too_large", f"a {role} document has at most {SIZE_LIMITS[role]} bytes")
    if raw[:1] == b"\x94" and raw[1:2] == b"\xa4" and len(raw) >= 6 and raw[2:6] != MAGIC.encode():
        raise DocumentError("unsupported_version", "not a document of this version of Hearsay; update this software")
    parsed = canonical.unpack(raw, _MAX_ITEMS)
    if not isinstance(parsed, list) or len(parsed) != 4 or parsed[0] != MAGIC:
        raise DocumentError("malformed", "not a signed Hearsay document")
    _, payload_type, payload, pairs = parsed
    if not isinstance(payload_type, str) or not isinstance(payload, bytes):
        raise DocumentError("malformed", "not a signed Hearsay document")
    if not isinstance(pairs, list) or not 1 <= len(pairs) <= MAX_SIGNATURES:
        raise DocumentError("malformed", f"a document carries 1 to {MAX_SIGNATURES} signatures")
    if not all(_is_signature(pair) for pair in pairs):
        raise DocumentError("malformed", "a signature is a pair of 8 and 64 bytes")
    if payload_type != PAYLOAD_TYPES[role]:
        raise DocumentError("wrong_role", f"this is not a {role} document")
    return Envelope(payload_type, payload, tuple((hint, signature) for hint, signature in pairs))


def _is_signature(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], bytes)
        and isinstance(pair[1], bytes)
        and (len(pair[0]), len(pair[1])) == (KEYID_BYTES, SIGNATURE_BYTES)
    )


def role_of(raw: bytes) -> str | None:
    """Return the role whose payload type is in the first 80 bytes of ``raw``, or None.

    The file may be no valid envelope.
    """
    for role, payload_type in PAYLOAD_TYPES.items():
        if payload_type.encode() in raw[:80]:
            return role
    return None


def verified_by(envelope: Envelope, keys: Iterable[bytes]) -> frozenset[bytes]:
    """Return the subset of the Ed25519 public ``keys`` with a valid signature in the envelope.

    Only signatures with the id of one of these keys are verified, and of each key only up to its first valid signature.
    """
    by_hint = {keyid(public): public for public in keys}
    message = pae(envelope.payload_type, envelope.payload)
    signers = set()
    for hint, signature in envelope.signatures:
        public = by_hint.get(hint)
        if public is not None and public not in signers and _verifies(public, message, signature):
            signers.add(public)
    return frozenset(signers)


def _verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        bindings.crypto_sign_open(signature + message, public)
    except (exceptions.BadSignatureError, exceptions.ValueError):
        return False
    return True
