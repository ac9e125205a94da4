"""Reading CSV files into frames of text, and frames of text into the typed values that devices hold.

Run by the analyst on pilot, training and test files. No error text contains a cell: it names a file, a
column or a line. Nothing is guessed: a file that is not plain UTF-8 CSV with one header line is refused.
"""

from __future__ import annotations

import csv
import errno
import gzip
import math
import zlib
from collections import Counter
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from aggregator.reading import read_regular, too_large
from protocol.document import is_text
from protocol.errors import InputError
from protocol.values import as_number, is_missing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from protocol.schema import Schema

MISSING_TOKENS = ("", "?")
"""Cells that stand for a missing value unless the caller says otherwise."""

MAX_FILE_BYTES = 1 << 30
MAX_UNPACKED_BYTES = 2 << 30
MAX_EXPANSION = 100
"""How many times its size a packed table may have, above the first MiB: a small file must not cost much."""
MAX_CELLS = 50_000_000
_PIECE_BYTES = 1 << 20


def read_table(path: str | Path) -> pd.DataFrame:
    """A CSV file, plain or ``.gz``, as a frame of text. Spaces around cells and names are dropped.

    Returns:
        One column of text per column of the file, at least one row; the index ``line`` says on which line
        of the file each row (or its end, where a cell has several lines) stands.

    Raises:
        InputError: ``file_not_found``, ``unreadable``, ``too_large`` (1 GiB; unpacked 2 GiB
            or 100 times as much; 50,000,000 cells), ``not_utf8``,
            ``empty_file``, ``csv_invalid`` (ragged rows, stray quotes, bad names), ``duplicate_column``.
    """
    path = Path(path)
    rows = _rows(_decode(_read_bytes(path), path), path)
    if len(rows) < 2:
        raise InputError("empty_file", f"'{path.name}' holds no records; it needs a header line and one line for each")
    (_, names), *records = rows
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise InputError(
            "csv_invalid", f"the separator of '{path.name}' is no comma; save it with commas between cells"
        )
    _check_names(names, path)
    for line, cells in records:
        if len(cells) != len(names):
            raise InputError(
                "csv_invalid", f"line {line} of '{path.name}' has {len(cells)} cells where the header has {len(names)}"
            )
    lines = pd.Index([line for line, _ in records], name="line")
    return pd.DataFrame([cells for _, cells in records], index=lines, columns=names, dtype=object)


def _read_bytes(path: Path) -> bytes:
    problem = ("unreadable", f"'{path}' is not a file that can be read")
    try:
        raw = read_regular(path, MAX_FILE_BYTES)
        return _unpacked(raw) if path.suffix == ".gz" else raw
    except FileNotFoundError:
        problem = ("file_not_found", f"there is no file '{path}'")
    except IsADirectoryError:
        problem = ("unreadable", f"'{path}' is a folder; a CSV file is needed")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        problem = ("unreadable", f"'{path.name}' is damaged or not compressed by gzip")
    except MemoryError:
        problem = ("too_large", f"'{path.name}' does not fit into memory; take a sample of its lines")
    except ValueError:
        pass  # a name with a zero byte
    except OSError as error:
        if error.errno == errno.EFBIG:
            limits = (
                f"{MAX_FILE_BYTES >> 20} MiB, {MAX_UNPACKED_BYTES >> 20} MiB or {MAX_EXPANSION} times as much unpacked"
            )
            problem = ("too_large", f"'{path.name}' has more than {limits}; take a sample of its lines")
    raise InputError(*problem)


def _unpacked(raw: bytes) -> bytes:
    """What gzip packed, piece by piece: a small file may unpack to a thousand times its size."""
    pieces, size = [], 0
    with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
        while piece := file.read(_PIECE_BYTES):
            size += len(piece)
            if size > min(MAX_UNPACKED_BYTES, _PIECE_BYTES + MAX_EXPANSION * len(raw)):
                raise too_large()
            pieces.append(piece)
    return b"".join(pieces)


def _decode(raw: bytes, path: Path) -> str:
    position = 0
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = error.start
    # Raised out here: the exception above carries the whole file, private values included.
    raise InputError("not_utf8", f"'{path.name}' is not UTF-8 text (byte {position}); convert it first")


def _rows(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its line."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    line = count = 0
    try:
        for cells in reader:
            line = reader.line_num
            count += len(cells)
            if count > MAX_CELLS:
                raise MemoryError
            if cells and (len(cells) > 1 or cells[0].strip()):
                rows.append((line, [cell.strip() for cell in cells]))
    except csv.Error:
        problem = ("csv_invalid", f"line {reader.line_num} of '{path.name}' can not be read; look at its quotes")
    except MemoryError:
        rows.clear()
        room = f"memory, or has more than {MAX_CELLS:,} cells"
        problem = ("too_large", f"'{path.name}' does not fit into {room}; take a sample of its lines")
    else:
        return rows
    raise InputError(*problem)


def _check_names(names: Sequence[str], path: Path) -> None:
    for position, name in enumerate(names, start=1):
        if not is_text(name):
            raise InputError(
                "csv_invalid", f"column {position} of '{path.name}' has no name, or one that can not be printed"
            )
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError("duplicate_column", f"'{path.name}' has more than one column '{repeated[0]}'")


def check_label(frame: pd.DataFrame, label: str, missing: Collection[str] = MISSING_TOKENS) -> list[str]:
    """The classes in a frame of text, sorted, once it is sure that something can be learnt from them.

    Raises:
        InputError: ``label_missing``, no such column; ``one_class``, fewer than two classes in it.
    """
    if label not in frame.columns:
        raise InputError("label_missing", f"there is no column '{label}'; the columns are {shorten(frame.columns)}")
    classes = sorted(set(frame[label]) - set(missing))
    if len(classes) < 2:
        raise InputError("one_class", f"column '{label}' holds fewer than two classes, so there is nothing to learn")
    return classes


def unlabelled(frame: pd.DataFrame, label: str, missing: Collection[str] = MISSING_TOKENS) -> int:
    """How many records of a frame of text have no label."""
    return int(frame[label].isin(set(missing)).sum())


def typed(frame: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """A frame of text as the values that devices hold: its texts, None where they stand for a missing value.

    A text is coded as a device that holds it does: for a numeric feature it is the number that it spells, by the
    grammar of bounds, and no number otherwise.

    Returns:
        Label and features that the frame has, in the schema's order: object columns of str and None.
    """
    names = [schema.label.name, *(feature.name for feature in schema.features)]
    absent = set(missing)
    columns = {name: _text_or_none(frame[name], absent) for name in names if name in frame.columns}
    return pd.DataFrame(columns, index=frame.index)


def without_meaning(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """One line for every column of a typed frame in which cells are unlisted values: devices take them silently."""
    found = []
    for part in (schema.label, *schema.features):
        if part.name in frame.columns:
            column = frame[part.name]
            strange = {cell for cell in set(column) if not is_missing(cell) and not part.knows(cell)}
            if strange:
                count = int(column.isin(strange).sum())
                cells = f"{count} of {len(column)} cells"
                found.append(f"column '{part.name}': {cells} are no value of its schema, so they mean nothing")
    return found


def numbers_of(column: pd.Series) -> pd.Series:
    """The numbers of a typed column as floats, NaN where a cell is none to a device."""
    if column.dtype != object:
        return column.astype(float)
    read = {cell: as_number(cell) for cell in set(column)}
    floats = {cell: math.nan if number is None else float(number) for cell, number in read.items()}
    return column.map(floats).astype(float)


def _text_or_none(column: pd.Series, absent: set[str]) -> pd.Series:
    cells = [None if cell in absent else cell for cell in column]
    return pd.Series(cells, index=column.index, dtype=object)


def shorten(names: Sequence[str], most: int = 12) -> str:
    """Names for an error text: the first few, and how many more there are."""
    listed = ", ".join(list(names)[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
