"""The model: class and value probabilities in a signed document, and the statistics they came from.

Source: docs/formats.md, section 5 (model). Made by the aggregator, scored by the device.
"""

from __future__ import annotations

import sys
from array import array
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical
from protocol.document import HEADER_KEYS, Header, read_field, read_payload, read_text
from protocol.errors import DocumentError
from protocol.schema import Schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

_REASON = "invalid_model"
_DIGEST_BYTES = 32
UNDERSTOOD = frozenset(
    (
        *HEADER_KEYS,
        "campaign",
        "card",
        "family",
        "features",
        "label",
        "parameters",
        "previous",
        "projection",
        "statistics_id",
    )
)


class DiscreteModel(NamedTuple):
    """A discrete Naive Bayes model whose values were checked.

    Attributes:
        header: name, version and dates.
        campaign: id of the campaign whose reports made it.
        schema: label and features, as in that campaign.
        log_prior: shape (k,), log P(class).
        log_likelihood: per feature, rows by value code, each of shape (k,): log P(code | class).
        statistics_id: SHA-256 of the tally's bytes.
        previous: digest of the model it replaces, or None.
        card: facts about how it was made.
    """

    header: Header
    campaign: bytes
    schema: Schema
    log_prior: tuple[float, ...]
    log_likelihood: tuple[tuple[tuple[float, ...], ...], ...]
    statistics_id: bytes
    previous: bytes | None
    card: dict[str, Any]


def float_array(values: Sequence[float], shape: Sequence[int]) -> dict[str, Any]:
    """A typed array of 32-bit floats, little-endian, row by row."""
    packed = array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return {"dt": "<f4", "sh": list(shape), "b": packed.tobytes()}


def read_float_array(entry: object, shape: Sequence[int]) -> tuple[float, ...]:
    """The numbers of a typed array of just this shape, all finite.

    Raises:
        DocumentError: ``invalid_model``.
    """
    count = 1
    for side in shape:
        count *= side
    if (
        not isinstance(entry, dict)
        or set(entry) != {"dt", "sh", "b"}
        or entry["dt"] != "<f4"
        or entry["sh"] != list(shape)
        or not isinstance(entry["b"], bytes)
        or len(entry["b"]) != 4 * count
    ):
        raise DocumentError(_REASON, "a parameter is not an array of 32-bit floats of its shape")
    values = array("f")
    values.frombytes(entry["b"])
    if sys.byteorder == "big":
        values.byteswap()
    if not all(map(isfinite, values)):
        raise DocumentError(_REASON, "a parameter is not a finite number")
    return tuple(values)


def build_payload(model: DiscreteModel) -> bytes:
    """The payload of a model. Run by the aggregator.

    Raises:
        DocumentError: ``invalid_model``, as a device would refuse it.
    """
    classes = len(model.log_prior)
    payload = canonical.pack(
        {
            **model.header.to_dict(),
            "campaign": model.campaign,
            "family": "discrete",
            "label": model.schema.label.to_dict(),
            "features": [feature.to_dict() for feature in model.schema.features],
            "projection": None,
            "parameters": {
                "log_prior": float_array(model.log_prior, [classes]),
                "log_likelihood": [
                    float_array([value for row in table for value in row], [len(table), classes])
                    for table in model.log_likelihood
                ],
            },
            "statistics_id": model.statistics_id,
            "previous": model.previous,
            "card": model.card,
        }
    )
    parse_model(payload)
    return payload


def parse_model(payload: bytes) -> DiscreteModel:
    """Parse a verified payload and check all its values.

    Raises:
        DocumentError: ``malformed``, ``invalid_model``.
    """
    body, header = read_payload(payload)
    schema = parse_schema(body, _REASON)
    if read_text(body, "family", _REASON) != "discrete" or body.get("projection", b"") is not None:
        raise DocumentError(_REASON, "its family or projection is not one that this software knows")
    parameters = read_field(body, "parameters", dict, _REASON)
    tables = read_field(parameters, "log_likelihood", list, _REASON)
    classes = len(schema.label.classes)
    if len(tables) != len(schema.features):
        raise DocumentError(_REASON, "it has not one table per feature")
    return DiscreteModel(
        header=header,
        campaign=_digest(body, "campaign"),
        schema=schema,
        log_prior=read_float_array(parameters.get("log_prior"), [classes]),
        log_likelihood=tuple(
            _rows(read_float_array(table, [feature.size, classes]), classes)
            for table, feature in zip(tables, schema.features, strict=True)
        ),
        statistics_id=_digest(body, "statistics_id"),
        previous=None if body.get("previous", b"") is None else _digest(body, "previous"),
        card=read_field(body, "card", dict, _REASON),
    )


def _rows(values: tuple[float, ...], width: int) -> tuple[tuple[float, ...], ...]:
    return tuple(values[start : start + width] for start in range(0, len(values), width))


def _digest(body: dict[str, Any], key: str) -> bytes:
    digest: bytes = read_field(body, key, bytes, _REASON)
    if len(digest) != _DIGEST_BYTES:
        raise DocumentError(_REASON, f"'{key}' is not a SHA-256 digest")
    return digest
