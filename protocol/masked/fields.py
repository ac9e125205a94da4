"""Readers of the fields that messages, key books, requests and releases share; and numbers packed into plaintexts.

A plaintext holds signed numbers v_s in *slots* of w bits: x = Σ_s v_s · 2^(w·s), s = 0 … ⌊2000/w⌋ − 1. The sum of
several nodes' plaintexts is the plaintext of the sums. A total is read back if each |Σ v_s| < 2^(w−1); what is above
the last used slot must be 0. Source: docs/formats.md and docs/math.md, section 6.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from protocol import SPEC, canonical
from protocol.documents.envelope import KEYID_BYTES, SIZE_LIMITS, keyid, read_envelope, verified_by
from protocol.documents.masked_terms import MAX_CIPHERTEXTS, MODULUS_BYTES, PLAINTEXT_BITS
from protocol.documents.payload import read_field
from protocol.errors import DocumentError, InputError
from protocol.masked.cipher import are_units
from protocol.masked.costs import ciphertexts_of, masked_terms_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from protocol.documents.campaign import Campaign

SPACE = PLAINTEXT_BITS
"""Number of bits of a plaintext that hold slots: 2000."""


class Slots:
    """The layout of numbers in plaintexts: how many bits a slot has, and how many slots a plaintext.

    Attributes:
        bits: w, the bits of one slot, 2 … ``space``, the bits of a plaintext (less in tests); else
            ``argument_invalid``.
        each: the number of slots in one plaintext.
    """

    __slots__ = ("bits", "each")

    def __init__(self, bits: int, space: int = SPACE) -> None:
        if not 2 <= bits <= space:
            raise InputError("argument_invalid", f"a slot has 2 to {space} bits")
        self.bits = bits
        self.each = space // bits

    def plaintexts(self, count: int) -> int:
        """Return the number of plaintexts for ``count`` numbers. The last one may have unused slots."""
        return -(-count // self.each)

    def pack(self, numbers: Sequence[int]) -> list[int]:
        """Lay out at least one number in plaintexts, of which each may be negative.

        Raises InputError ``slot_overflow``: a number is not of |v| < 2^(w−1), w = ``bits``. The text names its position
        alone.
        """
        limit = 1 << (self.bits - 1)
        for place, value in enumerate(numbers):
            if not -limit < value < limit:
                raise InputError("slot_overflow", f"number {place} does not fit into a slot of {self.bits} bits")
        return self.spread(numbers)

    def spread(self, numbers: Sequence[int]) -> list[int]:
        """Lay out numbers of any size, without a check: :meth:`pack` for noise, which has no bound.

        The plaintext of exact numbers plus noise is ``pack(numbers)`` + ``spread(noise)``. A refusal that depends on
        the noise would tell something that the noise does not hide. A number too large for its slot changes the numbers
        beside it.
        """
        return [
            sum(value << (self.bits * slot) for slot, value in enumerate(numbers[start : start + self.each]))
            for start in range(0, len(numbers), self.each)
        ]

    def unpack(self, plaintexts: Sequence[int], count: int) -> list[int]:
        """Read ``count`` numbers of [−2^(w−1), 2^(w−1)) back from totals of plaintexts, w = ``bits``.

        Raises DocumentError ``mask_mismatch``: another number of plaintexts, or a remainder after the last used slot.
        """
        if len(plaintexts) != self.plaintexts(count):
            raise DocumentError("mask_mismatch", f"{count} numbers have {self.plaintexts(count)} plaintexts")
        found: list[int] = []
        half, low = 1 << (self.bits - 1), (1 << self.bits) - 1
        for plaintext in plaintexts:
            rest = plaintext
            for _ in range(min(self.each, count - len(found))):
                value = ((rest + half) & low) - half
                found.append(value)
                rest = (rest - value) >> self.bits
            if rest:
                raise DocumentError("mask_mismatch", "a decrypted total has more than its slots hold")
        return found


ELEMENT_BYTES = 2 * MODULUS_BYTES
"""Length in bytes of a ciphertext, and of an element of a release: a number below the square of the modulus."""
DIGEST_BYTES = 32
_BOOK_BYTES_PER_PARTY = 700
"""More than the bytes of a party: 17 of the node id, 1 + 5 + 5 + 3 + 655 of the array of serial number, u and box."""
_BYTES_AROUND = 1024
"""A limit above the number of bytes that an envelope and its payload have beside their parties and elements."""
WORD = 1 << 32


def read_map(payload: bytes, keys: Collection[str], max_items: int, what: str) -> dict[str, Any]:
    """Parse a payload that is a canonical map of exactly these keys and of the formats' version.

    ``max_items`` is the largest number of values, keys and containers included; ``what`` names the payload in errors.

    Raises DocumentError ``malformed``, ``unsupported_version``.
    """
    body = canonical.unpack(payload, max_items)
    if not isinstance(body, dict) or "spec" not in body:
        raise DocumentError("malformed", f"not a {what}")
    if body["spec"] != SPEC:
        raise DocumentError("unsupported_version", f"the {what} follows another version of the formats")
    if set(body) != set(keys):
        raise DocumentError("malformed", f"a {what} has other keys than {', '.join(sorted(keys))}")
    return body


def read_bytes(body: dict[str, Any], key: str, length: int) -> bytes:
    """Return the field ``key`` of a map, a byte string of exactly ``length`` bytes; else raise ``malformed``."""
    value: bytes = read_field(body, key, bytes)
    if len(value) != length:
        raise DocumentError("malformed", f"'{key}' has not {length} bytes")
    return value


def read_numbers(body: dict[str, Any], key: str) -> tuple[int, ...]:
    """Return the field ``key`` of a map, 1 … 16000 numbers of 512 bytes, big-endian; else raise ``malformed``."""
    value: bytes = read_field(body, key, bytes)
    count, rest = divmod(len(value), ELEMENT_BYTES)
    if rest or not 1 <= count <= MAX_CIPHERTEXTS:
        raise DocumentError("malformed", f"'{key}' is not 1 to {MAX_CIPHERTEXTS} numbers of {ELEMENT_BYTES} bytes")
    return tuple(
        int.from_bytes(value[start : start + ELEMENT_BYTES], "big") for start in range(0, len(value), ELEMENT_BYTES)
    )


def write_numbers(numbers: Iterable[int]) -> bytes:
    """Join numbers of 512 bytes, big-endian. Raise ``value_out_of_domain`` if one is negative or longer."""
    try:
        return b"".join(number.to_bytes(ELEMENT_BYTES, "big") for number in numbers)
    except OverflowError:
        pass
    raise DocumentError("value_out_of_domain", f"a number of the group does not fit into {ELEMENT_BYTES} bytes")


def are_in_group(numbers: Sequence[int], modulus: int) -> bool:
    """Return whether every number is above 0, below the square of ``modulus``, and without a common divisor with it."""
    limit = modulus * modulus
    return all(0 < number < limit for number in numbers) and are_units(numbers, modulus)


def read_parties(value: object, most: int) -> tuple[bytes, ...]:
    """Read node ids of 8 bytes, joined in rising order: 1 to ``most``, each once; else raise ``malformed``."""
    count, rest = divmod(len(value), KEYID_BYTES) if isinstance(value, bytes) else (0, 0)
    if not isinstance(value, bytes) or rest or not 1 <= count <= most:
        raise DocumentError("malformed", f"the parties are not 1 to {most} node ids of {KEYID_BYTES} bytes")
    found = tuple(value[start : start + KEYID_BYTES] for start in range(0, len(value), KEYID_BYTES))
    if any(one >= other for one, other in itertools.pairwise(found)):
        raise DocumentError("malformed", "the parties are not in rising order, or one is there twice")
    return found


def largest_file(role: str, campaign: Campaign) -> int:
    """Return the largest size in bytes of a key book (role ``keys``) or ``release`` of a campaign.

    It follows from the numbers of parties and ciphertexts, so a server can not make a party hold 64 MiB for any book.
    """
    parties = masked_terms_of(campaign).most_parties
    if role == "keys":
        size = parties * _BOOK_BYTES_PER_PARTY
    else:
        size = parties * KEYID_BYTES + ciphertexts_of(campaign) * ELEMENT_BYTES
    return min(size + _BYTES_AROUND, SIZE_LIMITS[role])


def read_of_dealer(raw: bytes, role: str, campaign: Campaign) -> bytes:
    """Return the payload of an envelope of a role that the campaign's dealer, and nobody else, has signed.

    Raises DocumentError ``too_large``: above :func:`largest_file`; ``unsupported_version``, ``wrong_role``;
    ``malformed``: no envelope, or not exactly one signature, by the key id of the dealer; ``bad_signature``; InputError
    ``campaign_not_masked``.
    """
    dealer, most = masked_terms_of(campaign).dealer, largest_file(role, campaign)
    if len(raw) > most:
        raise DocumentError("too_large", f"a file of this kind has at most {most} bytes in this campaign")
    envelope = read_envelope(raw, role)
    if [hint for hint, _ in envelope.signatures] != [keyid(dealer)]:
        raise DocumentError("malformed", "the document has not exactly one signature, by the campaign's dealer")
    if not verified_by(envelope, [dealer]):
        raise DocumentError("bad_signature", "the document is not signed by the campaign's dealer")
    return envelope.payload
