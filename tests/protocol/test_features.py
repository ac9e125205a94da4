"""Coding of feature values: exact, defined for every value, and without values in errors."""

import re
import sys
import tracemalloc
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.failures import everything_said, failure, reason

from protocol import SCALE, canonical
from protocol.features import Categorical, Numeric, as_number, as_text, is_missing, parse_bound, parse_feature
from protocol.schema import Label, build_schema, parse_schema

MARK = "Xk7-secret-Qz"
NUMBER_MARK = 918273645546372819

bound_texts = st.decimals(-(10**6), 10**6, allow_nan=False, allow_infinity=False, places=3).map(str)
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.integers(),
    st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
    st.sampled_from([10**400, -(10**400), 5e-324, -0.0]),
)


@given(bound_texts, bound_texts, numbers | st.decimals(allow_nan=False, allow_infinity=False))
@example("0", "131072", 0.5)
@example("0", "131072", 1.5)
@example("0", "1", 1 / 3)
@example("0", "131072", Decimal("0.5"))
@example("0", "131072", Decimal("0.5000000000000000000000000000000000000000000000000001"))
@example("-1e-300", "1e-300", Decimal("1e-399"))
@example("-65536", "65535", Decimal("1e-401"))
@example("-65535", "65536", Decimal("-1e-401"))
def test_scaling_is_the_rounded_exact_value(one, other, number):
    low, high = sorted((one, other), key=Decimal)
    if Decimal(low) != Decimal(high):
        stated = Fraction(int(number) if isinstance(number, np.int64) else number)
        exact = (stated - Fraction(low)) / (Fraction(high) - Fraction(low)) * 2 * SCALE - SCALE
        assert Numeric("x", low, high, [0]).scaled(number) == max(-SCALE, min(SCALE, round(exact)))


edge_lists = st.lists(st.integers(-SCALE + 1, SCALE), min_size=1, max_size=30, unique=True).map(sorted)


@given(edge_lists, st.floats(-0.2, 1.2), st.integers(-SCALE, SCALE))
def test_the_bin_is_the_number_of_edges_not_above(edges, number, substitute):
    feature = Numeric("x", "0", "1", edges, substitute=substitute)
    u = feature.scaled(number)
    assert feature.code(number) == sum(edge <= u for edge in edges)
    assert feature.code(None) == feature.missing_code == sum(edge <= substitute for edge in edges)
    assert feature.size == len(edges) + 1 == len(feature.labels())


class Hostile:
    """A value of another library whose methods all raise an error with the value in its text."""

    def refused(self, *_):
        raise OSError(MARK)

    __float__ = __index__ = __eq__ = __hash__ = __bool__ = refused

    def __repr__(self):
        return MARK

    __str__ = __repr__


class HostileFloat(Hostile):
    """Its ``__index__`` works; its ``__float__`` returns no float."""

    def __float__(self):
        return MARK  # type: ignore[return-value]


class Texty(str):
    __slots__ = ()

    def __str__(self):
        return "other"


class Size(IntEnum):
    """An enumeration of integers, as firmware uses."""

    LARGE = 3


class Ratio:
    """A number of another library: its ratio is exact, its float is wrong."""

    def __init__(self, *ratio):
        self.ratio = ratio

    def as_integer_ratio(self):
        return self.ratio

    def __float__(self):
        return 7.0


FOREIGN = [
    *(Hostile(), HostileFloat(), MARK, MARK.encode(), bytearray(MARK.encode()), [MARK], {MARK: MARK}, (MARK,), {MARK}),
    *(object(), MARK * 10_000, "\ud800" + MARK, 1 + 1j, np.array([1.5, 2.5]), np.str_(MARK), np.bytes_(MARK.encode())),
    *(range(3), Ellipsis, int, True, np.bool_(True)),
]
ABSENT = [
    *(None, "", Texty(""), nan, -nan, np.float64(nan), np.float32(nan), Decimal("NaN"), Decimal("sNaN")),
    *(np.datetime64("NaT"), pd.NA, pd.NaT),
]
MEASURED = [
    *(NUMBER_MARK, -NUMBER_MARK, 10**5000, inf, -inf, float(NUMBER_MARK), np.int64(NUMBER_MARK), np.uint8(3)),
    *(np.float32(0.1), np.float64(0.1), np.array(7), Decimal(NUMBER_MARK), Decimal("1e400"), Decimal("-Infinity")),
    Fraction(NUMBER_MARK, 7),
]


def ident(value):
    return type(value).__name__


NUMERIC = Numeric("x", "0", "10", [0])
NUMERIC_STRICT = Numeric("x", "0", "10", [0], "refuse")
LISTED = Categorical("x", ["a", "b"])
FEATURES = [
    NUMERIC,
    LISTED,
    Categorical("x", ["a", "b"], "other"),
    Categorical("x", ["a", "b"], "missing", 1),
    Categorical("x", ["a", "b"], "other", 0),
]


@pytest.mark.parametrize("value", FOREIGN + MEASURED + ABSENT, ids=ident)
def test_every_value_has_a_code_in_range(value):
    for feature in FEATURES:
        assert feature.code(value) in range(feature.size)
        assert feature.known_code(value) in (None, *range(feature.size))
    label = Label("y", ["e", "p"], 1)
    assert (label.code(value), label.known_code(value)) == (1, None)


@pytest.mark.parametrize("value", ABSENT, ids=ident)
def test_what_says_nothing_is_missing_and_neither_other_nor_refused(value):
    assert is_missing(value)
    strict = [NUMERIC_STRICT, Categorical("x", ["a"], "refuse"), Categorical("x", ["a"], "other")]
    assert [feature.code(value) for feature in strict] == [feature.missing_code for feature in strict]
    assert Label("y", ["e", "p"], 1, "refuse").code(value) == 1
    assert Categorical("x", ["a", ""], "refuse").code(value) == (1 if isinstance(value, str) else 2)


@pytest.mark.parametrize(
    ("value", "measured"), [*((v, False) for v in FOREIGN), *((v, True) for v in MEASURED)], ids=ident
)
def test_what_says_something_is_not_missing_and_what_is_a_number_is_measured(value, measured):
    assert not is_missing(value)
    assert Categorical("x", ["a"], "other").code(value) == 2
    number = as_number(value)
    assert (number is None, NUMERIC.scaled(value) is None) == (not measured, not measured)
    if measured:
        assert type(number) in (int, float, Fraction)
        assert NUMERIC_STRICT.code(value) in (0, 1)


@pytest.mark.parametrize("value", FOREIGN + MEASURED, ids=ident)
def test_a_refusal_names_the_feature_and_never_the_value(value):
    label = Label("y", ["e", "p"], 0, "refuse")
    strict = Categorical("odor", ["a"], "refuse")
    schema = build_schema(label, [strict])
    refusals = [failure(strict.code, value), failure(label.code, value), failure(schema.observe, {"odor": value})]
    refusals += [failure(canonical.pack, Hostile())]
    assert [error.reason for error in refusals] == [*["value_refused"] * 3, "not_canonical"]
    if as_number(value) is None:
        refusals.append(failure(NUMERIC_STRICT.code, value))
        assert refusals[-1].reason == "value_refused"
    for error in refusals:
        said = everything_said(error).replace(__file__, "")
        assert MARK not in said.replace(f'MARK = "{MARK}"', "")
        assert str(NUMBER_MARK) not in said
        assert error.__context__ is None
    assert "odor" in str(refusals[0])


@pytest.mark.parametrize("record", [None, 3, "odor", ["odor"], {"odor"}, object()], ids=ident)
def test_a_record_is_a_mapping(record):
    schema = build_schema(Label("y", ["e", "p"]), [LISTED])
    assert reason(schema.observe, record) == "record_invalid"


def test_a_record_may_lack_features_and_hold_others():
    schema = build_schema(Label("y", ["e", "p"]), [LISTED, Numeric("w", "0", "10", [0])])
    assert schema.observe({}).codes == (2, 1)
    assert schema.observe({"x": "b", "w": 1, "z": 5, 7: 7}).codes == (1, 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((text, text) for text in ("a", "3.0", "-0")),
        *((value, "7") for value in (7, np.uint8(7), Decimal("7.000"), Fraction(7))),
        *((value, "-7") for value in (-7, np.int64(-7), -7.0)),
        *((value, "true") for value in (True, np.True_)),
        *((value, "false") for value in (False, np.False_)),
        *((value, "0") for value in (-0.0, np.float32(-0.0), Decimal("-0e99999"))),
        *((value, "3") for value in (Size.LARGE, np.longdouble(3), np.float64(3))),
        *((value, None) for value in (None, 1.5, inf, np.float32(0.1), Fraction(1, 2), np.datetime64(1, "s"), b"a")),
        *((Decimal(text), None) for text in ("0.1", "1e4300", "1e999999999", "Infinity")),
        (1e22, "1" + "0" * 22),
        (1 << 64, "18446744073709551616"),
        (-(1 << 63) - 1, "-9223372036854775809"),
        (Decimal("3e2"), "300"),
        (Decimal("1e4299"), "1" + "0" * 4299),
    ],
)
def test_text_of_a_value(value, text):
    assert as_text(value) == text


def test_an_integer_matches_up_to_4300_digits_whatever_the_interpreter_allows():
    digits = "9" * 4300
    number = 10**4300 - 1
    limit = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(640)
        texts = [as_text(number), as_text(-number), as_text(number + 1), as_text(-number - 1)]
        assert Categorical("x", ["9" * 1000, "a"]).code(10**1000 - 1) == 0
    finally:
        sys.set_int_max_str_digits(limit)
    assert texts == [digits, "-" + digits, None, None]


def test_a_number_that_knows_its_ratio_is_scaled_by_it():
    """Converted by float, the first two numbers would get the wrong bin, and the last one would be rounded."""
    feature = Numeric("x", "0", "1", [1])
    tie = Fraction(1, 2) + Fraction(1, 4 * SCALE)
    assert feature.scaled(tie) == 0
    assert feature.scaled(tie + Fraction(1, 10**30)) == 1
    assert feature.scaled(Decimal("0.500003814697265625")) == 0
    assert feature.scaled(Decimal("0.500003814697265625000000001")) == 1
    assert feature.scaled(Ratio(1, 1)) == SCALE
    assert feature.scaled(np.longdouble(1) / 2) == 0
    assert as_number(Decimal("0.1")) == Fraction(1, 10) != as_number(0.1)


@pytest.mark.parametrize("ratio", [(1, 0), (1,), (1.5, 1), ("1", "1"), ()])
def test_a_ratio_that_is_none_is_not_used(ratio):
    assert as_number(Ratio(*ratio)) == 7.0


@pytest.mark.parametrize("exponent", [400, 10**6, 999_999_999_999_999_999])
def test_a_decimal_far_beyond_the_bounds_costs_nothing(exponent):
    """0 is a rounding tie here: u = −½. So the sign of a number near 0 decides."""
    feature = Numeric("x", "-65535.5", "65536.5", [0])
    large, small, zero = (Decimal((0, (digit,), e)) for digit, e in ((3, exponent), (3, -exponent), (0, exponent)))
    numbers = [sign(number) for number in (large, small, zero) for sign in (Decimal.copy_abs, Decimal.copy_negate)]
    tracemalloc.start()
    scaled = [feature.scaled(number) for number in numbers]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert scaled == [SCALE, -SCALE, 0, -1, 0, 0]
    assert peak < 1 << 20


@given(st.integers() | st.integers(-(10**320), 10**320), st.sampled_from([int, Decimal, Fraction, float]))
def test_an_integral_number_has_one_text_whatever_its_type(number, kind):
    try:
        value = kind(number)
    except OverflowError:
        return
    assert as_text(value) == str(int(value))


def test_a_decimal_that_is_no_number_or_infinite():
    feature = Numeric("x", "0", "1", [0], substitute=-SCALE)
    texts = ("NaN", "sNaN", "-NaN", "Infinity", "-Infinity")
    assert [feature.scaled(Decimal(text)) for text in texts] == [None, None, None, SCALE, -SCALE]
    assert [feature.scaled(number) for number in (inf, -inf, nan)] == [SCALE, -SCALE, None]


GOOD_BOUNDS = ["0", "-0", "007", "-12.50", "1e5", "1E+5", "1.5e-300", "9.999e300", "0e300", "0.000e-300", "9" * 40]
BAD_BOUNDS = [
    *("", "-", ".", "1.", ".5", "+1", "--1", "1_0", "1__0", "_1", "1_", " 1", "1 ", "\t1", "1\n", "1,5", "0x10", "1e"),
    *("1e+", "1e1.5", "1e1e1", "e5", "nan", "NaN1", "sNaN", "inf", "-Infinity", "１", "1\u00a0", "٣", "1e301"),
    *("10e300", "1e-301", "0.1e-300", "0e301", "0.001e302", "1e9999999999999999999", "9" * 41, b"1", 1, 1.0, None),
    Decimal(1),
]


@pytest.mark.parametrize("text", GOOD_BOUNDS + BAD_BOUNDS)
def test_a_bound_is_the_number_it_spells(text):
    if text in GOOD_BOUNDS:
        assert Fraction(parse_bound(text)) == Fraction(text)
    else:
        assert reason(parse_bound, text) == "schema_invalid"


@given(st.text(max_size=12) | st.text("0123456789.eE+-_ ", max_size=45))
def test_a_bound_has_one_grammar_and_a_text_is_a_number_just_if_it_is_a_bound(text):
    spelled = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", text) is not None and len(text) <= 40
    taken = failure(parse_bound, text) is None
    assert spelled <= taken
    assert as_number(text) == (Decimal(text) if taken else None)
    if taken:
        assert set(text) <= set("0123456789.eE+-")
        assert Fraction(text) == Fraction(parse_bound(text))
        assert NUMERIC.scaled(text) == NUMERIC.scaled(Fraction(text))
    assert as_text(text) == text


def test_text_of_another_string_type_is_its_characters():
    assert as_text(Texty("a")) == as_text(np.str_("a")) == "a"
    assert type(as_text(Texty("a"))) is str


# Newer releases call it `categories`; that of Debian 12, with which the tests run on ARM, knows this name only.
printable = st.text(st.characters(whitelist_categories=["L", "N", "P"]), min_size=1, max_size=12)


@given(
    st.lists(printable, min_size=2, max_size=8, unique=True),
    st.lists(printable, min_size=2, max_size=4, unique=True),
    st.sampled_from(["missing", "other", "refuse"]),
    st.booleans(),
    edge_lists,
)
def test_a_schema_comes_back_from_a_document(values, classes, unlisted, substituted, edges):
    features = [
        Categorical("cap", values, unlisted, len(values) - 1 if substituted else None),
        Numeric("width", "-0.5", "1e3", edges, "refuse", edges[0]),
    ]
    schema = build_schema(Label("y", classes, 1), features)
    body = {"label": schema.label.to_dict(), "features": [feature.to_dict() for feature in features]}
    body["projection"] = None
    back = parse_schema(canonical.unpack(canonical.pack(body)))
    assert back.label.to_dict() == schema.label.to_dict()
    assert [feature.to_dict() for feature in back.features] == body["features"]
    assert len(features[0].labels()) == features[0].size
    assert [back.features[0].code(value) for value in values] == list(range(len(values)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Label("y", ["a"]),
        lambda: Label("y", ["a", "a"]),
        lambda: Label("y", [str(n) for n in range(257)]),
        lambda: Label("y", ["a", "b"], 2),
        lambda: Label("y", ["a", "b"], True),
        lambda: Label("y", ["a", "b"], 0, "other"),
        lambda: build_schema(Label("y", ["a", "b"]), []),
        lambda: build_schema(Label("y", ["a", "b"]), [LISTED, LISTED]),
        lambda: build_schema(Label("y", ["a", "b"]), [Numeric("x", "0", "1", range(40_000))]),
    ],
)
def test_schemas_that_do_not_fit_together(call):
    assert reason(call) == "schema_invalid"


def test_a_label_that_is_a_feature_and_a_feature_of_unknown_kind_have_reasons_of_their_own():
    assert reason(build_schema, Label("x", ["a", "b"]), [LISTED]) == "label_is_feature"
    unknown = {"kind": "text", "name": "x", "unlisted": "missing"}
    assert reason(parse_feature, unknown, "invalid_model") == "invalid_model"
