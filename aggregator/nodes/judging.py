"""Judging summaries: which envelopes of a file count, and why the others do not.

The checks and their order are those of :func:`protocol.nodes.summary.judge_summary`. The signature is checked before
any number, so only a listed node decides which numbers are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgpack
import numpy as np

from aggregator.nodes.database import Refused, Row
from protocol.errors import DocumentError
from protocol.nodes.summary import Summary, judge_summary
from protocol.nodes.summary_files import read_summaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.documents.campaign import Campaign
    from protocol.nodes.node_list import NodeList
    from protocol.nodes.summary_files import Piece


class Judge(NamedTuple):
    """What summaries are judged by.

    Attributes:
        campaign: the campaign that they must answer.
        listed: the newest list of nodes.
        now: the present, in seconds since 1970.
    """

    campaign: Campaign
    listed: NodeList
    now: int

    def of_file(self, raw: bytes) -> Iterator[Row | Refused]:
        """Judge all pieces of a file, in the order of the file.

        Args:
            raw: the content of the file, decompressed.
        """
        return map(self.of_piece, read_summaries(raw))

    def of_piece(self, piece: Piece) -> Row | Refused:
        """Judge one piece of a file: a summary to keep, or the place and reason of what is refused."""
        if piece.reason is not None:
            return Refused(piece.offset, piece.length, piece.reason)
        try:
            summary = judge_summary(piece.envelope, self.campaign, self.listed, self.now)
        except DocumentError as error:
            return Refused(piece.offset, piece.length, error.reason)
        return Row(summary.period, summary.node, summary.identity, piece.envelope)


def summary_in(row: Row) -> Summary:
    """The summary in a row of a store. It was judged when it was taken in, and is not judged again.

    The store has compared the bytes with their digest, so they are those that were judged. They are decoded without the
    checks for foreign bytes, which take ten times as long.
    """
    body = msgpack.unpackb(msgpack.unpackb(row.envelope)[2])
    sums = tuple(np.frombuffer(body["sums"]["b"], "<i8").tolist())
    return Summary(body["campaign"], body["node"], body["period"], body["epsilon_micro"], sums, row.identity)
