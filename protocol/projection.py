"""Dimension reduction: a linear projection with integer weights, which gives equal results on every device.

    output_j = ⌊(Σ_i matrix_ji · u_i + offset_j) / 2^shift⌋, clipped to the bounds of component j

where u_i is the scaled integer of input feature i. The constructor refuses weights whose sums could leave 64
bits, so numpy's int64 and Python's integers give the same result.
Source: docs/math.md, section 4; docs/formats.md, section 5.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from bisect import bisect_right
from operator import mul
from typing import TYPE_CHECKING, Any

from protocol import SCALE
from protocol.document import read_field, read_integer, read_text
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHIFT = 40
MAX_COMPONENTS = 1024
_LIMITS = {"<i4": (1 << 31) - 1, "<i8": (1 << 63) - 1}
_CODES = {"<i4": "i", "<i8": "q"}


class Component:
    """One output of a projection: a number between integer bounds, cut into bins.

    Attributes:
        name: for people.
        low, high: integer bounds, −S ≤ low < high ≤ S; outputs are clipped to them.
        edges: strictly increasing integers in (low, high], at least one; there is one bin more than edges.
        has_missing: whether an output may be missing. It is missing if an input without a substitute is missing.
        size: number of codes: the bins, and one code for *missing* if ``has_missing``.
    """

    kind = "component"
    __slots__ = ("edges", "has_missing", "high", "low", "name", "size")

    def __init__(self, name: str, low: int, high: int, edges: Sequence[int], *, has_missing: bool = False) -> None:
        """The arguments are the attributes of the class.

        Raises:
            InputError: ``projection_invalid``: bounds or edges are not as the attributes state.
        """
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
        """The bin of the output ``number``; None is a missing output, whose code (the last) needs ``has_missing``."""
        return self.size - 1 if number is None else bisect_right(self.edges, number)

    def labels(self) -> list[str]:
        """The name of every code, in order, for people: the interval of each bin; ``(missing)`` if it has a code."""
        ends = (self.low, *self.edges, self.high)
        bins = [f"[{a / SCALE:.4g}, {b / SCALE:.4g})" for a, b in itertools.pairwise(ends)]
        return [*bins, "(missing)"] if self.has_missing else bins

    def to_dict(self) -> dict[str, Any]:
        """The component as the dict that the payload of a campaign or model contains."""
        return {"name": self.name, "low": self.low, "high": self.high, "edges": list(self.edges)}


class Projection:
    """The projection of a campaign, checked. It has n inputs and K components.

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
        """The arguments are the attributes of the class.

        Raises:
            InputError: ``projection_overflow``: a weight does not fit into 32 bits, or a sum could leave 64 bits;
                ``projection_invalid``: any other part is not as the attributes state.
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
        """The outputs for one record, one per component, from its scaled inputs ``numbers``, one per input feature."""
        return [
            min(max((sum(map(mul, row, numbers)) + offset) >> self.shift, component.low), component.high)
            for row, offset, component in zip(self.matrix, self.offsets, self.components, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The projection as the dict that the payload of a campaign or model contains."""
        flat = [weight for row in self.matrix for weight in row]
        return {
            "inputs": list(self.inputs),
            "matrix": integer_array("<i4", flat, [len(self.components), len(self.inputs)]),
            "offsets": integer_array("<i8", self.offsets, [len(self.components)]),
            "shift": self.shift,
            "components": [component.to_dict() for component in self.components],
        }


def parse_projection(entry: dict[str, Any], reason: str, missing_inputs: frozenset[int]) -> Projection:
    """Read the projection of a campaign or model.

    Args:
        entry: the map that a payload carries.
        reason: the reason of a DocumentError.
        missing_inputs: indices of the features without a substitute for missing values. If one of them is an input,
            all components may be missing.

    Raises:
        DocumentError: with the given reason: a field is missing or can not be read.
        InputError: ``projection_invalid``, ``projection_overflow``: values that :class:`Projection` or
            :class:`Component` refuses.
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
    """Encode integers, row by row, as a typed array of little-endian integers.

    Args:
        kind: ``<i4`` (32 bits) or ``<i8`` (64 bits).
        values: the integers, row by row.
        shape: of the array; not compared with the number of values.

    Raises:
        OverflowError: an integer does not fit.
    """
    packed = array(_CODES[kind], values)
    if sys.byteorder == "big":
        packed.byteswap()
    return {"dt": kind, "sh": list(shape), "b": packed.tobytes()}


def read_integer_array(entry: object, kind: str, shape: Sequence[int], reason: str) -> list[int]:
    """Decode a typed array. Return its integers, row by row.

    Args:
        entry: the encoded array, a result of :func:`integer_array`.
        kind: the expected type, ``<i4`` (32 bits) or ``<i8`` (64 bits).
        shape: the expected shape.
        reason: the reason of the error.

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
