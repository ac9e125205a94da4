"""Judging summaries: which envelopes of a file count, and why the others do not.

The checks and their order are those of :func:`protocol.nodes.summary.judge_summary`. The signature is checked before
any number, so only a listed node decides which numbers are read.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from aggregator.nodes.database import Refused, Row
from protocol.errors import DocumentError
from protocol.nodes.summary import judge_summary
from protocol.nodes.summary_files import read_summaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.documents.campaign import Campaign
    from protocol.nodes.node_list import NodeList
    from protocol.nodes.summary_files import Piece

_BATCH = 256
"""Most pieces of a file that are judged, and kept in memory, at a time."""


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
        """Judge all pieces of a file, in the order of the file. Several threads verify signatures.

        Args:
            raw: the content of the file, decompressed.
        """
        batch: list[Piece] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for piece in read_summaries(raw):
                batch.append(piece)
                if len(batch) == _BATCH:
                    yield from pool.map(self.of_piece, batch)
                    batch = []
            yield from pool.map(self.of_piece, batch)

    def of_piece(self, piece: Piece) -> Row | Refused:
        """Judge one piece of a file: a summary to keep, or the place and reason of what is refused."""
        if piece.reason is not None:
            return Refused(piece.offset, piece.length, piece.reason)
        try:
            summary = judge_summary(piece.envelope, self.campaign, self.listed, self.now)
        except DocumentError as error:
            return Refused(piece.offset, piece.length, error.reason)
        return Row(summary.period, summary.node, summary.identity, piece.envelope)
