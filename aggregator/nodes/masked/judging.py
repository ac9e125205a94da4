"""Judging masked messages: which envelopes of a file count, and why the others do not.

The checks and their order are those of :func:`protocol.masked.message.judge_message`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from aggregator.nodes.summaries.database import Row
from aggregator.nodes.summaries.judging import Judge
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError
from protocol.masked import message as messages
from protocol.masked.keys import KeyBook
from protocol.masked.message import judge_message, read_message
from protocol.nodes.node_list import NodeList

_STALE_REASON = "stale_key"


class MessageJudge(Judge):
    """Judges messages. A message counts if its key is in any version of the key book that the store was given.

    Args:
        campaign: the masked campaign that they must answer.
        listed: the newest list of nodes.
        books: versions of the key book, the newest one first; at least one.
        now: the present, in seconds since 1970.
    """

    role = messages.ROLE

    def __init__(self, campaign: Campaign, listed: NodeList, books: Sequence[KeyBook], now: int) -> None:
        self._campaign = campaign
        self._listed = listed
        self._books = books
        self._now = now

    def accept(self, envelope: bytes) -> Row:
        """Check one message.

        Raises:
            DocumentError: the message is refused; ``stale_key``: its key is in no version of the key book.
        """
        for book in self._books[:-1]:
            try:
                return self._by(book, envelope)
            except DocumentError as error:
                if error.reason != _STALE_REASON:
                    raise
        return self._by(self._books[-1], envelope)

    def _by(self, book: KeyBook, envelope: bytes) -> Row:
        found = judge_message(envelope, self._campaign, self._listed, book, self._now)
        return Row(found.period, found.node, found.identity, envelope)

    def key_of(self, envelope: bytes) -> tuple[int, bytes, bytes]:
        """Period, node and identity of a message, which is not checked.

        Raises:
            DocumentError: the bytes are no message.
        """
        found = read_message(envelope)[1]
        return found.period, found.node, found.identity


class Kept(NamedTuple):
    """What a store needs of a message that was judged when it was taken in.

    Attributes:
        period: number of the period.
        node: id of the node, 8 bytes.
        serial: serial number of the key.
        ciphertexts: J numbers of 512 bytes each, big-endian, joined.
    """

    period: int
    node: bytes
    serial: int
    ciphertexts: bytes


def message_in(row: Row) -> Kept:
    """The message in a row of a store. The store compared its bytes with their digest; nothing is judged again."""
    body = msgpack.unpackb(msgpack.unpackb(row.envelope)[2])
    return Kept(row.period, row.node, body["serial"], body["ciphertexts"])
