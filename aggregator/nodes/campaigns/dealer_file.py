"""The dealer's public file (``dealer.pub``): the dealer's key and modulus, which a masked campaign names.

The file is JSON: ``hearsay_dealer`` 1, and in hexadecimal ``key``, ``modulus`` and ``signature``. The signature detects
damage, and does not say who the dealer is: people compare the key's id. Source: docs/formats.md, section 11.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from nacl import bindings
from nacl.exceptions import CryptoError

from aggregator.common.files import read_file
from protocol.documents.envelope import KEY_BYTES, SIGNATURE_BYTES, SigningKey, keyid
from protocol.documents.masked_terms import MODULUS_BYTES, unfit_modulus
from protocol.errors import InputError

FORMAT = 1
MAX_PUBLIC_BYTES = 4096
_TAG = b"hearsay/1/dealer"
_LENGTHS = {"key": KEY_BYTES, "modulus": MODULUS_BYTES, "signature": SIGNATURE_BYTES}


class DealerPublic(NamedTuple):
    """What everybody may know of a dealer.

    ``key``: Ed25519 public key, 32 bytes, which verifies key books and releases. ``modulus``: N, 2048 bits, of which
    nobody kept the prime divisors.
    """

    key: bytes
    modulus: int

    @property
    def id(self) -> str:
        """The id of the key in hexadecimal, to be compared by people."""
        return keyid(self.key).hex()


def public_bytes(signer: SigningKey, modulus: int) -> bytes:
    """Return the bytes of a public file, for the dealer's key pair and a modulus of exactly 2048 bits."""
    number = modulus.to_bytes(MODULUS_BYTES, "big")
    fields = {"key": signer.public, "modulus": number, "signature": signer.sign(_TAG + signer.public + number)}
    content = {"hearsay_dealer": FORMAT, **{name: value.hex() for name, value in fields.items()}}
    return json.dumps(content, indent=1).encode() + b"\n"


def parse_public_file(raw: bytes) -> DealerPublic:
    """Parse and verify a dealer's public file. Raise ``dealer_invalid`` if it is damaged or its modulus is unfit."""
    fields: dict[str, bytes] = {}
    try:
        content = json.loads(raw)
        if content["hearsay_dealer"] == FORMAT and content.keys() == {"hearsay_dealer", *_LENGTHS}:
            fields = {name: bytes.fromhex(content[name]) for name in _LENGTHS}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        fields = {}
    if {name: len(value) for name, value in fields.items()} != _LENGTHS:
        raise InputError("dealer_invalid", "it is no public file of a dealer; hearsay masked new makes dealer.pub")
    signed = _TAG + fields["key"] + fields["modulus"]
    try:
        bindings.crypto_sign_open(fields["signature"] + signed, fields["key"])
    except (CryptoError, ValueError):
        fields = {}
    if not fields:
        raise InputError("dealer_invalid", "the public file of the dealer was changed; ask the dealer for it again")
    modulus = int.from_bytes(fields["modulus"], "big")
    problem = unfit_modulus(modulus)
    if problem:
        raise InputError("dealer_invalid", f"{problem}; do not use this dealer")
    return DealerPublic(fields["key"], modulus)


def read_dealer(path: str | Path) -> DealerPublic:
    """Read and verify a dealer's public file. Raises ``dealer_invalid``, or the reasons of an unreadable file."""
    return parse_public_file(read_file(path, MAX_PUBLIC_BYTES))
