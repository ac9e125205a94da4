"""Naive Bayes scoring in plain Python, for a device without numpy.

score(c) = log P(c) + Σ log P(x_i | c) over the features that are present; the largest wins.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from protocol.schema import check_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.model import DiscreteModel


class Classifier:
    """An installed model. Its ``repr`` names the model, never a record.

    Attributes:
        name, version: of the signed document.
        classes: the labels that it can predict.
        model: the document's contents.
    """

    __slots__ = ("_clock", "_features", "classes", "model", "name", "version")

    def __init__(self, model: DiscreteModel, clock: Callable[[], int]) -> None:
        self.model = model
        self.name = model.header.name
        self.version = model.header.version
        self.classes = model.schema.label.classes
        self._clock = clock
        self._features = tuple(
            (feature.name, feature.known_code, table)
            for feature, table in zip(model.schema.features, model.log_likelihood, strict=True)
        )

    @property
    def expired(self) -> bool:
        """Whether the model is past its date. It classifies all the same, offline."""
        return self._clock() >= self.model.header.expires

    def scores(self, record: Mapping[str, object]) -> list[float]:
        """Log of prior times likelihood per class, up to a constant. Missing features are left out.

        Raises:
            InputError: ``record_invalid`` if the record is not a mapping.
        """
        check_record(record)
        scores = list(self.model.log_prior)
        for name, known_code, table in self._features:
            code = known_code(record.get(name))
            if code is not None:
                scores = [score + term for score, term in zip(scores, table[code], strict=True)]
        return scores

    def predict(self, record: Mapping[str, object]) -> str:
        """The most probable class; the first of equally probable ones."""
        scores = self.scores(record)
        return self.classes[scores.index(max(scores))]

    def predict_proba(self, record: Mapping[str, object]) -> dict[str, float]:
        """Probability of every class under the model; they sum to one."""
        scores = self.scores(record)
        top = max(scores)
        weights = [exp(score - top) for score in scores]
        total = sum(weights)
        return {name: weight / total for name, weight in zip(self.classes, weights, strict=True)}

    def __repr__(self) -> str:
        return f"<Classifier {self.name!r} version {self.version}>"
