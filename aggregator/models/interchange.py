"""Export a model as a JSON object, or as a fitted scikit-learn pipeline that needs nothing of this package.

In comments, u is a device's scaled number, an integer from −S to S, S = :data:`protocol.SCALE`.
Source: docs/formats.md, section 5 (features, projection); docs/math.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats
from aggregator.common.extras import missing_extra
from aggregator.models.scoring import Model
from protocol import SCALE
from protocol.documents.model import Model as ModelDocument
from protocol.errors import InputError
from protocol.features import Categorical, Joined, Numeric, as_number, as_text
from protocol.schema import Projection

FORMAT = 1
"""Version of the JSON object's layout."""
_BEYOND = 1 << 40
"""A number that is larger than every edge. It stands for a missing number."""


def to_json(model: Model) -> dict[str, Any]:
    """Return the model as an object for :func:`json.dumps`. Run by the analyst.

    The predicted class c has the largest log_prior[c] plus one term for each observed feature that is not missing:

        a table:   log_likelihood[code][c]
        a normal:  −½ ln(2πσ²) − (u/S − μ)²/(2σ²), with μ = mean[c], σ² = variance[c], S = scale, u the scaled number
        a truncated-normal:  as a normal, minus ln Z, Z = ½ erf((1 − μ)/√(2σ²)) + ½ erf((1 + μ)/√(2σ²))

    ``terms`` has first the features outside the projection, then its components, then joined features: ``joins`` names
    what they join, and docs/formats.md, section 5, has the code. If some members are missing, the term is the logarithm
    of the sum over all codes that agree with the others. The text holds the parameters exactly.
    """
    schema = model.schema
    terms = [
        {"feature": feature.name, **_joins(feature), **_term_json(term, is_truncated=model.is_truncated)}
        for feature, term in zip(schema.observed, model.terms, strict=True)
    ]
    return {
        "hearsay_model": FORMAT,
        "document": None if model.document is None else _origin(model.document),
        "label": schema.label.to_dict(),
        "scale": SCALE,
        "features": [feature.to_dict() for feature in schema.features],
        "projection": None if schema.projection is None else _projection_json(schema.projection),
        "log_prior": model.log_prior.tolist(),
        "terms": terms,
    }


def _joins(feature: object) -> dict[str, Any]:
    return {"joins": [member.name for member in feature.members]} if isinstance(feature, Joined) else {}


def _origin(document: ModelDocument) -> dict[str, Any]:
    """Return what identifies the model's signed document: its name and version, the campaign and the statistics."""
    return {
        "name": document.header.name,
        "version": document.header.version,
        "campaign": document.campaign.hex(),
        "statistics_id": document.statistics_id.hex(),
    }


def _projection_json(projection: Projection) -> dict[str, Any]:
    """Return the projection as a JSON object. Output i of inputs u is (Σ_j matrix[i][j]·u_j + offsets[i]) >> shift."""
    return {
        **projection.to_dict(),
        "matrix": [list(row) for row in projection.matrix],
        "offsets": list(projection.offsets),
    }


def _term_json(term: Any, *, is_truncated: bool) -> dict[str, Any]:
    if isinstance(term, tuple):
        mean, variance = term
        kind = "truncated-normal" if is_truncated else "normal"
        return {"kind": kind, "mean": mean.tolist(), "variance": variance.tolist()}
    return {"kind": "table", "log_likelihood": term.tolist()}


def to_sklearn(model: Model) -> Any:
    """Return the model as a fitted ``sklearn.pipeline.Pipeline`` that predicts from a DataFrame. Run by the analyst.

    The steps are ``encode`` and ``model`` (``CategoricalNB`` or ``GaussianNB``). The frame needs a column for every
    feature: texts as the schema lists them, integers or booleans for categories. A prediction leaves out an empty cell,
    but a model of normal distributions needs all numbers. It can differ from :meth:`Model.predict` if two classes have
    equal scores, or a number is as close to the limit between two scaled integers as doubles are. Raises InputError:
    ``missing_extra``: scikit-learn is not installed; ``not_exportable``: the model has joined features, tables and
    normal distributions, or truncated normal distributions, or a feature's bounds are too close for floats.
    """
    if model.schema.joins:
        raise InputError("not_exportable", "scikit-learn has no Naive Bayes of joined features; export it to json")
    try:
        from sklearn.naive_bayes import CategoricalNB, GaussianNB
        from sklearn.pipeline import Pipeline
    except ImportError:
        raise missing_extra("scikit-learn is not installed", "demo") from None
    normals = [isinstance(term, tuple) for term in model.terms]
    if any(normals) and not all(normals):
        raise InputError(
            "not_exportable", "scikit-learn has no Naive Bayes of tables and normal distributions; export it to json"
        )
    if model.is_truncated:
        raise InputError(
            "not_exportable", "scikit-learn has no Naive Bayes of truncated normal distributions; export it to json"
        )
    encode = _encoder(model, as_codes=not any(normals))
    order = [model.classes.index(name) for name in model.classes_]
    estimator = GaussianNB() if any(normals) else CategoricalNB()
    estimator.classes_ = np.array(model.classes_.tolist())
    estimator.n_features_in_ = len(model.terms)
    estimator.class_count_ = np.zeros(len(order))
    if any(normals):
        estimator.theta_ = np.array([mean[order] for mean, _ in model.terms]).T * SCALE
        estimator.var_ = np.array([variance[order] for _, variance in model.terms]).T * float(SCALE) ** 2
        prior = np.exp(model.log_prior[order] - model.log_prior.max())
        estimator.class_prior_ = prior / prior.sum()
        estimator.epsilon_ = 0.0
    else:
        estimator.class_log_prior_ = model.log_prior[order]
        tables = [_padded(feature, term) for feature, term in zip(model.schema.observed, model.terms, strict=True)]
        estimator.feature_log_prob_ = [table[:, order].T for table in tables]
        estimator.n_categories_ = np.array([len(table) for table in tables])
        estimator.category_count_ = [np.zeros_like(table.T) for table in tables]
    return Pipeline([("encode", encode), ("model", estimator)])


def _padded(feature: Any, table: Any) -> Floats:
    """Return a table's rows in the order of :func:`_encoder`'s codes; zeros for a missing value, so it adds nothing."""
    zeros = np.zeros((1, table.shape[1]))
    if not isinstance(feature, Categorical):
        return np.vstack([table[: len(feature.edges) + 1], zeros])
    unlisted = table[-1:] if feature.unlisted == "other" else zeros
    return np.vstack([table[: len(feature.values)], zeros, unlisted])


def _encoder(model: Model, *, as_codes: bool) -> Any:
    """Return the transformer from a frame to observed features: codes for tables, or u for normal distributions."""
    from sklearn.compose import ColumnTransformer

    schema = model.schema
    parts: list[tuple[str, Any, Any]] = []
    for index in schema.kept:
        feature = schema.features[index]
        if isinstance(feature, Categorical):
            steps = _category(feature)
        else:
            steps = [*_scaled(feature), *(_bins(feature.edges) if as_codes else [])]
        parts.append((f"feature {index}", _chain(steps), [feature.name]))
    if schema.projection is not None:
        inputs = [schema.features[index] for index in schema.projection.inputs]
        scaled = ColumnTransformer(
            [(f"input {place}", _chain(_scaled(part)), [part.name]) for place, part in enumerate(inputs)]  # type: ignore[arg-type]
        )
        steps = [scaled, *_projected(schema.projection, as_codes=as_codes)]
        parts.append(("projection", _chain(steps), [part.name for part in inputs]))
    # Every part has its parameters already. Fitting only lets scikit-learn note the names of the columns.
    one: dict[str, list[object]] = {
        part.name: ["" if isinstance(part, Categorical) else float(part.low)] for part in schema.features
    }
    return ColumnTransformer(parts).fit(pd.DataFrame(one))


def _chain(steps: Sequence[Any]) -> Any:
    from sklearn.pipeline import make_pipeline

    return make_pipeline(*steps)


def _call(function: Any, **arguments: Any) -> Any:
    from sklearn.preprocessing import FunctionTransformer

    return FunctionTransformer(function, kw_args=arguments)


def _category(feature: Categorical) -> list[Any]:
    """Return steps from cells to codes: the listed values, then one code for an empty cell, one for other values.

    A dict finds texts and integral numbers of any type. True equals 1, so booleans are corrected afterwards: the code
    is a sum of the dict's code, −1 for an empty cell, and the corrections.
    """
    from functools import partial
    from operator import is_

    from sklearn.pipeline import FeatureUnion

    codes: dict[object, int] = {text: code for code, text in enumerate(feature.values)}
    codes |= {int(text): code for code, text in enumerate(feature.values) if _is_integer(text)}
    empty, other = len(feature.values), len(feature.values) + 1
    codes.setdefault("", empty)
    parts: list[tuple[str, Any, int]] = [
        ("listed", _chain([_call(pd.DataFrame.map, func=codes.get), *_filled(other)]), 1),
        ("empty", _chain([_call(pd.DataFrame.isna), *_filled(0)]), empty - other),
    ]
    for truth in (True, False):
        correction = codes.get(as_text(truth), other) - codes.get(int(truth), other)
        found = _call(pd.DataFrame.map, func=partial(is_, truth))
        parts.append((f"is {truth}", _chain([found, *_filled(0)]), correction))
    return [
        _call(pd.DataFrame.astype, dtype="object"),
        FeatureUnion([(name, step) for name, step, _ in parts]),
        _call(np.dot, b=np.array([[float(weight)] for _, _, weight in parts])),
        _call(np.asarray, dtype="int64"),
    ]


def _is_integer(text: str) -> bool:
    """Return whether a listed text is an integer in its usual form: 3 or −3, but not 3.0 or 03."""
    number = as_number(text)
    return number is not None and as_text(number) == text


def _filled(empty: float) -> list[Any]:
    return [_call(np.asarray, dtype="float64"), _call(np.nan_to_num, nan=float(empty))]


def _scaled(feature: Numeric) -> list[Any]:
    """Return steps from numbers to scaled numbers, integers from −S to S; a missing number stays NaN."""
    if not feature.float_scale:
        raise InputError(
            "not_exportable", f"the bounds of '{feature.name}' are too close for floats; export it to json"
        )
    ends = [float(feature.low), float(feature.high)]
    return [
        _call(np.asarray, dtype="float64"),
        _call(np.interp, xp=ends, fp=[-SCALE, SCALE]),
        _call(np.rint),
    ]


def _bins(edges: Sequence[int]) -> list[Any]:
    """Return steps from scaled numbers, or a projection's outputs, to bins; NaN becomes the code after the bins."""
    return [_call(np.nan_to_num, nan=float(_BEYOND)), _call(np.digitize, bins=[*edges, _BEYOND])]


def _projected(projection: Projection, *, as_codes: bool) -> list[Any]:
    """Return steps from scaled inputs, (rows, n), to the components, (rows, K): to their numbers, or to their bins."""
    from sklearn.compose import ColumnTransformer

    # The offsets are one more row of the matrix, for a column of ones. A power of two divides floats exactly.
    matrix = np.vstack([np.array(projection.matrix, np.float64).T, np.array(projection.offsets, np.float64)])
    low, high = ([getattr(part, end) for part in projection.components] for end in ("low", "high"))
    steps = [
        _call(np.pad, pad_width=((0, 0), (0, 1)), constant_values=1.0),
        _call(np.dot, b=matrix / (1 << projection.shift)),
        _call(np.floor),
        _call(np.clip, a_min=low, a_max=high),
    ]
    if as_codes:
        binned = [(f"bins {i}", _chain(_bins(part.edges)), [i]) for i, part in enumerate(projection.components)]
        steps.append(ColumnTransformer(binned))
    return steps
