"""From a record to integer codes: the label, the features, and how their names fit together.

A schema is part of a campaign, so it is the same on every device.
Source: docs/formats.md, section 5 (label, features); docs/math.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.document import read_field, read_text
from protocol.errors import DocumentError, InputError
from protocol.features import MAX_VALUES, Feature, as_text, parse_feature, read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_CLASSES = 256
MAX_FEATURES = 4096

_REASON = "invalid_campaign"


class Label:
    """What is to be predicted: the classes, and the class that an unlabelled record counts as.

    Attributes:
        name: key of the label in a record; never the name of a feature.
        classes: at least two, as text.
        substitute: code of the class that a missing or unlisted label takes.
        unlisted: ``missing`` or, for development only, ``refuse``.
    """

    __slots__ = ("_codes", "classes", "name", "substitute", "unlisted")

    def __init__(self, name: str, classes: Sequence[str], substitute: int = 0, unlisted: str = "missing") -> None:
        """Raises InputError ``schema_invalid``."""
        self.name = name
        self.classes = tuple(classes)
        self.substitute = substitute
        self.unlisted = unlisted
        self._codes = {value: code for code, value in enumerate(self.classes)}
        if not 2 <= len(self._codes) == len(self.classes) <= MAX_CLASSES:
            raise InputError("schema_invalid", f"a label has 2 to {MAX_CLASSES} distinct classes")
        if type(substitute) is not int or not 0 <= substitute < len(self.classes):
            raise InputError("schema_invalid", "the label's substitute is not one of its classes")
        if unlisted not in ("missing", "refuse"):
            raise InputError("schema_invalid", "the label's unlisted is missing or refuse")

    def known_code(self, value: object) -> int | None:
        """The code of a class; None if the label is missing or not one of the classes."""
        text = as_text(value)
        return None if text is None else self._codes.get(text)

    def code(self, value: object) -> int:
        """The code that a report uses.

        Raises:
            InputError: ``value_refused`` if ``unlisted`` is ``refuse``; never names the value.
        """
        code = self.known_code(value)
        if code is not None:
            return code
        if value is not None and self.unlisted == "refuse":
            raise InputError("value_refused", "the label is not one of the classes")
        return self.substitute

    def to_dict(self) -> dict[str, Any]:
        """As a campaign carries it."""
        return {
            "name": self.name,
            "classes": list(self.classes),
            "substitute": self.substitute,
            "unlisted": self.unlisted,
        }


class Schema(NamedTuple):
    """Label and features of a campaign. ``codes`` is all that the questions ever see of a record."""

    label: Label
    features: tuple[Feature, ...]

    def codes(self, record: Mapping[str, object]) -> tuple[int, ...]:
        """One code per feature. Keys that are no feature are ignored; absent ones are missing.

        Raises:
            InputError: ``record_invalid`` if the record is not a mapping; ``value_refused``.
        """
        check_record(record)
        return tuple(feature.code(record.get(feature.name)) for feature in self.features)


def check_record(record: object) -> None:
    """Refuse a record that is no mapping.

    Raises:
        InputError: ``record_invalid``.
    """
    if not hasattr(record, "get") or not hasattr(record, "keys"):
        raise InputError("record_invalid", "a record is a mapping from feature names to values")


def build_schema(label: Label, features: Sequence[Feature]) -> Schema:
    """A schema whose names fit together.

    Raises:
        InputError: ``schema_invalid``, ``label_is_feature``.
    """
    names = [feature.name for feature in features]
    if label.name in names:
        raise InputError("label_is_feature", f"'{label.name}' is both the label and a feature")
    if len(set(names)) != len(names) or not 1 <= len(names) <= MAX_FEATURES:
        raise InputError("schema_invalid", f"a schema has 1 to {MAX_FEATURES} features with distinct names")
    for feature in features:
        if feature.size * len(label.classes) > MAX_VALUES:
            raise InputError("schema_invalid", f"feature '{feature.name}' has too many values for one question")
    return Schema(label, tuple(features))


def parse_schema(body: dict[str, Any], reason: str = _REASON) -> Schema:
    """The schema of a campaign or model payload.

    Raises:
        DocumentError: with the given reason.
    """
    entry = read_field(body, "label", dict, reason)
    features = read_field(body, "features", list, reason)
    if not all(isinstance(feature, dict) for feature in features):
        raise DocumentError(reason, "a feature is not a map")
    problem = ""
    try:
        label = Label(
            read_text(entry, "name", reason),
            read_texts(entry, "classes", reason),
            read_field(entry, "substitute", int, reason),
            read_text(entry, "unlisted", reason),
        )
        return build_schema(label, [parse_feature(feature, reason) for feature in features])
    except InputError as error:
        problem = error.detail
    raise DocumentError(reason, problem)


def refusing(schema: Schema) -> tuple[str, ...]:
    """Names of the label and features whose unlisted values are refused, in order.

    Of any there are, the mere existence of a report tells something about the record, and no ε covers
    it: makers of campaigns are warned, and devices refuse unless their owner allows it.
    """
    parts = (schema.label, *schema.features)
    return tuple(part.name for part in parts if part.unlisted == "refuse")
