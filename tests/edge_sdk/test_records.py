"""Bytes of a record that no question asks about never decide whether there is a report."""

from __future__ import annotations

import json
import math
import sys
from itertools import product

import pytest
from support.commands import edge, enrolled
from support.publisher import Publisher
from support.watched import peak

from edge_sdk.cli.commands import MAX_RECORD_BYTES
from edge_sdk.cli.files import read_record
from protocol.features import as_text

PLAIN = {"odor": "n", "width": 3.5, "label": "e"}
BODY = json.dumps(PLAIN)[1:-1].encode()
DEEP = b"[" * 100_000 + b'"]"' + b"]" * 100_000

ODD = {
    "long integer": b'"x": ' + b"9" * 5001,
    "long negative integer": b'"x": -' + b"9" * 5001,
    "long fraction": b'"x": 0.' + b"3" * 5001,
    "huge exponent": b'"x": 1e999999',
    "latin-1": b'"x": "caf\xe9"',
    "cut UTF-8": b'"x": "\xe2\x82"',
    "latin-1 key": b'"caf\xe9": 1',
    "NaN": b'"x": NaN',
    "infinities": b'"x": [Infinity, -Infinity]',
    "control characters": b'"x": "a\n\tb\x00"',
    "lone surrogate": b'"x": "\\ud800"',
    "repeated key": b'"x": 1, "x": 2',
    "deep list": b'"x": ' + DEEP,
    "deep object": b'"x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "brackets in text beside depth": b'"y": "[{\\"[", "x": ' + DEEP,
    "two megabytes": b'"x": "' + b"a" * (2 << 20) + b'"',
    "just below the limit": b'"x": "' + b"a" * (MAX_RECORD_BYTES - 200) + b'"',
}


def test_an_odd_field_beside_the_features_does_not_stop_the_report(state):
    for odd in ODD.values():
        for parts in ([odd, BODY], [BODY, odd]):
            raw = b"{" + b", ".join(parts) + b"}"
            assert {key: read_record(raw)[key] for key in PLAIN} == PLAIN
        assert report(state, raw)[0] == 0


@pytest.mark.parametrize("odd", [b"9" * 5001, b"-" + b"9" * 5001, b"NaN", b'"\xe9"', DEEP, b"1e999999"])
def test_an_odd_value_of_a_feature_does_not_stop_the_report(state, odd):
    assert report(state, b'{"odor": ' + odd + b', "width": ' + odd + b', "label": ' + odd + b"}")[0] == 0


def test_a_long_integer_is_what_features_make_of_its_value():
    (width,) = [feature for feature in Publisher().schema.features if feature.name == "width"]
    for sign in (1, -1):
        exact = sign * 10**4300
        found = read_record(b"%s1%s" % (b"-" if sign < 0 else b"", b"0" * 4300))
        assert math.isinf(found)
        assert width.code(found) == width.code(exact)
        assert as_text(found) is as_text(exact) is None


@pytest.mark.parametrize("limit", [640, 0])
def test_integers_are_exact_whatever_the_interpreters_limit(limit):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        for digits, sign in product((639, 640, 641, 4300), (1, -1)):
            raw = (b"-" if sign < 0 else b"") + b"7" * digits
            assert read_record(raw) == sign * 7 * (10**digits - 1) // 9
    finally:
        sys.set_int_max_str_digits(before)


def test_other_encodings_of_json_are_read():
    for encoding in ("utf-8-sig", "utf-16", "utf-32", "utf-16-le"):
        assert read_record('{"odor": "ñ"}'.encode(encoding)) == {"odor": "ñ"}


@pytest.fixture
def state(tmp_path):
    return enrolled(tmp_path, Publisher(now=1))


def report(state, raw, *options):
    """The status and both outputs of a report whose record has these bytes."""
    return edge("--state", state, "report", "--campaign", "mushrooms", *options, text=raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"a" 1}', DEEP[:-1], b'{"x": ' + DEEP, b"{} {}", b"]" * 9 + b"[" * 100_000, b"[" * 100_000]
)
def test_what_is_no_json_is_a_value_error_and_nothing_else(raw):
    with pytest.raises(ValueError, match=r"."):
        read_record(raw)


def test_keys_that_occur_twice_are_counted_and_never_named(state):
    """Whether a device reports does not depend on its record, so such a record is answered, with the last values."""
    twice = b'{"odor": "n", "secret": {"a": 1, "a": 2}, "secret": 3, "odor": "f", "label": "e", "x": {"b": 1, "b": 2}}'
    deep = twice[:-1] + b', "y": ' + DEEP + b"}"
    for raw, expected in ((twice, {"odor", "secret"}), (deep, {"odor", "secret"}), (b'{"odor": 1}', set())):
        repeated = {"of an earlier record"}
        assert read_record(raw, repeated)
        assert repeated == expected
    status, checked, _ = report(state, twice, "--check")
    assert status == 1  # width is missing
    status, _, noted = report(state, twice)
    assert status == 0
    for text in (checked, noted):
        assert "number of keys that the record has more than once: 2; the last value of each counts" in text
        assert "secret" not in text


@pytest.mark.parametrize("raw", [b"not JSON", b"[]", b"{" + BODY, b"{" + BODY + b', "x": "' + b"a" * MAX_RECORD_BYTES])
def test_what_remains_refused(state, raw):
    status, _, said = report(state, raw)
    assert (status, said.split(": ")[0]) == (1, "record_invalid")


def test_many_escapes_beside_deep_nesting_cost_no_memory_of_their_own():
    raw = b'{"b":' + b"[" * 3000 + b"]" * 3000 + b',"a":"' + b"\\n" * 200_000 + b'"}'
    assert len(read_record(raw)["a"]) == 200_000
    assert peak(lambda: read_record(raw)) < 12 * len(raw)  # places to go back to would take 65 times as much
