"""A schema as the text of a schema file, which reads back as the same schema.

:mod:`aggregator.schema_file` describes the form. A projection is not part of a schema file.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from aggregator.ask_table import ask_text
from aggregator.schema_file import MISSING_HAS_CODE
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Categorical, Numeric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.schema_file import SchemaFile
    from protocol.features import Feature

_MOST_DIGITS = 40


def schema_text(file: SchemaFile) -> str:
    """The schema, its name and what campaigns ask about, as TOML.

    Raises:
        InputError: ``schema_invalid``: the schema has a projection, which a schema file can not hold.
    """
    schema = file.schema
    if schema.projection is not None:
        raise InputError("schema_invalid", "a schema file holds no projection")
    label = schema.label
    lines = [
        f"name = {_quote(file.name)}",
        "",
        "[label]",
        f"name = {_quote(label.name)}",
        f"classes = {_array(label.classes)}",
        f"substitute = {_quote(label.classes[label.substitute])}",
        f"unlisted = {_quote(label.unlisted)}",
    ]
    for feature in schema.features:
        lines += ["", "[[features]]", f"name = {_quote(feature.name)}", f"kind = {_quote(feature.kind)}"]
        lines += _categorical(feature) if isinstance(feature, Categorical) else _numeric(feature)
        lines.append(f"unlisted = {_quote(feature.unlisted)}")
    return "\n".join(lines) + "\n" + ask_text(file.ask)


def _categorical(feature: Categorical) -> list[str]:
    missing = MISSING_HAS_CODE if feature.substitute is None else feature.values[feature.substitute]
    return [f"values = {_array(feature.values)}", f"missing = {_quote(missing)}"]


def _numeric(feature: Feature) -> list[str]:
    assert isinstance(feature, Numeric)
    edges = ", ".join(_number(feature, edge) for edge in feature.edges)
    found = [f"low = {_quote(feature.low)}", f"high = {_quote(feature.high)}", f"edges = [{edges}]"]
    if feature.substitute is None:
        return [*found, f"missing = {_quote(MISSING_HAS_CODE)}"]
    return [*found, f"substitute = {_number(feature, feature.substitute)}"]


def _number(feature: Numeric, scaled: int) -> str:
    """The shortest decimal number between the bounds that a device scales to the integer ``scaled``."""
    low, high = Fraction(feature.low), Fraction(feature.high)
    exact = low + (high - low) * Fraction(scaled + SCALE, 2 * SCALE)
    for digits in range(_MOST_DIGITS):
        rounded = Fraction(round(exact * 10**digits), 10**digits)
        back = feature.scale_ratio(rounded.numerator, rounded.denominator)
        if back == scaled and low <= rounded <= high:
            return format(Decimal(rounded.numerator * 10**digits // rounded.denominator).scaleb(-digits), "f")
    raise InputError("schema_invalid", f"feature '{feature.name}': an edge has too many digits")


def _quote(text: str) -> str:
    """A TOML basic string. TOML has all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _array(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"
