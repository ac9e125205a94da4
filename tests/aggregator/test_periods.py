"""Periods by number and by date mean the same, for campaigns of every length of period."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import refusal
from support.publisher import DAY

from aggregator.common.periods import LAST_PERIOD, begins, parse_span, parse_start, shown_range

HOUR, WEEK = 3600, 7 * DAY
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "precision", "expected"),
    [
        ("2026-11-01..2026-11-30", DAY, range(20_758, 20_788)),
        ("2026-11-01", DAY, range(20_758, 20_759)),
        ("20758..2026-11-02", DAY, range(20_758, 20_760)),
        ("2026-11-01..20759", DAY, range(20_758, 20_760)),
        ("2026-11-01", HOUR, range(24 * 20_758, 24 * 20_759)),
        ("2026-11-01T06:00..2026-11-01T07:59", HOUR, range(24 * 20_758 + 6, 24 * 20_758 + 8)),
        ("2026-11-01T06:30", HOUR, range(24 * 20_758 + 6, 24 * 20_758 + 7)),
        ("2026-11-01T06:30Z..", DAY, range(20_758, LAST_PERIOD + 1)),
        ("7..9", WEEK, range(7, 10)),
        ("2026-11-01..2026-11-07", WEEK, range(2966, 2967)),  # weeks begin on Thursdays, as 1970 did
        ("..2026-11-07", WEEK, range(2967)),
        ("..", DAY, range(LAST_PERIOD + 1)),
        ("5..", DAY, range(5, LAST_PERIOD + 1)),
        ("..5", DAY, range(6)),
        ("5", DAY, range(5, 6)),
        ("1970-01-01..9999-12-31", 1, range(LAST_PERIOD + 1)),
    ],
)
def test_a_span_is_the_periods_that_begin_in_it(text, precision, expected):
    assert parse_span(text).of(precision) == expected


@given(st.dates(min_value=datetime(1970, 1, 1).date()), st.integers(1, 2**31))
def test_the_periods_of_a_day_are_those_that_begin_on_it(day, precision):
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    some = [number for number in range(start // precision, start // precision + 3) if number <= LAST_PERIOD]
    expected = {number for number in some if start <= number * precision < start + DAY}
    if expected:
        found = parse_span(day.isoformat()).of(precision)
        assert expected == {number for number in some if number in found}
        return
    assert refusal(parse_span(day.isoformat()).of, precision) == "periods_absent"


@pytest.mark.parametrize(
    ("text", "precision", "expected"),
    [("2026-11-22", DAY, 20_779), ("2026-11-22", WEEK, 2968), ("2026-11-22T06:59", HOUR, 24 * 20_779 + 6), ("7", 9, 7)],
)
def test_what_is_forgotten_before_a_day_has_ended_by_then(text, precision, expected):
    """The period that the day begins in is kept: some of its reports are of that day."""
    assert parse_start(text).period(precision) == expected


NO_SPANS = """| ... | a | 1-2 | 2026-11-31 | 2026-13-01 | 2026-1-1 | 1969-12-31 | 0000-01-01 | 4294967296 | 99999999999
| 2026-11-01T24:00 | 2026-11-01T06 | -5 | 9..5 | 2026-11-02..2026-11-01 | 1..2..3 | ٣ | 5."""


def test_what_is_no_span_of_periods_or_one_in_which_none_begins_is_refused():
    for text in (*map(str.strip, NO_SPANS.split("|")), " 5", "5 "):
        assert refusal(parse_span, text) == "periods_invalid"
    for text, precision in (("2026-11-02..20758", DAY), ("2026-11-06", WEEK), ("9000-01-01..", 1)):
        assert refusal(parse_span(text).of, precision) == "periods_absent"


def test_periods_are_shown_by_number_and_date():
    assert shown_range(range(20_758, 20_760), DAY) == "20758..20759 (2026-11-01 to 2026-11-02)"
    assert begins(NOVEMBER // 60 + 1, 60) == "2026-11-01 00:01"
    assert begins(NOVEMBER + 1, 1) == "2026-11-01 00:00:01"
    assert begins(LAST_PERIOD, 2**31) == ""
    assert shown_range(range(LAST_PERIOD, LAST_PERIOD + 1), 2**31) == "4294967295..4294967295"
