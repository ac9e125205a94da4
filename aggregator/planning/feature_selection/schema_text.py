"""Write a schema as the text of a schema file. Reading that file gives the same schema; it holds no projection."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from aggregator.publishing.ask_table import Ask
from aggregator.publishing.decisions import decision_text
from aggregator.publishing.schemas.schema_file import MISSING_HAS_CODE, SchemaFile, toml_array, toml_text
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Categorical, Feature, Numeric

_MOST_DIGITS = 40


def schema_text(file: SchemaFile) -> str:
    """Return a schema file as TOML text, with all its tables. Raises ``schema_invalid`` for a projection."""
    schema = file.schema
    if schema.projection is not None:
        raise InputError("schema_invalid", "a schema file holds no projection")
    label = schema.label
    lines = [
        f"name = {toml_text(file.name)}",
        "",
        "[label]",
        f"name = {toml_text(label.name)}",
        f"classes = {toml_array(label.classes)}",
        f"substitute = {toml_text(label.classes[label.substitute])}",
        f"unlisted = {toml_text(label.unlisted)}",
    ]
    for feature in schema.features:
        lines += ["", "[[features]]", f"name = {toml_text(feature.name)}", f"kind = {toml_text(feature.kind)}"]
        lines += _categorical(feature) if isinstance(feature, Categorical) else _numeric(feature)
        lines.append(f"unlisted = {toml_text(feature.unlisted)}")
    for one in file.pilots:
        lines += ["", "[[pilots]]", f"what = {toml_text(one.what)}", f"epsilon_micro = {one.epsilon_micro}"]
        lines += [f"{key} = {toml_text(getattr(one, key))}" for key in ("delta", "adjacency", "budget")]
    return "\n".join(lines) + "\n" + ask_text(file.ask) + decision_text(file.decision)


def ask_text(ask: Ask) -> str:
    """Return the table ``[ask]`` as TOML, to be appended to the text of a schema file; empty if ``ask`` is empty."""
    lines: list[str] = []
    for name, one in ask.items():
        lines.append(f"\n[ask.{toml_text(name)}]")
        if one.groups:
            lines.append(f"groups = [{', '.join(map(toml_array, one.groups))}]")
        if one.bins:
            lines.append(f"bins = [{', '.join(map(str, one.bins))}]")
        if one.share != 1:
            lines.append(f"share = {one.share}")
    return "".join(f"{line}\n" for line in lines)


def _categorical(feature: Categorical) -> list[str]:
    missing = MISSING_HAS_CODE if feature.substitute is None else feature.values[feature.substitute]
    return [f"values = {toml_array(feature.values)}", f"missing = {toml_text(missing)}"]


def _numeric(feature: Feature) -> list[str]:
    assert isinstance(feature, Numeric)
    edges = ", ".join(_number(feature, edge) for edge in feature.edges)
    found = [f"low = {toml_text(feature.low)}", f"high = {toml_text(feature.high)}", f"edges = [{edges}]"]
    if feature.substitute is None:
        return [*found, f"missing = {toml_text(MISSING_HAS_CODE)}"]
    return [*found, f"substitute = {_number(feature, feature.substitute)}"]


def _number(feature: Numeric, scaled: int) -> str:
    """Return the shortest decimal number between the bounds that a device scales to the integer ``scaled``."""
    low, high = Fraction(feature.low), Fraction(feature.high)
    exact = low + (high - low) * Fraction(scaled + SCALE, 2 * SCALE)
    for digits in range(_MOST_DIGITS):
        rounded = Fraction(round(exact * 10**digits), 10**digits)
        back = feature.scale_ratio(rounded.numerator, rounded.denominator)
        if back == scaled and low <= rounded <= high:
            return format(Decimal(rounded.numerator * 10**digits // rounded.denominator).scaleb(-digits), "f")
    raise InputError("schema_invalid", f"feature '{feature.name}': an edge has too many digits")
