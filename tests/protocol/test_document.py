"""Texts of documents: the table of printable characters, equal for all readers, and the length limits."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason

from protocol.document import is_printable, is_text, read_text, read_texts

REFUSED = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"}
UNICODE_16 = (16, 0)


def category_refuses(database, point):
    return point != 0x20 and database.category(chr(point)) in REFUSED


@pytest.mark.slow
def test_the_table_is_that_of_the_categories():
    """The table has all code points of the categories. Others in it are not assigned in this interpreter's Unicode."""
    known = tuple(map(int, unicodedata.unidata_version.split(".")[:2])) <= UNICODE_16
    database = unicodedata if known else unicodedata.ucd_3_2_0
    for point in range(sys.maxunicode + 1):
        printable = is_printable(chr(point))
        if category_refuses(database, point):
            assert not printable, hex(point)
        elif not printable:
            assert unicodedata.category(chr(point)) in {"Cn", *REFUSED}, hex(point)


@pytest.mark.slow
def test_the_table_is_that_of_the_formats():
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    (block,) = [block for block in page.split("\n\n") if block.startswith("    0–1f, ")]
    stated = [tuple(int(end, 16) for end in part.split("–")) for part in " ".join(block.split()).split(", ")]
    refused = {point for ends in stated for point in range(ends[0], ends[-1] + 1)}
    assert {point for point in range(sys.maxunicode + 1) if not is_printable(chr(point))} == refused


@pytest.mark.parametrize("point", [0x13439, 0x1343F, 0x110CD, 0x890, 0x8E2])
def test_format_characters_of_later_versions_are_refused_by_every_interpreter(point):
    assert not is_printable(chr(point))


@pytest.mark.parametrize("point", [0x378, 0x1FAE9, 0x2065, 0xE0002, 0x1FFFF, 0x10FFFF, 0x13440])
def test_what_has_no_meaning_yet_is_allowed(point):
    assert is_printable(chr(point))


@given(
    st.text("a é漢字🐞\u0378", max_size=20), st.sampled_from("\x00\n\x1b\x7f\x85\xa0\xad\u200b\u202e\u2028\ue000\ufeff")
)
def test_one_bad_character_anywhere_is_enough(text, bad):
    assert is_printable(text)
    for place in range(len(text) + 1):
        assert not is_printable(text[:place] + bad + text[place:])


def test_lengths_are_of_bytes():
    assert [is_text("é" * 512), is_text("é" * 512 + "e"), is_text(""), is_text("", least=0)] == [
        True,
        False,
        False,
        True,
    ]
    assert not any(is_text(value, least=0) for value in (None, 1, b"a", ["a"], "\ud800"))


@pytest.mark.parametrize("text", ["", "\u2028", "x" * 1025, None, 1])
def test_a_text_field(text):
    assert reason(read_text, {"a": text}, "a") == "malformed"
    listed = reason(read_texts, {"a": ["x", text]}, "a", "invalid_model")
    assert listed == (None if text == "" else "invalid_model")
