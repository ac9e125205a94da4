"""SHA-256 and its HMAC, without loading OpenSSL: on a small device that is a fifth of all its memory.

``hashlib`` loads ``libcrypto``, 3.4 MB that a device otherwise has no use for. The interpreter brings a SHA-256
of its own, which is as fast for the short messages of seeds and ids. Whoever hashes megabytes, the aggregator,
takes :func:`bulk_sha256`. ``benchmarks/device.py`` measures both. Source: docs/formats.md, sections 1 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _hashlib import HASH
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256  # Python 3.11
        except ImportError:  # an interpreter built without it, or another one than CPython
            from hashlib import sha256

__all__ = ["bulk_sha256", "hmac_sha256", "sha256"]

_BLOCK_BYTES = 64
_INNER = bytes(0x36 ^ value for value in range(256))
_OUTER = bytes(0x5C ^ value for value in range(256))


def bulk_sha256(data: bytes | memoryview = b"") -> HASH:
    """SHA-256 by OpenSSL: several times as fast for megabytes, where the processor has instructions for it."""
    from hashlib import sha256 as by_openssl

    return by_openssl(data)


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104): H(K ⊕ opad ‖ H(K ⊕ ipad ‖ message)), 32 bytes. Keys have at most 64 bytes."""
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(padded.translate(_INNER) + message).digest()
    return sha256(padded.translate(_OUTER) + inner).digest()
