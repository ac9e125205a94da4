"""A model as one JSON object, with everything that a program in any language needs to classify a record.

Source: docs/formats.md, section 5 (values of a record, features, projection, model); docs/math.md, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import SCALE
from protocol.documents.model import Model as ModelDocument
from protocol.projection import Projection

if TYPE_CHECKING:
    from aggregator.models.scoring import Model


FORMAT = 1
"""Version of the object's layout."""


def to_json(model: Model) -> dict[str, Any]:
    """The model as an object for :func:`json.dumps`. Run by the analyst.

    The score of a class c is log_prior[c], plus one term for each observed feature that is not missing:

        a table:   log_likelihood[code][c]
        a normal:  −½ ln(2πσ²) − (u/S − μ)²/(2σ²), with μ = mean[c], σ² = variance[c] and S = scale
        a truncated-normal:  the same minus ln Z, Z = ½ erf((1 − μ)/√(2σ²)) + ½ erf((1 + μ)/√(2σ²))

    The predicted class has the largest score. ``terms`` has one entry per observed feature: first the features outside
    the projection, then its components. Reading a parameter gives the same double again.

    Args:
        model: a model of any family, loaded or fitted in memory.
    """
    schema = model.schema
    terms = [
        {"feature": feature.name, **_term(term, is_truncated=model.is_truncated)}
        for feature, term in zip(schema.observed, model.terms, strict=True)
    ]
    return {
        "hearsay_model": FORMAT,
        "document": None if model.document is None else _origin(model.document),
        "label": schema.label.to_dict(),
        "scale": SCALE,
        "features": [feature.to_dict() for feature in schema.features],
        "projection": None if schema.projection is None else _projection(schema.projection),
        "log_prior": model.log_prior.tolist(),
        "terms": terms,
    }


def _origin(document: ModelDocument) -> dict[str, Any]:
    """The names by which the signed document of the model can be found again."""
    return {
        "name": document.header.name,
        "version": document.header.version,
        "campaign": document.campaign.hex(),
        "statistics_id": document.statistics_id.hex(),
    }


def _projection(projection: Projection) -> dict[str, Any]:
    """The projection with its matrix as rows of integers. Output i is (Σ_j matrix[i][j]·u_j + offsets[i]) >> shift."""
    return {
        **projection.to_dict(),
        "matrix": [list(row) for row in projection.matrix],
        "offsets": list(projection.offsets),
    }


def _term(term: Any, *, is_truncated: bool) -> dict[str, Any]:
    """One feature's parameters: a table, or mean and variance of u/S in every class."""
    if isinstance(term, tuple):
        mean, variance = term
        kind = "truncated-normal" if is_truncated else "normal"
        return {"kind": kind, "mean": mean.tolist(), "variance": variance.tolist()}
    return {"kind": "table", "log_likelihood": term.tolist()}
