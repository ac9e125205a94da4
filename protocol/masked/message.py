"""A node's message of one period in a masked campaign: its encrypted sums, signed by the node.

Source: docs/formats.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol import SPEC, canonical
from protocol.documents.envelope import KEYID_BYTES, PAYLOAD_TYPES, keyid, read_envelope, seal, verified_by
from protocol.documents.payload import read_integer
from protocol.errors import DocumentError
from protocol.masked.costs import ciphertexts_of, masked_terms_of
from protocol.masked.fields import DIGEST_BYTES, WORD, are_in_group, read_bytes, read_map, read_numbers, write_numbers
from protocol.nodes.summary import SummarySet
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import Envelope, SigningKey
    from protocol.masked.keys import KeyBook
    from protocol.nodes.summary import NodeList

ROLE = "masked"
MESSAGE_PAYLOAD_TYPE = PAYLOAD_TYPES[ROLE]
_KEYS = {"campaign", "ciphertexts", "node", "period", "serial", "spec"}
_MAX_ITEMS = 1 + 2 * len(_KEYS)


class Message(NamedTuple):
    """A parsed message. :func:`check_message` compares it with its campaign.

    Attributes:
        campaign, node: id of the campaign, 32 bytes, and key id of the node, 8 bytes.
        serial: serial number of the key that encrypts.
        ciphertexts: numbers below N², N the campaign's modulus.
        identity: SHA-256 of the payload.
    """

    campaign: bytes
    node: bytes
    period: int
    serial: int
    ciphertexts: tuple[int, ...]
    identity: bytes

    @property
    def place(self) -> tuple[bytes, int, bytes]:
        """Campaign, period and node. Two messages that share these three and differ in ``identity`` are a conflict."""
        return self.campaign, self.period, self.node


def build_message(campaign: Campaign, key: SigningKey, period: int, serial: int, ciphertexts: Sequence[int]) -> bytes:
    """Return the signed envelope of a message. The node runs this once per campaign and period.

    ``serial`` is the serial number of the node's key in the dealer's key book; ``ciphertexts`` are in the order of the
    plaintexts.

    Raises:
        DocumentError: the reasons of :func:`check_message`; ``malformed``: period or serial is no u32.
        InputError: ``campaign_not_masked``; ``not_canonical``: period or serial has no 64-bit form.
    """
    masked_terms_of(campaign)
    payload = canonical.pack(
        {
            "campaign": campaign.id,
            "ciphertexts": write_numbers(ciphertexts),
            "node": keyid(key.public),
            "period": period,
            "serial": serial,
            "spec": SPEC,
        }
    )
    check_message(parse_message(payload), campaign)
    return seal(MESSAGE_PAYLOAD_TYPE, payload, [key])


def parse_message(payload: bytes) -> Message:
    """Parse the payload of a message. Neither the signature nor the size of the ciphertexts is checked.

    Raises:
        DocumentError: ``malformed``, ``unsupported_version``.
    """
    body = read_map(payload, _KEYS, _MAX_ITEMS, "message of a node")
    return Message(
        campaign=read_bytes(body, "campaign", DIGEST_BYTES),
        node=read_bytes(body, "node", KEYID_BYTES),
        period=read_integer(body, "period", 0, WORD - 1),
        serial=read_integer(body, "serial", 0, WORD - 1),
        ciphertexts=read_numbers(body, "ciphertexts"),
        identity=sha256(payload).digest(),
    )


def read_message(raw: bytes) -> tuple[Envelope, Message]:
    """Parse the envelope of one message. The signature is not verified.

    Raises:
        DocumentError: ``too_large``, ``unsupported_version``, ``wrong_role``; ``malformed``: no envelope of a message,
            or not exactly one signature, by the key id that the message names.
    """
    envelope = read_envelope(raw, ROLE)
    message = parse_message(envelope.payload)
    if [hint for hint, _ in envelope.signatures] != [message.node]:
        raise DocumentError("malformed", "a message has exactly one signature, by its node")
    return envelope, message


def check_message(message: Message, campaign: Campaign, now: int | None = None) -> None:
    """Refuse a message whose values its campaign does not allow.

    ``now`` is the reader's present, in seconds since 1970; None leaves out the check of future periods.

    Raises:
        DocumentError: the first that applies of ``unrecognized_campaign`` (also if the campaign is not masked),
            ``value_out_of_domain`` (another number of ciphertexts, or one that is not below N² or shares a divisor with
            N), ``report_too_late`` (the period begins when the campaign has expired), ``report_too_early`` (it ends
            before the campaign begins, or begins after ``now``).
    """
    if message.campaign != campaign.id or campaign.masked is None:
        raise DocumentError("unrecognized_campaign", "the message belongs to another campaign")
    count = ciphertexts_of(campaign)
    if len(message.ciphertexts) != count:
        raise DocumentError("value_out_of_domain", f"it holds {len(message.ciphertexts)} ciphertexts, not {count}")
    if not are_in_group(message.ciphertexts, campaign.masked.modulus):
        raise DocumentError("value_out_of_domain", "a ciphertext is not below N², or shares a divisor with N")
    length, header = campaign.time_precision, campaign.header
    if message.period * length >= header.expires:
        raise DocumentError("report_too_late", "the message's period begins when its campaign has expired")
    if (message.period + 1) * length <= header.not_before or (now is not None and message.period * length > now):
        raise DocumentError("report_too_early", "the message's period is before its campaign or in the future")


def judge_message(raw: bytes, campaign: Campaign, listed: NodeList, book: KeyBook, now: int | None = None) -> Message:
    """Accept or refuse one message completely: envelope, campaign, node, signature, key, values and dates in turn.

    The caller must still check whether another message of the same campaign, period and node was accepted.

    Args:
        listed: the newest list of nodes, verified by the trust root, with the name that the campaign states.
        book: the newest key book of the campaign, verified by :func:`protocol.masked.keys.read_key_book`.
        now: as for :func:`check_message`.

    Raises:
        DocumentError: the first that applies of the reasons of :func:`read_message`, ``unrecognized_campaign``,
            ``node_not_listed``, ``bad_signature``, ``stale_key`` (the node has no such key in the book), and the
            reasons of :func:`check_message`.
    """
    envelope, message = read_message(raw)
    if message.campaign != campaign.id or book.campaign != campaign.id:
        raise DocumentError("unrecognized_campaign", "the message belongs to another campaign")
    public = listed.nodes.get(message.node)
    if public is None:
        raise DocumentError("node_not_listed", f"node {message.node.hex()} is not on the list of nodes")
    if not verified_by(envelope, [public]):
        raise DocumentError("bad_signature", f"the message is not signed by node {message.node.hex()}")
    party = book.parties.get(message.node)
    if party is None or party.serial != message.serial:
        raise DocumentError("stale_key", f"node {message.node.hex()} encrypted with a key that is not in the key book")
    check_message(message, campaign, now)
    return message


class MessageSet(SummarySet):
    """A set of messages, by the rules of sets of summaries: for each campaign, period and node at most two."""

    role = ROLE

    @staticmethod
    def parse(envelope: bytes) -> Message:
        """Parse one envelope without its signature. Raises the errors of :func:`read_message`."""
        return read_message(envelope)[1]
