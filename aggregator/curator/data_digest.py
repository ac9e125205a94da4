"""The keyed digest of a set of records. It tells whether records were seen before, whatever their order or file.

    digest = HMAC-SHA256(key, "set" ‖ m₁ ‖ … ‖ m_n),   m_i = HMAC-SHA256(key, "row" ‖ r_i), sorted as byte strings

The key is in the curator's budget file. Without it nobody can test a guess of the records against a digest.
"""

from __future__ import annotations

import hmac
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from protocol.errors import InputError
from protocol.values import as_number, as_text, is_missing

if TYPE_CHECKING:
    import pandas as pd


KEY_BYTES = 32
_SET, _ROW, _PART = b"hearsay/1/curator-set", b"hearsay/1/curator-row", b"hearsay/1/curator-part"
_MISSING = b"\0"


def digest_of(records: Iterable[bytes], key: bytes) -> bytes:
    """The digest of a multiset of records, 32 bytes: the same for every order, another one for other repetitions.

    Args:
        records: the bytes of each record, at least one (:func:`record_bytes`).
        key: 32 bytes.

    Raises:
        InputError: ``empty_file``: there is no record.
    """
    marks = sorted(hmac.digest(key, _ROW + record, "sha256") for record in records)
    if not marks:
        raise InputError("empty_file", "there is no record")
    return hmac.digest(key, _SET + b"".join(marks), "sha256")


def parts_of(records: Iterable[bytes], key: bytes, sizes: Sequence[int]) -> list[int]:
    """Which part each record belongs to, by a keyed hash of the record alone.

    So one record more or less changes one part, and the others stay as they are. Equal records are in the same part.

    Args:
        records: the bytes of each record (:func:`record_bytes`).
        key: 32 bytes.
        sizes: the expected size of each part in 256ths of the records; their sum is 256.

    Returns:
        The index of each record's part.
    """
    ends = list(accumulate(sizes))
    return [bisect_right(ends, hmac.digest(key, _PART + record, "sha256")[0]) for record in records]


def record_bytes(frame: pd.DataFrame) -> Iterator[bytes]:
    """The bytes of each record of a frame, which all files of the same records share.

    The order of columns, the index, spaces around a cell and the spelling of a number (1, 1.0, 1e0) make no difference.
    Missing values are all equal: empty cells, ``?``, None and NaN. Two records with equal bytes may still differ, for
    example in a cell with a space; such a difference buys no new budget.

    Args:
        frame: all columns of the records, the label's too: text from :func:`aggregator.common.tables.read_table`, or
        values.
    """
    import numpy as np
    import pandas as pd

    from aggregator.common.tables import MISSING_TOKENS

    columns = []
    for name in sorted(frame.columns, key=str):
        codes, values = pd.factorize(frame[name], use_na_sentinel=False)
        named = _sized(str(name).encode())
        cells = np.array([named + _sized(_cell(value, MISSING_TOKENS)) for value in values.tolist()], dtype=object)
        columns.append(cells[codes])
    return (b"".join(cells) for cells in zip(*columns, strict=True))


def _sized(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _cell(value: object, missing: Collection[str]) -> bytes:
    """The bytes of a cell: a number as an exact fraction, another value as text, a missing value as one zero byte."""
    if isinstance(value, str):
        value = value.strip()
    if is_missing(value) or value in missing:
        return _MISSING
    number = as_number(value)
    if number is not None and abs(number) != float("inf"):
        numerator, denominator = number.as_integer_ratio()
        return b"n%x/%x" % (numerator, denominator)
    text = as_text(value)
    return b"t" + (repr(value) if text is None else text).encode("utf-8", "surrogatepass")
