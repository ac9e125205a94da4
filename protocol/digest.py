"""SHA-256 and HMAC-SHA256 without OpenSSL, which takes a fifth of a small device's memory.

``hashlib`` loads ``libcrypto``: 3.4 MB that a device does not need otherwise. The interpreter's own SHA-256 is as
fast for the short messages of seeds and ids. The aggregator hashes megabytes and calls :func:`bulk_sha256`.
``benchmarks/speed/device.py`` measures both. Source: docs/formats.md, sections 1 and 2.
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
        except ImportError:  # another interpreter than CPython, or a CPython built without these modules
            from hashlib import sha256

__all__ = ["bulk_sha256", "hmac_sha256", "sha256"]

_BLOCK_BYTES = 64
_INNER = bytes(0x36 ^ value for value in range(256))
_OUTER = bytes(0x5C ^ value for value in range(256))


def bulk_sha256(data: bytes | memoryview = b"") -> HASH:
    """Return a SHA-256 hash object of ``hashlib`` (OpenSSL) that was updated with ``data``.

    For megabytes of data, on processors with SHA instructions, it is several times as fast as this module's ``sha256``.
    """
    from hashlib import sha256 as by_openssl

    return by_openssl(data)


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 (RFC 2104) of ``message``: H(K ⊕ opad ‖ H(K ⊕ ipad ‖ message)), 32 bytes, with K = ``key``.

    The key must have at most 64 bytes. This is not checked: for a longer key the result is no HMAC.
    """
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(padded.translate(_INNER) + message).digest()
    return sha256(padded.translate(_OUTER) + inner).digest()
