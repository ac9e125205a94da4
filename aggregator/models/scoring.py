"""A model that scores whole frames, with the same sums as the device's classifier.

model = Model.load("mushrooms.hsm", "workspace/root.hst")
model.predict(frame); model.predict_proba(frame); model.score(frame, labels); model.accuracy(frame)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Floats, Integers
from aggregator.common.files import read_file
from aggregator.common.notebooks import facts, table
from aggregator.common.tables import MISSING_TOKENS, read_table, typed, unlike_schema
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import MISSING, EncodedFrame, check_columns, label_codes, recognise
from aggregator.models.fitting import fit
from aggregator.models.foresight import Foresight
from protocol import SCALE
from protocol.documents.envelope import SIZE_LIMITS
from protocol.documents.model import (
    TRUNCATED_GAUSSIAN,
    UNDERSTOOD,
    DiscreteModel,
    Normal,
    log_mass,
    log_sum,
    parse_model,
)
from protocol.documents.model import Model as ModelDocument
from protocol.documents.trust import pin, verify
from protocol.errors import InputError
from protocol.features import Joined
from protocol.schema import Schema

LINE, PREDICTED = "line", "predicted"


class Model:
    """A Naive Bayes model, discrete or Gaussian, that classifies records of a schema.

    ``classes_``, ``predict``, ``predict_proba`` and ``score`` follow scikit-learn's conventions, with columns in the
    sorted order of ``classes_``; the columns of ``scores`` are in the order of the schema's class codes. ``frame`` has
    one record per row. ``log_prior``: shape (k,); ``terms``: per observed feature, log P(value | class), (values, k),
    or mean and variance of a number scaled to [−1, 1], (k,) float64 each. ``document``: the signed document, or None.
    ``is_truncated``: normal distributions are cut to [−1, 1]. Source: docs/math.md, section 4.
    """

    def __init__(
        self,
        schema: Schema,
        log_prior: Sequence[float] | Floats,
        terms: Sequence[Floats | tuple[Floats, Floats]],
        document: ModelDocument | None = None,
        *,
        is_truncated: bool = False,
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
        self.is_truncated = is_truncated

    def __repr__(self) -> str:
        return f"Model(label {self.schema.label.name!r}, {len(self.schema.observed)} features)"

    @classmethod
    def load(cls, path: str | Path, trust: str | Path | bytes, *, clock: Callable[[], float] = time.time) -> Model:
        """Verify a model file (``path``, ``.hsm``) and return the model in it.

        ``trust``: the ``.hst`` file with the trusted keys, or its bytes. Raises InputError: the file can not be read;
        ``argument_invalid``, an argument of another type. Raises DocumentError: the errors of :meth:`verified`.
        """
        _check_type(path, (str, PathLike), "the model is given as the path of a file")
        _check_type(trust, (str, PathLike, bytes), "trust is given as the path of the trust root or as its bytes")
        root = trust if isinstance(trust, bytes) else read_file(trust, SIZE_LIMITS["root"])
        return cls.verified(read_file(path, SIZE_LIMITS["model"]), root, clock=clock)

    @classmethod
    def verified(cls, raw: bytes, root: bytes, *, clock: Callable[[], float] = time.time) -> Model:
        """Verify the bytes of a model file by those of a file of trusted keys (``root``), and return the model.

        Raises DocumentError: ``bad_signature``, ``expired`` and the other reasons of
        :func:`protocol.documents.trust.verify`; ``invalid_model``.
        """
        now = int(clock())
        verdict = verify(pin(root, now), raw, "model", now, UNDERSTOOD)
        return cls.of(parse_model(verdict.payload))

    @classmethod
    def of(cls, document: ModelDocument) -> Model:
        """Return the model of a parsed document. Signatures are not checked here."""
        terms = document.log_likelihood if isinstance(document, DiscreteModel) else document.terms
        parts = [
            (np.array(term.mean), np.array(term.variance)) if isinstance(term, Normal) else np.array(term, np.float64)
            for term in terms
        ]
        is_truncated = not isinstance(document, DiscreteModel) and document.is_truncated
        return cls(document.schema, document.log_prior, parts, document, is_truncated=is_truncated)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the schema's class codes."""
        return self.schema.label.classes

    @property
    def classes_(self) -> NDArray[np.object_]:
        """Shape (k,) object: names of the classes, sorted as text, the column order of scikit-learn's metrics."""
        return np.array(sorted(self.classes), dtype=object)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the features, the columns that :meth:`predict` reads from a frame: shape (features,) object."""
        return np.array([feature.name for feature in self.schema.features], dtype=object)

    def _repr_html_(self) -> str:
        label = self.schema.label
        about: dict[str, object] = {"label": label.name, "classes": ", ".join(label.classes)}
        about["features"] = len(self.schema.observed)
        if self.document is not None:
            header, card = self.document.header, self.document.card
            about |= {"name": header.name, "version": header.version}
            about |= {name: card[name] for name in ("reports", "epsilon_total", "postprocess") if name in card}
            about |= _expected(card)
        prior = zip(label.classes, np.exp(self.log_prior).tolist(), strict=True)
        return facts("Model", about) + table(("class", "prior probability"), prior)

    def scores(self, frame: pd.DataFrame) -> Floats:
        """Return log P(c) + Σ_i log P(x_i | c) for each record x and class c, without missing features: (rows, k).

        A feature without a column is missing in every row. Terms are added in the order and precision of devices; only
        the logarithm of a variance may differ in the last bit. Raises InputError ``argument_invalid``: ``frame`` is no
        DataFrame; and as :func:`aggregator.models.encoding.recognise`.
        """
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        return self.scores_of(recognise(frame, self.schema))

    def scores_of(self, encoded: EncodedFrame) -> Floats:
        """Return the scores of records that :func:`aggregator.models.encoding.recognise` encoded: (rows, k) float64."""
        total = np.tile(self.log_prior, (len(encoded.codes), 1))
        for index, term in enumerate(self.terms):
            present = encoded.codes[:, index] != MISSING
            if isinstance(term, tuple):
                mean, variance = term
                x = (encoded.numbers[present, index] / SCALE)[:, None] - mean
                constant = -0.5 * np.log(2 * np.pi * variance)
                if self.is_truncated:
                    constant = constant - np.array([log_mass(*pair) for pair in zip(mean, variance, strict=True)])
                total[present] = total[present] + constant + -0.5 / variance * x * x
            else:
                total[present] += rows_of(term, self.schema.observed[index], encoded.codes[present, index])
        return total

    def check(self, frame: pd.DataFrame) -> list[str]:
        """Return a sentence for every feature whose column is absent, or has cells that the model can not read.

        On devices and in :meth:`predict`, which warns of nothing, absent columns and unknown cells count as missing,
        and numbers outside the bounds as the nearer bound. The label's column is checked too, if there is one. Raises
        InputError ``duplicate_column``, ``argument_invalid``.
        """
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        check_columns(frame, self.schema)
        return unlike_schema(frame, self.schema)

    def predict(self, frame: pd.DataFrame) -> NDArray[np.object_]:
        """Return each record's class of the largest score, (rows,) object; :meth:`check` names unread cells."""
        names = np.array(self.classes, dtype=object)
        return np.asarray(names[self.scores(frame).argmax(axis=1)], dtype=object)

    def predict_proba(self, frame: pd.DataFrame) -> Floats:
        """Return the classes' probabilities, (rows, k) float64, in the order of ``classes_``; see :meth:`scores`."""
        scores = self.scores(frame)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(shares[:, [self.classes.index(name) for name in self.classes_]])

    def score(self, frame: pd.DataFrame, labels: Sequence[object] | pd.Series | None = None) -> float:
        """Return the share of right predictions among the records whose label is one of the model's classes.

        ``labels``, (rows,): by default the frame's label column. They are read by the devices' rules: the integer 1 is
        the class "1". Raises InputError ``argument_invalid``: not one label for each record; and as :meth:`accuracy`.
        """
        if labels is None:
            return self.accuracy(frame)
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        cells: Any = getattr(labels, "array", labels)  # only the values of a Series: labels belong to rows by position
        if getattr(cells, "ndim", None) != 1:
            cells = list(cells)
        if len(cells) != len(frame):
            raise InputError("argument_invalid", f"{len(cells)} labels are given for {len(frame)} records")
        named = pd.Series(cells, index=frame.index, dtype=object if isinstance(cells, list) else None)
        return self.accuracy(frame.assign(**{self.schema.label.name: named}))

    def accuracy(self, frame: pd.DataFrame) -> float:
        """Return the share of right predictions among the rows whose label column has one of the model's classes.

        Raises InputError: ``label_missing``; ``no_labels``: no row has such a class; and the errors of :meth:`scores`.
        """
        _check_type(frame, pd.DataFrame, "records are given as a pandas DataFrame")
        check_columns(frame, self.schema)
        truth = label_codes(frame, self.schema.label)
        labelled = truth != MISSING
        if not labelled.any():
            raise InputError("no_labels", "no row has one of the model's classes as its label")
        predicted = self.scores(frame).argmax(axis=1)
        return float((predicted == truth)[labelled].mean())


def rows_of(table: Floats, feature: object, codes: Integers) -> Floats:
    """Return the rows of a feature's table, (values, k), for codes, (rows,) int64, also partly known ones of a join.

    The table has logarithms of probabilities, and no code is :data:`MISSING`.
    """
    partly = codes >= len(table)
    if not isinstance(feature, Joined) or not partly.any():
        return table[codes]
    found = table[np.where(partly, 0, codes)]
    distinct, places = np.unique(codes[partly], return_inverse=True)
    summed = [log_sum(table[feature.matching(code)].tolist()) for code in distinct.tolist()]
    found[partly] = np.array(summed)[places]
    return found


def model_of(statistics: Statistics, postprocess: str) -> Model:
    """Return the model fitted to statistics of any family and source; raises the errors of :func:`fit`."""
    is_truncated = statistics.fit.family == TRUNCATED_GAUSSIAN
    return Model(statistics.schema, *fit(statistics, postprocess), is_truncated=is_truncated)


def _expected(card: Mapping[str, Any]) -> dict[str, str]:
    """Return what the card says about how often the model is expected to be right: printed name → text."""
    if "expected_accuracy" not in card:
        return {}
    found = Foresight.of_card(card)
    about = {"expected accuracy": found.shown, "largest class": found.largest_shown}
    if found.recall:
        about["expected recall"] = found.recall_shown
    warnings = [text for text in (found.warning, found.recall_warning) if text is not None]
    return {**about, "warning": "; ".join(warnings)} if warnings else about


def _check_type(value: object, kind: type | tuple[type, ...], sentence: str) -> None:
    if not isinstance(value, kind):
        of = type(value)
        named = of.__name__ if of.__module__ == "builtins" else f"{of.__module__.split('.')[0]}.{of.__name__}"
        raise InputError("argument_invalid", f"{sentence}, not as {named}")


class Predictions(NamedTuple):
    """Predictions of a model for the records of a file.

    ``frame``: one row per record, with the columns ``line`` (of the file), ``predicted`` and, on request, ``p CLASS``,
    the class's probability. ``labelled``: number of records whose label is one of the model's classes; ``accuracy``:
    share of right predictions among these, or None. ``unread``: the sentences of :meth:`Model.check`.
    """

    frame: pd.DataFrame
    labelled: int
    accuracy: float | None
    unread: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        about = {"records": len(self.frame), "with a label": self.labelled, "accuracy": self.accuracy}
        return facts("Predictions", about) + str(self.frame.head()._repr_html_())


def predict_file(
    model: Model, path: str | Path, *, proba: bool = False, missing: Collection[str] = MISSING_TOKENS
) -> Predictions:
    """Classify every record of a CSV file, plain or ``.gz``, and return the predictions.

    ``proba``: also the probability of every class. ``missing``: texts of a missing value. Raises InputError
    ``columns_missing``: no feature has a column; and as :func:`aggregator.common.tables.read_table`.
    """
    table = read_table(path)
    records = typed(table, model.schema, missing)
    columns: dict[str, object] = {LINE: records.index.to_numpy(), PREDICTED: model.predict(records)}
    if proba:
        shares = model.predict_proba(records)
        columns |= {f"p {name}": shares[:, code] for code, name in enumerate(model.classes_)}
    labelled = 0
    if model.schema.label.name in records.columns:
        labelled = int((label_codes(records, model.schema.label) != MISSING).sum())
    return Predictions(
        pd.DataFrame(columns),
        labelled,
        model.accuracy(records) if labelled else None,
        tuple(unlike_schema(records, model.schema, table.columns)),
    )
