"""Classify records with an installed Naive Bayes model, in plain Python.

For a class c and the record's known features i with values x_i, score(c) = log P(c) + Σ log P(x_i | c). The predicted
class has the largest score.
"""

from __future__ import annotations

from math import exp, log, pi
from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.documents.model import DiscreteModel, Normal, log_mass, log_sum
from protocol.features import Joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.documents.model import Model
    from protocol.schema import Check


class Classifier:
    """An installed model that classifies records. Its ``repr`` names the model only.

    Attributes:
        name, version: name and version of the model's signed document.
        classes: the labels that it can predict.
    """

    __slots__ = ("_clock", "_terms", "classes", "model", "name", "version")

    def __init__(self, model: Model, clock: Callable[[], int]) -> None:
        self.model = model
        self.name = model.header.name
        self.version = model.header.version
        self.classes = model.schema.label.classes
        self._clock = clock
        terms = model.log_likelihood if isinstance(model, DiscreteModel) else model.terms
        is_cut = not isinstance(model, DiscreteModel) and model.is_truncated
        self._terms = tuple(
            _quadratic(term, is_truncated=is_cut) if isinstance(term, Normal) else (term, None) for term in terms
        )

    @property
    def expired(self) -> bool:
        """Whether the model has expired by the device's clock. An expired model still classifies."""
        return self._clock() >= self.model.header.expires

    def check(self, record: Mapping[str, object]) -> Check:
        """Return which of the model's features are missing or unlisted in ``record``, with hints on probable mistakes.

        The label is not checked, since a record to classify has none. Raises the errors of :meth:`scores`.
        """
        return self.model.schema.check(record, label=self.classes[0])

    def scores(self, record: Mapping[str, object]) -> list[float]:
        """Return log(P(class) · P(record | class)) per class, in the order of ``classes``, up to a common constant.

        A feature is left out if its value is missing or unknown to the model; of a joined feature, the missing members
        are (:func:`log_sum`). A record that is no mapping raises InputError ``record_invalid``.
        """
        scores = list(self.model.log_prior)
        for place, reading in enumerate(self.model.schema.recognise(record)):
            table, curves = self._terms[place]
            if reading is None:
                continue
            if curves is None:
                code = reading[0]
                row = table[code] if code < len(table) else self._partly_known(place, code)
                scores = [score + term for score, term in zip(scores, row, strict=True)]
            elif reading[1] is not None:
                x = reading[1] / SCALE
                scores = [score + a + b * (x - m) * (x - m) for score, (a, b, m) in zip(scores, curves, strict=True)]
        return scores

    def _partly_known(self, place: int, code: int) -> Sequence[float]:
        joined = self.model.schema.observed[place]
        assert isinstance(joined, Joined)
        return log_sum([self._terms[place][0][each] for each in joined.matching(code)])

    def predict(self, record: Mapping[str, object]) -> str:
        """Return the most probable class. If several are equally probable, return the first of them in ``classes``.

        An unknown value counts as missing (:meth:`check` names it). Raises the errors of :meth:`scores`.
        """
        scores = self.scores(record)
        return self.classes[scores.index(max(scores))]

    def predict_proba(self, record: Mapping[str, object]) -> dict[str, float]:
        """Return class → its probability under the model. Raises the errors of :meth:`scores`."""
        scores = self.scores(record)
        top = max(scores)
        weights = [exp(score - top) for score in scores]
        total = sum(weights)
        return {name: weight / total for name, weight in zip(self.classes, weights, strict=True)}

    def __repr__(self) -> str:
        return f"<Classifier {self.name!r} version {self.version}>"


def _quadratic(normal: Normal, *, is_truncated: bool) -> tuple[tuple[()], list[tuple[float, float, float]]]:
    """Return () and, for each class, (a, b, m) such that a + b(x − m)² is the log density at x. m: the mean.

    If the distribution is cut to [−1, 1] (``is_truncated``), a contains minus the log of its mass there.
    """
    curves = []
    for m, v in zip(normal.mean, normal.variance, strict=True):
        a = -0.5 * log(2 * pi * v)
        curves.append((a - log_mass(m, v) if is_truncated else a, -0.5 / v, m))
    return (), curves
