"""Judging envelopes of nodes: which of a file count, and why the others do not.

The checks of summaries and their order are those of :func:`protocol.nodes.summary.judge_summary`. The signature is
checked before any number, so only a listed node decides which numbers are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import msgpack
import numpy as np

from aggregator.nodes.summaries.database import Refused, Row
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError
from protocol.nodes import summary as summaries
from protocol.nodes.node_list import NodeList
from protocol.nodes.summary import Summary, judge_summary, read_summary
from protocol.nodes.summary_files import Piece, read_summaries


class Judge(ABC):
    """Accepts and refuses envelopes of one role. Each kind of store has a judge of its own."""

    role: ClassVar[str]
    """Role of the envelopes, one of :data:`protocol.documents.envelope.PAYLOAD_TYPES`."""

    @abstractmethod
    def accept(self, envelope: bytes) -> Row:
        """Check the bytes of one envelope completely, and return them as the row of a store.

        Raises:
            DocumentError: the envelope is refused.
        """

    @abstractmethod
    def key_of(self, envelope: bytes) -> tuple[int, bytes, bytes]:
        """Period, node and identity that an envelope states. Its signature is not checked.

        Raises:
            DocumentError: the bytes are no such envelope.
        """

    def of_file(self, raw: bytes) -> Iterator[Row | Refused]:
        """Judge all pieces of a file, in the order of the file.

        Args:
            raw: the content of the file, decompressed.
        """
        return map(self.of_piece, read_summaries(raw, self.role))

    def of_piece(self, piece: Piece) -> Row | Refused:
        """Judge one piece of a file: an envelope to keep, or the place and reason of what is refused."""
        if piece.reason is not None:
            return Refused(piece.offset, piece.length, piece.reason)
        try:
            return self.accept(piece.envelope)
        except DocumentError as error:
            return Refused(piece.offset, piece.length, error.reason)


class SummaryJudge(Judge):
    """Judges summaries.

    Args:
        campaign: the campaign that they must answer.
        listed: the newest list of nodes.
        now: the present, in seconds since 1970.
    """

    role = summaries.ROLE

    def __init__(self, campaign: Campaign, listed: NodeList, now: int) -> None:
        self._campaign = campaign
        self._listed = listed
        self._now = now

    def accept(self, envelope: bytes) -> Row:
        """Check one summary (:func:`protocol.nodes.summary.judge_summary`).

        Raises:
            DocumentError: the summary is refused.
        """
        summary = judge_summary(envelope, self._campaign, self._listed, self._now)
        return Row(summary.period, summary.node, summary.identity, envelope)

    def key_of(self, envelope: bytes) -> tuple[int, bytes, bytes]:
        """Period, node and identity of a summary, which is not checked.

        Raises:
            DocumentError: the bytes are no summary.
        """
        summary = read_summary(envelope)[1]
        return summary.period, summary.node, summary.identity


def summary_in(row: Row) -> Summary:
    """The summary in a row of a store. It was judged when it was taken in, and is not judged again.

    The store has compared the bytes with their digest, so they are those that were judged. They are decoded without the
    checks for foreign bytes, which take ten times as long.
    """
    body = msgpack.unpackb(msgpack.unpackb(row.envelope)[2])
    sums = tuple(np.frombuffer(body["sums"]["b"], "<i8").tolist())
    return Summary(body["campaign"], body["node"], body["period"], body["epsilon_micro"], sums, row.identity)
