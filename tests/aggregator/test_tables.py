"""CSV files become frames of text, frames of text become what devices hold."""

import csv
import gzip
import json
import math
import os
import tempfile
import traceback
from datetime import date
from io import StringIO
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import invoke, run
from support.failures import reason, refusal

from aggregator.common import tables
from aggregator.common.tables import check_label, csv_bytes, numbers_of, read_table, typed, unlabelled, without_meaning
from aggregator.models.encoding import observe
from aggregator.publishing.schemas.schema_draft import draft_schema
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

SCHEMA = build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "1"]), Numeric("width", "0", "10", [0])])


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_rows_are_text_as_any_reader_of_csv_has_them(tmp_path, ending):
    """Spaces among it: a device that reads the file keeps them, and models must state the accuracy that it has."""
    text = ending.join(["a, b ", "1, x ", "", '" 2","y,z"', ""])
    frame = read_table(write(tmp_path, text))
    assert frame.to_dict("list") == {"a": ["1", " 2"], " b ": [" x ", "y,z"]}
    assert frame.to_dict("records") == list(csv.DictReader(StringIO(text, newline="")))


def test_a_record_means_the_same_from_every_reader(tmp_path):
    """Before, a table's reader alone dropped spaces: ``predict`` was right where no device was."""
    text = "label,odor,width\ne,a,1\np,a , 2\n e,1,3 \n"
    path = write(tmp_path, text)
    table = observe(typed(read_table(path), SCHEMA), SCHEMA)
    frame = observe(pd.read_csv(path, dtype=str, keep_default_na=False), SCHEMA)
    devices = [SCHEMA.observe(record) for record in csv.DictReader(StringIO(text))]
    assert table.codes.tolist() == frame.codes.tolist() == [list(each.codes) for each in devices]
    hint = "some have spaces around them, which a device takes as a part of the text"
    assert without_meaning(typed(read_table(path), SCHEMA), SCHEMA) == [
        f"column '{name}': {count} of 3 cells are no value of its schema, so they mean nothing; {hint}"
        for name, count in (("label", 1), ("odor", 1), ("width", 2))
    ]


def test_lines_are_counted_as_an_editor_counts_them_and_nothing_is_guessed(tmp_path):
    frame = read_table(write(tmp_path, 'a,b\n1,x\n\n"2\n2",y\n3,z\n'))
    assert (frame.index.name, frame.index.tolist()) == ("line", [2, 5, 6])
    with pytest.raises(InputError, match="line 5 "):
        read_table(write(tmp_path, 'a,b\n"1\n2",x\n\n3\n'))
    cells = ["NA", "nan", "", "None", "1e5", "007", "TRUE", "2020-01-01"]
    assert read_table(write(tmp_path, "a,b\n" + "".join(f"{cell},x\n" for cell in cells)))["a"].tolist() == cells
    assert read_table(write(tmp_path, gzip.compress(b"a\n1\n"), "t.csv.gz"))["a"].tolist() == ["1"]
    assert list(read_table(write(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n")).columns) == ["a", "b"]


def test_a_label_has_two_classes_and_records_without_it_are_counted(tmp_path):
    frame = read_table(write(tmp_path, "y,x\np,1\n?,2\ne,3\n,4\n"))
    assert (unlabelled(frame, "y"), unlabelled(frame, "y", missing=("e",))) == (2, 1)
    assert (check_label(frame, "y"), check_label(frame, "x")) == (["e", "p"], ["1", "2", "3", "4"])
    for label, why in (("z", "label_missing"), ("y", "one_class")):
        assert refusal(check_label, frame, label, missing=("", "?", "p")) == why


NO_COMMA = "csv_invalid: the separator of 't.csv' is no comma; write numbers as 3.5 and not 3,5"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a,b\nSECRET\xff,1\n", "not_utf8: "),
        (b'a,b\n"SECRET,1\n', "csv_invalid: "),
        (b"a,b\nSECRET\n", "csv_invalid: line 2 "),
        (b"a,b\nx;y,z\nSECRET\n", "csv_invalid: line 3 "),
        ("a;b\n1;2\n1,5;2\n", NO_COMMA),
        ("a\tb\n1\t2\n1,5\t2\n", NO_COMMA),
        ('"a";"b"\n"SECRET";"2"\n', NO_COMMA),
        ('a;b\n"1;5";"SECRET"\n', NO_COMMA),
        ("w, cm;h, cm\n3,5;SECRET\n3,5;2\n", NO_COMMA),
        ("a;b\n" + "3,5;4\n" * 40_000, NO_COMMA),
        ("a,,b,\n1,2,3,4\n", "csv_invalid: columns 2, 4 of 't.csv' have no name"),
        ("a,a,b,b,c\n1,2,3,4,5\n", "duplicate_column: 't.csv' has more than one column 'a', 'b'"),
    ],
)
def test_what_is_no_table_is_said_without_a_trace_of_a_cell(tmp_path, text, problem):
    """Not in the text, and not in an exception that the raised one carries along."""
    with pytest.raises(InputError) as refused:
        read_table(write(tmp_path, text))
    assert str(refused.value).startswith(problem)
    assert "SECRET" not in "".join(traceback.format_exception(refused.value))
    assert refused.value.__context__ is None


def test_typed_values_are_those_of_a_device():
    text = pd.DataFrame(
        {"width": ["1", "2.5", "?", "wide", "1e1"], "odor": ["a", "1", "", "z", "?"], "other": list("vwxyz"),
         "label": ["e", "p", "?", "e", "e"]}
    )  # fmt: skip
    frame = typed(text, SCHEMA)
    assert list(frame.columns) == ["label", "odor", "width"]
    assert frame["odor"].tolist() == ["a", "1", None, "z", None]
    assert frame["label"].tolist() == ["e", "p", None, "e", "e"]
    assert frame["width"].tolist() == ["1", "2.5", None, "wide", "1e1"]
    assert [None if math.isnan(x) else x for x in numbers_of(frame["width"])] == [1.0, 2.5, None, None, 10.0]
    assert numbers_of(pd.Series([1, 2])).tolist() == [1.0, 2.0]
    assert typed(text, SCHEMA, missing=("a",))["odor"].tolist() == [None, "1", "", "z", "?"]


TEXTS = st.text("0123456789.eE+-_ a", max_size=12) | st.floats().map(repr) | st.integers(-200, 200).map(str)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=8))
def test_a_table_is_coded_as_devices_code_its_cells(rows):
    """A device's reader of CSV files hands out the same texts."""
    names = ["label", "odor", "width"]
    cells = [list(row) for row in rows]
    frame = typed(pd.DataFrame(cells, columns=names, dtype=object), SCHEMA, missing=())
    expected = [SCHEMA.observe(dict(zip(names, row, strict=True))) for row in cells]
    seen = observe(frame, SCHEMA)
    assert seen.codes.tolist() == [list(each.codes) for each in expected]
    assert seen.numbers[:, 1].tolist() == [each.numbers[1] for each in expected]


def test_what_is_too_large_or_no_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    large, small = write(tmp_path, "a\n1\n", "large.csv"), write(tmp_path, "a\n1\n")
    os.truncate(large, tables.MAX_FILE_BYTES + 1)  # sparse: it takes no room
    os.mkfifo(tmp_path / "pipe.csv")
    reasons = {
        large: "too_large", tmp_path / "pipe.csv": "unreadable", Path("/dev/zero"): "unreadable",
        tmp_path: "unreadable", tmp_path / "a\0.csv": "unreadable", tmp_path / "absent.csv": "file_not_found",
    }  # fmt: skip
    assert {path: reason(read_table, path) for path in reasons} == reasons

    def full(*_, **__):
        raise MemoryError

    for where, what in ((tables, "read_regular"), (np, "concatenate"), (np, "array")):
        with monkeypatch.context() as patch:
            patch.setattr(where, what, full)
            assert reason(read_table, small) == "too_large"


def test_a_small_packed_file_can_not_cost_much(tmp_path, monkeypatch):
    """12 kB of gzip were 6 million lines: 667 MB of memory and 38 s."""
    path = write(tmp_path, gzip.compress(b"a\n" + b"1\n" * 6_000_000), "t.csv.gz")
    assert (path.stat().st_size < 13_000, refusal(read_table, path)) == (True, "too_large")
    monkeypatch.setattr(tables, "MAX_CELLS", 10)
    assert len(read_table(write(tmp_path, "a,b\n" + "1,2\n" * 4))) == 4
    with pytest.raises(InputError, match=r"^too_large: 't.csv' does not fit into memory, or has more than 10 cells"):
        read_table(write(tmp_path, "a,b\n" + "1,2\n" * 5))


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_UNPACKED_BYTES", 3 << 20)
    monkeypatch.setattr(tables, "_PIECE_BYTES", 1 << 16)
    text = b"a\n" + b"1\n" * (3 << 19)
    made = []
    joined = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda *call: made.append(joined(*call)) or made[-1])
    bomb = write(tmp_path, gzip.compress(text * 20), "bomb.csv.gz")
    assert refusal(read_table, bomb) == "too_large"
    assert sum(map(len, made)) <= (3 << 20) + (1 << 16)
    fitting = gzip.compress(b"a\n1\n") + gzip.compress(b"2\n")
    assert read_table(write(tmp_path, fitting, "two.csv.gz"))["a"].tolist() == ["1", "2"]


def test_a_semicolon_is_a_part_of_a_cell_and_the_command_that_converts_commas_is_named(tmp_path):
    frame = read_table(write(tmp_path, "a;1,b\nx;y,z\nx,z;z\n"))
    assert frame.to_dict("list") == {"a;1": ["x;y", "x"], "b": ["z", "z;z"]}
    frame = pd.DataFrame({"label": list("ep") * 20, "n": [*(f"{number}.5" for number in range(39)), "2,444"]})
    with pytest.raises(InputError, match="--thousands , or --decimal ,"):
        draft_schema(frame, "label", name="x")


@pytest.mark.parametrize("number", [1, 255, 256, 257, 1000])
def test_pieces_of_a_long_table_are_one_frame(tmp_path, number):
    text = "a,b\n" + "".join(f"{i}, x{i % 3} \n{chr(10) if i % 7 == 0 else ''}" for i in range(number))
    frame = read_table(write(tmp_path, text))
    assert frame["a"].tolist() == [str(i) for i in range(number)]
    assert frame["b"].tolist() == [f" x{i % 3} " for i in range(number)]
    assert frame.index.tolist() == [2 + i + (i + 6) // 7 for i in range(number)]
    assert set(frame.dtypes) == {np.dtype(object)}


EXPORT = "Länge;Preis;Datum;Art\r\n3,5;1.234,50;2026-11-01;früh, trocken\r\n;-7;;spät\r\n"
PLAIN = {
    "Länge": ["3.5", ""],
    "Preis": ["1234.50", "-7"],
    "Datum": ["2026-11-01", ""],
    "Art": ["früh, trocken", "spät"],
}


def converted(path, *options, status=0):
    result = run("table", path, *options, "-o", path.parent / "out.csv", "--force", status=status)
    return result.stderr if status else read_table(path.parent / "out.csv").to_dict("list")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8"])
def test_a_table_of_another_program_becomes_one_that_every_command_reads(tmp_path, encoding):
    path = tmp_path / "export.csv"
    path.write_bytes(EXPORT.encode(encoding))
    found = converted(path, "--separator", ";", "--decimal", ",", "--thousands", ".", "--encoding", encoding)
    assert found == PLAIN
    unchanged = converted(path, "--separator", ";", "--encoding", encoding)
    assert (unchanged["Länge"], unchanged["Preis"]) == (["3,5", ""], ["1.234,50", "-7"])


def test_a_column_is_converted_only_if_all_of_it_are_numbers(tmp_path):
    path = write(tmp_path, "a\tb\tc\n1,5\t1,5\t12,34,5\n2,5\tx\t1\n")
    found = converted(path, "--separator", "tab", "--decimal", ",")
    assert found == {"a": ["1.5", "2.5"], "b": ["1,5", "x"], "c": ["12,34,5", "1"]}
    frame = pd.DataFrame({"odor": ["a", "3,5", "a"], "width": ["3,5", "1", "4,5"], "label": ["e", "p", "?"]})
    what = "cells are no value of its schema, so they mean nothing"
    assert without_meaning(typed(frame, SCHEMA), SCHEMA) == [
        f"column 'odor': 1 of 3 {what}", f"column 'width': 2 of 3 {what}; write 3.5 and not 3,5",
    ]  # fmt: skip


def test_what_was_converted_is_said_and_what_almost_was(tmp_path):
    """Before, only the numbers of records and columns were printed, and a word among numbers stopped a column."""
    path = write(tmp_path, "a;b;c\n1.234,5;1,5;x\n2,5;unknown;y\n3,5;2,5;?\n")
    signs = ["--separator", ";", "--decimal", ",", "--thousands", "."]
    made = invoke("table", path, *signs, "-o", tmp_path / "o.csv", "--json")
    assert json.loads(made.stdout)["converted"] == ["a"]
    assert made.stderr == (
        "warning: column 'b' stays as it is: 1 of its 3 cells is no number of that notation, the first in line 3; "
        "if they mean a missing value, name them with --missing\n"
    )
    assert converted(path, *signs, "--missing", "unknown")["b"] == ["1.5", "unknown", "2.5"]


def test_a_workbook_is_read_sheet_by_sheet(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append([1.0, None])
    second = book.create_sheet("Answers")
    for row in (["width", "day", "odor"], [3.25, date(2026, 11, 1), "n"], [None, None, None], [4, None, "=1+1"]):
        second.append(row)
    book.save(tmp_path / "book.xlsx")
    assert converted(tmp_path / "book.xlsx") == {"a": ["1"], "b": [""]}
    found = converted(tmp_path / "book.xlsx", "--sheet", "Answers")
    assert (found["width"], found["day"][0][:10], found["odor"]) == (["3.25", "4"], "2026-11-01", ["n", ""])
    assert "notation_invalid: 'book.xlsx' has no sheet 'X'; it has 'Sheet', 'Answers'" in converted(
        tmp_path / "book.xlsx", "--sheet", "X", status=1
    )


@pytest.mark.parametrize(
    ("name", "content", "options", "reason"),
    [
        ("a.xlsx", b"no workbook", [], "unreadable"),
        ("a.xlsx", b"PK\x05\x06" + bytes(18), [], "unreadable"),
        ("a.csv", b"a,b\n1,2\n", ["--encoding", "nothing"], "notation_invalid"),
        ("a.csv", b"a,b\n1,2\n", ["--encoding", "zip"], "notation_invalid"),
        ("a.csv", b"a,b\n1,2\n", ["--separator", "::"], "notation_invalid"),
        (
            "a.csv",
            b"a,b\n1,2\n",
            ["--thousands", "."],
            "notation_invalid: the decimal sign and the sign of thousands are both '.'; say both: ",
        ),
        ("a.csv", b"a,b\n\xff\xfe,2\n", ["--encoding", "utf-16"], "csv_invalid"),
        ("a.csv", b"a,b\n\xff,2\n", [], "not_utf8"),
        ("a.csv", b"a;b\n1;2;3\n", ["--separator", ";"], "csv_invalid"),
        ("a.csv", b"a,b\n1,2\n", ["--separator", ";"], "csv_invalid"),
    ],
)
def test_what_can_not_be_converted_is_refused_without_a_cell(tmp_path, name, content, options, reason):
    (tmp_path / name).write_bytes(content)
    assert converted(tmp_path / name, *options, status=1).startswith(reason)
    assert not (tmp_path / "out.csv").exists()


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=2, max_size=2), min_size=1, max_size=4
    )
)
def test_a_written_table_reads_back(rows):
    frame = pd.DataFrame(rows, columns=["a", "b"], dtype=object)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(csv_bytes(frame))
        assert read_table(path).to_dict("list") == frame.to_dict("list")
