"""SHA-256 without OpenSSL; and seeds and streams: all randomness of one answer comes from one 32-byte seed.

A stream is the sequence of bytes block 0 ‖ block 1 ‖ … that follows from a seed and a tag (purpose and version):

    block i = SHA-256(len(tag) as one byte ‖ tag ‖ seed ‖ i as u32),  i = 0, 1, …

With the seed anybody could remove the noise, so a device draws a new one for every answer and never stores it.
``hashlib`` would load OpenSSL: 3.4 MB of a small device's memory. The aggregator hashes megabytes and calls
:func:`bulk_sha256`. Source: docs/formats.md, sections 1 and 2.
"""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING

from protocol.errors import InputError

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
    """Return HMAC-SHA256 (RFC 2104) of ``message``, 32 bytes; the key must have at most 64 bytes, unchecked."""
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(padded.translate(_INNER) + message).digest()
    return sha256(padded.translate(_OUTER) + inner).digest()


SEED_BYTES = 32
_WORD = 1 << 32
_DOUBLE = 1 << 64


class Stream:
    """The pseudorandom bytes that follow from a seed and a tag. They are read in order, without gaps."""

    __slots__ = ("_blocks", "_buffer", "_position", "_prefix")

    def __init__(self, seed: bytes, tag: bytes) -> None:
        """Start at the first byte.

        ``tag`` is purpose and version in at most 255 bytes, for example ``b"hearsay/1/direct"``. A seed of another
        length than 32 bytes is refused as ``seed_invalid``.
        """
        if type(seed) is not bytes or len(seed) != SEED_BYTES:
            raise InputError("seed_invalid", f"a seed is {SEED_BYTES} bytes")
        self._prefix = b"%c%b%b" % (len(tag), tag, seed)
        self._buffer = sha256(self._prefix + b"\0\0\0\0").digest()
        self._position = 0
        self._blocks = 1

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes; ``count`` is at least 0."""
        start = self._position
        stop = start + count
        if stop > len(self._buffer):
            self._extend(count)
            start, stop = 0, count
        self._position = stop
        return self._buffer[start:stop]

    def _extend(self, count: int) -> None:
        """Drop the bytes that were read, and append as many blocks as the next ``count`` bytes need."""
        rest = self._buffer[self._position :]
        missing = (count - len(rest) + 31) // 32
        blocks = [
            sha256(self._prefix + index.to_bytes(4, "big")).digest()
            for index in range(self._blocks, self._blocks + missing)
        ]
        self._blocks += missing
        self._buffer = rest + b"".join(blocks)

    def u32(self) -> int:
        """Return the next four bytes as an unsigned big-endian integer."""
        return int.from_bytes(self.read(4), "big")

    def u64(self) -> int:
        """Return the next eight bytes as an unsigned big-endian integer."""
        return int.from_bytes(self.read(8), "big")

    def words(self, count: int) -> tuple[int, ...]:
        """Return the next ``count`` unsigned 32-bit integers, as ``count`` calls of :meth:`u32` would.

        They are read at once.
        """
        return unpack(f">{count}I", self.read(4 * count))

    def below(self, bound: int) -> int:
        """Draw an integer uniformly from {0 … bound − 1}, exactly, by rejection; the bound is at most 2^64.

        The method reads words of 4 bytes for a bound up to 2^32, else of 8 bytes, until a word is not rejected.
        """
        if not 1 <= bound <= _DOUBLE:
            raise InputError("bound_invalid", "a bound is from 1 to 2^64")
        if bound <= _WORD:
            limit = _WORD - _WORD % bound
            while (word := int.from_bytes(self.read(4), "big")) >= limit:
                pass
        else:
            limit = _DOUBLE - _DOUBLE % bound
            while (word := int.from_bytes(self.read(8), "big")) >= limit:
                pass
        return word % bound

    def coin(self, threshold: int) -> bool:
        """Draw True with probability threshold / 2^32. One 4-byte word is read, also for the thresholds 0 and 2^32."""
        return int.from_bytes(self.read(4), "big") < threshold
