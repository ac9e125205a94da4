"""The schema: the label and the features of a campaign. It turns a record into integer codes.

A campaign carries its schema, so all devices have the same one. A schema may have a *projection*, which replaces many
numeric features by few *components*. It is linear with integer weights, so it gives equal results on every device:

    output_j = ⌊(Σ_i matrix_ji · u_i + offset_j) / 2^shift⌋, clipped to the bounds of component j

where u_i in [−S, S], S = 65536, is the scaled integer of input feature i. The constructor refuses weights whose sums
could leave 64 bits, so numpy's int64 and Python's integers give the same result.
Source: docs/formats.md, section 5 (label, features, projection); docs/math.md, sections 3 and 4.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from bisect import bisect_right
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from protocol import SCALE
from protocol.documents.payload import read_field, read_integer, read_text, read_texts
from protocol.errors import DocumentError, InputError
from protocol.features import (
    MAX_VALUES,
    Categorical,
    Feature,
    Grouped,
    Joined,
    Numeric,
    as_text,
    is_missing,
    parse_feature,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_SHIFT = 40
MAX_COMPONENTS = 1024
_LIMITS = {"<i4": (1 << 31) - 1, "<i8": (1 << 63) - 1}
_CODES = {"<i4": "i", "<i8": "q"}


class Component:
    """One output of a projection: a number between integer bounds, cut into bins.

    Attributes:
        name: name for people.
        low, high: integer bounds, −S ≤ low < high ≤ S with S = 65536; outputs are clipped to them.
        edges: strictly increasing integers in (low, high], at least one; there is one bin more than edges.
        has_missing: whether an output may be missing. It is missing if an input without a substitute is missing.
        size: number of codes: the bins, and one code for *missing* if ``has_missing``.
    """

    kind = "component"
    __slots__ = ("edges", "has_missing", "high", "low", "name", "size")

    def __init__(self, name: str, low: int, high: int, edges: Sequence[int], *, has_missing: bool = False) -> None:
        """Set the attributes of the class and check them: wrong ones are refused as ``projection_invalid``."""
        self.name = name
        self.low = low
        self.high = high
        self.edges = tuple(edges)
        self.has_missing = has_missing
        self.size = len(self.edges) + 1 + has_missing
        if not all(type(number) is int for number in (low, high, *self.edges)) or not -SCALE <= low < high <= SCALE:
            raise InputError("projection_invalid", f"component '{name}' has no bounds within ±{SCALE}")
        bounded = (low, *self.edges)
        if not self.edges or any(a >= b for a, b in zip(bounded, self.edges, strict=False)) or self.edges[-1] > high:
            raise InputError(
                "projection_invalid", f"component '{name}': the bin edges do not increase within its bounds"
            )

    def code_of(self, number: int | None) -> int:
        """Return the bin of the output ``number``.

        A missing output (None) has the last code, which needs ``has_missing``.
        """
        return self.size - 1 if number is None else bisect_right(self.edges, number)

    def labels(self) -> list[str]:
        """Return the name of every code, in order: the interval of each bin, and ``(missing)`` if that has a code."""
        ends = (self.low, *self.edges, self.high)
        bins = [f"[{a / SCALE:.4g}, {b / SCALE:.4g})" for a, b in itertools.pairwise(ends)]
        return [*bins, "(missing)"] if self.has_missing else bins

    def to_dict(self) -> dict[str, Any]:
        """Return the component as the dict that the payload of a campaign or model contains."""
        return {"name": self.name, "low": self.low, "high": self.high, "edges": list(self.edges)}


class Projection:
    """The projection of a campaign, with checked values. It has n inputs and K components.

    Attributes:
        inputs: indices in ``Schema.features`` of the projected numeric features, shape (n,), n ≥ 1, increasing.
        matrix: weights, shape (K, n), 32-bit integers.
        offsets: shape (K,), 64-bit integers.
        shift: sums are divided by 2^shift; 0 … 40.
        components: the K outputs, 1 … 1024, with distinct names.
    """

    __slots__ = ("components", "inputs", "matrix", "offsets", "shift")

    def __init__(
        self,
        inputs: Sequence[int],
        matrix: Sequence[Sequence[int]],
        offsets: Sequence[int],
        shift: int,
        components: Sequence[Component],
    ) -> None:
        """Set the attributes of the class to the arguments, and check them.

        Raises:
            InputError: ``projection_overflow``: a weight does not fit into 32 bits, or a sum could leave 64 bits;
                ``projection_invalid``: anything else is not as the attributes state.
        """
        self.inputs = tuple(inputs)
        self.matrix = tuple(tuple(row) for row in matrix)
        self.offsets = tuple(offsets)
        self.shift = shift
        self.components = tuple(components)
        self._check()

    def _check(self) -> None:
        if not 1 <= len(self.components) <= MAX_COMPONENTS or not self.inputs:
            raise InputError("projection_invalid", f"a projection has inputs and 1 to {MAX_COMPONENTS} components")
        if any(a >= b for a, b in zip(self.inputs, self.inputs[1:], strict=False)):
            raise InputError("projection_invalid", "the inputs of a projection are not in increasing order")
        if len({component.name for component in self.components}) != len(self.components):
            raise InputError("projection_invalid", "two components have one name")
        if not len(self.matrix) == len(self.offsets) == len(self.components):
            raise InputError("projection_invalid", "a projection has not one row and offset per component")
        if any(len(row) != len(self.inputs) for row in self.matrix) or not 0 <= self.shift <= MAX_SHIFT:
            raise InputError("projection_invalid", "a row has not one number per input, or the shift is out of range")
        for row, offset in zip(self.matrix, self.offsets, strict=True):
            if max(map(abs, row)) > _LIMITS["<i4"]:
                raise InputError("projection_overflow", "a weight does not fit into 32 bits")
            if sum(map(abs, row)) * SCALE + abs(offset) > _LIMITS["<i8"]:
                raise InputError("projection_overflow", "a sum could leave 64 bits")

    def apply(self, numbers: Sequence[int]) -> list[int]:
        """Return the output of each component for one record's scaled integers, one per input feature."""
        return [
            min(max((sum(map(mul, row, numbers)) + offset) >> self.shift, component.low), component.high)
            for row, offset, component in zip(self.matrix, self.offsets, self.components, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the projection as the dict that the payload of a campaign or model contains."""
        flat = [weight for row in self.matrix for weight in row]
        return {
            "inputs": list(self.inputs),
            "matrix": integer_array("<i4", flat, [len(self.components), len(self.inputs)]),
            "offsets": integer_array("<i8", self.offsets, [len(self.components)]),
            "shift": self.shift,
            "components": [component.to_dict() for component in self.components],
        }


def parse_projection(entry: dict[str, Any], reason: str, missing_inputs: frozenset[int]) -> Projection:
    """Read the projection of a campaign or model from the map that a payload carries.

    ``missing_inputs`` are indices of the features without a substitute for missing values. If one of them is an input,
    all components may be missing.

    Raises:
        DocumentError: with ``reason``: a field is missing or can not be read.
        InputError: as :class:`Projection` and :class:`Component`.
    """
    inputs = read_field(entry, "inputs", list, reason)
    parts = read_field(entry, "components", list, reason)
    if not all(type(index) is int for index in inputs) or not all(isinstance(part, dict) for part in parts):
        raise DocumentError(reason, "the projection's inputs or components can not be read")
    has_missing = not missing_inputs.isdisjoint(inputs)
    components = [_parse_component(part, reason, has_missing=has_missing) for part in parts]
    flat = read_integer_array(entry.get("matrix"), "<i4", [len(parts), len(inputs)], reason)
    width = len(inputs)
    matrix = [flat[start : start + width] for start in range(0, len(flat), width or 1)]
    offsets = read_integer_array(entry.get("offsets"), "<i8", [len(parts)], reason)
    return Projection(inputs, matrix, offsets, read_integer(entry, "shift", 0, MAX_SHIFT, reason), components)


def _parse_component(part: dict[str, Any], reason: str, *, has_missing: bool) -> Component:
    edges = read_field(part, "edges", list, reason)
    low, high = (read_integer(part, key, -SCALE, SCALE, reason) for key in ("low", "high"))
    return Component(read_text(part, "name", reason), low, high, edges, has_missing=has_missing)


def integer_array(kind: str, values: Sequence[int], shape: Sequence[int]) -> dict[str, Any]:
    """Encode integers, row by row, as a typed array of little-endian integers of 32 (``<i4``) or 64 bits (``<i8``).

    An integer that does not fit is an OverflowError. The shape is not compared with the number of values.
    """
    packed = array(_CODES[kind], values)
    if sys.byteorder == "big":
        packed.byteswap()
    return {"dt": kind, "sh": list(shape), "b": packed.tobytes()}


def read_integer_array(entry: object, kind: str, shape: Sequence[int], reason: str) -> list[int]:
    """Decode a typed array (:func:`integer_array`) of the given kind and shape. Return its integers, row by row.

    Raises:
        DocumentError: with the given reason: ``entry`` is no array of this kind and shape.
    """
    count = 1
    for side in shape:
        count *= side
    values = array(_CODES[kind])
    fits = isinstance(entry, dict) and set(entry) == {"dt", "sh", "b"} and isinstance(entry["b"], bytes)
    if not fits or entry["dt"] != kind or entry["sh"] != list(shape) or len(entry["b"]) != count * values.itemsize:  # type: ignore[index]
        raise DocumentError(reason, "a typed array is not of its kind and shape")
    values.frombytes(entry["b"])  # type: ignore[index]
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


MAX_CLASSES = 256
MAX_FEATURES = 4096

_REASON = "invalid_campaign"


class Label:
    """The label to predict: its classes, and the class of records without a label.

    Attributes:
        name: key of the label in a record; never the name of a feature.
        classes: 2 … 256 distinct texts.
        substitute: code of the class that stands for a missing or unlisted label.
        unlisted: what happens to a label that is not one of the classes: ``missing`` gives it the substitute;
            ``refuse``, for development only, refuses the record.
    """

    __slots__ = ("_codes", "classes", "name", "substitute", "unlisted")

    def __init__(self, name: str, classes: Sequence[str], substitute: int = 0, unlisted: str = "missing") -> None:
        """Set the attributes of the class and check them: wrong ones are refused as ``schema_invalid``."""
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
        """Return the code of the class ``value``, or None if ``value`` is missing or not one of the classes."""
        text = as_text(value)
        return None if text is None else self._codes.get(text)

    def knows(self, value: object) -> bool:
        """Return whether ``value`` is one of the classes."""
        return self.known_code(value) is not None

    def code(self, value: object) -> int:
        """Return the code of the label ``value``, or the substitute; it may be refused (``value_refused``)."""
        code = self.known_code(value)
        if code is not None:
            return code
        if self.unlisted == "refuse" and not is_missing(value):
            raise InputError("value_refused", "the label is not one of the classes")
        return self.substitute

    def to_dict(self) -> dict[str, Any]:
        """Return the label as the dict that the payload of a campaign or model contains."""
        return {
            "name": self.name,
            "classes": list(self.classes),
            "substitute": self.substitute,
            "unlisted": self.unlisted,
        }


class _FromRecord:
    """The type of :data:`FROM_RECORD`, an argument that stands for the record's own label."""

    def __repr__(self) -> str:
        return "<the record's own label>"


FROM_RECORD: Final = _FromRecord()
"""Default of every argument ``label``: the label is read from the record. None, in contrast, is a missing label."""


class Check(NamedTuple):
    """The names of what a schema can not read in one record. It holds no values.

    Attributes:
        missing: names of the features, and perhaps the label, without a value.
        unlisted: names of the features, and perhaps the label, with a value that can not be read: it is not one of the
            listed values or classes, or no number. Their own ``unlisted`` says whether a report codes or refuses it.
        ignored: number of the record's keys that are neither a feature nor the label.
        hints: one sentence per feature or label with a probable mistake; see :func:`protocol.words.hint`.
    """

    missing: tuple[str, ...]
    unlisted: tuple[str, ...]
    ignored: int
    hints: tuple[str, ...] = ()


class Observation(NamedTuple):
    """The codes and numbers of a record, one entry per observed feature. Questions use nothing else of the record.

    Attributes:
        codes: the value codes.
        numbers: the scaled integer u of a number, or the substitute of a missing one; None for a categorical feature,
            and for a missing number without a substitute.
        numeric_places: indices of the numeric features among the observed ones.
    """

    codes: tuple[int, ...]
    numbers: tuple[int | None, ...]
    numeric_places: tuple[int, ...]

    @property
    def numeric(self) -> list[int | None]:
        """The entries of ``numbers`` that belong to numeric features, in order. One may be None (a missing number)."""
        return [self.numbers[place] for place in self.numeric_places]


class Schema(NamedTuple):
    """Label, features and projection of a campaign.

    Questions and models are about the *observed* features: the features that are not projected, in order, and then the
    components of the projection. Two or three of them may be *joined*: observed as one feature, after all single ones.

    Attributes:
        features: all features that a device reads of a record.
        projection: the projection, or None if there is none.
        groups: per feature of ``ungrouped`` the group of each of its codes, or None for a feature without groups; empty
            if no feature has groups. The codes of one group are asked about as one.
        asked_as: per observed feature the indices in ``ungrouped`` of what it is made of; empty if each feature of
            ``ungrouped`` is observed, and nothing is joined (:attr:`parts`).
    """

    label: Label
    features: tuple[Feature, ...]
    projection: Projection | None = None
    groups: tuple[tuple[int, ...] | None, ...] = ()
    asked_as: tuple[tuple[int, ...], ...] = ()

    @property
    def ungrouped(self) -> tuple[Feature | Component, ...]:
        """The observed features with all their codes, as if there were no groups and no joins."""
        if self.projection is None:
            return self.features
        return (*(self.features[index] for index in self.kept), *self.projection.components)

    @property
    def single(self) -> tuple[Feature | Component | Grouped, ...]:
        """The features of ``ungrouped``. A feature with groups is a :class:`Grouped`, whose codes are the groups."""
        if not self.groups:
            return self.ungrouped
        return tuple(
            feature if groups is None else _grouped(feature, groups)
            for feature, groups in zip(self.ungrouped, self.groups, strict=True)
        )

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Per observed feature the indices in ``ungrouped`` of what it is made of: one, or those of a join."""
        return self.asked_as or tuple((index,) for index in range(len(self.ungrouped)))

    @property
    def joins(self) -> tuple[tuple[int, ...], ...]:
        """The entries of ``parts`` with several indices."""
        return tuple(part for part in self.asked_as if len(part) > 1)

    @property
    def observed(self) -> tuple[Feature | Component | Grouped | Joined, ...]:
        """The observed features: some or all of ``single``, then a :class:`Joined` for each join."""
        single = self.single
        if not self.asked_as:
            return single
        return tuple(
            single[part[0]] if len(part) == 1 else _joined(tuple(single[index] for index in part))
            for part in self.asked_as
        )

    @property
    def numeric(self) -> tuple[int, ...]:
        """Indices in ``observed`` of the numeric features and the components, without joins."""
        single = self.ungrouped
        if not self.asked_as:
            return tuple(index for index, feature in enumerate(single) if not isinstance(feature, Categorical))
        return tuple(
            place
            for place, part in enumerate(self.asked_as)
            if len(part) == 1 and not isinstance(single[part[0]], Categorical)
        )

    @property
    def kept(self) -> tuple[int, ...]:
        """Indices in ``features`` of the features that are not projected."""
        inputs = frozenset(() if self.projection is None else self.projection.inputs)
        return tuple(index for index in range(len(self.features)) if index not in inputs)

    def observe(self, record: Mapping[str, object]) -> Observation:
        """Return the codes and numbers of a record for a report. A feature that the record lacks is missing.

        Raises:
            InputError: ``record_invalid``: the record is not a mapping; ``value_refused``: a value is unlisted and its
                feature refuses such values.
        """
        check_record(record)
        return self.observation([feature.reading(record.get(feature.name)) for feature in self.features])

    def observation(self, readings: Sequence[tuple[int, int | None]]) -> Observation:
        """Return the codes and numbers of a record from code and scaled integer u of its value for each feature."""
        if self.projection is not None:
            readings = self._project(readings)
        if self.groups:
            readings = [_in_group(reading, groups) for reading, groups in zip(readings, self.groups, strict=True)]
        if self.asked_as:
            readings = [reading for reading in self._combined(readings) if reading is not None]  # every one has a code
        codes = tuple(code for code, _ in readings)
        return Observation(codes, tuple(number for _, number in readings), self.numeric)

    def label_in(self, record: Mapping[str, object], label: object = FROM_RECORD) -> object:
        """Return the record's label: ``label`` if it is given, else the value in the record, or None if it has none."""
        check_record(record)
        return record.get(self.label.name) if label is FROM_RECORD else label

    def check(self, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Return which features of a record are missing or unlisted, with hints. Nothing is reported or stored.

        ``label`` is the record's class, None if it is not known; by default it is read from the record.
        """
        from protocol.words import hint  # imported here, because reports need no hints

        hints = (hint(part, value) for part, value in self._values(record, label))
        return self.unread(record, label)._replace(hints=tuple(filter(None, hints)))

    def _values(self, record: Mapping[str, object], label: object) -> list[tuple[Label | Feature, object]]:
        """Return pairs: the label, or a feature, and its value in a record."""
        given = self.label_in(record, label)
        return [(self.label, given), *((feature, record.get(feature.name)) for feature in self.features)]

    def unread(self, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Return which features of a record are missing or unlisted, without hints: fast enough for every report.

        The arguments and errors are those of :meth:`check`.
        """
        values = self._values(record, label)
        unknown = [(part.name, value) for part, value in values if not part.knows(value)]
        return Check(
            missing=tuple(name for name, value in unknown if is_missing(value)),
            unlisted=tuple(name for name, value in unknown if not is_missing(value)),
            ignored=len(set(record.keys()) - {part.name for part, _ in values}),
        )

    def _project(self, readings: Sequence[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
        """Turn the readings (code, scaled integer u) of all features into readings of the observed features."""
        outputs = self._outputs([number for _, number in readings])
        return [*(readings[index] for index in self.kept), *((part.code_of(n), n) for part, n in outputs)]

    def _outputs(self, numbers: Sequence[int | None]) -> list[tuple[Component, int | None]]:
        """Return each component with its output for the numbers of all features, None if an input has no number."""
        projection = self.projection
        assert projection is not None
        inputs = [numbers[index] for index in projection.inputs]
        present = [number for number in inputs if number is not None]
        outputs: Sequence[int | None] = [None] * len(projection.components)
        if len(present) == len(inputs):
            outputs = projection.apply(present)
        return list(zip(projection.components, outputs, strict=True))

    def recognise(self, record: Mapping[str, object]) -> list[tuple[int, int | None] | None]:
        """Return code and scaled integer u of every observed feature for classification.

        An entry is None where classification leaves the feature out. It does so for a missing value, for an unlisted
        value of a feature without a code *other*, and for a component with such an input. Substitutes are not used, and
        no value is refused.
        """
        check_record(record)
        known: list[tuple[int, int | None] | None] = [part.known(record.get(part.name)) for part in self.features]
        if self.projection is not None:
            outputs = self._outputs([None if reading is None else reading[1] for reading in known])
            parts = (None if n is None else (part.code_of(n), n) for part, n in outputs)
            known = [*(known[index] for index in self.kept), *parts]
        if self.groups:
            pairs = zip(known, self.groups, strict=True)
            known = [None if reading is None else _in_group(reading, groups) for reading, groups in pairs]
        return self._combined(known) if self.asked_as else known

    def _combined(self, single: Sequence[tuple[int, int | None] | None]) -> list[tuple[int, int | None] | None]:
        """Turn readings of the features of ``single`` into readings of the observed features."""
        found = []
        for part, feature in zip(self.parts, self.observed, strict=True):
            reading = single[part[0]]
            if isinstance(feature, Joined):
                code = feature.code([None if each is None else each[0] for each in (single[index] for index in part)])
                reading = None if code is None else (code, None)
            found.append(reading)
        return found


def _in_group(reading: tuple[int, int | None], groups: tuple[int, ...] | None) -> tuple[int, int | None]:
    """Return a reading with its code replaced by the code's group. It is unchanged if ``groups`` is None."""
    return reading if groups is None else (groups[reading[0]], reading[1])


@lru_cache(maxsize=4096)
def _grouped(feature: Feature | Component, groups: tuple[int, ...]) -> Grouped:
    """Return the feature in groups. The result is cached, because programs ask for each feature many times."""
    return Grouped(feature.name, feature.labels(), groups, missing_code(feature))


_joined = lru_cache(maxsize=4096)(Joined)


def missing_code(feature: Feature | Component | Grouped | Joined) -> int | None:
    """Return the code that only missing values of ``feature`` have.

    The result is None if its values are never missing, or if missing values share a group with other values.
    """
    if isinstance(feature, (Grouped, Joined)):
        return feature.missing_code
    if not may_be_missing(feature):
        return None
    return feature.code_of(None) if isinstance(feature, Component) else feature.missing_code


def may_be_missing(feature: Feature | Component) -> bool:
    """Return whether a record may have no value for ``feature`` after substitution.

    This is so for a feature without a substitute for missing values, and for a component with such an input.
    """
    return feature.has_missing if isinstance(feature, Component) else feature.substitute is None


def check_record(record: object) -> None:
    """Refuse (``record_invalid``) a record that is no mapping: it lacks the method ``get`` or ``keys``."""
    if not hasattr(record, "get") or not hasattr(record, "keys"):
        raise InputError("record_invalid", "a record is a mapping from feature names to values")


def build_schema(label: Label, features: Sequence[Feature], projection: Projection | None = None) -> Schema:
    """Make a schema and check that label, features and projection fit together.

    Raises:
        InputError: ``label_is_feature``: the label has the name of a feature; ``schema_invalid``: no features, more
            than 4096, two with one name, or an observed feature with more than 65536 codes times classes;
            ``projection_invalid``: an input is no numeric feature, or a component has the name of a feature that is not
            projected or a ``has_missing`` that contradicts the inputs.
    """
    names = [feature.name for feature in features]
    if label.name in names:
        raise InputError("label_is_feature", f"'{label.name}' is both the label and a feature")
    if len(set(names)) != len(names) or not 1 <= len(names) <= MAX_FEATURES:
        raise InputError("schema_invalid", f"a schema has 1 to {MAX_FEATURES} features with distinct names")
    if projection is not None:
        _check_projection(projection, features)
    schema = Schema(label, tuple(features), projection)
    for feature in schema.observed:
        if feature.size * len(label.classes) > MAX_VALUES:
            raise InputError("schema_invalid", f"feature '{feature.name}' has too many values for one question")
    return schema


def _check_projection(projection: Projection, features: Sequence[Feature]) -> None:
    """Check that inputs are numeric features, that ``has_missing`` follows from them, and that names are distinct."""
    if projection.inputs[0] < 0 or projection.inputs[-1] >= len(features):
        raise InputError("projection_invalid", "an input of the projection is not a feature")
    inputs = [features[index] for index in projection.inputs]
    if not all(isinstance(feature, Numeric) for feature in inputs):
        raise InputError("projection_invalid", "an input of the projection is not a number")
    may_miss = any(feature.substitute is None for feature in inputs)
    if any(component.has_missing != may_miss for component in projection.components):
        raise InputError("projection_invalid", "a component may be missing just if one of its inputs may")
    names = {feature.name for index, feature in enumerate(features) if index not in projection.inputs}
    if not names.isdisjoint(component.name for component in projection.components):
        raise InputError("projection_invalid", "a component has the name of a feature")


def parse_schema(body: dict[str, Any], reason: str = _REASON) -> Schema:
    """Read the schema, with the projection, from the payload ``body``; DocumentErrors have the given reason."""
    entry = read_field(body, "label", dict, reason)
    features = read_field(body, "features", list, reason)
    if not all(isinstance(feature, dict) for feature in features):
        raise DocumentError(reason, "a feature is not a map")
    if "projection" not in body:
        raise DocumentError(reason, "'projection' is missing")
    problem = ""
    try:
        label = Label(
            read_text(entry, "name", reason),
            read_texts(entry, "classes", reason),
            read_field(entry, "substitute", int, reason),
            read_text(entry, "unlisted", reason),
        )
        parsed = [parse_feature(feature, reason) for feature in features]
        projection = None
        if body["projection"] is not None:
            missing = frozenset(index for index, feature in enumerate(parsed) if feature.substitute is None)
            projection = parse_projection(read_field(body, "projection", dict, reason), reason, missing)
        return build_schema(label, parsed, projection)
    except InputError as error:
        problem = error.detail
    raise DocumentError(reason, problem)


def refusing(schema: Schema) -> tuple[str, ...]:
    """Return the names of the label and the features of ``schema`` that refuse unlisted values, in order.

    The existence of a report then tells something about the record, and no ε covers that. So devices refuse campaigns
    with such a schema unless their owner allows them.
    """
    parts = (schema.label, *schema.features)
    return tuple(part.name for part in parts if part.unlisted == "refuse")
