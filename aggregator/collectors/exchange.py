"""The two files that collectors exchange: the leader's request, and the helper's answer.

A file is the length of its head (u32, big-endian), the head (a canonical map), and boxes of at most
:data:`MOST_BYTES`. A box is its length (u32), a random nonce of 24 bytes and libsodium's ``crypto_box`` from one
collector to the other of SHA-256(head) ‖ number of the box as u32 ‖ content. So nobody else can read, change, reorder
or cut a file. The contents of all boxes, joined, are rows of one length, one for each report, and at the end of an
answer the helper's sums. Source: docs/formats.md, section 12.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple, Self

from nacl import bindings
from nacl.exceptions import CryptoError

from aggregator.common.files import PRIVATE, open_output, storage_errors
from aggregator.reports.intake.enrolment import REASON
from protocol import SPEC, canonical
from protocol.batches.report import ID_BYTES
from protocol.documents.shared_terms import HELPER
from protocol.errors import DocumentError
from protocol.shared.keccak import SEED_BYTES
from protocol.shared.prio3 import NONCE_BYTES, Prio3
from protocol.shared.report import Field
from protocol.shared.shape import PUBLIC_BYTES, SENDER_BYTES, box_lengths

REQUEST, ANSWER = "request", "answer"
MOST_BYTES = 1 << 22
MAX_HEAD_BYTES = 1024
MAX_REPORTS = 1 << 26
REFUSALS = (
    "",
    "share_unreadable",
    "share_misplaced",
    REASON,
    "value_out_of_domain",
    "proof_invalid",
    "public_share",
)
"""The helper's verdicts by number: accepted, or the reason of a refusal."""
VERDICT_BYTES = 1 + SEED_BYTES
"""A row of an answer: the verdict's number, and the message of Prio3, zeros for a refused report."""
_NONCE = bindings.crypto_box_NONCEBYTES
_OVERHEAD = 32 + 4
_KEYS = {"campaign", "kind", "period", "reports", "spec"}


class Head(NamedTuple):
    """What a file is about.

    Attributes:
        kind: :data:`REQUEST` or :data:`ANSWER`.
        campaign: id of the campaign, 32 bytes.
        period: number of the period.
        reports: number of rows.
    """

    kind: str
    campaign: bytes
    period: int
    reports: int

    def to_bytes(self) -> bytes:
        """Return the canonical map."""
        return canonical.pack({**self._asdict(), "spec": SPEC})


class RequestRow(NamedTuple):
    """A row of a request.

    Attributes:
        identifier: the report's id.
        field: what the helper needs of the answer field: all but the leader's box.
        verifier: what the leader sends of its check.
    """

    identifier: bytes
    field: Field
    verifier: bytes

    def to_bytes(self) -> bytes:
        """Return id ‖ nonce ‖ public share ‖ sender's key ‖ helper's box ‖ verifier."""
        field = self.field
        return b"".join([self.identifier, field.nonce, field.public, field.sender, field.boxes[HELPER], self.verifier])

    @classmethod
    def length(cls, prio3: Prio3) -> int:
        """Return the bytes of a row."""
        return sum(cls._lengths(prio3))

    @classmethod
    def _lengths(cls, prio3: Prio3) -> tuple[int, ...]:
        verifier = prio3.circuit.verifier_length * prio3.circuit.field.size + SEED_BYTES
        return ID_BYTES, NONCE_BYTES, PUBLIC_BYTES, SENDER_BYTES, box_lengths(prio3)[HELPER], verifier

    @classmethod
    def read(cls, prio3: Prio3, rows: bytes) -> list[Self]:
        """Split whole rows."""
        lengths, found = cls._lengths(prio3), []
        for start in range(0, len(rows), sum(lengths)):
            pieces, at = [], start
            for length in lengths:
                pieces.append(rows[at : at + length])
                at += length
            identifier, nonce, public, sender, box, verifier = pieces
            found.append(cls(identifier, Field(nonce, public, sender, (b"", box)), verifier))
        return found


def fault(what: str) -> DocumentError:
    """Return the error for a file that the other collector made wrongly."""
    return DocumentError("collector_fault", f"the other collector's file is wrong: {what}; nothing is released")


def write_file(
    path: Path,
    head: Head,
    secret: bytes,
    contents: Iterable[bytes],
    *,
    entropy: Callable[[int], bytes] = os.urandom,
    force: bool = False,
) -> None:
    """Write a file, completely or not at all, and flush it.

    Args:
        path: where; only its owner can read it.
        head: what the file is about.
        secret: the collectors' common secret (:func:`aggregator.collectors.pair.common_secret`).
        contents: the contents of the boxes in order, each at most :data:`MOST_BYTES` long.
        entropy: source of the boxes' nonces.
        force: whether a file of that name is replaced.
    """
    first = head.to_bytes()
    digest = sha256(first).digest()
    with open_output(path, force=force, mode=PRIVATE) as file:
        file.write(len(first).to_bytes(4, "big") + first)
        for number, content in enumerate(contents):
            nonce = entropy(_NONCE)
            box = bindings.crypto_box_afternm(digest + number.to_bytes(4, "big") + content, nonce, secret)
            file.write((len(nonce) + len(box)).to_bytes(4, "big") + nonce + box)


class Reader:
    """Reads a file of the other collector.

    Args:
        file: the open file.
        kind: the expected kind.

    Raises:
        DocumentError: ``malformed``: it is no such file.
    """

    def __init__(self, file: IO[bytes], kind: str) -> None:
        self._file = file
        raw = self._sized(MAX_HEAD_BYTES)
        body = canonical.unpack(raw, 1 + 2 * len(_KEYS))
        if not isinstance(body, dict) or body.keys() != _KEYS or (body["spec"], body["kind"]) != (SPEC, kind):
            raise DocumentError("malformed", f"it is no {kind} of a collector")
        numbers = body["period"], body["reports"]
        if not all(type(number) is int and number >= 0 for number in numbers) or numbers[1] > MAX_REPORTS:
            raise DocumentError("malformed", f"it is no {kind} of a collector")
        if numbers[0] >= 1 << 32 or not isinstance(body["campaign"], bytes) or len(body["campaign"]) != 32:
            raise DocumentError("malformed", f"it is no {kind} of a collector")
        self.head = Head(kind, body["campaign"], *numbers)
        self._bound = sha256(raw).digest()

    def contents(self, secret: bytes) -> Iterator[bytes]:
        """Yield the contents of the boxes.

        Raises:
            DocumentError: ``share_unreadable``: a box was not made by the other collector for this one, or is not the
                next; ``malformed``: the file ends within a box.
        """
        number = 0
        while (start := self._file.read(4)) != b"":
            box = self._sized(_NONCE + MOST_BYTES + _OVERHEAD + 16, start)
            content = b""
            try:
                content = bindings.crypto_box_open_afternm(box[_NONCE:], box[:_NONCE], secret)
            except (CryptoError, ValueError, TypeError):
                content = b""
            if content[:_OVERHEAD] != self._bound + number.to_bytes(4, "big"):
                raise DocumentError(
                    "share_unreadable", "a part was not made by the other collector, or is out of place"
                )
            yield content[_OVERHEAD:]
            number += 1

    def _sized(self, most: int, start: bytes | None = None) -> bytes:
        with storage_errors("the file can not be read"):
            size = self._file.read(4) if start is None else start
            length = int.from_bytes(size, "big")
            found = self._file.read(length) if len(size) == 4 and length <= most else b""
        if len(size) != 4 or len(found) != length or length > most:
            raise DocumentError("malformed", "the file of a collector is cut off or damaged")
        return found


def rows_of(contents: Iterable[bytes], length: int, count: int, tail: int = 0) -> Iterator[bytes]:
    """Yield whole rows joined, as many as come at once; then the tail, if there is one.

    Args:
        contents: parts of a file.
        length: bytes of a row.
        count: number of rows.
        tail: bytes behind the rows.

    Raises:
        DocumentError: ``malformed``: there are other numbers of bytes.
    """
    waiting, left = b"", count
    for content in contents:
        waiting += content
        whole = min(len(waiting) // length, left)
        if whole:
            yield waiting[: whole * length]
            waiting, left = waiting[whole * length :], left - whole
        if not left and len(waiting) > tail:
            break
    if left or len(waiting) != tail:
        raise DocumentError("malformed", "the file of a collector has another number of rows than it says")
    if tail:
        yield waiting
