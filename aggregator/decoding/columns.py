"""Records as columns: what ``decode`` makes, ``parts`` stores and ``tally`` counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """N records of one campaign, column by column.

    Attributes:
        id: shape (N,), the eight bytes of the report's id as a big-endian number.
        period: shape (N,).
        question: shape (N,), index in the campaign's questions.
        answer: shape (N, A), the answer field as it came, A bytes wide.
        proven: shape (N,), whether the record's batch had the right digest and number of records.
    """

    id: NDArray[np.uint64]
    period: NDArray[np.uint32]
    question: NDArray[np.uint16]
    answer: NDArray[np.uint8]
    proven: NDArray[np.bool_]

    @classmethod
    def empty(cls, answer_bytes: int) -> Self:
        """No records, with an answer field of this width."""
        return cls(
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint16),
            np.empty((0, answer_bytes), np.uint8),
            np.empty(0, np.bool_),
        )

    @classmethod
    def join(cls, pieces: Sequence[Columns], answer_bytes: int) -> Self:
        """All records of all pieces, in order."""
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
        """N."""
        return len(self.id)

    def take(self, rows: NDArray[Any] | slice) -> Columns:
        """The records that an index array, a mask or a slice selects."""
        return Columns(self.id[rows], self.period[rows], self.question[rows], self.answer[rows], self.proven[rows])


def big_endian(field: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Bytes of shape (N, c·w) as numbers of shape (N, c), for example ``kind`` ``">u4"`` with w = 4."""
    return np.ascontiguousarray(field).view(np.dtype(kind))
