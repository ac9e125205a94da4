"""One report: an answer with its id, period and question, as one msgpack extension value.

Source: docs/formats.md, sections 2 (ids) and 3 (layouts).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import InputError
from protocol.mechanisms import BITS, INTEGERS, SINGLE
from protocol.stream import hmac_sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.mechanisms import Mechanism

SHARED = 4
"""The layout of a shared answer (:mod:`protocol.shared.report`), beside those of mechanisms."""
ID_BYTES = 8
ID_PREFIX = b"hearsay/1/id"
FIXED_BYTES = 14
"""Number of bytes before the answer field in every layout: id (8) ‖ period (4) ‖ question (2)."""

_FIXEXT = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
_HEAD = Struct(">8sIH")
_SHORT = Struct(">H")
_ID_TAIL = Struct(">IH")
_BIT_DIGITS = b"01" + bytes(254)


class Layout(NamedTuple):
    """The shape that all reports of a campaign share.

    Attributes:
        kind: ``SINGLE`` (values), ``BITS`` or ``INTEGERS`` (rows of them) or :data:`SHARED`; also the msgpack extension
            type.
        answer_bytes: length in bytes of the answer field.
    """

    kind: int
    answer_bytes: int

    @property
    def prefix(self) -> bytes:
        """The fixed first bytes of every report: the header of the msgpack extension value."""
        length = FIXED_BYTES + self.answer_bytes
        if length in _FIXEXT:
            return bytes((_FIXEXT[length], self.kind))
        if length < 1 << 8:
            return bytes((0xC7, length, self.kind))
        return b"\xc8" + _SHORT.pack(length) + bytes((self.kind,))

    @property
    def record_length(self) -> int:
        """Length in bytes of every report of the campaign."""
        return len(self.prefix) + FIXED_BYTES + self.answer_bytes


def layout_for(mechanisms: Sequence[Mechanism]) -> Layout:
    """Return the smallest layout that holds the answers of all ``mechanisms``; for none that of single values.

    Raises:
        InputError: ``layout_invalid``: bits and integers in one campaign, or answers too wide for a report.
    """
    kind = max((mechanism.layout for mechanism in mechanisms), default=SINGLE)
    if kind == SINGLE:
        return Layout(SINGLE, 2)
    most = max(mechanism.answers for mechanism in mechanisms if mechanism.layout == kind)
    if kind == BITS:
        mixed = any(mechanism.layout == SINGLE for mechanism in mechanisms)
        width = max((most + 7) // 8, 2 if mixed else 1)
    else:
        if any(mechanism.layout == BITS for mechanism in mechanisms):
            raise InputError("layout_invalid", "answers of bits and answers of integers do not share a campaign")
        width = 4 * most
    return checked_layout(kind, width)


def checked_layout(kind: int, answer_bytes: int) -> Layout:
    """Return the layout with these attributes.

    Raises:
        InputError: ``layout_invalid``: a report can not be as long.
    """
    if FIXED_BYTES + answer_bytes >= 1 << 16:
        raise InputError("layout_invalid", "an answer is too wide for one report")
    return Layout(kind, answer_bytes)


def report_id(secret: bytes, campaign_id: bytes, period: int, index: int) -> bytes:
    """Return the id of a report: HMAC-SHA256(secret, ``hearsay/1/id`` ‖ campaign id ‖ period u32 ‖ index u16)[:8].

    A retry has the same id. Without the device's secret (at most 64 bytes), ids of different campaigns or periods can
    not be linked. ``index`` is the number of the answer within the period.
    """
    message = ID_PREFIX + campaign_id + _ID_TAIL.pack(period, index)
    return hmac_sha256(secret, message)[:ID_BYTES]


def encode_answer(mechanism: Mechanism, answer: Any, layout: Layout) -> bytes:
    """Encode the result of ``mechanism.perturb`` as the answer field of a report of ``layout``, padded with zeros."""
    if mechanism.layout == SINGLE:
        raw = _SHORT.pack(answer) if layout.kind != INTEGERS else answer.to_bytes(4, "big")
    elif mechanism.layout == BITS:
        spare = -len(answer) % 8
        bits = int(bytes(answer).translate(_BIT_DIGITS), 2)
        raw = (bits << spare).to_bytes((len(answer) + spare) // 8, "big")
    else:
        raw = b"".join(part.to_bytes(4, "big", signed=True) for part in answer)
    return raw.ljust(layout.answer_bytes, b"\0")


def decode_answer(mechanism: Mechanism, field: bytes, layout: Layout) -> Any:
    """Decode the answer field of a report, or return None if it holds no answer of the layout.

    This is the inverse of :func:`encode_answer`. Answers that fit the layout although no device gives them are found by
    :meth:`Mechanism.impossible`. Tests compare the aggregator's array code with this function.
    """
    if mechanism.layout == SINGLE:
        width = 4 if layout.kind == INTEGERS else 2
        value = int.from_bytes(field[:width], "big")
        return value if value < mechanism.answers and not any(field[width:]) else None
    if mechanism.layout == BITS:
        bits = f"{int.from_bytes(field, 'big'):0{8 * len(field)}b}"
        answer, rest = bits[: mechanism.answers], bits[mechanism.answers :]
        return tuple(map(int, answer)) if "1" not in rest else None
    used = 4 * mechanism.answers
    numbers = tuple(int.from_bytes(field[start : start + 4], "big", signed=True) for start in range(0, used, 4))
    least, most = mechanism.bounds
    return numbers if not any(field[used:]) and least <= min(numbers) and max(numbers) <= most else None


def encode_report(layout: Layout, identifier: bytes, period: int, question: int, answer_field: bytes) -> bytes:
    """Encode one report: the prefix of ``layout``, then the other arguments in order.

    ``identifier`` is the report id; ``question`` the index among all questions of the campaign; ``answer_field`` the
    result of :func:`encode_answer`.
    """
    return layout.prefix + _HEAD.pack(identifier, period, question) + answer_field


def layout_kind(record: bytes) -> int:
    """Return the layout (1 to 4) of ``record``, a report with a right prefix: its msgpack extension type."""
    return record[{0xC7: 2, 0xC8: 3}.get(record[0], 1)]


def decode_report(layout: Layout, record: bytes) -> tuple[bytes, int, int, bytes]:
    """Split a report of ``layout`` into report id, period, index of the question, and answer field."""
    start = len(layout.prefix)
    identifier, period, question = _HEAD.unpack_from(record, start)
    return identifier, period, question, record[start + FIXED_BYTES :]
