"""Add up a node's records into exact sums, one record at a time, in memory that does not grow with them.

The sums are secret: only noisy sums leave the node. Sources: docs/math.md, section 5; docs/formats.md, section 6.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.node.smooth import CELLS, cell_of
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Numeric, is_missing
from protocol.questions import CELL, CLASS, PRESENT, SQUARE
from protocol.schema import FROM_RECORD, check_record
from protocol.words import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from protocol.features import Feature
    from protocol.questions import Subject
    from protocol.schema import Label, Schema

    Reading = tuple[int, int | None]

BLOCK = 10_000
"""Number of records between two calls of ``progress``."""
_REMEMBERED = 1 << 16
"""Most values whose readings (codes and scaled numbers) are kept in memory, over all features."""
_MOST_CHARACTERS = 64
"""Longest text whose reading is kept."""
_LARGEST = 1 << 63
_MOST_HINTS = 4
"""Most hints per feature."""
_LOOKS = 1000
"""Number of values per feature that are searched for probable mistakes."""
_KEPT = frozenset((str, int, float))
"""Types of values whose readings are kept."""
_MISSING, _UNLISTED = 1, 2


class Unread(NamedTuple):
    """Counts of missing and unlisted values, for the node's owner. They are private and never leave the node.

    Attributes:
        records: number of records that were read.
        missing: feature (or label) → number of records without a value of it.
        unlisted: feature (or label) → number of records whose value the campaign can not read.
        hints: sentences on probable mistakes in values. They name features, not values.
        refused: number of records with an unlisted value that the campaign refuses. They are in no sum.
    """

    records: int
    missing: dict[str, int]
    unlisted: dict[str, int]
    hints: tuple[str, ...]
    refused: int = 0


class ExactSums:
    """The exact sums for all subjects of a campaign. A subject is what one vector of sums counts or adds.

    Attributes:
        totals: shape (M,) int64, one subject's numbers after another's. For class c of k classes, value code a, scaled
            number u and S = 65536: a subject ``class`` counts records at c; ``cell`` (class-value pair) at a·k + c;
            ``present`` at k + c, or at c if the number is missing; ``moment`` adds u, or ⌊u²/S⌋ for power 2, at c, and
            nothing for a missing number.
        grids: numeric feature → shape (k·CELLS,) int64, number of records at each point of a public grid of u, class by
            class (:mod:`edge_sdk.node.smooth`); a missing number is at u = 0. Empty unless ``with_grids``.
    """

    def __init__(self, schema: Schema, subjects: Sequence[Subject], *, with_grids: bool = False) -> None:
        """Begin with sums of 0 for ``subjects``, from :func:`protocol.nodes.terms.released_vectors`.

        ``with_grids``: whether to count in ``grids`` too, for noise by smooth sensitivity.
        """
        self._schema = schema
        self._plain = schema.projection is None and not schema.groups
        self._readers = [_Reader(feature, _REMEMBERED // len(schema.features)) for feature in schema.features]
        self._label = _LabelReader(schema.label)
        self._records = self._refused = 0
        classes = len(schema.label.classes)
        self.totals = array("q", bytes(8 * sum(subject.size for subject in subjects)))
        self._counts: list[tuple[int, int]] = []
        self._present: list[tuple[int, int]] = []
        self._numbers: list[tuple[int, int]] = []
        self._squares: list[tuple[int, int]] = []
        self._classes = classes
        place = 0
        for subject in subjects:
            if subject.kind != CLASS:
                assert subject.feature is not None
                self._table(subject).append((subject.feature, place))
            place += subject.size
        numbers = [feature for feature, _ in self._squares] if with_grids else []
        self.grids = {feature: array("q", bytes(8 * classes * CELLS)) for feature in numbers}

    def _table(self, subject: Subject) -> list[tuple[int, int]]:
        """Return the list of pairs (feature, first index in ``totals``) to which a subject of this kind belongs."""
        if subject.kind == CELL:
            return self._counts
        if subject.kind == PRESENT:
            return self._present
        return self._squares if subject.power == SQUARE else self._numbers

    def add_all(
        self,
        records: Iterable[Mapping[str, object]],
        label: object = FROM_RECORD,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Add every record. A record with a value that the schema refuses is counted (:meth:`unread`) and left out.

        The arguments are those of :meth:`edge_sdk.node.node.Node.summarise`. Raises InputError ``record_invalid`` if a
        record is no mapping, and the errors of the iterator ``records``.
        """
        iterator = iter(records)
        while True:
            before = self._records
            for record in islice(iterator, BLOCK):
                self._add(record, label)
            if self._records < before + BLOCK:
                return
            if progress is not None:
                progress(self._records)

    def _add(self, record: Mapping[str, object], label: object) -> None:
        check_record(record)
        self._records += 1
        try:
            readings, of_class = self._read(record.get, label)
        except InputError as error:
            if error.reason != "value_refused":
                raise
            # Whether there is a summary must not depend on one record. A record that is left out is covered by ε.
            self._refused += 1
            return
        values, classes = self.totals, self._classes
        values[of_class] += 1
        for feature, place in self._counts:
            values[place + readings[feature][0] * classes + of_class] += 1
        for feature, place in self._present:
            values[place + (readings[feature][1] is not None) * classes + of_class] += 1
        for feature, place in self._numbers:
            values[place + of_class] += readings[feature][1] or 0
        for feature, place in self._squares:
            number = readings[feature][1] or 0
            values[place + of_class] += number * number // SCALE
        for feature, grid in self.grids.items():
            grid[of_class * CELLS + cell_of(readings[feature][1] or 0)] += 1

    def _read(self, get: Callable[[str], object], label: object) -> tuple[list[Reading], int]:
        """Return the readings of a record's features, and the code of its class."""
        readings = []
        for reader in self._readers:
            value = get(reader.name)
            reading = reader.known.get(value) if type(value) in _KEPT else None
            readings.append(reader.fresh(value) if reading is None else reading)
        if not self._plain:
            observation = self._schema.observation(readings)
            readings = list(zip(observation.codes, observation.numbers, strict=True))
        return readings, self._label.read(get(self._label.name) if label is FROM_RECORD else label)

    def unread(self) -> Unread:
        """Return counts of missing and unlisted values so far, and hints.

        Inputs of a projection count, not its outputs. Features without such values are left out.
        """
        readers = (self._label, *self._readers)
        return Unread(
            self._records,
            {reader.name: reader.missing for reader in readers if reader.missing},
            {reader.name: reader.unlisted for reader in readers if reader.unlisted},
            tuple(sentence for reader in readers for sentence in reader.hints),
            self._refused,
        )


class _Values:
    """Counts missing and unlisted values of one feature or of the label, and collects hints."""

    def __init__(self, part: Feature | Label) -> None:
        self.part = part
        self.name = part.name
        self.missing = 0
        self.unlisted = 0
        self.hints: dict[str, None] = {}
        self._looks = _LOOKS

    def look(self, value: object) -> None:
        """Keep the hint on a probable mistake in ``value``, if any. Only the first values of a feature are searched."""
        if self._looks and len(self.hints) < _MOST_HINTS:
            self._looks -= 1
            if sentence := hint(self.part, value):
                self.hints[sentence] = None

    def lack(self, value: object) -> int:
        """Return 0 if the value is known, else ``_MISSING`` or ``_UNLISTED``."""
        if self.part.knows(value):
            return 0
        return _MISSING if is_missing(value) else _UNLISTED

    def count(self, lack: int) -> None:
        if lack == _MISSING:
            self.missing += 1
        elif lack == _UNLISTED:
            self.unlisted += 1


class _Reader(_Values):
    """Reads the values of one feature into codes and scaled numbers, and counts missing and unlisted ones.

    ``known``: value → its reading, for at most ``most`` texts and numbers. A boolean equals an integer and has another
    reading, so booleans are not looked up.
    """

    def __init__(self, feature: Feature, most: int) -> None:
        super().__init__(feature)
        self._feature = feature
        self._most = most
        self._lacking: dict[object, tuple[Reading, int]] = {}
        self.known: dict[object, Reading] = {}

    def fresh(self, value: object) -> Reading:
        """Return code and scaled number of a value that is not in ``known``; count it if missing or unlisted."""
        keeps = type(value) in _KEPT
        found = self._lacking.get(value) if keeps else None
        if found is None:
            reading, lack = found = self._read(value)
            if keeps and len(self.known) + len(self._lacking) < self._most and _is_short(value):
                if lack:
                    self._lacking[value] = found
                else:
                    self.known[value] = reading
        self.count(found[1])
        return found[0]

    def _read(self, value: object) -> tuple[Reading, int]:
        """Return the reading of a value, and whether it is known, missing or unlisted."""
        self.look(value)
        if isinstance(self._feature, Numeric):
            # The number of a known value is read once, since that takes most of the time.
            reading = self._feature.known(value)
            if reading is not None:
                return reading, 0
        return self._feature.reading(value), self.lack(value)


class _LabelReader(_Values):
    """Reads the labels of records into codes, and counts missing and unlisted ones."""

    def __init__(self, label: Label) -> None:
        super().__init__(label)
        self._codes = {text: code for code, text in enumerate(label.classes)}
        self._label = label

    def read(self, value: object) -> int:
        """Return the code of a class, as in a report about one record."""
        code = self._codes.get(value) if type(value) is str else None
        if code is None:
            code = self._label.code(value)
            self.look(value)
            self.count(self.lack(value))
        return code


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _MOST_CHARACTERS
    return -_LARGEST <= value < _LARGEST  # type: ignore[operator]  # false for NaN
