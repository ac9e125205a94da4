"""What the dealer's one secret yields: the keys of all parties. And the modulus, whose prime divisors nobody keeps."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import shake_256

from aggregator.common.extras import missing_extra
from protocol import canonical
from protocol.masked.cipher import SECRET_BYTES
from protocol.masked.groups import MODULUS_BITS

_TAG = "hearsay dealer key 1"
_EXPONENT = 65_537


def party_secret(seed: bytes, campaign: bytes, node: bytes, serial: int) -> int:
    """Sk of a party: the first 528 bytes of SHAKE-256(canonical [tag, seed, campaign, node, serial]), big-endian.

    Without the seed it is as good as uniform on [0, 2^4224). The journal therefore needs no secret.

    Args:
        seed: the dealer's secret, 32 bytes.
        campaign: id of the campaign, 32 bytes.
        node: id of the party's node, 8 bytes.
        serial: serial number of the key.
    """
    stream = shake_256(canonical.pack([_TAG, seed, campaign, node, serial]))
    return int.from_bytes(stream.digest(SECRET_BYTES), "big")


def sum_of_secrets(seed: bytes, campaign: bytes, keys: Iterable[tuple[bytes, int]]) -> int:
    """Σ sk over the integers. ``keys`` are pairs of node id and serial number; the rest as :func:`party_secret`."""
    return sum(party_secret(seed, campaign, node, serial) for node, serial in keys)


def new_modulus() -> int:
    """A new N = pq of exactly 2048 bits, from two random primes of 1024 bits.

    The library ``cryptography`` makes an RSA key and keeps the primes in its own memory until that key is dropped, at
    once. Only N is read.

    Raises:
        InputError: ``missing_extra``: the library is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError:
        rsa = None  # type: ignore[assignment]
    if rsa is None:
        raise missing_extra("a dealer's modulus needs the library cryptography", "masked")
    made = rsa.generate_private_key(_EXPONENT, MODULUS_BITS)
    return made.public_key().public_numbers().n
