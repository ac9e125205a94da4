"""Readers of the fields that messages, key books, requests and releases share; and numbers packed into plaintexts.

A plaintext holds several signed numbers v_s, in *slots* of w bits, ⌊2000/w⌋ slots in each plaintext:

    x = Σ_s v_s · 2^(w·s),  s = 0 … ⌊2000/w⌋ − 1

x is linear in the numbers: the sum of several nodes' plaintexts is the plaintext of the sums, also if a single x is
negative, and whatever the numbers are. A total is read back if each |Σ v_s| < 2^(w−1). The slots leave 48 of the 2048
bits of the modulus N free, and what is above the last used slot must be 0 in a total.
Source: docs/formats.md, section 6; docs/math.md, section 6.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from protocol import SPEC, canonical
from protocol.document import read_field
from protocol.documents.envelope import KEYID_BYTES, SIZE_LIMITS, keyid, read_envelope, verified_by
from protocol.documents.masked_terms import MAX_CIPHERTEXTS, MODULUS_BYTES, PLAINTEXT_BITS
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

    Args:
        bits: w, the bits of one slot, 2 … ``space``.
        space: bits of a plaintext; smaller ones are for tests with a short modulus.

    Attributes:
        bits: w.
        each: the number of slots in one plaintext.

    Raises:
        InputError: ``argument_invalid``: w is not from 2 to ``space``.
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
        """Lay out numbers, each of them checked against its slot.

        Args:
            numbers: integers of any sign, at least one.

        Returns:
            the plaintexts, in order; their number is that of :meth:`plaintexts`. A plaintext may be negative.

        Raises:
            InputError: ``slot_overflow``: a number is not of |v| < 2^(w−1), w = ``bits``. The text names the position,
                not the number.
        """
        limit = 1 << (self.bits - 1)
        for place, value in enumerate(numbers):
            if not -limit < value < limit:
                raise InputError("slot_overflow", f"number {place} does not fit into a slot of {self.bits} bits")
        return self.spread(numbers)

    def spread(self, numbers: Sequence[int]) -> list[int]:
        """Lay out numbers of any size, without a check: :meth:`pack` for noise.

        Noise has no bound. The plaintext of exact numbers plus noise is ``pack(numbers)`` + ``spread(noise)``, entry by
        entry. A refusal that depends on the noise would tell something that the noise does not hide. A number too large
        for its slot changes the numbers beside it in the total; it does not change what the total tells about a record.
        """
        return [
            sum(value << (self.bits * slot) for slot, value in enumerate(numbers[start : start + self.each]))
            for start in range(0, len(numbers), self.each)
        ]

    def unpack(self, plaintexts: Sequence[int], count: int) -> list[int]:
        """Read numbers back from totals of plaintexts.

        The lowest w = ``bits`` bits are taken as a signed number and subtracted, the rest is shifted, and so on.

        Args:
            plaintexts: signed totals of plaintexts, in order.
            count: how many numbers were packed.

        Returns:
            ``count`` integers of [−2^(w−1), 2^(w−1)).

        Raises:
            DocumentError: ``mask_mismatch``: another number of plaintexts than ``count`` numbers have, or a remainder
                after the last used slot.
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

    Args:
        payload: the bytes.
        keys: of the map; ``spec`` is one of them.
        max_items: largest number of values, keys and containers included.
        what: name of the payload in the texts of errors.

    Raises:
        DocumentError: ``malformed``, ``unsupported_version``.
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
    """Return the field ``key`` of a map, a byte string of exactly ``length`` bytes.

    Raises:
        DocumentError: ``malformed``.
    """
    value: bytes = read_field(body, key, bytes)
    if len(value) != length:
        raise DocumentError("malformed", f"'{key}' has not {length} bytes")
    return value


def read_numbers(body: dict[str, Any], key: str) -> tuple[int, ...]:
    """Return the field ``key`` of a map, 1 … 16000 numbers of 512 bytes, big-endian, one after the other.

    Raises:
        DocumentError: ``malformed``.
    """
    value: bytes = read_field(body, key, bytes)
    count, rest = divmod(len(value), ELEMENT_BYTES)
    if rest or not 1 <= count <= MAX_CIPHERTEXTS:
        raise DocumentError("malformed", f"'{key}' is not 1 to {MAX_CIPHERTEXTS} numbers of {ELEMENT_BYTES} bytes")
    return tuple(
        int.from_bytes(value[start : start + ELEMENT_BYTES], "big") for start in range(0, len(value), ELEMENT_BYTES)
    )


def write_numbers(numbers: Iterable[int]) -> bytes:
    """Concatenate numbers as 512 bytes each, big-endian.

    Raises:
        DocumentError: ``value_out_of_domain``: a number is negative or longer.
    """
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
    """Read node ids of 8 bytes each, one after the other in rising order, each once; at least one.

    Args:
        value: a field of a payload.
        most: largest number of ids.

    Raises:
        DocumentError: ``malformed``.
    """
    count, rest = divmod(len(value), KEYID_BYTES) if isinstance(value, bytes) else (0, 0)
    if not isinstance(value, bytes) or rest or not 1 <= count <= most:
        raise DocumentError("malformed", f"the parties are not 1 to {most} node ids of {KEYID_BYTES} bytes")
    found = tuple(value[start : start + KEYID_BYTES] for start in range(0, len(value), KEYID_BYTES))
    if any(one >= other for one, other in itertools.pairwise(found)):
        raise DocumentError("malformed", "the parties are not in rising order, or one is there twice")
    return found


def largest_file(role: str, campaign: Campaign) -> int:
    """Return the largest size in bytes of a key book or release of a campaign.

    It follows from the numbers of parties and ciphertexts. A reader takes no longer file, so a server can not make a
    party hold the 64 MiB of the largest key book.

    Args:
        role: ``keys`` or ``release``.
        campaign: a masked campaign.

    Raises:
        InputError: ``campaign_not_masked``.
    """
    parties = masked_terms_of(campaign).most_parties
    if role == "keys":
        size = parties * _BOOK_BYTES_PER_PARTY
    else:
        size = parties * KEYID_BYTES + ciphertexts_of(campaign) * ELEMENT_BYTES
    return min(size + _BYTES_AROUND, SIZE_LIMITS[role])


def read_of_dealer(raw: bytes, role: str, campaign: Campaign) -> bytes:
    """Return the payload of an envelope that the campaign's dealer, and nobody else, has signed.

    Args:
        raw: the whole file.
        role: ``keys`` or ``release``.
        campaign: a masked campaign.

    Raises:
        DocumentError: ``too_large``: above :func:`largest_file`; ``unsupported_version``, ``wrong_role``;
            ``malformed``: no envelope, or not exactly one signature, by the key id of the dealer; ``bad_signature``:
            the signature is not the dealer's.
        InputError: ``campaign_not_masked``.
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
