"""Lists of nodes, signed summaries, and files and sets of summaries that unite in any order.

A node's *summary* is its noisy counts and sums of one period, signed by the node. The *list* names the nodes whose
summaries count; the role ``campaign`` signs it. A file is a concatenation of envelopes of one role. The reader finds
every intact one, whatever is damaged around it. Source: docs/formats.md, sections 5 and 6; docs/decisions/0072.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from protocol import SPEC, canonical
from protocol.documents.envelope import (
    KEY_BYTES,
    KEYID_BYTES,
    MAGIC,
    PAYLOAD_TYPES,
    SIGNATURE_BYTES,
    SIZE_LIMITS,
    keyid,
    read_envelope,
    seal,
    verified_by,
)
from protocol.documents.masked_terms import MAX_NUMBERS
from protocol.documents.payload import HEADER_KEYS, Header, read_field, read_integer, read_payload
from protocol.errors import DocumentError, InputError
from protocol.nodes.terms import ranges, released_vectors, terms_of
from protocol.schema import integer_array, read_integer_array
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import Envelope, SigningKey

LIST_ROLE = "nodes"
UNDERSTOOD = frozenset((*HEADER_KEYS, "nodes"))
"""Payload keys of a list that this reader understands."""
MAX_NODES = 1 << 16


class NodeList(NamedTuple):
    """A parsed list of nodes: its header, and key id (8 bytes) → Ed25519 public key (32 bytes) of every node."""

    header: Header
    nodes: Mapping[bytes, bytes]


def build_node_list(header: Header, publics: Iterable[bytes]) -> bytes:
    """Return the payload of a list of nodes with these public keys. The publisher runs this, then signs it.

    Raises:
        InputError: ``nodes_invalid``: a key has not 32 bytes, or there are not 1 to 65536 different keys.
    """
    publics = set(publics)
    if not 1 <= len(publics) <= MAX_NODES or any(len(public) != KEY_BYTES for public in publics):
        raise InputError("nodes_invalid", f"a list holds 1 to {MAX_NODES} public keys of {KEY_BYTES} bytes")
    payload = canonical.pack({**header.to_dict(), "nodes": {keyid(public).hex(): public for public in publics}})
    parse_node_list(payload)
    return payload


def parse_node_list(payload: bytes) -> NodeList:
    """Parse the payload of a list of nodes. The caller must have verified signatures, ``spec`` and ``crit``.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``invalid_nodes``: not 1 to 65536
            nodes, a key that has not 32 bytes, or a key id that is not that of its key.
    """
    body, header = read_payload(payload)
    return NodeList(header, _nodes(body))


def _nodes(body: dict[str, Any]) -> dict[bytes, bytes]:
    entries = read_field(body, "nodes", dict, "invalid_nodes")
    if not 1 <= len(entries) <= MAX_NODES:
        raise DocumentError("invalid_nodes", f"a list holds 1 to {MAX_NODES} nodes")
    found = {}
    for hint, public in entries.items():
        if not isinstance(public, bytes) or len(public) != KEY_BYTES or keyid(public).hex() != hint:
            raise DocumentError("invalid_nodes", "a key id of the list is not that of its key")
        found[keyid(public)] = public
    return found


ROLE = "node"
SUMMARY_PAYLOAD_TYPE = PAYLOAD_TYPES[ROLE]
_KEYS = {"campaign", "epsilon_micro", "node", "period", "spec", "sums"}
_MAX_ITEMS = 24
"""A limit above the number of values in a summary's payload: a map of six keys, one of them with a map of three."""
_DIGEST_BYTES = 32
_WORD = 1 << 32
_MAX_EPSILON_MICRO = (1 << 40) - 1


class Summary(NamedTuple):
    """A parsed summary. :func:`check_summary` compares it with its campaign.

    Attributes:
        campaign: id of the campaign, 32 bytes.
        node: key id of the node, 8 bytes.
        period: number of the period.
        epsilon_micro: ε of the noise in millionths, for adding or removing one record.
        sums: all numbers of all released vectors, in order.
        identity: SHA-256 of the payload.
    """

    campaign: bytes
    node: bytes
    period: int
    epsilon_micro: int
    sums: tuple[int, ...]
    identity: bytes

    @property
    def place(self) -> tuple[bytes, int, bytes]:
        """Campaign, period and node. Two summaries that share these three and differ in ``identity`` are a conflict."""
        return self.campaign, self.period, self.node


def build_summary(
    campaign: Campaign, key: SigningKey, period: int, sums: Sequence[int], epsilon_micro: int | None = None
) -> bytes:
    """Return the signed envelope of a summary. The node runs this.

    ``sums`` has all numbers of all released vectors, in order, with noise and clamped to their ranges;
    ``epsilon_micro`` is the ε of the noise, None for the campaign's.

    Raises:
        DocumentError: the reasons of :func:`check_summary`; ``malformed``: a number has no 64-bit form.
        InputError: ``campaign_for_devices``: the campaign asks devices, not nodes.
    """
    terms_of(campaign)
    payload = canonical.pack(
        {
            "campaign": campaign.id,
            "epsilon_micro": campaign.epsilon_micro if epsilon_micro is None else epsilon_micro,
            "node": keyid(key.public),
            "period": period,
            "spec": SPEC,
            "sums": _packed(sums),
        }
    )
    check_summary(parse_summary(payload), campaign)
    return seal(SUMMARY_PAYLOAD_TYPE, payload, [key])


def _packed(sums: Sequence[int]) -> dict[str, Any]:
    try:
        return integer_array("<i8", sums, [len(sums)])
    except OverflowError:
        pass
    raise DocumentError("malformed", "a number of a summary does not fit into 64 bits")


def parse_summary(payload: bytes) -> Summary:
    """Parse the payload of a summary. Signature and ranges are not checked here.

    Raises:
        DocumentError: ``malformed``: no canonical map of exactly the keys of a summary, or a wrong value;
            ``unsupported_version``: another version of the formats.
    """
    body = canonical.unpack(payload, _MAX_ITEMS)
    if not isinstance(body, dict) or "spec" not in body:
        raise DocumentError("malformed", "not a node's summary")
    if body["spec"] != SPEC:
        raise DocumentError("unsupported_version", "the summary follows another version of the formats")
    if set(body) != _KEYS:
        raise DocumentError("malformed", f"a summary has other keys than {', '.join(sorted(_KEYS))}")
    sums = read_field(body, "sums", dict)
    shape = sums.get("sh")
    if set(sums) != {"b", "dt", "sh"} or not isinstance(shape, list) or len(shape) != 1:
        raise DocumentError("malformed", "'sums' is no typed array with one dimension")
    read_integer({"sh": shape[0]}, "sh", 1, MAX_NUMBERS)
    return Summary(
        campaign=_bytes(body, "campaign", _DIGEST_BYTES),
        node=_bytes(body, "node", KEYID_BYTES),
        period=read_integer(body, "period", 0, _WORD - 1),
        epsilon_micro=read_integer(body, "epsilon_micro", 1, _MAX_EPSILON_MICRO),
        sums=tuple(read_integer_array(sums, "<i8", shape, "malformed")),
        identity=sha256(payload).digest(),
    )


def _bytes(body: dict[str, Any], key: str, length: int) -> bytes:
    value: bytes = read_field(body, key, bytes)
    if len(value) != length:
        raise DocumentError("malformed", f"'{key}' has not {length} bytes")
    return value


def read_summary(raw: bytes) -> tuple[Envelope, Summary]:
    """Parse the envelope of one summary. The signature is not verified.

    Raises:
        DocumentError: ``too_large``, ``unsupported_version``, ``wrong_role``; ``malformed``: no envelope of a summary,
            or not exactly one signature, by the key id that the summary names.
    """
    envelope = read_envelope(raw, ROLE)
    summary = parse_summary(envelope.payload)
    if [hint for hint, _ in envelope.signatures] != [summary.node]:
        raise DocumentError("malformed", "a summary has exactly one signature, by its node")
    return envelope, summary


def check_summary(summary: Summary, campaign: Campaign, now: int | None = None) -> None:
    """Refuse a summary whose values its campaign for nodes does not allow.

    ``now`` is the reader's present, in seconds since 1970; None leaves out the check of future periods.

    Raises:
        DocumentError: the first that applies of ``unrecognized_campaign``: the summary belongs to another campaign, or
            the campaign asks devices, or nodes for encrypted sums; ``epsilon_out_of_range``: ε is above the campaign's,
            or below the smallest that it allows; ``value_out_of_domain``: another count of numbers, or a number outside
            its range; ``report_too_late``: the period begins when the campaign has expired; ``report_too_early``: it
            ends before the campaign begins, or begins after ``now``.
    """
    if summary.campaign != campaign.id or campaign.nodes is None or campaign.masked is not None:
        raise DocumentError("unrecognized_campaign", "the summary belongs to another campaign")
    if not campaign.nodes.least_epsilon_micro <= summary.epsilon_micro <= campaign.epsilon_micro:
        raise DocumentError("epsilon_out_of_range", "the summary's ε is above or below what its campaign allows")
    _check_numbers(summary, campaign)
    length, header = campaign.time_precision, campaign.header
    if summary.period * length >= header.expires:
        raise DocumentError("report_too_late", "the summary's period begins when its campaign has expired")
    if (summary.period + 1) * length <= header.not_before or (now is not None and summary.period * length > now):
        raise DocumentError("report_too_early", "the summary's period is before its campaign or in the future")


def _check_numbers(summary: Summary, campaign: Campaign) -> None:
    parts = _parts(_Terms(campaign, summary.epsilon_micro))
    count = sum(size for size, _, _ in parts)
    if len(summary.sums) != count:
        raise DocumentError("value_out_of_domain", f"the summary holds {len(summary.sums)} numbers, not {count}")
    start = 0
    for size, low, high in parts:
        part = summary.sums[start : start + size]
        if min(part) < low or max(part) > high:
            raise DocumentError("value_out_of_domain", "a number of the summary is outside its range")
        start += size


class _Terms:
    """A campaign and a summary's ε, as a key of a cache. Keys are equal if the ranges of the sums are the same."""

    __slots__ = ("_key", "campaign", "epsilon_micro")

    def __init__(self, campaign: Campaign, epsilon_micro: int) -> None:
        self.campaign = campaign
        self.epsilon_micro = epsilon_micro
        self._key = campaign.id, campaign.nodes, campaign.fit, campaign.epsilon_micro, epsilon_micro

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Terms) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=64)  # it would take a third of a check's time; most summaries of a campaign state one ε
def _parts(terms: _Terms) -> tuple[tuple[int, int, int], ...]:
    """Return of every released vector the length, and the smallest and largest number that a summary may state."""
    subjects, ends = released_vectors(terms.campaign), ranges(terms.campaign, terms.epsilon_micro)
    return tuple((subject.size, low, high) for subject, (low, high) in zip(subjects, ends, strict=True))


def judge_summary(raw: bytes, campaign: Campaign, nodes: NodeList, now: int | None = None) -> Summary:
    """Accept or refuse one summary completely: envelope, campaign, node, signature, values and dates, in this order.

    The caller must still check whether another summary of the same campaign, period and node was accepted. ``nodes`` is
    the newest verified list with the name that the campaign states; ``now`` is as in :func:`check_summary`.

    Raises:
        DocumentError: the first that applies of the reasons of :func:`read_summary`, ``unrecognized_campaign``,
            ``node_not_listed``, ``bad_signature``, and the reasons of :func:`check_summary`.
    """
    envelope, summary = read_summary(raw)
    if summary.campaign != campaign.id:
        raise DocumentError("unrecognized_campaign", "the summary belongs to another campaign")
    public = nodes.nodes.get(summary.node)
    if public is None:
        raise DocumentError("node_not_listed", f"node {summary.node.hex()} is not on the list of nodes")
    if not verified_by(envelope, [public]):
        raise DocumentError("bad_signature", f"the summary is not signed by node {summary.node.hex()}")
    check_summary(summary, campaign, now)
    return summary


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
"""Number of bytes in which a length is written → smallest length that canonical msgpack writes in so many bytes."""
KEPT = 2
"""Number of different payloads of one campaign, period and node that a set keeps. Two prove a conflict."""


class Placed(Protocol):
    """A node's parsed payload that a set can hold: a summary, or the message of a masked campaign."""

    @property
    def place(self) -> Place:
        """Campaign, period and node."""

    @property
    def identity(self) -> bytes:
        """SHA-256 of the payload."""


class Piece(NamedTuple):
    """A stretch of a file, by offset and length in bytes: one envelope, or bytes that are no envelope.

    ``envelope`` is empty if the stretch is none. Then ``reason`` is ``invalid_message`` or ``truncated``, else None.
    """

    offset: int
    length: int
    envelope: bytes
    reason: str | None


def read_summaries(raw: bytes, role: str = ROLE) -> Iterator[Piece]:
    """Divide a file of envelopes of a role into envelopes and stretches that are none. Payloads are not checked.

    An envelope is intact if its bytes have the shape of a node's signed envelope of the role and :data:`MARK` begins
    nowhere inside it. So no bytes before or after an intact envelope can hide it, and the time is proportional to the
    file's length.
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
    """Yield as pieces the bytes after the last intact envelope: damage, perhaps the start of a cut envelope."""
    cut = _cut_at(raw, start, role)
    if cut > start:
        yield Piece(start, cut - start, b"", "invalid_message")
    if cut < len(raw):
        yield Piece(cut, len(raw) - cut, b"", "truncated")


def _cut_at(raw: bytes, start: int, role: str) -> int:
    """Return where an incomplete envelope begins, which more bytes could complete; the file's end if there is none."""
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
    """Return the length of the envelope of a role from ``start`` to ``limit`` at most, or 0 if there is none.

    With ``may_be_cut`` it is enough that the bytes up to ``limit`` are the beginning of an envelope.
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
    """Return whether ``part`` is at ``at`` and ends before ``limit``; with ``may_be_cut`` its beginning is enough."""
    end = min(at + len(part), limit)
    if end < at + len(part) and not may_be_cut:
        return False
    return at >= limit or raw[at:end] == part[: end - at]


class Entry(NamedTuple):
    """A member of a set: SHA-256 of its payload, and the bytes of its envelope."""

    identity: bytes
    envelope: bytes


def kept(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries that a set keeps of one campaign, period and node: those of the two smallest identities.

    If several envelopes have one identity, the one with the smallest bytes is kept. The order and repetition of
    ``entries`` do not matter, and neither does it whether some of them went through this function before.
    """
    smallest: dict[bytes, bytes] = {}
    for identity, envelope in entries:
        smallest[identity] = min(smallest.get(identity, envelope), envelope)
    return tuple(Entry(identity, smallest[identity]) for identity in sorted(smallest)[:KEPT])


class SummarySet:
    """A set of summaries. Two sets that were given the same summaries, in any order, are equal and have equal bytes.

    For each campaign, period and node a set keeps at most two different summaries. Two are a conflict: neither counts.
    Callers must add verified summaries only: otherwise anybody could make a conflict in the name of a node. A subclass
    with another ``role`` and ``parse`` is a set of other envelopes, by the same rules.

    Attributes:
        role: role of the envelopes that the set holds.
    """

    role = ROLE

    def __init__(self) -> None:
        self._places: dict[Place, tuple[Entry, ...]] = {}

    @staticmethod
    def parse(envelope: bytes) -> Placed:
        """Parse the bytes of one envelope of the set's role. The signature is not verified."""
        return read_summary(envelope)[1]

    def add(self, envelope: bytes, accept: Callable[[bytes], Placed]) -> bool:
        """Add one envelope. Return whether the set has changed.

        ``accept`` parses and verifies the envelope, for example by :func:`judge_summary`; its DocumentErrors are passed
        on.
        """
        summary = accept(envelope)
        return self._put(summary.place, [Entry(summary.identity, envelope)])

    def _put(self, place: Place, entries: Iterable[Entry]) -> bool:
        before = self._places.get(place, ())
        self._places[place] = kept((*before, *entries))
        return self._places[place] != before

    def add_file(self, raw: bytes, accept: Callable[[bytes], Placed]) -> Counter[str]:
        """Add all envelopes of a file. Return, by reason, how many stretches and envelopes were refused."""
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
        """Return a new set with the summaries of both. The operation is associative, commutative and idempotent."""
        united = type(self)()
        for one in (self, other):
            for place, entries in one._places.items():  # noqa: SLF001 - of the same class
                united._put(place, entries)  # noqa: SLF001
        return united

    def places(self) -> list[Place]:
        """Return campaign, period and node of all summaries, sorted. A conflict is there once."""
        return sorted(self._places)

    def conflicts(self) -> list[Place]:
        """Return campaign, period and node of every conflict, sorted."""
        return sorted(place for place, entries in self._places.items() if len(entries) == KEPT)

    def counting(self) -> list[bytes]:
        """Return the envelopes of the summaries without a conflict, sorted by campaign, period and node."""
        return [entries[0].envelope for _, entries in sorted(self._places.items()) if len(entries) == 1]

    def to_bytes(self) -> bytes:
        """Return the file of the set: all kept envelopes, sorted by campaign, period, node and identity."""
        return b"".join(entry.envelope for _, entries in sorted(self._places.items()) for entry in entries)

    @classmethod
    def from_bytes(cls, raw: bytes, accept: Callable[[bytes], Placed] | None = None) -> Self:
        """Return the set of the summaries of a file. What is refused is left out.

        ``accept`` is as in :meth:`add`. By default no signature is verified: for files that this machine wrote itself.
        """
        found = cls()
        found.add_file(raw, accept or cls.parse)
        return found

    def __len__(self) -> int:
        """Return the number of kept envelopes, those of conflicts included."""
        return sum(map(len, self._places.values()))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._places == other._places

    __hash__ = None  # type: ignore[assignment]
