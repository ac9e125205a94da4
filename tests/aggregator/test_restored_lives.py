"""What left a dealer, a curator, a publisher and a store is what their files say, whatever happened to the files.

A life (``support.restored``) is acts of the software by chance, kills at any moment of an act, and misfortunes: single
files and whole folders replaced by old ones, lost files, copies that are used elsewhere, other machine ids. Outside of
the folder stands all that left: key books with their serial numbers, released sets, paid queries with ε and δ, versions
of documents, tallies. After every act it is compared with what the journal, budget, history or manifest says. A state
is refused, or it gives the same answer; never a second different one.

*What can not be noticed*, and so does not happen in a life:

- an older state of the whole disk or virtual machine, with the kernel's times of the files;
- a dealer or curator of whom two copies are used, after the keeper said at an adoption that no other one is;
- an old copy of a whole workspace, or an old history together with the loss of the copies in ``published/``;
- an old manifest of a store together with an old lock file. An old copy of a whole store is as good as it was.

After an adoption the dealer may give a version of a key book a second time: nodes refuse that. All else holds across
adoptions: one set of a period, a serial number for one party and number u, and no ε beyond the total.
"""

from __future__ import annotations

import random

import pytest
from support.restored import CuratorLife, DealerLife, StoreLife, WorkspaceLife

from aggregator.common import databases
from aggregator.curator import budget
from aggregator.nodes.dealer import dealer, issuing, journal
from aggregator.publishing.workspace import Workspace
from aggregator.reports.storage import manifest

STEPS = 250
GROUPS = [(DealerLife, 70), (CuratorLife, 50), (WorkspaceLife, 20), (StoreLife, 10)]
"""150 lives."""
EACH = 5
"""Lives of one test, so that several processes share them."""


@pytest.fixture(autouse=True)
def _own_world(monkeypatch):
    """Lives have machine ids of their own, and quick powers; all is as before afterwards."""
    for module, name in ((dealer, "machine_mark"), (issuing, "release_elements")):
        monkeypatch.setattr(module, name, getattr(module, name))


def lived(kind, root, seed, steps=STEPS):
    """A life to its end, or to its first difference."""
    root.mkdir()
    life = kind(root, random.Random(f"{kind.__name__} {seed}"))
    for _ in range(steps):
        life.step()
        if life.differences:
            break
    return life


@pytest.mark.parametrize("kind", [kind for kind, _ in GROUPS])
def test_what_left_is_what_the_files_say(tmp_path, kind):
    life = lived(kind, tmp_path / "life", "short", 60)
    assert life.differences == []
    assert life.done >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first"),
    [
        pytest.param(kind, first, marks=[pytest.mark.deep] if first >= lives // 6 else [])
        for kind, lives in GROUPS
        for first in range(0, lives, EACH)
    ],
)
def test_150_lives_of_250_steps_have_no_difference(tmp_path, kind, first):
    lives = [lived(kind, tmp_path / str(seed), seed) for seed in range(first, first + EACH)]
    assert [life.differences for life in lives] == [[]] * EACH
    assert sum(life.done for life in lives) >= 25 * EACH


def _next_serial(own, campaign):
    row = own.campaign(campaign)
    return row.next_serial if row else 1


class _NeverBegun:
    @staticmethod
    def period_at(_):
        return -1


PLAIN_REMOVE, PLAIN_KEEPER = databases.remove_marks, journal.Journal.keeper
MISTAKES = {
    "a journal that is one change old passes, as after a kill": (DealerLife, [
        (databases, "remove_marks", lambda ledger, marks: PLAIN_REMOVE(ledger, marks[1:])),
        (journal.Journal, "_superfluous_marks", lambda _: []),
    ]),
    "no time of the mark": (DealerLife, [
        (databases, "is_there", lambda ledger, named: databases.path_of(ledger, named.nonce).exists())
    ]),
    "no check of the original": (DealerLife, [(journal.Journal, "check_original", lambda _: None)]),
    "serials go on after an adoption": (DealerLife, [
        (module, "serial_after_adoption", _next_serial) for module in (dealer, issuing)
    ]),
    "periods stay open after an adoption": (DealerLife, [
        (dealer, "parsed_campaign", lambda _: _NeverBegun),
        (journal.Journal, "keeper", lambda self: PLAIN_KEEPER(self)._replace(adopted_at=0)),
    ]),
    "released before recorded": (DealerLife, [(journal.Journal, "add_release", lambda *_: None)]),
    "budget without a mark": (CuratorLife, [(budget.BudgetFile, "check_original", lambda *_: None)]),
    "budget with a step of tolerance": (CuratorLife, [(databases, "remove_marks", lambda *_: None)]),
    "adoption counts nothing": (CuratorLife, [(budget.BudgetFile, "close_total", lambda *_: None)]),
    "query forgotten": (CuratorLife, [(budget.BudgetFile, "spend", lambda *_: 1)]),
    "history as it is": (WorkspaceLife, [(Workspace, "complete_history", lambda _: None)]),
    "any manifest": (StoreLife, [(manifest, "noted_generation", lambda _: 0)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "patches"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found(tmp_path, monkeypatch, kind, patches):
    for owner, name, wrong in patches:
        monkeypatch.setattr(owner, name, wrong)
    lives = (lived(kind, tmp_path / str(seed), seed) for seed in range(40))
    assert any(life.differences for life in lives)
