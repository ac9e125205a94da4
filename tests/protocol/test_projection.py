"""The integer projection: exact results, refusal of possible overflow, and encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason_of

from protocol import SCALE, canonical
from protocol.errors import DocumentError, InputError
from protocol.features import Categorical, Numeric
from protocol.schema import (
    MAX_SHIFT,
    Component,
    Label,
    Projection,
    build_schema,
    integer_array,
    parse_projection,
    read_integer_array,
)

LARGEST = (1 << 31) - 1
LABEL = Label("y", ["n", "p"])


def component(name="z", low=-SCALE, high=SCALE, edges=(0,), *, has_missing=False):
    return Component(name, low, high, list(edges), has_missing=has_missing)


def projection(matrix=((3, -1),), offsets=(5,), shift=1, inputs=(0, 1), parts=None):
    return Projection(inputs, matrix, offsets, shift, [component()] if parts is None else parts)


def test_outputs_are_floors_clipped_to_the_components_bounds_and_codes_count_edges():
    assert projection().apply([10, 4]) == [15]  # (30 − 4 + 5)/2 = 15.5
    assert projection().apply([-10, 4]) == [-15]  # (−30 − 4 + 5)/2 = −14.5
    narrow = projection(parts=[component(low=-2, high=7, edges=[1])])
    assert narrow.apply([10, 4]) == [7]
    assert narrow.apply([-10, 4]) == [-2]
    part = component(edges=[-5, 0, SCALE])
    assert [part.code_of(u) for u in (-SCALE, -6, -5, -1, 0, SCALE - 1, SCALE)] == [0, 0, 1, 1, 2, 2, 3]
    assert part.size == len(part.labels()) == 4
    missing = component(edges=[0], has_missing=True)
    assert missing.size == len(missing.labels()) == 3
    assert missing.code_of(None) == 2


@pytest.mark.parametrize(
    ("low", "high", "edges"),
    [(0, 0, [0]), (5, 4, [5]), (-SCALE - 1, 0, [0]), (0, SCALE + 1, [1]), (0, 9, []), (0, 9, [0]), (0, 9, [10]),
     (0, 9, [2, 2]), (0, 9, [3, 2]), (0, 9, [1.5]), (True, 9, [2])],
)  # fmt: skip
def test_components_that_do_not_fit_together(low, high, edges):
    with pytest.raises(InputError, match="component 'z'"):
        component(low=low, high=high, edges=edges)


@pytest.mark.parametrize(
    "change",
    [
        *({"inputs": (1, 0)}, {"inputs": (1, 1)}, {"inputs": (), "matrix": ((),)}, {"offsets": (1, 2)}, {"parts": []}),
        *({"matrix": ((1, 2, 3),)}, {"matrix": ()}, {"shift": -1}, {"shift": MAX_SHIFT + 1}),
        {"parts": [component(), component()], "matrix": ((1, 2), (3, 4)), "offsets": (1, 2)},
    ],
)
def test_projections_that_do_not_fit_together(change):
    assert reason_of(InputError, projection, **change) == "projection_invalid"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_could_leave_64_bits_is_refused_at_the_very_limit(sign):
    most = (1 << 63) - 1 - 2 * LARGEST * SCALE
    made = projection(((LARGEST, -LARGEST),), (sign * most,), MAX_SHIFT)
    worst = [sign * SCALE, -sign * SCALE]
    assert abs(sum(w * u for w, u in zip(made.matrix[0], worst, strict=True)) + sign * most) == (1 << 63) - 1
    beyond = ((LARGEST, -LARGEST),), (sign * (most + 1),), MAX_SHIFT
    assert reason_of(InputError, projection, *beyond) == "projection_overflow"
    assert reason_of(InputError, projection, ((sign * (LARGEST + 1), 0),)) == "projection_overflow"


weights = st.integers(-LARGEST, LARGEST)


@given(st.lists(st.tuples(weights, weights, st.integers(-(1 << 40), 1 << 40)), min_size=1, max_size=5), st.data())
def test_a_projection_survives_its_bytes(rows, data):
    shift = data.draw(st.integers(0, MAX_SHIFT))
    parts = [component(f"z{index}", edges=[-7, index]) for index in range(len(rows))]
    made = projection([row[:2] for row in rows], [row[2] for row in rows], shift, (1, 3), parts)
    back = parse_projection(canonical.unpack(canonical.pack(made.to_dict())), "invalid_campaign", frozenset())
    assert back.to_dict() == made.to_dict()
    numbers = [data.draw(st.integers(-SCALE, SCALE)) for _ in range(2)]
    assert back.apply(numbers) == made.apply(numbers)


@pytest.mark.parametrize(
    "change",
    [
        *({"inputs": None}, {"inputs": [0, "1"]}, {"inputs": [False, 1]}, {"components": [7]}, {"components": None}),
        *({"matrix": None}, {"matrix": [[1, 2]]}, {"shift": 41}, {"shift": True}),
        {"matrix": integer_array("<i4", [1, 2], [2, 1])},
        {"matrix": integer_array("<i8", [1, 2], [1, 2])},
        {"matrix": {**integer_array("<i4", [1, 2], [1, 2]), "b": b"1234567"}},
        {"matrix": {**integer_array("<i4", [1, 2], [1, 2]), "x": 1}},
        {"offsets": integer_array("<i4", [5], [1])},
        {"offsets": integer_array("<i8", [5, 6], [2])},
        {"components": [{"name": "z", "low": -SCALE - 1, "high": 0, "edges": [0]}]},
        {"components": [{"name": "", "low": 0, "high": 9, "edges": [1]}]},
    ],
)
def test_maps_that_are_no_projection(change):
    stated = {**projection().to_dict(), **change}
    assert reason_of(DocumentError, parse_projection, stated, "invalid_campaign", frozenset()) == "invalid_campaign"


def test_typed_arrays_are_little_endian_and_signed():
    assert integer_array("<i4", [1, -2], [2])["b"] == bytes.fromhex("01000000feffffff")
    assert read_integer_array(integer_array("<i8", [-(1 << 63)], [1]), "<i8", [1], "r") == [-(1 << 63)]


def numeric(name, substitute=0):
    return Numeric(name, "-1", "1", [0], substitute=substitute)


def projected(features, parts, inputs=(1, 2)):
    return build_schema(LABEL, features, projection(((1, 1),), (0,), 1, inputs, parts))


def test_a_missing_input_becomes_its_substitute_in_reports_and_is_left_out_of_scores():
    schema = projected([Categorical("c", ["r"]), numeric("a", SCALE // 2), numeric("b")], [component()])
    assert schema.observe({"c": "r", "b": 0.5}).numbers == (None, SCALE // 2)
    assert schema.recognise({"c": "r", "b": 0.5}) == [(0, None), None]
    assert schema.recognise({"c": "r", "a": 0.5, "b": 0.5}) == [(0, None), (1, SCALE // 2)]


def test_without_a_substitute_the_component_is_missing():
    schema = projected([Categorical("c", ["r"]), numeric("a", None), numeric("b")], [component(has_missing=True)])
    seen = schema.observe({"c": "r", "b": 0.5})
    assert seen.numbers == (None, None)
    assert seen.codes == (0, 2)
    assert schema.observe({"c": "r", "a": -1, "b": 0.5}).codes == (0, 0)


@pytest.mark.parametrize(
    ("part", "inputs"),
    [*((component(), inputs) for inputs in ((0, 1), (1, 3), (-1, 1))), (component("c"), (1, 2)),
     (component(has_missing=True), (1, 2))],
)  # fmt: skip
def test_inputs_names_and_what_may_be_missing_agree_with_the_schema(part, inputs):
    features = [Categorical("c", ["r"]), numeric("a"), numeric("b")]
    assert reason_of(InputError, projected, features, [part], inputs) == "projection_invalid"
