"""Read records from CSV files, also compressed by gzip, and from SQLite, one record at a time.

Whether a node sends a summary must not depend on its records, so a damaged row is a record too. A reader, a generator,
raises an error only for the file as a whole: for its header, or if it can not be read.
"""

from __future__ import annotations

import csv
import sqlite3
import zlib
from contextlib import closing
from typing import IO, TYPE_CHECKING, Any

from edge_sdk.arguments import path_of
from protocol.database import address_of
from protocol.documents.payload import quoted
from protocol.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    Told = Callable[[str], None]

_LISTED_NAMES = 8
MAX_LINE = 1 << 20
"""Longest line of a CSV file in characters. The rest of a longer line is left out."""
_GZIP = b"\x1f\x8b"
_DENIED = ("not authorized", "authorization denied")
"""SQLite's error texts for a statement that does more than read."""
_READING = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE))
"""Actions that a statement may take. It may not open another file, change a setting, or write."""


def csv_records(
    path: str | os.PathLike[str], *, names: Sequence[str] = (), delimiter: str = ",", note: Told | None = None
) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file as records: mappings from the header's names to texts.

    Every line is one record, also inside of quotes: otherwise one stray quote would hide all records that follow, and a
    summary would depend on one record by more than ε says. If a row has fewer cells than the header, its last values
    are missing. If it has more, its last cells are left out. A row that ends in the middle of a quoted cell, or that is
    no CSV, is a record too, with the cells that could be read. Empty lines are left out. Bytes that are no UTF-8 become
    U+FFFD.

    Args:
        path: a file in UTF-8, plain or compressed by gzip, whose first row has the names of the columns.
        names: columns that the header must have, for example the campaign's features and its label. Empty: any header.
        note: is called at the end of the file with a sentence on the number of rows of another length than the header,
            and one on the number of rows that end inside of quotes, if there are such rows. None: no call.

    Raises InputError ``file_unreadable``: the file can not be read to its end; ``empty_file``: it has no header;
    ``duplicate_column``; ``columns_missing``: one of ``names`` is not in the header; ``argument_invalid``: not a path,
    or the delimiter is not one character.
    """
    place = path_of(path, "the CSV file")
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise InputError("argument_invalid", "the delimiter is one character, and no quote or end of a line")
    problem = ""
    try:
        with _open(place) as file:
            lines = _lines(file)
            header = _row(next(lines, ""), delimiter)
            if not header:
                raise InputError("empty_file", "the CSV file has no header")
            _check_columns(header, names)
            width, uneven, unclosed = len(header), 0, 0
            for line in lines:
                row = _row(line, delimiter)
                uneven += len(row) != width
                unclosed += line.count('"') % 2
                yield dict(zip(header, row, strict=False))
            if uneven and note is not None:
                note(f"{uneven} rows of the file have fewer or more cells than its header")
            if unclosed and note is not None:
                note(f"{unclosed} rows of the file end inside of quotes; a line is one record")
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or "its compressed data are damaged or end too early"
    if problem:
        raise InputError("file_unreadable", f"the CSV file can not be read to its end: {problem}")


def _open(place: str) -> IO[str]:
    with open(place, "rb") as file:
        compressed = file.read(2) == _GZIP
    if compressed:
        import gzip

        return gzip.open(place, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return open(place, encoding="utf-8-sig", errors="replace", newline="")


def _lines(file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file that are not empty, without line ends, each cut after :data:`MAX_LINE` characters."""
    while line := file.readline(MAX_LINE):
        rest = line
        while rest and not rest.endswith(("\n", "\r")):
            rest = file.readline(MAX_LINE)
        line = line.rstrip("\r\n")
        if line:
            yield line


def _row(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line; none if the line is empty or no CSV."""
    try:
        return next(csv.reader((line,), delimiter=delimiter), [])
    except csv.Error:
        return []


def _check_columns(header: Sequence[str], names: Sequence[str]) -> None:
    if len(set(header)) != len(header):
        raise InputError("duplicate_column", "two columns have one name")
    missing = [name for name in names if name not in header]
    if missing:
        listed = ", ".join(quoted(name) for name in missing[:_LISTED_NAMES])
        more = ", …" if len(missing) > _LISTED_NAMES else ""
        raise InputError(
            "columns_missing", f"no column is named {listed}{more}; the first row of a file names its columns"
        )


def sqlite_records(
    path: str | os.PathLike[str],
    *,
    table: str | None = None,
    query: str | None = None,
    parameters: Sequence[object] = (),
    names: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a SQLite table or query as records: mappings from the columns' names to values.

    The database is opened for reading, and only statements that read are run.

    Args:
        table: name of a table or view, of which all rows are read.
        query: one SQL statement that selects rows, in the place of ``table``.
        parameters: values for the ``?`` in ``query``, in order.
        names: columns that the result must have, for example the campaign's features and its label. Empty: any columns.

    Raises:
        InputError: ``file_unreadable``: the file is no database, or can not be read to its end; ``query_refused``:
            there is no such table, the statement is wrong, or it does more than read; ``duplicate_column``;
            ``columns_missing``: one of ``names`` is no column; ``argument_invalid``: ``path`` is no path, or not
            exactly one of ``table`` and ``query`` is given.
    """
    if (table is None) == (query is None):
        raise InputError("argument_invalid", "name a table or give a query, not both")
    place = path_of(path, "the database")
    statement = query if query is not None else f'SELECT * FROM "{str(table).replace(chr(34), 2 * chr(34))}"'  # noqa: S608
    problem = ""
    try:
        with closing(_connect(place)) as connection:
            columns, rows = _select(connection, statement, parameters)
            _check_columns(columns, names)
            for row in rows:
                yield dict(zip(columns, row, strict=True))
    except sqlite3.Error as error:
        # The error's text may quote a value.
        problem = type(error).__name__
    if problem:
        raise InputError("file_unreadable", f"the database can not be read to its end: {problem}")


def _connect(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address_of(place, "ro"), uri=True)

    def allow(action: int, first: str | None, second: str | None, *_: object) -> int:
        del first
        loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        return sqlite3.SQLITE_OK if action in _READING and not loads else sqlite3.SQLITE_DENY

    connection.set_authorizer(allow)
    # A text that is no UTF-8 is a value like others.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def _select(
    connection: sqlite3.Connection, statement: str, parameters: Sequence[object]
) -> tuple[list[str], sqlite3.Cursor]:
    """Run a statement. Return the names of its columns, and its rows.

    SQLite's error while a statement runs may quote a value of a record, and is not shown. The statement is first run
    with EXPLAIN, which reads no row: its error quotes only the statement, and is shown.
    """
    problem, runs = "", False
    try:
        connection.execute(f"EXPLAIN {statement}", tuple(parameters)).close()
        runs = True
        rows = connection.execute(statement, tuple(parameters))
        if rows.description is not None:
            return [column[0] for column in rows.description], rows
        problem = "it selects no rows"
    except (sqlite3.OperationalError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
        problem = f"it fails while it runs ({type(error).__name__})" if runs else str(error)
    except sqlite3.DatabaseError as error:
        if str(error) not in _DENIED:
            raise
        problem = "it does more than read"
    raise InputError("query_refused", f"the database does not run the statement: {problem}")
