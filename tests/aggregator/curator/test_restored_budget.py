"""A budget file that is copied, moved or restored can be read, and pays for nothing until its owner adopts it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from fractions import Fraction

import pytest
from support.failures import reason
from support.killed import every_death

from aggregator.common.databases import marks_beside
from aggregator.curator import budget as budget_file
from aggregator.curator.accounting import Cost
from aggregator.curator.budget import BudgetFile

NOW = 1_800_000_000
TENTH = Cost(100_000, Fraction(0), None)
PEOPLE = (b"Ann", b"Bob")


@pytest.fixture
def path(tmp_path):
    """A budget of 1, of which 0.1 was spent."""
    (tmp_path / "ward").mkdir()
    path = tmp_path / "ward" / "ward.hsb"
    with BudgetFile.create(path, name="ward", epsilon_micro=1_000_000) as made:
        made.assign(made.digest(PEOPLE))
    spend(path)
    return path


def spend(path, cost=TENTH):
    with BudgetFile.open(path) as budget:
        return budget.spend(budget.digest(PEOPLE), "a number", cost)


def left(path) -> int:
    with BudgetFile.open(path) as budget:
        return budget.remaining().epsilon_micro


def over(old, path) -> None:
    path.write_bytes(old.read_bytes())


def whole_folder(old, path) -> None:
    subprocess.run(["cp", "-a", f"{old.parent}/.", str(path.parent)], check=True)


@pytest.mark.parametrize("restore", [over, whole_folder])
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_an_older_file_pays_for_nothing(path, tmp_path, queries, restore):
    shutil.copytree(path.parent, tmp_path / "old")
    for _ in range(queries):
        spend(path)
    open_before = BudgetFile.open(path)
    restore(tmp_path / "old" / path.name, path)
    assert left(path) == 900_000  # It can be read: it is a proof of what was spent until then.
    assert reason(spend, path) == "budget_copied"
    assert reason(open_before.spend, open_before.digest(PEOPLE), "a number", TENTH) == "budget_copied"
    assert reason(open_before.assign, bytes(32)) == "budget_copied"
    open_before.close()


def test_a_copy_elsewhere_pays_for_nothing_and_the_original_goes_on(path, tmp_path):
    shutil.copytree(path.parent, tmp_path / "copy")
    assert reason(spend, tmp_path / "copy" / path.name) == "budget_copied"
    shutil.copy(path, tmp_path / "alone.hsb")
    assert reason(spend, tmp_path / "alone.hsb") == "budget_copied"
    assert spend(path) == 2
    link = tmp_path / "link.hsb"
    link.symlink_to(path)
    assert spend(link) == 3
    path.parent.rename(tmp_path / "elsewhere")
    assert spend(tmp_path / "elsewhere" / path.name) == 4


def test_a_journal_of_sqlite_that_is_put_back_undoes_no_payment(path, tmp_path):
    """SQLite would roll the file back to the pages of such a journal, and to the mark that these name."""
    journal, pages = path.with_name(f"{path.name}-journal"), tmp_path / "journal"
    child = os.fork()
    if child == 0:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA cache_size = 1")
            connection.execute("BEGIN IMMEDIATE")
            for table in ("counts", "queries", "mark"):
                connection.execute(f"UPDATE {table} SET seal = zeroblob(5000)")
            shutil.copy(journal, pages)
            os._exit(0)
    os.waitpid(child, 0)
    BudgetFile.open(path).close()
    assert pages.stat().st_size > 512
    spend(path)
    shutil.copy(pages, journal)
    assert reason(spend, path) in {"budget_copied", "budget_damaged", None}
    if reason(spend, path) is None:
        assert left(path) <= 700_000  # The journal was none that SQLite takes.


def test_adoption_counts_the_whole_total_unless_the_owner_says_otherwise(path, tmp_path):
    old = tmp_path / "old.hsb"
    shutil.copy(path, old)
    spend(path)
    over(old, path)
    assert reason(BudgetFile.adopt, tmp_path / "none.hsb") == "file_not_found"
    with BudgetFile.adopt(path, nothing_since=True) as adopted:
        assert adopted.remaining().epsilon_micro == 900_000
    assert spend(path) == 2
    with BudgetFile.adopt(path, clock=lambda: NOW) as adopted:
        assert adopted.state().closed_at == NOW
        assert adopted.state().spent.epsilon_micro == 200_000
        assert adopted.remaining() == (0, 0, 0)
        assert adopted.assign(adopted.digest((b"Cy",)))
        assert (
            reason(adopted.spend, adopted.digest(PEOPLE), "a number", Cost(1, Fraction(0), None)) == "budget_exceeded"
        )
    with BudgetFile.adopt(path, nothing_since=True) as again:
        assert again.state().closed_at == NOW  # What was counted stays counted.


def test_whatever_a_kill_leaves_was_paid_or_not_and_an_older_file_is_refused(path, tmp_path):
    seen = set()
    for _ in every_death(lambda: spend(path, Cost(1, Fraction(0), None))):
        seen.add(left(path))
        shutil.copytree(path.parent, tmp_path / "copy")
        spend(path, Cost(1000, Fraction(0), None))
        assert len(marks_beside(path)) == 1
        kept = tmp_path / "kept"
        path.parent.rename(kept)
        shutil.copytree(tmp_path / "copy", path.parent)
        assert reason(spend, path) == "budget_copied"
        shutil.rmtree(path.parent)
        shutil.rmtree(tmp_path / "copy")
        kept.rename(path.parent)
    assert len(seen) >= 2


def test_a_file_that_could_not_be_made_leaves_no_mark(path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    assert reason(BudgetFile.create, path, name="ward", epsilon_micro=1) == "output_exists"
    assert len(marks_beside(path)) == 1
    other = path.with_name("other.hsb")
    monkeypatch.setattr(budget_file, "write_output", full)
    with pytest.raises(OSError, match="No space"):
        BudgetFile.create(other, name="ward", epsilon_micro=1)
    assert marks_beside(other) == []
