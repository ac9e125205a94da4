"""Records as columns. ``decoding`` makes them, ``storage`` keeps them and ``tally`` counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """N records of one campaign, column by column.

    Attributes:
        id: (N,) uint64, the eight bytes of the report's id as a big-endian number.
        period: (N,) uint32.
        question: (N,) uint16, index in the campaign's questions.
        answer: (N, A) uint8, the bytes of the answer field, unchanged.
        proven: (N,) bool, whether the record's batch had the right digest and number of records.
    """

    id: NDArray[np.uint64]
    period: NDArray[np.uint32]
    question: NDArray[np.uint16]
    answer: NDArray[np.uint8]
    proven: NDArray[np.bool_]

    @classmethod
    def empty(cls, answer_bytes: int) -> Self:
        """Columns of no records.

        Args:
            answer_bytes: A, the number of bytes of an answer field.
        """
        return cls(
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint16),
            np.empty((0, answer_bytes), np.uint8),
            np.empty(0, np.bool_),
        )

    @classmethod
    def join(cls, pieces: Sequence[Columns], answer_bytes: int) -> Self:
        """Concatenate the records of all pieces, in the order of the pieces.

        Args:
            pieces: may be empty; the result then has no record.
            answer_bytes: A, the number of bytes of an answer field. Used only if there are no pieces.
        """
        pieces = pieces or [cls.empty(answer_bytes)]
        return cls(
            np.concatenate([piece.id for piece in pieces]),
            np.concatenate([piece.period for piece in pieces]),
            np.concatenate([piece.question for piece in pieces]),
            np.concatenate([piece.answer for piece in pieces]),
            np.concatenate([piece.proven for piece in pieces]),
        )

    @property
    def size(self) -> int:
        """The number of records, N."""
        return len(self.id)

    def take(self, rows: NDArray[Any] | slice) -> Columns:
        """The records that ``rows`` selects: an index array, a mask of N values, or a slice."""
        return Columns(self.id[rows], self.period[rows], self.question[rows], self.answer[rows], self.proven[rows])


def big_endian(field: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Read bytes as big-endian numbers.

    Args:
        field: (N, c·w) uint8, c numbers of w bytes in each row.
        kind: numpy's name of a number of w bytes, for example ``">u4"`` with w = 4.

    Returns:
        (N, c) of dtype ``kind``.
    """
    return np.ascontiguousarray(field).view(np.dtype(kind))
