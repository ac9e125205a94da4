"""A curator's budget adds every query up and refuses what exceeds the total; it belongs to people, not to one table."""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import os
import sqlite3
import stat
from contextlib import closing
from fractions import Fraction

import pandas as pd
import pytest
from support.failures import failure, reason

from aggregator.curator import budget as budget_file
from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile, digest_of, record_bytes
from protocol.errors import PolicyError

NOW = 1_800_000_000
HALF = Cost(500_000, Fraction(0), None)
FRAME = pd.DataFrame({"class": ["e", "p", "e"], "width": ["1", "2.5", ""], "odor": ["n", "a", "n"]})


def made(path, **terms):
    terms = {"name": "pilots", "epsilon_micro": 1_000_000, "random_bytes": lambda n: b"k" * n, **terms}
    return BudgetFile.create(path / "a.budget", clock=lambda: NOW, **terms)


@pytest.fixture
def budget(tmp_path):
    with made(tmp_path) as opened:
        yield opened


@pytest.fixture
def digest(budget):
    found = budget.digest(record_bytes(FRAME))
    budget.assign(found, "all visitors")
    return found


def test_queries_add_up_and_the_one_over_the_total_is_refused(budget, digest):
    assert budget.spend(digest, "sums", HALF) == 1
    assert budget.remaining().epsilon_micro == 500_000
    assert budget.spend(digest, "sums", HALF) == 2
    error = failure(budget.spend, digest, "sums", Cost(1, Fraction(0), None))
    assert error.reason == "budget_exceeded"
    assert isinstance(error, PolicyError)
    assert "ε = 0.000001" in error.detail
    assert "ε = 0 and" in error.detail
    assert [query.cost.epsilon_micro for query in budget.state().queries] == [500_000, 500_000]


def test_what_was_spent_is_in_the_owners_file_which_holds_no_record(tmp_path, budget, digest):
    budget.spend(digest, "sums of everything", HALF)
    with BudgetFile.open(tmp_path / "a.budget") as again:
        state = again.state()
        assert (state.name, state.adjacency, state.total.epsilon_micro) == ("pilots", "change", 1_000_000)
        assert [(data.digest, data.note, data.assigned_at) for data in state.data] == [(digest, "all visitors", NOW)]
        (query,) = state.queries
        assert query == (0, "sums of everything", HALF, NOW)
        assert again.remaining().epsilon_micro == 500_000
    budget.spend(digest, "sums", HALF)
    path = tmp_path / "a.budget"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"odor" not in path.read_bytes()


def test_unknown_records_are_refused_until_their_owner_assigns_them(budget, digest):
    more = pd.concat([FRAME, FRAME.iloc[:1]])
    other = budget.digest(record_bytes(more))
    budget.spend(digest, "sums", HALF)
    assert reason(budget.spend, other, "sums", HALF) == "data_unknown"
    assert budget.remaining().epsilon_micro == 500_000
    assert budget.assign(other, "one more") is True
    budget.spend(other, "sums", HALF)
    assert reason(budget.spend, digest, "sums", HALF) == "budget_exceeded"
    assert reason(budget.spend, other, "sums", HALF) == "budget_exceeded"


def test_one_added_row_and_another_file_buy_no_new_budget(budget, digest):
    """Rows in another order, columns in another order, and numbers spelled otherwise are the same records."""
    shuffled = FRAME.iloc[::-1][["width", "odor", "class"]]
    respelled = FRAME.assign(width=[1.0, 2.5, float("nan")], odor=[" n", "a ", "n"])
    for same in (shuffled, respelled, FRAME.assign(width=["1.0", "25e-1", "?"]), FRAME.set_index("odor", drop=False)):
        assert budget.digest(record_bytes(same)) == digest
    changed = [
        FRAME.iloc[:2],
        pd.concat([FRAME, FRAME.iloc[:1]]),
        FRAME.assign(width=["1", "2.5", "3"]),
        FRAME.rename(columns={"odor": "smell"}),
        FRAME.drop(columns="odor"),
        FRAME.assign(odor=["a", "n", "n"]),
    ]
    for other in changed:
        assert budget.digest(record_bytes(other)) != digest
    assert budget.assign(digest) is False


def _spend_until_refused(path, paid):
    with BudgetFile.open(path) as budget:
        digest = budget.digest([b"a"])
        while True:
            try:
                budget.spend(digest, "q", Cost(50_000, Fraction(0), None))
            except PolicyError:
                return
            paid.put(1)


def test_two_processes_never_exceed_the_total_together(tmp_path):
    with made(tmp_path) as budget:
        budget.assign(budget.digest([b"a"]))
    context = multiprocessing.get_context("fork")
    paid = context.Queue()
    processes = [
        context.Process(target=_spend_until_refused, args=(tmp_path / "a.budget", paid)) for _ in range(2)
    ]  # fmt: skip
    for process in processes:
        process.start()
    released = sum(paid.get(timeout=60) for _ in range(20))
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert paid.empty()
    assert released == 20
    with BudgetFile.open(tmp_path / "a.budget") as budget:
        assert budget.state().spent.epsilon_micro == 1_000_000


def test_a_process_that_holds_the_file_is_waited_for_and_then_said(tmp_path, budget, digest, monkeypatch):
    monkeypatch.setattr(budget_file, "SCHEMA", budget_file.SCHEMA._replace(busy_seconds=0.05))
    with BudgetFile.open(tmp_path / "a.budget") as second:
        with closing(sqlite3.connect(tmp_path / "a.budget", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert reason(second.spend, digest, "q", HALF) == "budget_busy"
            holder.execute("ROLLBACK")
        assert second.spend(digest, "q", HALF) == 1


def test_a_file_that_was_replaced_meanwhile_is_not_spent_from(tmp_path, budget, digest):
    path = tmp_path / "a.budget"
    copy = path.read_bytes()
    path.unlink()
    assert reason(budget.spend, digest, "q", HALF) == "budget_lost"
    path.write_bytes(copy)
    assert reason(budget.spend, digest, "q", HALF) == "budget_lost"


# Files that come in ------------------------------------------------------------------------------------


def changed(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE budget SET epsilon_micro = 9000000",
        "UPDATE budget SET key = x'00'",
        "UPDATE budget SET delta = '1/0'",
        "UPDATE budget SET name = 1.5",
        "UPDATE queries SET epsilon_micro = 1",
        "UPDATE queries SET epsilon_micro = -1",
        "UPDATE queries SET rho = 'nan'",
        "DELETE FROM queries WHERE number = 2",
        "DELETE FROM queries",
        "DELETE FROM data",
        "DELETE FROM budget",
        "DELETE FROM counts",
        "DELETE FROM mark",
        "UPDATE mark SET closed_at = 1",
        "UPDATE queries SET number = 3 WHERE number = 2",
        "UPDATE data SET digest = x'00'",
        "INSERT INTO budget (number, name) VALUES (2, 'more')",
        "DROP TABLE queries",
        "CREATE TABLE other (x)",
        "CREATE TRIGGER t AFTER INSERT ON queries BEGIN DELETE FROM queries; END",
        "CREATE VIEW v AS SELECT 1",
        "PRAGMA application_id = 1",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 3",
    ],
)  # fmt: skip
def test_a_changed_file_is_refused(tmp_path, budget, digest, statement):
    budget.spend(digest, "one", HALF)
    budget.spend(digest, "two", HALF)
    budget.close()
    changed(tmp_path / "a.budget", statement)
    expected = "budget_newer" if statement.endswith("user_version = 3") else "budget_damaged"
    assert reason(BudgetFile.open, tmp_path / "a.budget") == expected


ODD = [None, 1.5, float("inf"), -1, 0, 1 << 62, "", "x", "1e999999999", "1/3", "-1", "\x1b[2J", b"", b"x" * 40]
ODD += ["9" * 5000]
REFUSED = {
    "delta": ["1e-100000000", "0.1_0", "\u0663/\u0664"],
    "rho": ["1e100000000", "1e400", "9" * 4000, "1" + "0" * 12, "1/3", "0." + "0" * 30 + "1"],
    "query": ["a\x1b[2J\nb", "q" * 3_000_000],
    "note": ["a\x1b[2J", "n" * 3_000_000],
    "digest": [b"d" * 31],
}
"""Column → values that the writer refuses, so they are damage in a file."""


@pytest.mark.parametrize(("table", "column"), [
    (table, column) for table, columns in budget_file._TABLES.items() for column in columns
])  # fmt: skip
def test_odd_values_with_right_seals_are_refused_or_read(tmp_path, table, column):
    """Whoever computes seals anew can write any total; but no value makes the reader fail in another way, or hang."""
    row, place = SEALED[table], budget_file._TABLES[table].index(column)
    assert reason(_opened, _sealed_file(tmp_path / "right.hsb", {})) is None
    for number, odd in enumerate([*REFUSED.get(column, []), *ODD]):
        path = _sealed_file(tmp_path / f"{number}.hsb", {table: (*row[:place], odd, *row[place + 1 :])})
        allowed = {"budget_damaged"} if odd in REFUSED.get(column, []) else {None, "budget_damaged"}
        assert reason(_opened, path) in allowed, odd


SEALED = {
    "budget": ("w", 1_000_000, "0.1", "0.05", "change", NOW, b"k" * 32),
    "counts": (1, 1),
    "data": (b"d" * 32, "note", NOW),
    "mark": (b"n" * 16, 5, NOW * 10**9, 0),
    "queries": (1, "q", 5, "0", "0.5", NOW),
}
"""One row of every table of a budget file, without number and seal."""


def _sealed_file(path, changes):
    """A budget file of the rows of SEALED; ``changes`` has other rows for some tables. All seals are right."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in budget_file.SCHEMA.tables.values():
            connection.execute(statement)
        for name, values in {**SEALED, **changes}.items():
            row = budget_file._sealed(name, 1, values, b"")
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
        connection.execute(f"PRAGMA application_id = {budget_file.SCHEMA.application_id}")
        connection.execute(f"PRAGMA user_version = {budget_file.SCHEMA.version}")
        path.write_bytes(connection.serialize())
    return path


@pytest.mark.parametrize(
    "content",
    [b"", b"class,odor\ne,n\n", b"SQLite format 3\0" + bytes(4080), hashlib.shake_128(b"chance").digest(4096), None],
    ids=["nothing", "records", "an empty database", "chance", "a database of another program"],
)
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "a.budget"
    if content is None:
        changed(path, "CREATE TABLE queries (x)")
    else:
        path.write_bytes(content)
    assert reason(BudgetFile.open, path) == "budget_damaged"


def test_every_flipped_byte_is_refused_or_changes_nothing(tmp_path, budget, digest):
    budget.spend(digest, "one", HALF)
    before = budget.state()
    budget.close()
    path, other = tmp_path / "a.budget", tmp_path / "b.budget"
    content = path.read_bytes()
    written = [position for position, value in enumerate(content) if value]
    for position in (*range(0, len(content), 997), *written[::9]):
        other.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        found = reason(_opened, other)
        assert found in {None, "budget_damaged", "budget_newer"}, position
        assert found or _opened(other) == before, position


def _opened(path):
    with BudgetFile.open(path) as budget:
        return budget.state()


def test_what_is_no_file_is_said_so(tmp_path):
    assert reason(BudgetFile.open, tmp_path / "none") == "file_not_found"
    assert reason(BudgetFile.open, tmp_path) == "unreadable"
    assert reason(BudgetFile.open, str(tmp_path) + "/a\0b") == "unreadable"
    os.mkfifo(tmp_path / "pipe")
    assert reason(BudgetFile.open, tmp_path / "pipe") == "unreadable"


def test_a_path_with_signs_of_addresses_is_that_path_and_no_file_is_replaced(tmp_path):
    folder = tmp_path / "a?b#c%41"
    folder.mkdir()
    with made(folder) as budget:
        budget.assign(budget.digest([b"a"]))
    for path in (folder / "a.budget", f"/{folder}/a.budget"):
        with BudgetFile.open(path) as budget:
            assert len(budget.state().data) == 1
    assert reason(made, folder) == "output_exists"


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({"name": ""}, "name_invalid"),
        ({"name": "a\nb"}, "name_invalid"),
        ({"epsilon_micro": 0}, "epsilon_invalid"),
        ({"epsilon_micro": 10**12}, "epsilon_invalid"),
        ({"delta": Fraction(1)}, "delta_invalid"),
        ({"delta": Fraction(-1, 10)}, "delta_invalid"),
        ({"delta": Fraction(1, 3)}, "delta_invalid"),
        ({"delta": Fraction(1, 10), "concentrated_delta": Fraction(1, 5)}, "delta_invalid"),
        ({"delta": Fraction(1, 10), "concentrated_delta": Fraction(1, 30)}, "delta_invalid"),
        ({"adjacency": "bounded"}, "adjacency_unknown"),
    ],
)
def test_terms_are_checked(tmp_path, terms, expected):
    assert reason(lambda: made(tmp_path, **terms)) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("epsilon_micro", [0, -5, True, 10**12])
def test_costs_are_checked(budget, digest, epsilon_micro):
    assert reason(budget.spend, digest, "q", Cost(epsilon_micro, Fraction(0), None)) == "epsilon_invalid"
    small = Fraction(1, 10**31)
    deltas = [(Fraction(-1, 2), None), (Fraction(1), None), (1 - small, None), (-small, None)]
    for delta, rho in deltas + [(Fraction(0), Fraction(rho)) for rho in (0, -1, 10**12, 10**12 - small)]:
        assert reason(budget.spend, digest, "q", Cost(1, delta, rho)) == "delta_invalid"
    assert budget.state().queries == ()


def test_texts_and_digests_are_checked_and_a_full_table_is_refused(budget, digest, monkeypatch):
    assert reason(budget.assign, digest, "a\x1b[2J") == "name_invalid"
    assert reason(budget.assign, b"short") == "argument_invalid"
    assert reason(budget.digest, []) == "empty_file"
    assert reason(budget.spend, digest, "a\nb", HALF) == "name_invalid"
    assert reason(budget.spend, digest, "q" * 1001, HALF) == "name_invalid"
    monkeypatch.setattr(budget_file, "MAX_ROWS", 1)
    small = Cost(1, Fraction(0), None)
    budget.spend(digest, "q", small)
    assert reason(budget.spend, digest, "q", small) == "too_large"
    assert len(budget.state().queries) == 1


def test_a_file_that_can_only_be_read_is_shown_and_not_spent_from(tmp_path, budget, digest, monkeypatch):
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    with BudgetFile.open(tmp_path / "a.budget") as read_only:
        assert len(read_only.state().data) == 1
        assert reason(read_only.spend, digest, "q", HALF) == "io_failed"


def test_the_digest_is_that_of_the_formats():
    """Computed from formats.md, section 10, without the project's code."""
    key = b"k" * 32

    def sized(raw):
        return len(raw).to_bytes(4, "big") + raw

    def mac(message):
        return hmac.new(key, message, hashlib.sha256).digest()

    records = [
        sized(b"class") + sized(b"te") + sized(b"width") + sized(b"n5/2"),
        sized(b"class") + sized(b"tp") + sized(b"width") + sized(b"\0"),
    ]
    marks = sorted(mac(b"hearsay/1/curator-row" + record) for record in records)
    expected = mac(b"hearsay/1/curator-set" + b"".join(marks)).hex()
    assert expected == "0f7739f408f896f437ae3e9fbab9f6f24e6f7848998bfbc14479ea289a57fb6b"
    frame = pd.DataFrame({"width": ["2.50", "?"], "class": ["e", "p"]})
    assert digest_of(record_bytes(frame), key).hex() == expected
