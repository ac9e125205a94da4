"""Texts of documents, dates and digests: equal for all readers, whatever interpreter or system they have."""

import ast
import hashlib
import hmac
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason

from protocol.documents.payload import is_printable, is_text, read_text, read_texts
from protocol.stream import bulk_sha256, hmac_sha256, sha256
from protocol.words import date

REFUSED = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"}
UNICODE_16 = (16, 0)
ROOT = Path(__file__).parents[2]
OF_THE_SYSTEM = {"fromtimestamp", "utcfromtimestamp", "gmtime", "localtime", "mktime", "ctime", "strptime"}
"""Functions that overflow on a system with 32-bit times. On 32-bit ARM ``explain`` once failed on dates after 2038."""


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
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    (block,) = [block for block in page.split("\n\n") if block.startswith("    0–1f, ")]
    stated = [tuple(int(end, 16) for end in part.split("–")) for part in " ".join(block.split()).split(", ")]
    refused = {point for ends in stated for point in range(ends[0], ends[-1] + 1)}
    assert {point for point in range(sys.maxunicode + 1) if not is_printable(chr(point))} == refused


def test_format_characters_of_later_versions_are_refused_and_what_has_no_meaning_yet_is_allowed():
    assert not any(map(is_printable, map(chr, (0x13439, 0x1343F, 0x110CD, 0x890, 0x8E2))))
    assert all(map(is_printable, map(chr, (0x378, 0x1FAE9, 0x2065, 0xE0002, 0x1FFFF, 0x10FFFF, 0x13440))))


@given(
    st.text("a é漢字🐞\u0378", max_size=20), st.sampled_from("\x00\n\x1b\x7f\x85\xa0\xad\u200b\u202e\u2028\ue000\ufeff")
)
def test_one_bad_character_anywhere_is_enough(text, bad):
    assert is_printable(text)
    for place in range(len(text) + 1):
        assert not is_printable(text[:place] + bad + text[place:])


def test_lengths_are_of_bytes():
    assert is_text("é" * 512)
    assert is_text("", least=0)
    assert not any(is_text(value) for value in ("é" * 512 + "e", "", None, 1, b"a", ["a"], "\ud800"))


@pytest.mark.parametrize("text", ["", "\u2028", "x" * 1025, None, 1])
def test_a_text_field(text):
    assert reason(read_text, {"a": text}, "a") == "malformed"
    listed = reason(read_texts, {"a": ["x", text]}, "a", "invalid_model")
    assert listed == (None if text == "" else "invalid_model")


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
        *((seconds, "9999-12-31 23:59:59") for seconds in (253_402_300_799, 1 << 40, 1 << 70)),
    ],
)
def test_dates_that_some_systems_do_not_have(seconds, shown):
    assert date(seconds, "%Y-%m-%d %H:%M:%S") == shown


def test_the_device_asks_no_system_for_a_date():
    found = [
        (path.name, node.attr)
        for package in ("edge_sdk", "protocol")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in OF_THE_SYSTEM
    ]
    assert found == []


@given(st.binary(max_size=64), st.binary(max_size=300))
def test_digests_are_those_of_the_standard_library(key, data):
    assert sha256(data).digest() == bulk_sha256(data).digest() == hashlib.sha256(data).digest()
    assert hmac_sha256(key, data) == hmac.digest(key, data, "sha256")


def loads_openssl(code):
    probe = f"import sys\n{code}\nprint('_hashlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, check=True, text=True)
    return run.stdout.strip() == "True"


def test_signed_documents_are_read_without_openssl():
    """The interpreter's SHA-256 is used for them: loading OpenSSL takes a device time and memory."""
    assert not loads_openssl(
        "import protocol.documents.campaign, protocol.documents.model, protocol.batches.batch, protocol.documents.trust"
    )
    assert loads_openssl("from protocol.stream import bulk_sha256\nbulk_sha256(b'')")
