"""Schema files: TOML text that defines label, features, bins and missing values. Written by the analyst.

    name = "mushrooms"                    # of the campaigns made from it

    [label]
    name = "class"
    classes = ["e", "p"]
    substitute = "e"                      # class that a record without label counts as; default: the first
    unlisted = "missing"                  # or "refuse", for development

    [[features]]
    name = "odor"
    kind = "categorical"
    values = ["a", "n", "f"]
    missing = "code"                      # a code of its own (default), or the listed value it counts as
    unlisted = "missing"                  # or "other", or "refuse"

    [[features]]
    name = "width"
    kind = "numeric"
    low = "0"                             # bounds: from public knowledge, never from private data; text or number
    high = "10"
    bins = 4                              # bins of equal width; or their inner edges: edges = [2.5, 5, 7.5]
    substitute = 5                        # number that a missing number counts as; default: (low + high)/2;
                                          # or: missing = "code", a code of its own

    [ask.odor]                            # what campaigns ask about, if not all (publishing/ask_table.py)
    groups = [["a", "f"]]

    [decision]                            # what design or refine decided, and why (publishing/decisions.py)
    by = "hearsay design"

Source of the rules: docs/math.md, section 3; docs/formats.md, section 5.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aggregator.common.files import read_file
from aggregator.common.notebooks import facts, table
from aggregator.publishing.ask_table import Ask, parse_ask
from aggregator.publishing.decisions import Decision, parse_decision
from protocol.documents.campaign import PilotCost, parse_pilots
from protocol.documents.payload import is_text
from protocol.errors import DocumentError, InputError
from protocol.features import MAX_VALUES, Categorical, Feature, Numeric, as_text, parse_bound
from protocol.schema import Label, Schema, build_schema

MISSING_HAS_CODE = "code"
MAX_FILE_BYTES = 4 << 20


class SchemaFile(NamedTuple):
    """The content of a schema file.

    ``ask``: what campaigns made from the file ask about; empty for all features. ``pilots``: private results of pilots
    that are part of the schema, with their cost. ``decision``: what ``hearsay design`` or ``refine`` decided, if used.
    """

    name: str
    schema: Schema
    ask: Ask = MappingProxyType({})
    pilots: tuple[PilotCost, ...] = ()
    decision: Decision = MappingProxyType({})

    def _repr_html_(self) -> str:
        label = self.schema.label
        about = {"name": self.name, "label": label.name, "classes": ", ".join(label.classes)}
        about["asked about"] = ", ".join(self.ask) or "all features"
        rows = [
            (each.name, f"{each.low} to {each.high}" if isinstance(each, Numeric) else "", each.size)
            for each in self.schema.features
        ]
        return facts("Schema", about) + table(("feature", "bounds", "codes"), rows)


def load_schema(path: str | Path) -> SchemaFile:
    """Read and parse a schema file. Raises the errors of :func:`.read_file` and :func:`parse_schema_text`."""
    raw = read_file(path, MAX_FILE_BYTES)
    problem = ""
    try:
        return parse_schema_text(raw.decode().removeprefix("\ufeff"))  # some editors begin a text with this mark
    except UnicodeDecodeError as error:
        problem = f"'{Path(path).name}' is not UTF-8 text (byte {error.start})"
    raise InputError("not_utf8", problem)


def parse_schema_text(text: str) -> SchemaFile:
    """Parse the text of a schema file.

    Raises InputError ``schema_invalid``: the text is not TOML, a key is unknown, missing or of another type, or
    parts contradict each other; ``label_is_feature``: a feature has the label's name.
    """
    body: dict[str, Any] = {}
    problem = ""
    try:
        body = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        problem = f"it is not TOML: {error}"
    except ArithmeticError:
        problem = "it holds a number that can not be read"
    if problem:
        raise InputError("schema_invalid", problem)
    where = "the schema"
    _check_keys(body, {"name", "label", "features", "ask", "pilots", "decision"}, where)
    features = _field(body, "features", list, where)
    if not all(isinstance(entry, dict) for entry in features):
        raise InputError("schema_invalid", "each feature is a table: [[features]]")
    label = _label(_field(body, "label", dict, where))
    ask = parse_ask(_field(body, "ask", dict, where)) if "ask" in body else {}
    schema = build_schema(label, [_feature(entry) for entry in features])
    decision = parse_decision(body["decision"]) if "decision" in body else {}
    return SchemaFile(_name(body, where), schema, ask, _pilots(body), decision)


def _pilots(body: dict[str, Any]) -> tuple[PilotCost, ...]:
    try:
        return parse_pilots(body)
    except DocumentError as error:
        problem = error.detail
    raise InputError("schema_invalid", problem)


def equal_width_edges(name: str, low: str, high: str, bins: int) -> list[int]:
    """Return integer edges of ``bins`` bins of equal width: edge j is the scaled value of low + j(high − low)/bins.

    Edges are rounded half to even, as a device scales numbers. ``name``: of the feature, for errors. ``low``, ``high``:
    its bounds, as decimal text.

    Raises InputError ``schema_invalid``: not 2 to :data:`MAX_VALUES` bins, or bounds that are no decimal text or not in
    order.
    """
    if type(bins) is not int or not 2 <= bins <= MAX_VALUES:
        raise InputError("schema_invalid", f"feature '{name}' needs 2 to {MAX_VALUES} bins")
    start, stop = Fraction(parse_bound(low)), Fraction(parse_bound(high))
    return _scaled_edges(name, low, high, [start + j * (stop - start) / bins for j in range(1, bins)])


def _scaled_edges(name: str, low: str, high: str, edges: list[Fraction]) -> list[int]:
    scale = Numeric(name, low, high, [0])
    return [scale.scale_ratio(edge.numerator, edge.denominator) for edge in edges]


def _label(entry: dict[str, Any]) -> Label:
    where = "the label"
    _check_keys(entry, {"name", "classes", "substitute", "unlisted"}, where)
    classes = _texts(entry, "classes", where)
    substitute = 0
    if "substitute" in entry:
        substitute = _position(entry["substitute"], classes, where)
    return Label(_name(entry, where), classes, substitute, entry.get("unlisted", "missing"))


def _feature(entry: dict[str, Any]) -> Feature:
    name = _name(entry, "a feature")
    kind = entry.get("kind")
    if kind == Categorical.kind:
        return _categorical(entry, name)
    if kind == Numeric.kind:
        return _numeric(entry, name)
    raise InputError("schema_invalid", f"feature '{name}': kind is categorical or numeric")


def _categorical(entry: dict[str, Any], name: str) -> Categorical:
    where = f"feature '{name}'"
    _check_keys(entry, {"name", "kind", "values", "missing", "unlisted"}, where)
    values = _texts(entry, "values", where)
    missing = entry.get("missing", MISSING_HAS_CODE)
    substitute = None if missing == MISSING_HAS_CODE else _position(missing, values, where)
    return Categorical(name, values, entry.get("unlisted", "missing"), substitute)


def _numeric(entry: dict[str, Any], name: str) -> Numeric:
    where = f"feature '{name}'"
    _check_keys(entry, {"name", "kind", "low", "high", "bins", "edges", "missing", "substitute", "unlisted"}, where)
    low, high = _decimal(entry, "low", where), _decimal(entry, "high", where)
    if ("bins" in entry) == ("edges" in entry):
        raise InputError("schema_invalid", f"{where}: state either bins or edges")
    if "bins" in entry:
        edges = equal_width_edges(name, low, high, entry["bins"])
    else:
        stated = _field(entry, "edges", list, where)
        exact = [Fraction(parse_bound(_number(edge, where))) for edge in stated]
        if not all(parse_bound(low) <= edge <= parse_bound(high) for edge in exact):
            raise InputError("schema_invalid", f"{where}: an edge is outside the bounds; leave it out, or widen them")
        edges = _scaled_edges(name, low, high, exact)
    substitute: int | None = 0
    if "missing" in entry:
        if entry["missing"] != MISSING_HAS_CODE or "substitute" in entry:
            raise InputError("schema_invalid", f"{where}: missing is code, and then there is no substitute")
        substitute = None
    elif "substitute" in entry:
        (substitute,) = _scaled_edges(name, low, high, [_within(entry, low, high, where)])
    return Numeric(name, low, high, edges, entry.get("unlisted", "missing"), substitute)


def _within(entry: dict[str, Any], low: str, high: str, where: str) -> Fraction:
    number = parse_bound(_decimal(entry, "substitute", where))
    if not parse_bound(low) <= number <= parse_bound(high):
        raise InputError("schema_invalid", f"{where}: the substitute is outside the bounds")
    return Fraction(number)


def _decimal(entry: dict[str, Any], key: str, where: str) -> str:
    if key not in entry:
        raise InputError("schema_invalid", f"{where}: '{key}' is missing")
    return _number(entry[key], where)


def _number(value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise InputError("schema_invalid", f"{where}: a number or its decimal text is needed")
    return str(value)


def _position(value: object, values: list[str], where: str) -> int:
    text = as_text(value)
    if text not in values:
        raise InputError("schema_invalid", f"{where}: the substitute is not one of the values it lists")
    return values.index(text)


def _texts(entry: dict[str, Any], key: str, where: str) -> list[str]:
    """Return the list of printable texts under ``key``. Integers and booleans become the texts that devices use."""
    texts = []
    for item in _field(entry, key, list, where):
        text = as_text(item)
        if text is None or not is_text(text, least=0):
            raise InputError(
                "schema_invalid", f"{where}: '{key}' is not a list of printable texts of at most 1024 bytes"
            )
        texts.append(text)
    return texts


def _name(entry: dict[str, Any], where: str) -> str:
    name: str = _field(entry, "name", str, where)
    if not is_text(name):
        raise InputError("schema_invalid", f"{where}: the name is empty, too long, or does not print")
    return name


def _field(entry: dict[str, Any], key: str, kind: type, where: str) -> Any:
    if type(entry.get(key)) is not kind:
        raise InputError("schema_invalid", f"{where}: '{key}' is missing or not a {_KINDS[kind]}")
    return entry[key]


_KINDS: dict[type, str] = {str: "text", list: "list", dict: "table"}


def _check_keys(entry: dict[str, Any], known: Collection[str], where: str) -> None:
    unknown = sorted(set(entry) - set(known))
    if unknown:
        raise InputError("schema_invalid", f"{where}: unknown key {unknown[0]!r}")


def toml_text(text: str) -> str:
    """Return a text as a TOML basic string. TOML has all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)


def toml_array(texts: Iterable[str]) -> str:
    """Return texts as a TOML array."""
    return f"[{', '.join(map(toml_text, texts))}]"
