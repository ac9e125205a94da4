"""Dates after 2038, also on systems whose functions end there. On 32-bit ARM ``explain`` once failed on such dates."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.words import date

PACKAGES = [Path(__file__).parents[2] / name for name in ("edge_sdk", "protocol")]
OF_THE_SYSTEM = {"fromtimestamp", "utcfromtimestamp", "gmtime", "localtime", "mktime", "ctime", "strptime"}
"""Functions that overflow on a system with 32-bit times."""


@given(st.integers(0, (1 << 31) - 1))
def test_a_date_is_that_of_the_system_where_it_has_one(seconds):
    assert date(seconds, "%Y-%m-%d %H:%M:%S") == f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1970-01-01 00:00:00"),
        ((1 << 31) - 1, "2038-01-19 03:14:07"),
        (1 << 31, "2038-01-19 03:14:08"),
        (1 << 32, "2106-02-07 06:28:16"),
        (253_402_300_799, "9999-12-31 23:59:59"),
        (1 << 40, "9999-12-31 23:59:59"),
        (1 << 70, "9999-12-31 23:59:59"),
    ],
)
def test_dates_that_some_systems_do_not_have(seconds, shown):
    assert date(seconds, "%Y-%m-%d %H:%M:%S") == shown


def test_the_device_asks_no_system_for_a_date():
    found = [
        (path.name, node.attr)
        for package in PACKAGES
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in OF_THE_SYSTEM
    ]
    assert found == []
