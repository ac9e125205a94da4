"""Read CSV files into frames of text, and turn frames of text into the values that devices hold.

A file that is not plain UTF-8 CSV with one header line is refused. Error texts contain no cell.
"""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, time
from difflib import get_close_matches
from functools import partial
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.extras import missing_extra
from aggregator.common.files import read_regular, too_large
from protocol.documents.payload import is_text, quoted
from protocol.errors import InputError
from protocol.features import Numeric, as_number, is_missing
from protocol.schema import Schema

MISSING_TOKENS = ("", "?")
"""Cells that stand for a missing value unless the caller says otherwise."""

MAX_FILE_BYTES = 1 << 30
MAX_UNPACKED_BYTES = 2 << 30
MAX_EXPANSION = 100
"""Limit of the size of a decompressed table, as a multiple of the file's size, above the first MiB."""
MAX_CELLS = 50_000_000
_WHOLE = 1e15
_CONVERT = "convert it: hearsay table FILE -o NEW.csv"
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 256
_OTHER_SEPARATORS = ";\t"
_HEAD_CHARACTERS = 1 << 16
_HEAD_ROWS = 20
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]{1,40}([. ][0-9]{3}){0,9},[0-9]{1,40}")
_COMMA_OF_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3}){1,9}([.][0-9]{1,40})?")
DECIMAL_COMMA, EITHER_COMMA, COMMA_OF_THOUSANDS = (
    "write 3.5 and not 3,5",
    "write 1234 if 1,234 means that, and 1.234 if its comma is a decimal one",
    "write 1234 and not 1,234",
)
"""Advice about numbers with commas: commas before decimals, unclear ones, and commas between thousands."""
CONVERT_COMMAS = {
    DECIMAL_COMMA: f"{_CONVERT} --decimal ,",
    EITHER_COMMA: f"{_CONVERT} --thousands , or --decimal ,",
    COMMA_OF_THOUSANDS: f"{_CONVERT} --thousands ,",
}
"""Advice about numbers with commas → the command that rewrites them with decimal points."""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file, plain or ``.gz``, as a frame of text.

    Cells and names are as written, with any spaces around them: devices that read the file hold the same texts. Blank
    lines are skipped. The index ``line`` of the frame is the number of the line on which each row ends. Raises
    InputError: ``file_not_found``; ``unreadable``: also a damaged ``.gz`` file; ``too_large``: above
    :data:`MAX_FILE_BYTES`, :data:`MAX_CELLS`, the free memory or, unpacked, :data:`MAX_UNPACKED_BYTES` or
    :data:`MAX_EXPANSION`; ``not_utf8``; ``empty_file``: no row after the header; ``csv_invalid``: rows of different
    length, stray quotes, another separator, or a name that does not print; ``duplicate_column``.
    """
    path = Path(path)
    return _csv_frame(_decode(_read_bytes(path), path), path)


def _csv_frame(text: str, path: Path, separator: str = ",") -> pd.DataFrame:
    reader = csv.reader(StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        return _frame(_rows(reader), path, separator)
    except _RaggedError as error:
        problem = ("csv_invalid", str(error))
    except csv.Error:
        problem = ("csv_invalid", f"line {reader.line_num} of '{path.name}' can not be read; look at its quotes")
    except MemoryError:
        room = f"memory, or has more than {MAX_CELLS:,} cells"
        problem = ("too_large", f"'{path.name}' does not fit into {room}; take a sample of its lines")
    if problem[0] == "csv_invalid" and separator == "," and _other_separator(text):
        problem = ("csv_invalid", _wrong_separator(path))
    # The error is raised after the except clauses: it must not keep the exceptions above, whose texts contain cells.
    raise InputError(*problem)


class Layout(NamedTuple):
    """How a table of another program is written.

    All are texts: the signs between cells, before decimals and between thousands (empty for none), Python's name of the
    encoding, and the name of a workbook's sheet (None for the first).
    """

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    sheet: str | None = None


class ConvertedTable(NamedTuple):
    """A table of another program as text, the names of converted columns, and a sentence for each doubtful one."""

    frame: pd.DataFrame
    converted: tuple[str, ...]
    doubts: tuple[str, ...]


def read_foreign_table(path: str | Path, layout: Layout, missing: Collection[str] = MISSING_TOKENS) -> ConvertedTable:
    """Read a table of another program as a frame of text, in which numbers have decimal points.

    Files with the ending ``.xlsx`` are workbooks; every other file is text, plain or ``.gz``. A column is changed only
    if all its cells, but for ``missing`` and blank ones, are numbers as the layout writes them. Raises InputError: the
    reasons of :func:`read_table`; ``missing_extra``: workbooks need openpyxl; ``notation_invalid``: the separator is no
    single character, two signs are equal, the encoding or the sheet is unknown.
    """
    path = Path(path)
    _check_layout(layout)
    if path.suffix.lower() == ".xlsx":
        return ConvertedTable(_frame(_workbook_rows(path, layout.sheet), path), (), ())
    frame = _csv_frame(_decode(_read_bytes(path), path, layout.encoding), path, layout.separator)
    found = frame.apply(partial(_with_points, layout=layout, missing=set(missing)))
    doubts = (_mixed(frame[name], layout, set(missing)) for name in frame.columns)
    changed = (name for name in frame.columns if not found[name].equals(frame[name]))
    return ConvertedTable(found, tuple(changed), tuple(filter(None, doubts)))


def _check_layout(layout: Layout) -> None:
    signs = [layout.decimal, *([layout.thousands] if layout.thousands else [])]
    if len(layout.separator) != 1 or layout.separator in '"\r\n' or any(len(sign) != 1 for sign in signs):
        problem = "separator, decimal sign and sign of thousands are single characters"
    elif layout.decimal == layout.thousands:
        problem = (
            f"the decimal sign and the sign of thousands are both '{layout.decimal}'; say both: the decimal sign is "
            "'.' by default"
        )
    elif any(sign.isalnum() or sign in "+-" for sign in signs):
        problem = "the decimal sign and the sign of thousands are no letters, digits, + or -"
    else:
        try:
            codecs.lookup(layout.encoding)
            "".encode(layout.encoding)  # codecs of bytes alone, such as zip, are found and are no encodings
        except (LookupError, ValueError):
            problem = f"there is no encoding '{layout.encoding}'; for example utf-8, utf-16, latin-1, cp1252"
        else:
            return
    raise InputError("notation_invalid", problem)


def _with_points(column: pd.Series[Any], layout: Layout, missing: set[str]) -> pd.Series[Any]:
    """Return a column with decimal points if all its cells but the ``missing`` ones are numbers of the layout."""
    number = _number_of(layout)
    is_number = [number.fullmatch(cell) is not None for cell in column]
    if not any(is_number) or not all(
        found or not cell.strip() or cell in missing for found, cell in zip(is_number, column, strict=True)
    ):
        return column
    plain = column.str.replace(layout.thousands, "", regex=False).str.replace(layout.decimal, ".", regex=False)
    return plain.where(is_number, column)


def _number_of(layout: Layout) -> re.Pattern[str]:
    point, thousands = re.escape(layout.decimal), re.escape(layout.thousands)
    grouped = rf"[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|" if thousands else ""
    return re.compile(rf"\s*[+-]?(?:{grouped}[0-9]{{1,40}})(?:{point}[0-9]{{1,40}})?\s*")


def _mixed(column: pd.Series[Any], layout: Layout, missing: set[str]) -> str:
    """Return a sentence on why a column that is mostly numbers was not converted, without a cell; else empty text."""
    number = _number_of(layout)
    present = column[[bool(cell.strip()) and cell not in missing for cell in column]]
    is_number = np.array([number.fullmatch(cell) is not None for cell in present], dtype=bool)
    signs = {sign for sign in (layout.decimal, layout.thousands) if sign and sign != "."} | {layout.thousands} - {""}
    has_sign = any(sign in cell for cell in present[is_number] for sign in signs)
    if not has_sign or is_number.all() or 2 * int(is_number.sum()) <= len(present):
        return ""
    others = present[~is_number]
    count = f"{len(others)} of its {len(present)} cells {'is no number' if len(others) == 1 else 'are no numbers'}"
    advice = "if they mean a missing value, name them with --missing"
    where = f"{count} of that notation, the first in line {others.index[0]}"
    return f"column '{column.name}' stays as it is: {where}; {advice}"


def _workbook_rows(path: Path, sheet: str | None) -> Iterator[tuple[int, list[str]]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise missing_extra("workbooks need openpyxl", "excel") from None
    raw = BytesIO(_read_bytes(path))
    if not is_zipfile(raw):
        raise InputError("unreadable", f"'{path.name}' is damaged or no workbook")
    with ZipFile(raw) as packed:
        if sum(item.file_size for item in packed.infolist()) > MAX_UNPACKED_BYTES:
            raise InputError("too_large", f"'{path.name}' holds more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked")
    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except (KeyError, ValueError, TypeError, OSError, EOFError, zlib.error, BadZipFile, ParseError):
        raise InputError("unreadable", f"'{path.name}' is damaged or no workbook") from None
    try:
        if sheet is not None and sheet not in book.sheetnames:
            known = shorten([f"'{name}'" for name in book.sheetnames])
            raise InputError("notation_invalid", f"'{path.name}' has no sheet '{sheet}'; it has {known}")
        count = 0
        for number, row in enumerate(book[sheet or book.sheetnames[0]].iter_rows(values_only=True), 1):
            cells = list(map(_cell_text, row))
            count += len(cells)
            if count > MAX_CELLS:
                raise InputError("too_large", f"'{path.name}' has more than {MAX_CELLS:,} cells; take a sample")
            if any(cells):
                yield number, cells
    finally:
        book.close()


def _cell_text(value: object) -> str:
    """Return the text of a workbook's cell: whole numbers without decimals, dates as in ISO 8601, empty for none."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    return value.isoformat() if isinstance(value, date | time) else str(value)


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """Return a frame of text as the bytes of a CSV file that :func:`read_table` reads back unchanged."""
    text = StringIO(newline="")
    writer = csv.writer(text)  # RFC 4180: lines end with \r\n, and cells with \r or \n are quoted
    writer.writerow(frame.columns)
    writer.writerows(frame.itertuples(index=False, name=None))
    return text.getvalue().encode()


class _RaggedError(Exception):
    """A row has another number of cells than the header. The text holds no cell."""


def _frame(rows: Iterator[tuple[int, list[str]]], path: Path, separator: str = ",") -> pd.DataFrame:
    """Make a frame of the rows of a file. Arrays of a few rows at a time are three times as fast as lists of cells."""
    _, header = next(rows, (0, []))
    names = header
    pieces: list[list[NDArray[np.object_]]] = []
    lines: list[NDArray[np.int64]] = []
    while piece := list(islice(rows, _PIECE_ROWS)):
        for line, cells in piece:
            if len(cells) != len(names):
                found = f"has {len(cells)} cells where the header has {len(names)}"
                raise _RaggedError(f"line {line} of '{path.name}' {found}")
        columns = zip(*(cells for _, cells in piece), strict=True)
        pieces.append([np.array(column, dtype=object) for column in columns])
        lines.append(np.array([line for line, _ in piece], dtype=np.int64))
    if len(names) == 1 and any(other in names[0] for other in f",{_OTHER_SEPARATORS}" if other != separator):
        raise InputError("csv_invalid", _wrong_separator(path, separator))
    if not pieces:
        raise InputError("empty_file", f"'{path.name}' holds no records; it needs a header line and one line for each")
    _check_names(names, path)
    cells_by_name = {name: np.concatenate(each) for name, each in zip(names, zip(*pieces, strict=True), strict=True)}
    return pd.DataFrame(cells_by_name, index=pd.Index(np.concatenate(lines), name="line"), dtype=object)


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
        pass  # The name holds a zero byte; the problem stays ``unreadable``.
    except OSError as error:
        if error.errno == errno.EFBIG:
            limits = (
                f"{MAX_FILE_BYTES >> 20} MiB, {MAX_UNPACKED_BYTES >> 20} MiB or {MAX_EXPANSION} times as much unpacked"
            )
            problem = ("too_large", f"'{path.name}' has more than {limits}; take a sample of its lines")
    raise InputError(*problem)


def _unpacked(raw: bytes) -> bytes:
    """Decompress gzip piece by piece, up to the limits: a small file may hold a thousand times its size."""
    pieces, size = [], 0
    with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
        while piece := file.read(_PIECE_BYTES):
            size += len(piece)
            if size > min(MAX_UNPACKED_BYTES, _PIECE_BYTES + MAX_EXPANSION * len(raw)):
                raise too_large()
            pieces.append(piece)
    return b"".join(pieces)


def _decode(raw: bytes, path: Path, encoding: str = "utf-8") -> str:
    position, named = 0, codecs.lookup(encoding).name
    try:
        return raw.decode("utf-8-sig" if named == "utf-8" else named)
    except UnicodeDecodeError as error:
        position = error.start
    if named != "utf-8":
        raise InputError("csv_invalid", f"'{path.name}' is not text in {encoding} (byte {position})")
    # The error is raised after the except clause: it must not keep the exception above, which holds the whole file.
    raise InputError("not_utf8", f"'{path.name}' is not UTF-8 text (byte {position}); {_CONVERT} --encoding NAME")


def _rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a ``csv.reader`` that are not blank, with line numbers; ``MemoryError`` for too many cells."""
    count = 0
    for cells in reader:
        count += len(cells)
        if count > MAX_CELLS:
            raise MemoryError
        if cells and (len(cells) > 1 or cells[0].strip()):
            yield reader.line_num, cells


def _other_separator(text: str) -> bool:
    """Return whether another sign than the comma divides each of the first rows into as many cells, two or more."""
    head = StringIO(text[:_HEAD_CHARACTERS], newline="")
    for separator in _OTHER_SEPARATORS:
        head.seek(0)
        try:
            rows = [len(cells) for cells in islice(csv.reader(head, delimiter=separator), _HEAD_ROWS) if cells]
        except csv.Error:
            continue
        if len(text) > _HEAD_CHARACTERS and len(rows) < _HEAD_ROWS:
            rows = rows[:-1]  # The text was cut at _HEAD_CHARACTERS, so its last row may be incomplete.
        if rows and min(rows) == max(rows) > 1:
            return True
    return False


def _wrong_separator(path: Path, separator: str = ",") -> str:
    if separator != ",":
        return f"'{path.name}' would have a single column: its separator is another one than '{separator}'"
    advice = f"write numbers as 3.5 and not 3,5, or {_CONVERT} --separator SIGN --decimal SIGN"
    return f"the separator of '{path.name}' is no comma; {advice}"


def _check_names(names: Sequence[str], path: Path) -> None:
    unnamed = [str(position) for position, name in enumerate(names, start=1) if not is_text(name)]
    if unnamed:
        which = (
            f"column {unnamed[0]} of '{path.name}' has"
            if len(unnamed) == 1
            else (f"columns {shorten(unnamed)} of '{path.name}' have")
        )
        raise InputError("csv_invalid", f"{which} no name, or one that can not be printed")
    repeated = [f"'{name}'" for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError("duplicate_column", f"'{path.name}' has more than one column {shorten(repeated)}")


def check_label(frame: pd.DataFrame, label: str, missing: Collection[str] = MISSING_TOKENS) -> list[str]:
    """Return the sorted classes in the column ``label``. Raises ``label_missing``, or ``one_class`` for one or none."""
    if label not in frame.columns:
        raise InputError("label_missing", f"there is no column '{label}'; the columns are {shorten(frame.columns)}")
    classes = sorted(set(frame[label]) - set(missing))
    if len(classes) < 2:
        raise InputError("one_class", f"column '{label}' holds fewer than two classes, so there is nothing to learn")
    return classes


def check_text(frame: object) -> None:
    """Raise ``InputError`` ``table_invalid`` for what is no pandas frame whose names and cells are all str."""
    if isinstance(frame, pd.DataFrame) and all(isinstance(name, str) for name in frame.columns):
        columns = (frame.iloc[:, place] for place in range(frame.shape[1]))
        if all(isinstance(cell, str) for column in columns for cell in column):
            return
    raise InputError(
        "table_invalid",
        "this is no table of text; read the file by aggregator.common.tables.read_table, or by pandas.read_csv(file, "
        "dtype=str, keep_default_na=False)",
    )


def unlabelled(frame: pd.DataFrame, label: str, missing: Collection[str] = MISSING_TOKENS) -> int:
    """Return the number of records of a frame of text whose class, in the column ``label``, is ``missing``."""
    return int(frame[label].isin(set(missing)).sum())


def typed(frame: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """Turn a frame of text into the values that devices hold: the texts, and None for missing values.

    Numbers stay texts, which mean the same as on a device (:func:`protocol.features.parse_bound`). A frame of other
    values keeps them; NaN, NaT, pandas' NA and None are missing values there. The columns are in the schema's order.
    """
    names = [schema.label.name, *(feature.name for feature in schema.features)]
    absent = set(missing)
    columns = {
        name: pd.Series([None if is_absent(cell, absent) else cell for cell in frame[name]], frame.index, object)
        for name in names
        if name in frame.columns
    }
    return pd.DataFrame(columns, index=frame.index)


def unlike_schema(frame: pd.DataFrame, schema: Schema, columns: Iterable[str] | None = None) -> list[str]:
    """Return one line for every way in which records of a typed frame do not look like those that a schema describes.

    A feature has no column; cells have no meaning; numbers are outside the bounds. Devices accept all of these
    silently. Names like a feature's are looked for among ``columns``, by default the frame's.
    """
    names = {schema.label.name, *(feature.name for feature in schema.features)}
    others = [name for name in (frame.columns if columns is None else columns) if name not in names]
    found = [
        f"no column '{feature.name}': it counts as missing in every record{_near(feature.name, others)}"
        for feature in schema.features
        if feature.name not in frame.columns
    ]
    found += without_meaning(frame, schema)
    for feature in schema.features:
        if isinstance(feature, Numeric) and feature.name in frame.columns:
            numbers = numbers_of(frame[feature.name].astype(object))
            count = int(((numbers < float(feature.low)) | (numbers > float(feature.high))).sum())
            if count:
                bounds = f"outside the schema's bounds, {feature.low} to {feature.high}"
                of = f"{count} of {len(numbers)} numbers are"
                found.append(f"column '{feature.name}': {of} {bounds}, and count as the nearer bound")
    return found


def _near(name: str, others: Sequence[str]) -> str:
    """Return the end of a sentence that names those ``others`` that are spelled like ``name``, or empty text."""
    near = get_close_matches(name, [other for other in others if isinstance(other, str)], n=3, cutoff=0.5)
    return f"; near: {', '.join(map(quoted, near))}" if near else ""


def without_meaning(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Return one line for every column of a typed frame with cells that the schema does not know."""
    found = []
    for part in (schema.label, *schema.features):
        if part.name in frame.columns:
            column = frame[part.name]
            strange = {cell for cell in set(column) if not is_missing(cell) and not part.knows(cell)}
            if strange:
                count = int(column.isin(strange).sum())
                cells = f"{count} of {len(column)} cells"
                hint = ""
                if isinstance(part, Numeric) and (advice := advice_on_commas(strange)):
                    hint = f"; {advice}"
                elif any(have_outer_spaces(cell) and part.knows(cell.strip()) for cell in strange):
                    hint = "; some have spaces around them, which a device takes as a part of the text"
                found.append(f"column '{part.name}': {cells} are no value of its schema, so they mean nothing{hint}")
    return found


def advice_on_commas(texts: Iterable[object]) -> str:
    """Return how to write the numbers if more than half of the texts are numbers with a comma; else empty text.

    The comma is a decimal one in 3,5 and 1.234,5, and between thousands in 1,234,567 and 1,234.5. In 1,234 it may be
    either; the other texts tell which, if they can.
    """
    given = list(texts)
    numbers = [text for text in given if isinstance(text, str)]
    decimal = {text for text in numbers if _DECIMAL_COMMA.fullmatch(text)}
    thousands = {text for text in numbers if _COMMA_OF_THOUSANDS.fullmatch(text)}
    if 2 * sum(text in decimal or text in thousands for text in numbers) <= len(given):
        return ""
    if decimal - thousands:
        return DECIMAL_COMMA
    return COMMA_OF_THOUSANDS if thousands - decimal else EITHER_COMMA


def have_outer_spaces(text: object) -> bool:
    """Return whether a value is a text that begins or ends with white space."""
    return isinstance(text, str) and text != text.strip()


def numbers_of(column: pd.Series) -> pd.Series:
    """Return the N numbers of a column, (N,) float64. A cell that a device would not read as a number becomes NaN."""
    if column.dtype != object:
        return column.astype(float)
    read = {cell: as_number(cell) for cell in set(column)}
    floats = {cell: math.nan if number is None else float(number) for cell, number in read.items()}
    return column.map(floats).astype(float)


def is_absent(cell: object, missing: Collection[str]) -> bool:
    """Return whether a cell is missing: one of the texts ``missing``, or NaN, None or the like."""
    return cell in missing if isinstance(cell, str) else is_missing(cell)


def shorten(names: Sequence[str], most: int = 12) -> str:
    """Return names for an error text: the first ``most`` names, and the number of the others."""
    listed = ", ".join(list(names)[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
