"""Files of nodes' envelopes, and sets of them that machines unite in any order.

A file is a concatenation of envelopes of one role: summaries, or the messages of masked campaigns. The reader finds
every intact envelope, whatever is damaged around it.

Source: docs/formats.md, section 6; decision 72.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from protocol.documents.envelope import KEYID_BYTES, MAGIC, PAYLOAD_TYPES, SIGNATURE_BYTES, SIZE_LIMITS
from protocol.errors import DocumentError
from protocol.nodes.summary import ROLE, read_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Place = tuple[bytes, int, bytes]
"""Campaign, period and node of an envelope."""

MARK = b"\x94\xa4" + MAGIC.encode()
"""The first bytes of every envelope. They occur nowhere else in the envelope of a node."""
_BEFORE_KEYID = b"\x91\x92\xc4" + bytes([KEYID_BYTES])
_BEFORE_SIGNATURE = b"\xc4" + bytes([SIGNATURE_BYTES])
_END_BYTES = len(_BEFORE_KEYID) + KEYID_BYTES + len(_BEFORE_SIGNATURE) + SIGNATURE_BYTES
_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""First byte of a msgpack byte string → number of bytes of its length."""
_LEAST = {1: 0, 2: 1 << 8, 4: 1 << 16}
"""Number of bytes of a length → smallest length that canonical msgpack writes so."""
KEPT = 2
"""Number of different payloads of one campaign, period and node that a set keeps: two prove the conflict."""


class Placed(Protocol):
    """A parsed payload of a node that a set can hold: a summary, or the message of a masked campaign."""

    @property
    def place(self) -> Place:
        """Campaign, period and node."""

    @property
    def identity(self) -> bytes:
        """SHA-256 of the payload."""


class Piece(NamedTuple):
    """A stretch of a file.

    Attributes:
        offset: of its first byte in the file.
        length: in bytes.
        envelope: the bytes of an envelope with the shape that the reader looks for; empty if the stretch is none.
        reason: ``invalid_message`` or ``truncated`` of a stretch that is no envelope; None of an envelope.
    """

    offset: int
    length: int
    envelope: bytes
    reason: str | None


def read_summaries(raw: bytes, role: str = ROLE) -> Iterator[Piece]:
    """Divide a file into envelopes and stretches that are none. Payloads and signatures are not checked.

    An envelope is intact if its bytes have the shape of a node's signed envelope of the role and :data:`MARK` begins
    nowhere inside it. So no bytes before or after an intact envelope can hide it, and the time is proportional to the
    file's length.

    Args:
        raw: the content of a file.
        role: ``node`` for summaries, ``masked`` for the messages of masked campaigns.
    """
    done = 0
    position = raw.find(MARK)
    while position >= 0:
        following = raw.find(MARK, position + 1)
        limit = len(raw) if following < 0 else following
        length = _envelope_length(raw, position, limit, role)
        if length:
            if position > done:
                yield Piece(done, position - done, b"", "invalid_message")
            done = position + length
            yield Piece(position, length, raw[position:done], None)
        position = following
    if done < len(raw):
        yield from _rest(raw, done, role)


def _rest(raw: bytes, start: int, role: str) -> Iterator[Piece]:
    """The bytes after the last intact envelope: no envelope, and perhaps the beginning of one that was cut."""
    cut = _cut_at(raw, start, role)
    if cut > start:
        yield Piece(start, cut - start, b"", "invalid_message")
    if cut < len(raw):
        yield Piece(cut, len(raw) - cut, b"", "truncated")


def _cut_at(raw: bytes, start: int, role: str) -> int:
    """Where an envelope begins that more bytes could complete; the file's end if there is none."""
    end = len(raw)
    last = raw.rfind(MARK, start)
    if last >= 0:
        if _envelope_length(raw, last, end, role, may_be_cut=True):
            return last
        start = last + 1
    # The file may end within a mark.
    for count in range(len(MARK) - 1, 0, -1):
        if end - count >= start and raw.endswith(MARK[:count]):
            return end - count
    return end


def _envelope_length(raw: bytes, start: int, limit: int, role: str, *, may_be_cut: bool = False) -> int:
    """Length of the envelope at ``start`` that ends at ``limit`` at the latest; 0 if the bytes have not its shape.

    Args:
        raw: the file.
        start: where :data:`MARK` is.
        limit: where the envelope ends at the latest.
        role: whose payload type the envelope has.
        may_be_cut: whether it is enough that the bytes up to ``limit`` are the beginning of an envelope; the result is
            then any positive number.
    """
    kind = PAYLOAD_TYPES[role].encode()
    head = MARK + b"\xd9" + bytes([len(kind)]) + kind
    at = start + len(head)
    if not _matches(raw, start, limit, head, may_be_cut=may_be_cut):
        return 0
    if at >= limit:
        return int(may_be_cut)
    width = _WIDTHS.get(raw[at])
    if width is None:
        return 0
    at += 1 + width
    if at > limit:
        return int(may_be_cut)
    size = int.from_bytes(raw[at - width : at], "big")
    if size < _LEAST[width] or at - start + size + _END_BYTES > SIZE_LIMITS[role]:
        return 0
    at += size
    for part, skipped in ((_BEFORE_KEYID, KEYID_BYTES), (_BEFORE_SIGNATURE, SIGNATURE_BYTES)):
        if not _matches(raw, at, limit, part, may_be_cut=may_be_cut):
            return 0
        at += len(part) + skipped
    return at - start if at <= limit or may_be_cut else 0


def _matches(raw: bytes, at: int, limit: int, part: bytes, *, may_be_cut: bool) -> bool:
    """Whether ``part`` is at the place, before ``limit``; also if ``limit`` cuts it and that is allowed."""
    end = min(at + len(part), limit)
    if end < at + len(part) and not may_be_cut:
        return False
    return at >= limit or raw[at:end] == part[: end - at]


class Entry(NamedTuple):
    """A member of a set: SHA-256 of its payload, and the bytes of its envelope."""

    identity: bytes
    envelope: bytes


def kept(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries that a set keeps of one campaign, period and node: those of the two smallest identities.

    Of several envelopes with one identity the smallest bytes are kept. The order and repetition of ``entries`` do not
    matter, and neither does it whether parts of them went through this function before.
    """
    smallest: dict[bytes, bytes] = {}
    for identity, envelope in entries:
        smallest[identity] = min(smallest.get(identity, envelope), envelope)
    return tuple(Entry(identity, smallest[identity]) for identity in sorted(smallest)[:KEPT])


class SummarySet:
    """A set of summaries. Two sets that were given the same summaries, in any order, are equal and have equal bytes.

    For each campaign, period and node a set keeps at most two different summaries. Two are a conflict: neither counts.
    Callers add verified summaries only: otherwise anybody could make a conflict in the name of a node. A subclass with
    another ``role`` and ``parse`` is a set of other envelopes, by the same rules.

    Attributes:
        role: of the envelopes that the set holds.
    """

    role = ROLE

    def __init__(self) -> None:
        self._places: dict[Place, tuple[Entry, ...]] = {}

    @staticmethod
    def parse(envelope: bytes) -> Placed:
        """Parse the bytes of one envelope of the set's role. The signature is not verified.

        Raises:
            DocumentError: no such envelope.
        """
        return read_summary(envelope)[1]

    def add(self, envelope: bytes, accept: Callable[[bytes], Placed]) -> bool:
        """Add one envelope. Return whether the set has changed.

        Args:
            envelope: the bytes of one envelope.
            accept: parses and verifies the envelope, for example :func:`protocol.nodes.summary.judge_summary` with its
                other arguments; raises DocumentError for an envelope that must not be added.

        Raises:
            DocumentError: the reasons of ``accept``.
        """
        summary = accept(envelope)
        return self._put(summary.place, [Entry(summary.identity, envelope)])

    def _put(self, place: Place, entries: Iterable[Entry]) -> bool:
        before = self._places.get(place, ())
        self._places[place] = kept((*before, *entries))
        return self._places[place] != before

    def add_file(self, raw: bytes, accept: Callable[[bytes], Placed]) -> Counter[str]:
        """Add all envelopes of a file. Return the number of stretches and envelopes that were refused, by reason."""
        refused: Counter[str] = Counter()
        for piece in read_summaries(raw, self.role):
            if piece.reason is not None:
                refused[piece.reason] += 1
                continue
            try:
                self.add(piece.envelope, accept)
            except DocumentError as error:
                refused[error.reason] += 1
        return refused

    def union(self, other: Self) -> Self:
        """A new set with the summaries of both. Associative, commutative, idempotent."""
        united = type(self)()
        for one in (self, other):
            for place, entries in one._places.items():  # noqa: SLF001 - of the same class
                united._put(place, entries)  # noqa: SLF001
        return united

    def places(self) -> list[Place]:
        """Campaign, period and node of all summaries, sorted; those in conflict once."""
        return sorted(self._places)

    def conflicts(self) -> list[Place]:
        """Campaign, period and node of every conflict, sorted."""
        return sorted(place for place, entries in self._places.items() if len(entries) == KEPT)

    def counting(self) -> list[bytes]:
        """The envelopes of the summaries that count, those without a conflict, sorted by campaign, period and node."""
        return [entries[0].envelope for _, entries in sorted(self._places.items()) if len(entries) == 1]

    def to_bytes(self) -> bytes:
        """The file of the set: all kept envelopes, sorted by campaign, period, node and identity."""
        return b"".join(entry.envelope for _, entries in sorted(self._places.items()) for entry in entries)

    @classmethod
    def from_bytes(cls, raw: bytes, accept: Callable[[bytes], Placed] | None = None) -> Self:
        """The set of the summaries of a file; what is refused is left out.

        Args:
            raw: the content of a file.
            accept: parses and verifies an envelope. By default the signature is not verified, which is for files that
                this machine wrote itself.
        """
        found = cls()
        found.add_file(raw, accept or cls.parse)
        return found

    def __len__(self) -> int:
        """Number of kept envelopes, those of conflicts included."""
        return sum(map(len, self._places.values()))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._places == other._places

    __hash__ = None  # type: ignore[assignment]
