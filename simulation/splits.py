"""Division of people into a part to learn from and a part to test on: at random, by folds, or by a test file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class Split(NamedTuple):
    """Two groups: ``people``, whose devices answer, and ``test``, on whose records the model is tested.

    The groups are disjoint unless the test records were given and repeat some of the people's.
    """

    people: pd.DataFrame
    test: pd.DataFrame


class Division(NamedTuple):
    """How to divide the records. The first attribute that is not None applies.

    Attributes:
        test: a frame of separate test records. All people of the data are then learned from.
        folds: K, the number of splits. Each split tests on another one of K disjoint parts of the people.
        test_share: share of the people in one random test part.
    """

    test: pd.DataFrame | None = None
    folds: int | None = None
    test_share: float = 0.2

    def learners(self, records: int) -> int:
        """The number of people that one split learns from, of so many people, at least 1."""
        if self.test is not None:
            return records
        tested = 1 / self.folds if self.folds else self.test_share
        return max(1, records - round(tested * records)) if 0 < tested < 1 else records

    def splits(self, frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[Split]:
        """Yield the splits of one repetition: one split, or K with folds.

        Args:
            frame: records of all people, one row each.
            rng: source of the random division.

        Raises:
            InputError: ``split_invalid``: a part would be empty, or the number of folds or the share is out of range.
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
    """Choose the records on the fleet's devices.

    Args:
        people: records of the people to learn from.
        devices: number of devices, whose records are drawn from ``people`` with replacement; None gives every person
            one device.
        rng: source of the draw.
    """
    return people if devices is None else people.iloc[rng.integers(0, len(people), devices)]
