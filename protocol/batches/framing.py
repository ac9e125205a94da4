"""Header and trailer: the first and the last bytes of a batch.

Source: docs/formats.md, section 4. The device writes them; the aggregator's reader searches for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.digest import sha256
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = b"\x96\xa4hsyb"
END = b"\x93\xa3end"
FILE_VERSION = 1
MAX_RECORDS = (1 << 32) - 1
MAX_RECORD_LENGTH = (1 << 16) + 4
TRAILER_BYTES = 44
COUNT_HEAD = b"\xce"
DIGEST_HEAD = b"\xc4\x20"


class Source(Protocol):
    """The content of a whole file: ``bytes``, a memory map, or an object that reads pieces of a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...

    def find(self, what: bytes, start: int = ..., stop: int = ..., /) -> int:
        """Position of the first ``what`` in [start, stop), like ``bytes.find``; −1 if there is none."""


class Header(NamedTuple):
    """The header of a batch.

    Attributes:
        campaign: id of the campaign, 32 bytes.
        layout: ``SINGLE``, ``BITS`` or ``INTEGERS`` of :mod:`protocol.mechanisms` (1, 2 or 3).
        record_length: L, length of every record in bytes.
    """

    campaign: bytes
    layout: int
    record_length: int

    def to_bytes(self) -> bytes:
        """Encode the header: ``96 "hsyb" 1 campaign layout L {}``, shortest integers; 44 bytes up to L = 127."""
        return b"".join(
            (
                MARK,
                bytes((FILE_VERSION,)),
                DIGEST_HEAD,
                self.campaign,
                bytes((self.layout,)),
                _pack_length(self.record_length),
                b"\x80",
            )
        )


def _pack_length(length: int) -> bytes:
    if length < 1 << 7:
        return bytes((length,))
    if length < 1 << 8:
        return bytes((0xCC, length))
    if length < 1 << 16:
        return b"\xcd" + length.to_bytes(2, "big")
    return b"\xce" + length.to_bytes(4, "big")


def read_header(data: Source, position: int) -> tuple[Header, int] | None:
    """The header at ``position`` of ``data``, and the position after it; None if no undamaged header is there."""
    start = position + len(MARK)
    if data[position:start] != MARK or data[start : start + 1] != bytes((FILE_VERSION,)):
        return None
    if data[start + 1 : start + 3] != DIGEST_HEAD:
        return None
    campaign, rest = data[start + 3 : start + 35], data[start + 35 : start + 42]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(rest[1], 0) if len(rest) > 1 else 0
    length_end = 2 + width
    if len(rest) <= length_end or rest[0] not in (1, 2, 3):
        return None
    length = int.from_bytes(rest[2:length_end], "big") if width else rest[1]
    if rest[1:length_end] != _pack_length(length) or rest[length_end] != 0x80:
        return None
    if not 0 < length <= MAX_RECORD_LENGTH:
        return None
    return Header(campaign, rest[0], length), start + 35 + length_end + 1


def trailer(count: int, digest: bytes) -> bytes:
    """Encode the trailer ``93 "end" N digest``, 44 bytes.

    Args:
        count: N, the number of records.
        digest: SHA-256 of all bytes of the batch before the trailer, 32 bytes.

    Raises:
        OverflowError: N is not in 0 … 2^32 − 1.
    """
    return END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD + digest


def is_cut_header(rest: bytes) -> bool:
    """Whether the last bytes of a file are the beginning of a header that the end of the file cuts off.

    ``rest`` holds all bytes up to the end of the file. Callers make sure that it is no complete header.
    """
    if len(rest) >= 64:
        return False
    examples = (Header(bytes(32), 1, length).to_bytes() for length in (1, 1 << 7, 1 << 8, 1 << 16))
    return any(len(rest) < len(each) and read_header(rest + each[len(rest) :], 0) is not None for each in examples)


def one_bit_apart(found: bytes, header: bytes) -> bool:
    """Whether ``found`` and ``header`` have equal length and differ in exactly one bit."""
    return len(found) == len(header) and (int.from_bytes(found) ^ int.from_bytes(header)).bit_count() == 1


def write_batch(header: Header, records: Iterable[bytes]) -> bytes:
    """Encode a complete batch in memory: ``header``, ``records``, trailer.

    Raises:
        InputError: ``batch_invalid``: a record of another length than L, or more than 2^32 − 1 records.
    """
    records = list(records)
    if len(records) > MAX_RECORDS or any(len(record) != header.record_length for record in records):
        raise InputError("batch_invalid", "the records of a batch are too many or of different lengths")
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), sha256(body).digest())
