"""The curator's ledger: which records were queried, at which cost, and how much of a total (ε, δ) is left.

A budget is one file (docs/formats.md, section 10). It belongs to people, not to one table: the owner assigns every set
of records about them, and all queries add up. What it can not detect: another budget for the same people.
"""

from __future__ import annotations

import hmac
import os
import stat
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aggregator.common.databases import Ledger, Mark, as_mark, new_mark, path_of, remove_marks
from aggregator.common.files import BUDGET_MARK, PRIVATE, check_output, storage_errors, write_output
from aggregator.curator.accounting import Cost, Remainder, Spending, Total, checked, decimal_text, read_decimal, total
from protocol.database import Reasons, Schema, place_of, seal
from protocol.documents.campaign import PilotCost
from protocol.documents.payload import is_text
from protocol.epsilon import format_micro
from protocol.errors import HearsayError, InputError, PolicyError, StorageError
from protocol.features import as_number, as_text, is_missing
from protocol.questions import ADJACENCIES, CHANGE

if TYPE_CHECKING:
    import pandas as pd

DIGEST_BYTES = 32
MAX_QUERY_CHARACTERS = 1000
_LARGEST = 1 << 62
MAX_FILE_BYTES = 64 << 20
MAX_ROWS = 100_000
"""Most queries, and most assigned digests, of one file."""
_TABLES = {
    "budget": ("name", "epsilon_micro", "delta", "concentrated_delta", "adjacency", "made_at", "key"),
    "counts": ("data", "queries"),
    "data": ("digest", "note", "assigned_at"),
    "mark": ("nonce", "inode", "changed", "closed_at"),
    "queries": ("data", "query", "epsilon_micro", "delta", "rho", "spent_at"),
}
SCHEMA = Schema(
    what="the budget file",
    reasons=Reasons("budget_busy", "budget_damaged", "budget_newer", "budget_damaged"),
    application_id=BUDGET_MARK,
    version=2,
    tables={
        name: f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, {', '.join(columns)}, seal)"
        for name, columns in _TABLES.items()
    },
    damage="the budget file is damaged or not one of this software; what was spent is not known, so nothing is "
    "released",
    unchanged="nothing was spent",
)


class Data(NamedTuple):
    """A set of records that the owner assigned: keyed digest of 32 bytes, the owner's note, and seconds since 1970."""

    digest: bytes
    note: str
    assigned_at: int


class Query(NamedTuple):
    """One query that was paid: index of its records, what was asked in words, cost rounded up to 10^−30, and when."""

    data: int
    query: str
    cost: Cost
    spent_at: int


class BudgetState(NamedTuple):
    """The content of a budget file without its key. ``closed_at``: when its whole total was declared spent, or 0."""

    name: str
    adjacency: str
    total: Total
    made_at: int
    data: tuple[Data, ...]
    queries: tuple[Query, ...]
    closed_at: int = 0

    @property
    def spent(self) -> Spending:
        """The summed costs of all queries."""
        spent = Spending()
        for query in self.queries:
            spent = spent.plus(query.cost)
        return spent

    @property
    def left(self) -> Remainder:
        """What one further query may cost."""
        return Remainder(0, Fraction(0), Fraction(0)) if self.closed_at else self.total.left(self.spent)

    def covers(self, cost: Cost) -> bool:
        """Return whether one further query may have this cost."""
        return not self.closed_at and self.total.covers(self.spent.plus(cost))


class BudgetFile(Ledger):
    """An open budget file. Every method may raise ``budget_damaged`` or ``budget_busy``.

    Every query is durable in the file before its result is computed. Every row has a seal of its values and of the seal
    before it. A copy or a restored older file pays for nothing (``budget_copied``) until the owner adopts it.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        found = _check_file(path)
        self._given, self._place = path, (found.st_dev, found.st_ino)
        self._clock = clock
        self.read_only = not os.access(path, os.W_OK)
        super().__init__(SCHEMA, Path(os.path.realpath(path)), mode="ro" if self.read_only else "rw")

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        name: str,
        epsilon_micro: int,
        delta: Fraction = Fraction(0),
        adjacency: str = CHANGE,
        concentrated_delta: Fraction | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Make a budget file that only its owner can read, and open it.

        ``epsilon_micro`` and ``delta`` are of all queries together; ``concentrated_delta``: the part of δ that is
        reserved for concentrated accounting, None for half; ``random_bytes`` and ``clock``: as ``os.urandom`` and
        ``time.time``. Raises InputError ``name_invalid``, ``adjacency_unknown``, ``output_exists``, ``output_invalid``;
        and those of :func:`aggregator.curator.accounting.total`.
        """
        if not is_text(name):
            raise InputError("name_invalid", "the budget's name is empty, too long, or does not print")
        if adjacency not in ADJACENCIES:
            raise InputError("adjacency_unknown", f"the adjacency is one of {', '.join(ADJACENCIES)}")
        whole = total(epsilon_micro, delta, concentrated_delta)
        texts = decimal_text(whole.delta), decimal_text(whole.concentrated_delta)
        key = random_bytes(KEY_BYTES)
        _create_file(Path(path), (name, epsilon_micro, *texts, adjacency, int(clock()), key))
        return cls.open(path, clock=clock)

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], float] = time.time) -> Self:
        """Open the budget file at ``path``, and check it. ``clock`` returns seconds since 1970.

        Raises InputError ``file_not_found``, ``unreadable``. Raises StorageError ``budget_damaged``, ``budget_newer``,
        ``budget_busy``.
        """
        opened = cls(Path(path), clock)
        try:
            opened.state()
        except BaseException:
            opened.close()
            raise
        return opened

    @classmethod
    def adopt(cls, path: str | Path, *, nothing_since: bool = False, clock: Callable[[], float] = time.time) -> Self:
        """``hearsay budget adopt``: make a copied, moved or restored file usable again, and open it.

        The whole total counts as spent, unless the owner knows that nothing was paid since this copy was made
        (``nothing_since``). No other copy may be used from now on. Raises the errors of :meth:`open`.
        """
        opened = cls.open(path, clock=clock)
        try:
            with opened.transaction(adopting=True):
                if not nothing_since:
                    opened.close_total(int(clock()))
        except BaseException:
            opened.close()
            raise
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, *, adopting: bool = False) -> Iterator[None]:
        """Run the body of ``with`` as one transaction of the file (:class:`aggregator.common.databases.Ledger`).

        Raises StorageError: ``budget_copied``; ``budget_lost``: the file was removed or replaced since it was opened;
        ``io_failed``: also for a file that can only be read.
        """
        if self.read_only:
            raise StorageError("io_failed", "the budget file can only be read, so nothing can be spent or assigned")
        with super().transaction(adopting=adopting):
            yield

    @contextmanager
    def _changes(self) -> Iterator[None]:
        with super()._changes():
            if place_of(os.fspath(self._given)) != self._place:
                raise StorageError("budget_lost", "the budget file was removed or replaced while it was in use")
            yield

    def _copied(self) -> StorageError:
        return StorageError(
            "budget_copied",
            "the budget file is a copy, was restored or was moved to another place, so it may not know what was "
            "spent since; use the original, or see hearsay budget adopt",
        )

    def _mark_row(self) -> tuple[Mark, int]:
        """Return the mark that the file names, and the time at which the total was declared spent, or 0."""
        found = self._checked("mark")
        named = as_mark(found[0][:3]) if len(found) == 1 else None
        if named is None:
            raise SCHEMA.damaged()
        return named, found[0][3]

    def _named(self) -> Mark:
        return self._mark_row()[0]

    def _name(self, mark: Mark) -> None:
        self._put_mark(mark, self._mark_row()[1])

    def _put_mark(self, mark: Mark, closed_at: int) -> None:
        self._write("mark", _sealed("mark", 1, (*mark, closed_at), b""), "REPLACE")

    def close_total(self, now: int) -> None:
        """Declare the whole total spent, at ``now``. The caller must have opened a transaction."""
        named, closed_at = self._mark_row()
        self._put_mark(named, closed_at or now)

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""
        return self.state().adjacency

    def check_adjacency(self, adjacency: str) -> None:
        """Raise ``adjacency_differs`` if terms have another adjacency than this budget: their ε could not be added."""
        if adjacency != self.adjacency:
            raise InputError("adjacency_differs", f"the budget is for '{self.adjacency}' and not '{adjacency}'")

    def pay(self, table: pd.DataFrame, query: str, cost: Cost) -> PilotCost:
        """Pay for a query of all columns of a table (:meth:`spend`); return the payment as models state it."""
        self.spend(self.digest(record_bytes(table)), query, cost)
        return PilotCost(query, cost.epsilon_micro, decimal_text(cost.delta), self.adjacency, self.state().name)

    def state(self) -> BudgetState:
        """Return the present content of the file, with other processes' queries."""
        return self._contents()[0]

    def remaining(self) -> Remainder:
        """Return what one further query may cost."""
        return self.state().left

    def digest(self, records: Iterable[bytes]) -> bytes:
        """Return the 32-byte digest of records under this file's key (:func:`aggregator.curator.budget.digest_of`)."""
        return digest_of(records, self._contents()[1])

    def parts(self, records: Iterable[bytes], sizes: Sequence[int]) -> list[int]:
        """Return the part of each record under this file's key (:func:`aggregator.curator.budget.parts_of`)."""
        return parts_of(records, self._contents()[1], sizes)

    def assign(self, digest: bytes, note: str = "") -> bool:
        """Assign records to this budget: the owner says that they are about the people whom this budget protects.

        Return False if the records were assigned already. In both cases the assignment is on the disk. Raises
        InputError: ``name_invalid``: the note is too long or does not print; ``argument_invalid``: no digest.
        """
        if not _is_note(note):
            raise InputError("name_invalid", "the note about the records is too long, or does not print")
        if type(digest) is not bytes or len(digest) != DIGEST_BYTES:
            raise InputError("argument_invalid", "a digest is 32 bytes")
        with self.transaction():
            if any(data.digest == digest for data in self.state().data):
                return False
            self._add("data", (digest, note, int(self._clock())))
        return True

    def spend(self, digest: bytes, query: str, cost: Cost) -> int:
        """Pay for a query, and return its running number.

        When this returns, the payment is on the disk, and the query may be answered. After a crash the same query costs
        again, and gets new noise. The text ``query`` is public and must hold no value of a record. The cost, for this
        budget's adjacency, must not depend on the records. Raises StorageError ``budget_copied``: this file is a copy,
        or was restored; nothing is spent. Raises PolicyError: ``data_unknown``: the records are not assigned to this
        budget; ``budget_exceeded``: the query would exceed the total. Nothing is then spent. Raises InputError
        ``name_invalid``: the query's text; and those of :func:`aggregator.curator.accounting.checked`.
        """
        if not _is_query(query):
            raise InputError("name_invalid", "the text of a query is too long, or does not print")
        cost = checked(cost)
        with self.transaction():
            state = self.state()
            known = [data.digest for data in state.data]
            if digest not in known:
                raise PolicyError(
                    "data_unknown",
                    f"these records are not assigned to the budget '{state.name}'; if they are about its people, its "
                    "owner assigns them: hearsay budget assign",
                )
            if not state.covers(cost):
                raise PolicyError("budget_exceeded", _refusal(state, cost))
            delta, rho = decimal_text(cost.delta), None if cost.rho is None else decimal_text(cost.rho)
            paid = (known.index(digest) + 1, query, cost.epsilon_micro, delta, rho, int(self._clock()))
            self._add("queries", paid)
        return len(state.queries) + 1

    def _contents(self) -> tuple[BudgetState, bytes]:
        """Return the file's content of one moment, and its key; a value never written raises ``budget_damaged``."""
        with self._reading():
            budget, counts, data, queries = map(self._checked, ("budget", "counts", "data", "queries"))
            closed_at = self._mark_row()[1]
        if len(budget) != 1 or counts != ((len(data), len(queries)),):
            raise SCHEMA.damaged()
        try:
            name, epsilon_micro, delta, concentrated, adjacency, made_at, key = budget[0]
            whole = total(epsilon_micro, read_decimal(delta), read_decimal(concentrated))
            assigned, paid = tuple(Data(*row) for row in data), tuple(Query(*_parsed(row)) for row in queries)
            state = BudgetState(name, adjacency, whole, made_at, assigned, paid, closed_at)
        except (HearsayError, ValueError, TypeError):
            state = None
        if state is None or not _plausible(state, key):
            raise SCHEMA.damaged()
        return state, key

    def _add(self, table: str, values: Sequence[object]) -> None:
        """Add a row to the table ``data`` or ``queries``. The caller must have opened a transaction."""
        with self._errors():
            ((number,),) = self._run(f"SELECT count(*) FROM {table}")  # noqa: S608  # names of this software
            if number >= MAX_ROWS:
                raise InputError(
                    "too_large", f"the budget file has {MAX_ROWS} rows in its table '{table}'; make another"
                )
            last = self._run(f"SELECT seal FROM {table} WHERE number = ?", (number,))  # noqa: S608
            self._write(table, _sealed(table, number + 1, values, last[0][0] if last else b""))
            ((_, data, queries, _),) = self._run("SELECT * FROM counts")
            counts = (data + (table == "data"), queries + (table == "queries"))
            self._write("counts", _sealed("counts", 1, counts, b""), "REPLACE")

    def _checked(self, table: str) -> tuple[tuple[Any, ...], ...]:
        """Return a table's rows without number and seal; raise ``budget_damaged`` if one of these is wrong."""
        before, found = b"", []
        statement = f"SELECT * FROM {table} ORDER BY number LIMIT {MAX_ROWS + 1}"  # noqa: S608
        for expected, (number, *values, sealed) in enumerate(self._run(statement), 1):
            if number != expected or sealed != self._seal(table, (number, *values, before)):
                raise SCHEMA.damaged()
            found.append(tuple(values))
            before = sealed
        return tuple(found)


def _refusal(state: BudgetState, cost: Cost) -> str:
    if state.closed_at:
        return f"the whole total of the budget '{state.name}' was counted as spent when a copy was adopted"
    left, reserved = state.left, ""
    if cost.delta > left.delta and state.total.concentrated_delta:
        reserved = f"; δ = {float(state.total.concentrated_delta):g} is reserved for concentrated accounting"
    return (
        f"the query costs ε = {format_micro(cost.epsilon_micro)} and δ = {float(cost.delta):g}; of the budget "
        f"'{state.name}' ε = {format_micro(left.epsilon_micro)} and δ = {float(left.delta):g} are left{reserved}"
    )


def _parsed(row: tuple[Any, ...]) -> tuple[int, str, Cost, int]:
    """Return from a row of the table ``queries``: index of the records, text, cost as fractions, and time."""
    data, query, epsilon_micro, delta, rho, spent_at = row
    cost = Cost(epsilon_micro, read_decimal(delta), None if rho is None else read_decimal(rho))
    return data - 1, query, checked(cost), spent_at


def _plausible(state: BudgetState, key: object) -> bool:
    times = [state.made_at, state.closed_at, *(each.assigned_at for each in state.data)]
    times += [each.spent_at for each in state.queries]
    return (
        state.adjacency in ADJACENCIES
        and is_text(state.name)
        and type(key) is bytes
        and len(key) == KEY_BYTES
        and all(type(moment) is int and abs(moment) < _LARGEST for moment in times)
        and all(type(each.digest) is bytes and len(each.digest) == DIGEST_BYTES for each in state.data)
        and all(_is_note(each.note) for each in state.data)
        and all(_is_query(each.query) and 0 <= each.data < len(state.data) for each in state.queries)
    )


def _is_query(text: object) -> bool:
    return type(text) is str and len(text) <= MAX_QUERY_CHARACTERS and text.isprintable()


def _is_note(text: object) -> bool:
    return text == "" or is_text(text)


KEY_BYTES = 32
_SET, _ROW, _PART = b"hearsay/1/curator-set", b"hearsay/1/curator-row", b"hearsay/1/curator-part"
_MISSING = b"\0"


def digest_of(records: Iterable[bytes], key: bytes) -> bytes:
    """Return the digest of a multiset of records, 32 bytes. Order does not change it; each repetition of a record does.

        HMAC-SHA256(key, "set" ‖ m₁ ‖ … ‖ m_n),   m_i = HMAC-SHA256(key, "row" ‖ record i), sorted as byte strings

    ``records``: bytes of each record (:func:`record_bytes`), else ``empty_file``. Nobody without the 32 bytes of
    ``key`` can test a guess of the records.
    """
    marks = sorted(hmac.digest(key, _ROW + record, "sha256") for record in records)
    if not marks:
        raise InputError("empty_file", "there is no record")
    return hmac.digest(key, _SET + b"".join(marks), "sha256")


def parts_of(records: Iterable[bytes], key: bytes, sizes: Sequence[int]) -> list[int]:
    """Return which part each record belongs to, by a keyed hash of the record alone.

    So one record more changes only its own part. ``sizes``: expected sizes in 256ths of the records; their sum is 256.
    """
    ends = list(accumulate(sizes))
    return [bisect_right(ends, hmac.digest(key, _PART + record, "sha256")[0]) for record in records]


def record_bytes(frame: pd.DataFrame) -> Iterator[bytes]:
    """Return the bytes of each record of a frame with all columns: the same for all files of these records.

    The order of columns, the index, outer spaces, the spelling of a number (1, 1.0, 1e0) and of a missing value make no
    difference. Records of equal bytes that differ buy no new budget.
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
    """Return a cell's bytes: a number as an exact fraction, other text, or one zero byte for a missing value."""
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


def _create_file(path: Path, budget: Sequence[object]) -> None:
    """Make a budget file, which only its owner can read. It appears complete or not at all."""
    check_output(path, force=False)
    real = Path(os.path.realpath(path))
    with storage_errors(f"'{path}' could not be written"):
        mark = new_mark(real)
    rows = {"budget": budget, "counts": (0, 0), "mark": (*mark, 0)}
    content = SCHEMA.new_file((table, _sealed(table, 1, row, b"")) for table, row in rows.items())
    try:
        write_output(path, content, mode=PRIVATE)
    except BaseException:
        if not path.exists():  # The file may exist although the flush of its folder failed.
            with suppress(OSError):
                remove_marks(real, [path_of(real, mark.nonce)])
        raise


def _check_file(path: Path) -> os.stat_result:
    """Return what the system says of a budget file. Raise an error if it is no regular file of a possible size."""
    found = None
    problem = InputError("unreadable", f"'{path}' is not a file that can be read")
    try:
        found = path.stat()
    except FileNotFoundError:
        problem = InputError("file_not_found", f"there is no budget file '{path}'; see hearsay budget new")
    except (OSError, ValueError):
        pass  # ValueError: a path with a zero byte
    if found is None or not stat.S_ISREG(found.st_mode) or not os.access(path, os.R_OK):
        raise problem
    if not 0 < found.st_size <= MAX_FILE_BYTES:
        raise SCHEMA.damaged()
    return found


def _sealed(table: str, number: int, values: Sequence[object], before: bytes) -> tuple[object, ...]:
    """Return a row of the table ``table`` with its number, and with a seal, which covers the seal of the row before."""
    return number, *values, seal(table, (number, *values, before))
