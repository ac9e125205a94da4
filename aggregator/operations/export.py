"""Export a store's reports to one file, Parquet or CSV, for archives and query engines.

Columns, in this order (docs/reference/store.md describes the store's own files, which engines can read as well):

    id         Parquet: uint64, the eight bytes as a big-endian number; CSV: 16 hexadecimal digits
    period     index of time
    start      when the period began, UTC; CSV: 2026-11-21T00:00:00Z
    question   index in the campaign's questions
    asked      the question in words, for example: cell odor
    answer     as the device perturbed it. Single values: a number. In campaigns with bits or integers a list
               of integers in Parquet, in CSV bits as one word (0101) and integers with spaces between them;
               a single value in such a campaign is a list of one
    proven     whether it came in a complete batch; CSV: true or false

By default an export holds the reports that a tally counts, one per id, sorted by id within each partition of the
store. Or it holds all records as they are stored, with repeats and conflicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aggregator.common.files import PRIVATE, check_output, open_output
from aggregator.common.spreadsheets import to_cell
from aggregator.estimates.cells import question_name
from aggregator.operations.report_store import Store, open_store
from aggregator.reports.decoding.columns import Columns, big_endian
from aggregator.reports.storage.manifest import Manifest
from aggregator.reports.tally.counting import stored_records
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.mechanisms import BITS, INTEGERS, SINGLE

PARQUET, CSV = "parquet", "csv"
FORMATS = (PARQUET, CSV)
_BLOCK_RECORDS = 1 << 17
_LAST_SECOND = 253_402_300_799
"""End of the year 9999, where the calendar of most engines ends. The column ``start`` of later periods is null."""


class Exported(NamedTuple):
    """An export: its number of rows, and the first period whose reports the store still has; 0 if it has all."""

    reports: int
    forgotten_before: int


def export(
    store: Store | str | Path,
    out: str | Path,
    format: str,  # noqa: A002 - as the command's option is called
    *,
    scope: Scope = EVERYTHING,
    everything: bool = False,
    force: bool = False,
) -> Exported:
    """Write a store's reports to one file of a format of :data:`FORMATS`, in bounded memory.

    With ``everything`` all records are written as stored, with repeats and conflicts, instead of the reports that a
    tally counts. ``force`` replaces an existing file. After an error what was at ``out`` is unchanged. Raises the
    errors of :func:`aggregator.operations.report_store.open_store`, and InputError: ``output_exists``,
    ``output_invalid``; ``argument_invalid``: there is no such format; ``periods_absent``: the store has no report of
    the periods in scope; ``reports_forgotten``: it has none, and some of these periods were forgotten.
    """
    if format not in FORMATS:
        raise InputError("argument_invalid", f"the format is one of {', '.join(FORMATS)}")
    out = Path(out)
    opened = open_store(store) if isinstance(store, str | Path) else store
    check_output(out, force=force)

    def written(manifest: Manifest) -> Exported:
        with open_output(out, force=force, mode=PRIVATE) as sink:
            reports = _write(opened, manifest, sink, format, scope, everything)
            if not reports and scope.periods != EVERYTHING.periods:
                raise _absent(scope, manifest)
            return Exported(reports, manifest.first_period)

    return opened.at_rest(written)


def _absent(scope: Scope, manifest: Manifest) -> InputError:
    """Make the error that a store has no report of the periods in scope."""
    if scope.first < manifest.first_period:
        return InputError(
            "reports_forgotten",
            f"the store has no report of these periods: those before {manifest.first_period} were forgotten, and only "
            "their counts are kept; see hearsay estimate --periods",
        )
    return InputError("periods_absent", "there is no report of these periods; hearsay status lists those with reports")


def _write(store: Store, manifest: Manifest, sink: IO[bytes], kind: str, scope: Scope, everything: bool) -> int:  # noqa: FBT001
    shaper = _Shaper(store.campaign, as_text=kind == CSV)
    written = 0
    writer = (
        pacsv.CSVWriter(sink, shaper.schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
        if kind == CSV
        else pq.ParquetWriter(sink, shaper.schema, compression="zstd", use_dictionary=["period", "question", "asked"])
    )
    with writer:
        for records in stored_records(
            store.path, store.campaign, manifest, store.memory_bytes, scope, everything=everything
        ):
            for start in range(0, records.size, _BLOCK_RECORDS):
                block = records.take(slice(start, start + _BLOCK_RECORDS))
                writer.write_table(shaper.table(block))
                written += block.size
    return written


class _Shaper:
    """Turns a store's columns into the table of an export."""

    def __init__(self, campaign: Campaign, *, as_text: bool) -> None:
        self._campaign = campaign
        self._as_text = as_text
        asked = [question_name(question.subject, campaign.schema) for question in campaign.questions]
        self._asked = pa.array([to_cell(name) for name in asked] if as_text else asked)
        self._kinds = np.array([question.mechanism.layout for question in campaign.questions])
        self._sizes = np.array([question.mechanism.answers for question in campaign.questions])
        if as_text:
            types = [pa.string(), pa.uint32(), pa.string(), pa.uint16(), pa.string(), pa.string(), pa.bool_()]
        else:
            answer = pa.uint16() if campaign.layout.kind == SINGLE else pa.list_(pa.int32())
            start, asked = pa.timestamp("s", "UTC"), pa.dictionary(pa.int32(), pa.string())
            types = [pa.uint64(), pa.uint32(), start, pa.uint16(), asked, answer, pa.bool_()]
        names = ["id", "period", "start", "question", "asked", "answer", "proven"]
        self.schema = pa.schema(list(zip(names, types, strict=True)))

    def table(self, records: Columns) -> pa.Table:
        """Return the table of some records, one row each, in their order. Its columns are :attr:`schema`."""
        seconds = records.period.astype(np.int64) * self._campaign.time_precision
        start = pa.array(seconds, pa.timestamp("s", "UTC"), mask=seconds > _LAST_SECOND)
        asked = pa.DictionaryArray.from_arrays(pa.array(records.question.astype(np.int32)), self._asked)
        columns: list[Any] = [pa.array(records.id), records.period, start, records.question, asked]
        if self._as_text:
            columns[0] = _hexadecimal(records.id)
            columns[2] = _as_texts(start)
            columns[4] = asked.dictionary_decode()
        columns += [self._answers(records), records.proven]
        return pa.Table.from_arrays([pa.array(column) for column in columns], schema=self.schema)

    def _answers(self, records: Columns) -> pa.Array:
        """Return the column of answers: numbers, lists or texts, as the module's docstring says."""
        kind = self._campaign.layout.kind
        if kind == SINGLE:
            numbers = pa.array(big_endian(records.answer, ">u2")[:, 0].astype(np.uint16))
            return numbers.cast(pa.string()) if self._as_text else numbers
        length = self._lengths(records)
        if not self._as_text:
            offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
            return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self._values(records, length)))
        ends = np.cumsum(length)
        values = self._values(records, length)
        join = np.where(self._kinds[records.question] == BITS, "", " ").tolist()
        texts = [
            mark.join(map(str, values[end - size : end].tolist()))
            for mark, size, end in zip(join, length.tolist(), ends.tolist(), strict=True)
        ]
        return pa.array(texts, pa.string())

    def _lengths(self, records: Columns) -> NDArray[np.int64]:
        """Return the number of integers in the answer of each of N records: (N,) int64."""
        single = self._kinds[records.question] == SINGLE
        return np.where(single, 1, self._sizes[records.question]).astype(np.int64)

    def _values(self, records: Columns, length: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the integers of all answers, one answer after another: (sum of ``length``,) int32."""
        single = self._kinds[records.question] == SINGLE
        if self._campaign.layout.kind == INTEGERS:
            numbers = big_endian(records.answer, ">i4").astype(np.int32)
        else:
            numbers = np.unpackbits(records.answer, axis=1).astype(np.int32)
            if single.any():  # A single value takes two bytes, so the answer field has at least two.
                numbers[single, 0] = big_endian(records.answer[single, :2], ">u2")[:, 0]
        return numbers[np.arange(numbers.shape[1]) < length[:, None]]


def _hexadecimal(ids: NDArray[np.uint64]) -> pa.Array:
    """Return each of N ids, (N,) uint64, as a text of 16 hexadecimal digits."""
    digits = ids.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(0, len(digits) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(digits))


def _as_texts(start: pa.Array) -> pa.Array:
    """Return times as texts like 2026-11-21T00:00:00Z. Each distinct time is formatted once: there are few."""
    coded = start.dictionary_encode()
    return pa.compute.strftime(coded.dictionary, "%Y-%m-%dT%H:%M:%SZ").take(coded.indices)
