"""Canonical msgpack: every value has one encoding, and decoding returns the value."""

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.failures import reason

from protocol import canonical

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([-33, -32, -1, 0, 127, 128, 255, 256, 65535, 65536]),
    st.text(max_size=40),
    st.binary(max_size=300),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner, max_size=20),
    max_leaves=30,
)


def in_order(value):
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def nested(levels, innermost):
    for _ in range(levels):
        innermost = [innermost]
    return innermost


@given(values)
def test_a_value_comes_back_and_has_one_spelling(value):
    data = canonical.pack(value)
    assert data == msgpack.packb(in_order(value))
    back = canonical.unpack(data)
    assert back == value
    assert canonical.pack(back) == canonical.pack(mirrored(value)) == data


def mirrored(value):
    if isinstance(value, dict):
        return {key: mirrored(value[key]) for key in reversed(value)}
    return [mirrored(item) for item in value] if isinstance(value, list) else value


def accepted(data):
    """Decode and encode again; None if the bytes were refused as malformed."""
    refusal = reason(canonical.unpack, data)
    assert refusal in (None, "malformed")
    return None if refusal else canonical.pack(canonical.unpack(data))


@given(st.binary(max_size=60))
@example(b"\xc1")
@example(b"\x81\xc0\xc0")
def test_only_canonical_bytes_are_read(data):
    assert accepted(data) in (None, data)


@given(values, st.data())
def test_changed_bytes_are_refused_or_canonical_themselves(value, data):
    good = bytearray(canonical.pack(value))
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= 1 << data.draw(st.integers(0, 7))
    assert accepted(bytes(good)) in (None, bytes(good))
    assert accepted(bytes(good[:position])) in (None, bytes(good[:position]))


LOOP = []
LOOP.append(LOOP)
anything = st.recursive(
    scalars | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9) | st.binary(max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(anything)
def test_what_another_packer_writes_is_read_only_where_it_is_canonical(value):
    data = msgpack.packb(value)
    assert accepted(data) in (None, data)
    refusal = reason(canonical.pack, value)
    assert refusal in (None, "not_canonical")
    if refusal or canonical.pack(value) != data:
        assert accepted(data) is None


@pytest.mark.parametrize("innermost", [None, 1, "", b"", [], {}], ids=repr)
@pytest.mark.parametrize("levels", [14, 15, 16, 17, 40])
def test_writer_and_reader_agree_on_the_depth(levels, innermost):
    value = nested(levels, innermost)
    containers = levels + isinstance(innermost, list | dict)
    data = msgpack.packb(value)
    if containers <= canonical.MAX_DEPTH:
        assert canonical.unpack(canonical.pack(value)) == value
    else:
        assert accepted(data) is None
        assert reason(canonical.pack, value) == "not_canonical"


@pytest.mark.parametrize(
    "value",
    [
        *(1.5, 1j, {1: 2}, {b"a": 1}, {None: 1}, {1, 2}, 1 << 64, -(1 << 63) - 1, "\ud800", {"\ud800": 1}),
        *(bytearray(b"a"), pytest.param(object(), id="object"), pytest.param(LOOP, id="loop")),
    ],
    ids=repr,
)
def test_what_has_no_canonical_form_is_refused_wherever_it_is(value):
    for wrapped in (value, [value], {"a": value}):
        assert reason(canonical.pack, wrapped) == "not_canonical"


def test_the_number_of_values_is_bounded_on_request():
    data = canonical.pack([1, {"a": [2, 3]}])
    assert canonical.unpack(data, 7) == [1, {"a": [2, 3]}]
    assert reason(canonical.unpack, data, 6) == "malformed"
