"""A node's summary of one period: its noisy counts and sums, signed by the node.

Source: docs/formats.md, section 6.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import SPEC, canonical
from protocol.digest import sha256
from protocol.document import read_field, read_integer
from protocol.documents.envelope import KEYID_BYTES, PAYLOAD_TYPES, keyid, read_envelope, seal, verified_by
from protocol.documents.node_terms import MAX_NUMBERS
from protocol.errors import DocumentError
from protocol.nodes.terms import ranges, released_vectors, terms_of
from protocol.projection import integer_array, read_integer_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import Envelope, SigningKey
    from protocol.nodes.node_list import NodeList

ROLE = "node"
SUMMARY_PAYLOAD_TYPE = PAYLOAD_TYPES[ROLE]
_KEYS = {"campaign", "epsilon_micro", "node", "period", "spec", "sums"}
_MAX_ITEMS = 24
"""More values than the payload of a summary has: a map of six keys, one of them a map of three."""
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
        """Campaign, period and node: two summaries of one place with different identities are a conflict."""
        return self.campaign, self.period, self.node


def build_summary(
    campaign: Campaign, key: SigningKey, period: int, sums: Sequence[int], epsilon_micro: int | None = None
) -> bytes:
    """The signed envelope of a summary. Run by the node, with sums that carry noise and are clamped to their ranges.

    Args:
        campaign: a campaign for nodes.
        key: the node's key pair.
        period: number of the period.
        sums: all numbers of all released vectors, in order.
        epsilon_micro: ε of the noise in millionths; None for the campaign's ε.

    Raises:
        DocumentError: the reasons of :func:`check_summary`; ``malformed``: a number has no 64-bit form.
        InputError: ``campaign_for_devices``.
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
    """Compare the values of a summary with its campaign.

    Args:
        summary: a parsed summary.
        campaign: a campaign for nodes.
        now: the reader's present, in seconds since 1970; None leaves out the check of future periods.

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
    """A campaign and the ε of a summary, in millionths, as a key of a cache: only what the ranges depend on counts."""

    __slots__ = ("_key", "campaign", "epsilon_micro")

    def __init__(self, campaign: Campaign, epsilon_micro: int) -> None:
        self.campaign = campaign
        self.epsilon_micro = epsilon_micro
        self._key = campaign.id, campaign.nodes, campaign.fit, campaign.epsilon_micro, epsilon_micro

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Terms) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=64)  # a third of the time of a check; most summaries of a campaign state one ε
def _parts(terms: _Terms) -> tuple[tuple[int, int, int], ...]:
    """Length, smallest and largest number of every released vector."""
    subjects, ends = released_vectors(terms.campaign), ranges(terms.campaign, terms.epsilon_micro)
    return tuple((subject.size, low, high) for subject, (low, high) in zip(subjects, ends, strict=True))


def judge_summary(raw: bytes, campaign: Campaign, nodes: NodeList, now: int | None = None) -> Summary:
    """Accept or refuse one summary completely: envelope, campaign, node, signature, values and dates, in this order.

    What is left to the caller: whether another summary of the same campaign, period and node was accepted.

    Args:
        raw: the bytes of one envelope.
        campaign: a campaign for nodes.
        nodes: the newest list of nodes, verified by the trust root, with the name that the campaign states.
        now: the reader's present, in seconds since 1970; None leaves out the check of future periods.

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
