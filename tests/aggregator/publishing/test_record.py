"""Records of decisions: bounded whatever they hold, read back from TOML as they are, kept in a workspace."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.publishing.decisions import (
    FOLDER,
    MOST_BYTES,
    MOST_INTEGER,
    MOST_ROWS,
    bounded,
    decision_text,
    keep,
    kept,
    parse_decision,
)
from protocol import canonical
from protocol.errors import InputError, StorageError

RECORD = {
    "by": "hearsay design",
    "why": 'the smallest "set" \\ of all',
    "devices": 100_000,
    "candidates": [{"features": "odor, größe", "accuracy": "94.1%"}, {"features": "all", "chosen": "no"}],
}
KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.text(max_size=1200) | st.integers(-MOST_INTEGER, MOST_INTEGER)
ROWS = st.lists(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=4), min_size=1, max_size=60)


def read_back(record):
    return parse_decision(tomllib.loads(decision_text(record))["decision"])


def test_a_record_reads_back():
    assert bounded(RECORD) == RECORD
    assert read_back(RECORD) == RECORD
    assert decision_text({}) == ""


@given(st.dictionaries(KEYS, PLAIN | ROWS, min_size=1, max_size=8))
def test_whatever_is_bounded_is_accepted_and_reads_back(record):
    made = bounded(record)
    assert read_back(made) == made
    assert len(canonical.pack(made)) <= MOST_BYTES


def test_what_a_long_table_loses_is_counted():
    made = bounded({"path": [{"number": number} for number in range(100)]})
    assert (len(made["path"]), made["path_left_out"]) == (MOST_ROWS, 60)
    wide = bounded({"path": [{"names": "n" * 1000} for _ in range(40)]})
    assert wide["path_left_out"] + len(wide["path"]) == 40
    assert len(canonical.pack(wide)) <= MOST_BYTES


@pytest.mark.parametrize(
    "body",
    [
        "text", [], {"Key": "x"}, {"k": 1.5}, {"k": True}, {"k": None}, {"k": "a\x1b[2J"}, {"k": "x" * 1001},
        {"k": 1 << 60}, {"k": []}, {"k": [{}]}, {"k": ["a"]}, {"k": [{"a": [1]}]}, {"k": [{"a": {}}]}, {"k": {"a": 1}},
        {"k": [{"a": 1}] * 41}, {f"k{number}": 1 for number in range(25)},
        {f"k{number}": "x" * 1000 for number in range(20)},
    ],
    ids=range(18),
)  # fmt: skip
def test_any_other_record_is_refused(body):
    with pytest.raises(InputError, match="schema_invalid"):
        parse_decision(body)


def test_a_workspace_keeps_it_by_the_campaign(tmp_path):
    keep(tmp_path, bytes(32), {})
    assert not (tmp_path / FOLDER).exists()
    assert kept(tmp_path, bytes(32)) == {}
    keep(tmp_path, bytes(32), RECORD)
    assert kept(tmp_path, bytes(32)) == RECORD
    assert kept(tmp_path, b"\1" * 32) == {}


@pytest.mark.parametrize("raw", [b"\xff", b"[decision", b"", b"[decision]\nk = 1.5\n", b"[[decision]]\n"])
def test_a_damaged_record_is_named(tmp_path, raw):
    keep(tmp_path, bytes(32), RECORD)
    (tmp_path / FOLDER / f"{bytes(32).hex()}.toml").write_bytes(raw)
    with pytest.raises(StorageError, match="workspace_damaged"):
        kept(tmp_path, bytes(32))
