"""A model that scores whole frames: the same sums as the device's classifier, in arrays.

    model = Model.load("mushrooms.hsm", "workspace/root.hst")
    model.predict(frame); model.predict_proba(frame); model.score(frame, labels); model.accuracy(frame)

``classes_``, ``predict``, ``predict_proba`` and ``score`` follow scikit-learn's conventions: arrays, one row per
record, columns in the order of ``classes_``, which are sorted; ``scores`` has them by code, as the schema does.

Source: docs/math.md, section 4: log P(c) + Σ log P(x_i | c), missing features left out, largest wins.
"""

from __future__ import annotations

import time
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aggregator.files import read_file
from aggregator.models.encoding import MISSING, check_columns, label_codes, recognise
from aggregator.notebooks import facts, table
from protocol import SCALE
from protocol.documents.envelope import SIZE_LIMITS
from protocol.documents.model import UNDERSTOOD, DiscreteModel, Normal, parse_model
from protocol.documents.model import Model as ModelDocument
from protocol.documents.trust import pin, verify
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from protocol.schema import Schema

    Floats = NDArray[np.float64]


class Model:
    """A Naive Bayes model over a schema, discrete or Gaussian.

    Attributes:
        schema: label and features; columns of a frame are found by their names.
        log_prior: shape (k,).
        terms: per observed feature, shape (values, k): log P(value | class); or mean and variance of
            x = u/S, of shape (k,) each.
        document: the signed document it was loaded from; None for one that was fitted in memory.
    """

    def __init__(
        self,
        schema: Schema,
        log_prior: Sequence[float] | Floats,
        terms: Sequence[Floats | tuple[Floats, Floats]],
        document: ModelDocument | None = None,
    ) -> None:
        self.schema = schema
        self.log_prior = np.asarray(log_prior, dtype=np.float64)
        self.terms = tuple(
            tuple(np.asarray(part, dtype=np.float64) for part in term)
            if isinstance(term, tuple)
            else np.asarray(term, dtype=np.float64)
            for term in terms
        )
        self.document = document

    def __repr__(self) -> str:
        return f"Model(label {self.schema.label.name!r}, {len(self.schema.observed)} features)"

    @classmethod
    def load(cls, path: str | Path, trust: str | Path | bytes, *, clock: Callable[[], float] = time.time) -> Model:
        """Verify a model file and read it.

        Args:
            path: the ``.hsm`` file.
            trust: the ``.hst`` file, or its bytes.
            clock: seconds since 1970.

        Raises:
            InputError: ``file_not_found``, ``unreadable``, ``too_large``; ``argument_invalid``, an argument of
                another type.
            DocumentError: ``bad_signature``, ``expired`` and the other reasons of
                :func:`protocol.documents.trust.verify`; ``invalid_model``.
        """
        _check_type(path, (str, PathLike), "the model is given as the path of a file")
        _check_type(trust, (str, PathLike, bytes), "trust is given as the path of the trust root or as its bytes")
        root = trust if isinstance(trust, bytes) else read_file(trust, SIZE_LIMITS["root"])
        return cls.verified(read_file(path, SIZE_LIMITS["model"]), root, clock=clock)

    @classmethod
    def verified(cls, raw: bytes, root: bytes, *, clock: Callable[[], float] = time.time) -> Model:
        """The model in a signed file's bytes, if a trust root's keys have signed it.

        Raises:
            DocumentError: as :meth:`load`.
        """
        now = int(clock())
        verdict = verify(pin(root, now), raw, "model", now, UNDERSTOOD)
        return cls.of(parse_model(verdict.payload))

    @classmethod
    def of(cls, document: ModelDocument) -> Model:
        """The model that a parsed document holds."""
        terms = document.log_likelihood if isinstance(document, DiscreteModel) else document.terms
        parts = [
            (np.array(term.mean), np.array(term.variance)) if isinstance(term, Normal) else np.array(term, np.float64)
            for term in terms
        ]
        return cls(document.schema, document.log_prior, parts, document)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, by code."""
        return self.schema.label.classes

    @property
    def classes_(self) -> NDArray[np.object_]:
        """Shape (k,): the classes, sorted as text, as scikit-learn's metrics take the columns to be."""
        return np.array(sorted(self.classes), dtype=object)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Shape (features,): the columns that a frame may have; one that it lacks is missing in every row."""
        return np.array([feature.name for feature in self.schema.features], dtype=object)

    def _repr_html_(self) -> str:
        label = self.schema.label
        about: dict[str, object] = {"label": label.name, "classes": ", ".join(label.classes)}
        about["features"] = len(self.schema.observed)
        if self.document is not None:
            header, card = self.document.header, self.document.card
            about |= {"name": header.name, "version": header.version}
            about |= {name: card[name] for name in ("reports", "epsilon_total", "postprocess") if name in card}
        prior = zip(label.classes, np.exp(self.log_prior).tolist(), strict=True)
        return facts("Model", about) + table(("class", "prior probability"), prior)

    def scores(self, frame: pd.DataFrame) -> Floats:
        """Shape (rows, k): log P(c) + Σ log P(x_i | c) over the features that are not missing.

        Terms are added in the order of the features, in double precision, as a device adds them, so the
        two agree to the last bit.

        Raises:
            InputError: ``columns_missing``; ``duplicate_column``; ``argument_invalid``, ``frame`` is no DataFrame.
        """
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        sight = recognise(frame, self.schema)
        total = np.tile(self.log_prior, (len(frame), 1))
        for index, term in enumerate(self.terms):
            present = sight.codes[:, index] != MISSING
            if isinstance(term, tuple):
                mean, variance = term
                x = (sight.numbers[present, index] / SCALE)[:, None] - mean
                total[present] = total[present] + -0.5 * np.log(2 * np.pi * variance) + -0.5 / variance * x * x
            else:
                total[present] += term[sight.codes[present, index]]
        return total

    def predict(self, frame: pd.DataFrame) -> NDArray[np.object_]:
        """Shape (rows,): the likeliest class of every record; of equals the first.

        Raises:
            InputError: ``columns_missing``, ``argument_invalid``.
        """
        names = np.array(self.classes, dtype=object)
        return np.asarray(names[self.scores(frame).argmax(axis=1)], dtype=object)

    def predict_proba(self, frame: pd.DataFrame) -> Floats:
        """Shape (rows, k): P(class | record), columns in the order of ``classes_``; rows sum to 1.

        Raises:
            InputError: ``columns_missing``, ``argument_invalid``.
        """
        scores = self.scores(frame)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(shares[:, [self.classes.index(name) for name in self.classes_]])

    def score(self, frame: pd.DataFrame, labels: Sequence[object] | pd.Series | None = None) -> float:
        """Share of right predictions among the records whose label is one of the classes.

        Labels mean what they mean to a device, so the integer 1 is the class "1". (scikit-learn's own metrics compare
        texts with texts, and count a label that is no class as wrong.)

        Args:
            frame: the records.
            labels: shape (rows,), their true classes; by default the frame's own column of the label.
                A record without one of the model's classes is not counted.

        Raises:
            InputError: ``argument_invalid``, not one label for each record; ``label_missing``, ``no_labels``,
                ``columns_missing``.
        """
        if labels is None:
            return self.accuracy(frame)
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        listed = list(labels)
        if len(listed) != len(frame):
            raise InputError("argument_invalid", f"{len(listed)} labels are given for {len(frame)} records")
        named = pd.Series(listed, index=frame.index, dtype=object)
        return self.accuracy(frame.assign(**{self.schema.label.name: named}))

    def accuracy(self, frame: pd.DataFrame) -> float:
        """Share of right predictions among the rows whose label is one of the classes.

        Raises:
            InputError: ``label_missing``, no such column; ``no_labels``, no row has one;
                ``columns_missing``, ``argument_invalid``.
        """
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        check_columns(frame, self.schema)
        truth = label_codes(frame, self.schema.label)
        labelled = truth != MISSING
        if not labelled.any():
            raise InputError("no_labels", "no row has one of the model's classes as its label")
        predicted = self.scores(frame).argmax(axis=1)
        return float((predicted == truth)[labelled].mean())


def _check_type(value: object, kind: type | tuple[type, ...], sentence: str) -> None:
    """Refuse an argument of another type by a sentence that names the type and not the value."""
    if not isinstance(value, kind):
        raise InputError("argument_invalid", f"{sentence}, not as {type(value).__name__}")
