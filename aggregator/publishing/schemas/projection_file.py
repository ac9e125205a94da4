"""Projection files: a fitted projection in integers, as JSON that an analyst can read and pass on.

The integers apply to numbers scaled by the bounds of their feature; with other bounds they would give other outputs
without any error. So the file holds the bounds, and loading compares them with the schema's. Source: docs/formats.md,
section 5 (projection) and section 7 (the file).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregator.common.files import read_file
from protocol.documents.campaign import PilotCost, parse_pilots, pilot_fields
from protocol.documents.payload import is_text
from protocol.errors import DocumentError, InputError
from protocol.features import Numeric
from protocol.schema import Component, Projection, Schema, build_schema, may_be_missing

if TYPE_CHECKING:
    from aggregator.models.reduction import Reduction


FORMAT = "hearsay projection 1"
MAX_FILE_BYTES = 16 << 20
_MAX_DIGITS = 20


def reduction_facts(reduction: Reduction, method: str, rows: int) -> dict[str, Any]:
    """Return facts about how a projection was fitted by ``method`` to a pilot of ``rows`` records."""
    return {
        "method": method,
        "pilot_rows": rows,
        "explained": [round(float(share), 6) for share in reduction.directions.explained],
        "discriminant": [round(float(power), 6) for power in reduction.directions.discriminant],
        "clipped": [round(float(share), 6) for share in reduction.clipped],
        "worst_error": float(f"{reduction.worst_error:.3g}"),
    }


def projection_text(schema: Schema, facts: Mapping[str, Any], pilots: Sequence[PilotCost] = ()) -> str:
    """Return the text of a projection file: ``facts`` about the fit in the types of JSON, ``pilots`` if private."""
    projection = schema.projection
    assert projection is not None
    body = {
        "format": FORMAT,
        "features": [_identity(schema, index) for index in projection.inputs],
        "inputs": list(projection.inputs),
        "matrix": [list(row) for row in projection.matrix],
        "offsets": list(projection.offsets),
        "shift": projection.shift,
        "components": [component.to_dict() for component in projection.components],
        **pilot_fields(pilots),
        "facts": dict(facts),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in body.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _identity(schema: Schema, index: int) -> dict[str, Any] | None:
    """Return the properties of a feature on which the projection's integers depend; None if it is not numeric."""
    feature = schema.features[index] if 0 <= index < len(schema.features) else None
    if not isinstance(feature, Numeric):
        return None
    low, high, missing = feature.low, feature.high, may_be_missing(feature)
    return {"name": feature.name, "low": low, "high": high, "may_be_missing": missing}


def load_projection(path: str | Path, schema: Schema) -> Schema:
    """Read a projection file, and return ``schema`` with its projection added (:func:`parse_projection_text`)."""
    return parse_projection_text(read_file(path, MAX_FILE_BYTES), schema)


def parse_projection_text(raw: bytes, schema: Schema) -> Schema:
    """Parse the bytes of a projection file, and return ``schema`` with the projection added.

    Raises InputError ``projection_invalid``: no projection file, or parts that do not fit; ``projection_overflow``: a
    weight exceeds 32 bits or a sum 64; ``projection_mismatch``: other features or bounds; ``schema_invalid``.
    """
    body = _body(raw)
    inputs = _integers(body, "inputs")
    identities = _list(body, "features")
    if not all(0 <= index < len(schema.features) for index in inputs):
        raise InputError("projection_mismatch", f"'inputs' names a feature beyond the schema's {len(schema.features)}")
    if len(identities) != len(inputs) or identities != [_identity(schema, index) for index in inputs]:
        raise InputError(
            "projection_mismatch", "the projection was fitted to features of other names, order or bounds; fit it again"
        )
    has_missing = any(may_be_missing(schema.features[index]) for index in inputs)
    components = [_component(entry, has_missing=has_missing) for entry in _list(body, "components")]
    matrix = [_integers({"matrix": row}, "matrix") for row in _list(body, "matrix")]
    (shift,) = _integers({"shift": [body.get("shift")]}, "shift")
    projection = Projection(inputs, matrix, _integers(body, "offsets"), shift, components)
    return build_schema(schema.label, schema.features, projection)


def load_pilots(path: str | Path) -> tuple[PilotCost, ...]:
    """Read what a projection cost the people of its pilot; empty if it cost no ε. Raises ``projection_invalid``."""
    try:
        return parse_pilots(_body(read_file(path, MAX_FILE_BYTES)))
    except DocumentError as error:
        problem = error.detail
    raise InputError("projection_invalid", problem)


def _body(raw: bytes) -> dict[str, Any]:
    body: object = None
    with suppress(ValueError, RecursionError):  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        body = json.loads(raw.decode(), parse_int=_integer)
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise InputError("projection_invalid", f"it is no file of the format '{FORMAT}'")
    return body


def _integer(text: str) -> int:
    """Return the integer of a text. A text longer than any field can hold is refused, because parsing it takes long."""
    if len(text) > _MAX_DIGITS:
        raise ValueError
    return int(text)


def _list(body: Mapping[str, Any], key: str) -> list[Any]:
    if type(body.get(key)) is not list:
        raise InputError("projection_invalid", f"'{key}' is not a list")
    found: list[Any] = body[key]
    return found


def _integers(body: Mapping[str, Any], key: str) -> list[int]:
    found = _list(body, key)
    if not all(type(number) is int for number in found):
        raise InputError("projection_invalid", f"'{key}' holds something that is no whole number")
    return found


def _component(entry: object, *, has_missing: bool) -> Component:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not is_text(entry["name"]):
        raise InputError("projection_invalid", "a component has no name that prints")
    low, high = _integers({"bounds": [entry.get("low"), entry.get("high")]}, "bounds")
    return Component(entry["name"], low, high, _integers(entry, "edges"), has_missing=has_missing)
