"""Who takes part and who is kept for the test: random parts, folds, or a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pandas as pd


class Split(NamedTuple):
    """Disjoint people: those whose devices answer, and those on whom the model is tried."""

    people: pd.DataFrame
    test: pd.DataFrame


class Division(NamedTuple):
    """How to divide the records; the first that is given counts.

    Attributes:
        test: a frame of its own; everybody else takes part.
        folds: K disjoint test parts in turn, all people tested once.
        test_share: a random part of the records.
    """

    test: pd.DataFrame | None = None
    folds: int | None = None
    test_share: float = 0.2

    def splits(self, frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[Split]:
        """The splits of one repetition: one, or K.

        Raises:
            InputError: ``split_invalid``: a part would be empty.
        """
        if self.test is not None:
            yield Split(frame, self.test)
            return
        order = rng.permutation(len(frame))
        if self.folds is not None:
            if not 2 <= self.folds <= len(frame):
                raise InputError(
                    "split_invalid", f"the number of folds is from 2 to {len(frame)}, the records there are"
                )
            for fold in range(self.folds):
                chosen = order[fold :: self.folds]
                yield Split(frame.drop(frame.index[chosen]), frame.iloc[chosen])
            return
        if not 0 < self.test_share < 1:
            raise InputError("split_invalid", "the test share lies between 0 and 1")
        count = round(self.test_share * len(frame))
        if not 0 < count < len(frame):
            raise InputError("split_invalid", "the test share leaves nobody to test on, or nobody to learn from")
        yield Split(frame.iloc[order[count:]], frame.iloc[order[:count]])


def resample(people: pd.DataFrame, devices: int | None, rng: np.random.Generator) -> pd.DataFrame:
    """The fleet: everybody once, or ``devices`` people drawn with replacement."""
    return people if devices is None else people.iloc[rng.integers(0, len(people), devices)]
