"""Records from CSV and SQLite: every row is one record, whatever is in it; only the file as a whole is refused."""

from __future__ import annotations

import gzip
import sqlite3

import pytest
from support.failures import everything_said, failure, reason

from edge_sdk.node.records import MAX_LINE, csv_records, sqlite_records


def rows(path, text, **options):
    path.write_text(text, encoding="utf-8")
    return list(csv_records(path, **options))


def test_rows_are_records(tmp_path):
    assert rows(tmp_path / "a.csv", "a,b\n1,2\n\n3,\n") == [{"a": "1", "b": "2"}, {"a": "3", "b": ""}]
    assert rows(tmp_path / "b.csv", "\ufeffa;b\r\n1;'2'\r\n", delimiter=";") == [{"a": "1", "b": "'2'"}]
    assert rows(tmp_path / "c.csv", 'a,b\n"1 2","x,""y"') == [{"a": "1 2", "b": 'x,"y'}]
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"a\n1\n\xff\n"))
    assert list(csv_records(tmp_path / "d.csv.gz")) == [{"a": "1"}, {"a": "\ufffd"}]


def test_a_row_of_another_length_is_a_record_too(tmp_path):
    notes = []
    found = rows(tmp_path / "a.csv", "a,b\n1\n1,2\n1,2,3\n4,5", note=notes.append)
    assert found == [{"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}, {"a": "4", "b": "5"}]
    assert notes == ["2 rows of the file have fewer or more cells than its header"]


def test_a_file_that_was_cut_ends_with_a_record(tmp_path):
    assert rows(tmp_path / "a.csv", 'a,b\n1,2\n3,"4') == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


@pytest.mark.parametrize("cell", ['"5', '5,"', '"', '"x,y'])
def test_a_stray_quote_changes_the_record_that_it_is_in_and_no_other(tmp_path, cell):
    """One record may change the sums by one record: a quote once hid all records after it."""
    notes = []
    found = rows(tmp_path / "a.csv", f"a,b\n1,2\n{cell},3\n" + "5,6\n" * 2000, note=notes.append)
    assert len(found) == 2002
    assert found[0] == {"a": "1", "b": "2"}
    assert found[2:] == [{"a": "5", "b": "6"}] * 2000
    assert notes[-1].startswith("1 rows of the file end inside of quotes; ")


def test_a_row_that_is_no_csv_is_a_record_without_values(tmp_path):
    """A cell may be longer than the reader takes."""
    found = rows(tmp_path / "a.csv", "a,b\n1,2\n" + "x" * 140_000 + "\n5,6\n")
    assert found == [{"a": "1", "b": "2"}, {}, {"a": "5", "b": "6"}]


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    found = rows(tmp_path / "a.csv", "a,b\n1," + "y," * MAX_LINE + "\n3,4\n")
    assert found[-1] == {"a": "3", "b": "4"}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty_file"),
        (b"a,a\n1,2\n", "duplicate_column"),
        (b"colour;size\n1;2\n", "columns_missing"),
        (b"odor\nn\n", "columns_missing"),
        (gzip.compress(b"odor,cap\n" + b"n,x\n" * 5000)[:-20], "file_unreadable"),
        (gzip.compress(b"odor\nn\n")[:12] + b"\xff" * 30, "file_unreadable"),
    ],
    ids=["empty", "one name twice", "other columns", "one column missing", "cut gzip", "damaged gzip"],
)
def test_a_file_that_is_refused(tmp_path, content, expected):
    (tmp_path / "a.csv").write_bytes(content)
    assert reason(list, csv_records(tmp_path / "a.csv", names=["odor", "cap"])) == expected


def test_a_path_that_is_refused(tmp_path):
    assert reason(list, csv_records(tmp_path / "none.csv")) == "file_unreadable"
    assert reason(list, csv_records(tmp_path)) == "file_unreadable"
    assert reason(list, csv_records(3)) == "argument_invalid"
    assert reason(list, csv_records(tmp_path / "a.csv", delimiter=";;")) == "argument_invalid"
    assert reason(list, sqlite_records(tmp_path / "none.db", table="t")) == "file_unreadable"
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "no.db").write_bytes(b"this is no database, and long enough to be read as one" * 50)
    assert reason(list, sqlite_records(tmp_path / "no.db", table="t")) == "file_unreadable"


@pytest.fixture
def database(tmp_path):
    place = tmp_path / "ward %3f ü.db"
    with sqlite3.connect(place) as connection:
        connection.execute('CREATE TABLE "my ""table" (a, b)')
        connection.executemany('INSERT INTO "my ""table" VALUES (?, ?)', [(1, "x"), (None, 2.5)])
        connection.execute('INSERT INTO "my ""table" VALUES (3, CAST(x\'ff\' AS TEXT))')
    connection.close()
    return place


def test_rows_of_a_table_or_query(database):
    expected = [{"a": 1, "b": "x"}, {"a": None, "b": 2.5}, {"a": 3, "b": "\ufffd"}]
    assert list(sqlite_records(database, table='my "table')) == expected
    query = 'SELECT a AS odor FROM "my ""table" WHERE a = ?'
    assert list(sqlite_records(database, query=query, parameters=[3], names=["odor"])) == [{"odor": 3}]
    counted = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 3) SELECT a FROM n"
    assert [row["a"] for row in sqlite_records(database, query=counted)] == [1, 2, 3]


@pytest.mark.parametrize(
    "query",
    [
        'DELETE FROM "my ""table"',
        'DROP TABLE "my ""table"',
        "ATTACH 'other.db' AS other",
        "PRAGMA journal_mode = WAL",
        "VACUUM INTO 'copy.db'",
        "SELECT load_extension('x')",
        'SELECT 1; DELETE FROM "my ""table"',
        "SELECT * FROM nowhere",
        "CREATE TEMP TABLE t AS SELECT 1",
        "",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(database, query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = database.read_bytes()
    assert reason(list, sqlite_records(database, query=query)) == "query_refused"
    assert database.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [database.name]


def test_columns_that_are_refused(database):
    assert reason(list, sqlite_records(database, query="SELECT 1 AS a, 2 AS a")) == "duplicate_column"
    assert reason(list, sqlite_records(database, query="SELECT 1 AS a", names=["odor"])) == "columns_missing"
    for options in ({}, {"table": "t", "query": "SELECT 1"}):
        assert reason(list, sqlite_records(database, **options)) == "argument_invalid"


def test_what_sqlite_says_while_it_runs_is_not_shown(tmp_path):
    """Functions of SQLite quote the value that they can not use."""
    place = tmp_path / "ward.db"
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE ward (ill, path)")
        connection.execute("INSERT INTO ward VALUES ('{}', 'SECRET')")
    connection.close()
    for query in ("SELECT json_extract(ill, path) FROM ward", "SELECT json_remove(ill, path) AS x FROM ward"):
        error = failure(list, sqlite_records(place, query=query))
        assert error.reason == "query_refused"
        assert "SECRET" not in everything_said(error)
    wrong = failure(list, sqlite_records(place, query="SELECT il FROM ward"))
    assert "no such column: il" in wrong.detail


def test_a_path_of_two_slashes_names_no_host(tmp_path):
    with sqlite3.connect(tmp_path / "ward.db") as connection:
        connection.execute("CREATE TABLE ward AS SELECT 1 AS a")
    connection.close()
    assert list(sqlite_records(f"/{tmp_path}/ward.db", table="ward")) == [{"a": 1}]
