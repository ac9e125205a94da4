"""A fit under a budget: refused before it is paid, paid before it is known, added up, and a model that devices use."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from support import curators
from support.cards import check_card
from support.curators import SCHEMA
from support.failures import failure, reason
from support.killed import every_death

from aggregator.common.sealing import Cost
from aggregator.curator import fitting
from aggregator.curator.budget import BudgetFile, record_bytes
from aggregator.curator.fitting import doubts_of, fit_records, made_up_records
from aggregator.curator.methods.table import METHODS
from aggregator.curator.terms import FAMILIES, FitTerms
from aggregator.publishing import keys
from aggregator.publishing.workspace import create_workspace, open_workspace
from edge_sdk import Device
from protocol import canonical
from protocol.documents.campaign import PilotCost
from protocol.documents.envelope import read_envelope
from protocol.questions import ADD_REMOVE, CHANGE, CHANGE_FEATURES
from protocol.schema import Label, build_schema

NOW = 1_900_000_000


def people(rows=400, seed=1):
    """Records as text, as a file holds them."""
    found = curators.people(rows, seed)
    return found.assign(size=found["size"].astype(float).clip(0.1, 9.9).map("{:.3f}".format))


TABLE = people()


@pytest.fixture(autouse=True)
def _without_forecast(monkeypatch):
    """The expected accuracy takes most of the time of a fit; ``test_fit.py`` of the commands has it."""
    monkeypatch.setattr(fitting, "publish_model", partial(fitting.publish_model, foretell=None))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return create_workspace(tmp_path_factory.mktemp("curator") / "work", name="ward", now=NOW)


def made(path, adjacency=CHANGE, micro=2_000_000, table=TABLE):
    budget = BudgetFile.create(path / "w.hsb", name="ward 7", epsilon_micro=micro, adjacency=adjacency)
    budget.assign(budget.digest(record_bytes(table)))
    return budget


@pytest.fixture
def budget(tmp_path):
    with made(tmp_path) as opened:
        yield opened


def fitted(workspace, budget, table=TABLE, micro=1_000_000, **options):
    terms = options.pop("terms", None) or FitTerms("sums", micro, adjacency=budget.adjacency)
    return fit_records(workspace, table, SCHEMA, terms, budget, name="ward", now=NOW, **options)


NOISES = {"smooth": "gamma4", "smooth-trimmed": "gamma4", "bun-steinke": "student-t"}
"""Method → a kind of noise with pure ε, of the methods that name one."""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("adjacency", [CHANGE, CHANGE_FEATURES])
def test_a_device_verifies_the_model_and_classifies_with_it(tmp_path, workspace, method, adjacency):
    terms = FitTerms(method, 60_000_000, adjacency=adjacency, noise=NOISES.get(method))
    with made(tmp_path, adjacency, micro=60_000_000) as budget:
        if adjacency not in METHODS[method].adjacencies:
            assert reason(fitted, workspace, budget, terms=terms) == "adjacency_uncovered"
            return
        found = fitted(workspace, budget, terms=terms)
        assert 0 <= found.left.epsilon_micro < 100
    with Device.open(None, trust=workspace.root_bytes, clock=lambda: NOW) as device:
        model = device.install(found.signed.raw)
        rows = people(100, seed=2).to_dict("records")
        right = sum(model.predict({"colour": row["colour"], "size": row["size"]}) == row["label"] for row in rows)
    assert right >= 80
    card = found.signed.document.card
    assert card["budget"] == "ward 7"
    check_card(found.signed, "central")
    assert (card["method"], card["adjacency"], card["epsilon_total"], card["delta"]) == (method, adjacency, "60", "0")
    assert (card["noise"], card["division"]) == (NOISES.get(method, "discrete-laplace"), "2:1")


@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_are_signed_and_installed(tmp_path, workspace, family):
    with made(tmp_path, ADD_REMOVE) as budget:
        found = fitted(workspace, budget, terms=FitTerms("sums", 2_000_000, adjacency=ADD_REMOVE, family=family))
    with Device.open(None, trust=workspace.root_bytes, clock=lambda: NOW) as device:
        assert device.install(found.signed.raw).predict({"size": "9"}) == "b"


def test_a_second_fit_on_the_same_records_is_added_up_and_refused_when_over(workspace, budget):
    first, second = (fitted(workspace, budget) for _ in range(2))
    assert (first.query, second.query) == (1, 2)
    assert second.left.epsilon_micro < 10
    assert reason(fitted, workspace, budget) == "budget_exceeded"
    again = TABLE.iloc[::-1][["size", "label", "colour"]].reset_index(drop=True)
    assert reason(fitted, workspace, budget, again) == "budget_exceeded"
    assert first.signed.raw != second.signed.raw


def test_the_card_says_what_private_pilots_of_the_schema_cost(workspace, budget):
    paid = PilotCost("bins of 1 feature", 500_000, "0", budget.adjacency, "ward 6")
    card = fitted(workspace, budget, pilots=(paid,)).signed.document.card
    assert card["pilots"] == [paid.shown]
    assert "ward 6" in paid.shown
    assert "pilots" not in fitted(workspace, budget).signed.document.card


def test_the_payment_is_in_the_file_before_the_noise_is_drawn(tmp_path, workspace, budget):
    def random_bytes(count):
        with BudgetFile.open(tmp_path / "w.hsb") as other:
            seen.append(len(other.state().queries))
        raise InterruptedError

    seen = []
    with pytest.raises(InterruptedError):
        fitted(workspace, budget, random_bytes=random_bytes)
    assert seen == [1]
    assert budget.state().queries[0].query == "fit 'ward': sums, gaussian, ε = 1 divided 2:1"


@pytest.mark.slow
def test_a_fit_that_is_killed_anywhere_has_paid_for_what_left(tmp_path, workspace):
    """Killed before each change of a file that Python makes, no model is in the workspace that was not paid."""
    deaths = 0
    work = shutil.copytree(workspace.path, tmp_path / "work")
    start = len(list(work.glob("published/*.hsm")))
    with made(tmp_path, micro=900_000_000) as budget:
        pass
    opened = open_workspace(work)

    def fit_once():
        with BudgetFile.open(tmp_path / "w.hsb") as budget:
            fitted(opened, budget)

    for deaths in every_death(fit_once):
        with BudgetFile.open(tmp_path / "w.hsb") as budget:
            assert len(list(work.glob("published/*.hsm"))) - start <= len(budget.state().queries), deaths
    assert deaths >= 4
    with BudgetFile.open(tmp_path / "w.hsb") as budget:
        assert len(budget.state().queries) > len(list(work.glob("published/*.hsm"))) - start > 0


def test_what_can_not_be_signed_is_refused_before_anything_is_paid(tmp_path, budget, monkeypatch):
    monkeypatch.setattr(keys, "COST", Cost(1, 8192))
    sealed = create_workspace(tmp_path / "work", name="ward", now=NOW, passphrase=b"right")
    wrong = sealed._replace(passphrase=lambda: b"wrong")
    assert reason(fitted, wrong, budget) == "passphrase_wrong"
    assert reason(fitted, sealed, budget, days=0) == "terms_invalid"
    too_late = {"now": NOW + 20 * 365 * 86_400}
    terms = FitTerms("sums", 1_000_000)
    assert reason(fit_records, sealed, TABLE, SCHEMA, terms, budget, name="ward", **too_late) == "expired"
    assert budget.state().queries == ()
    assert list((tmp_path / "work").glob("**/*.hsm")) == []


# Bad input -----------------------------------------------------------------------------------------------


def with_b(rows):
    """The records with so few of class b."""
    return pd.concat([TABLE[TABLE["label"] == "a"], TABLE[TABLE["label"] == "b"].iloc[:rows]], ignore_index=True)


def with_sizes(*sizes):
    table = TABLE.copy()
    table.loc[: len(sizes) - 1, "size"] = sizes
    return table


@pytest.mark.parametrize(
    ("table", "terms", "expected"),
    [
        (TABLE, {"method": "none"}, "method_unknown"),
        (TABLE, {"adjacency": ADD_REMOVE}, "adjacency_differs"),
        (TABLE, {"postprocess": "none"}, "postprocess_unknown"),
        (TABLE.iloc[:0], {}, "one_class"),
        (with_b(0), {}, "one_class"),
        (TABLE.drop(columns="label"), {}, "label_missing"),
        (TABLE.drop(columns="size"), {}, "columns_missing"),
        (TABLE.assign(size="big"), {}, "value_invalid"),
        (with_sizes("-5"), {"strict": True}, "outside_bounds"),
        (with_b(1), {"method": "global-var", "adjacency": CHANGE_FEATURES}, "class_too_small"),
        (with_b(1), {"method": "smooth", "adjacency": CHANGE_FEATURES, "noise": "gamma4"}, "class_too_small"),
    ],
)
def test_what_can_not_be_fitted_is_refused_before_anything_is_paid(workspace, tmp_path, table, terms, expected):
    adjacency = CHANGE_FEATURES if expected == "class_too_small" else CHANGE
    terms = dict(terms)
    options = {"strict": terms.pop("strict", False)}
    with made(tmp_path, adjacency) as budget:
        found = FitTerms("sums", 1_000_000)._replace(**terms)
        assert reason(fitted, workspace, budget, table, terms=found, **options) == expected
        assert budget.state().queries == ()


FEW = "class 'b' has fewer than 2 records: what the model says of it is noise"
OUTSIDE = "numbers of 'size' outside the schema's bounds, counted as the nearer bound: 3"


@pytest.mark.parametrize(
    ("table", "adjacency", "said"),
    [
        (with_b(1), CHANGE, [FEW]),
        (with_b(1), ADD_REMOVE, [FEW]),
        (with_sizes("-5", "11", "1e9"), CHANGE, [OUTSIDE]),
        (with_sizes("0", "10"), CHANGE, ["bounds of 'size'"]),
        (TABLE.assign(colour="red", size="5"), CHANGE, ["'colour'", "'size'"]),
        (with_sizes(*["n/a"] * 10), CHANGE, []),
    ],
)
def test_records_that_are_doubted_make_a_model_and_the_card_keeps_silent(workspace, tmp_path, table, adjacency, said):
    with made(tmp_path, adjacency, table=table) as budget:
        found = fitted(workspace, budget, table, missing=("n/a",))
    assert all(part in doubt for part, doubt in zip(said, found.doubts, strict=said != [OUTSIDE])), found.doubts
    assert np.isfinite(found.signed.model.scores(TABLE.head(5))).all()
    card = found.signed.document.card
    assert not any("outside" in str(value) or "clip" in str(value) for value in (*card, *card.values()))


def test_the_number_of_records_leaves_with_noise_where_it_is_not_public(workspace, tmp_path):
    with made(tmp_path, ADD_REMOVE, micro=200_000) as budget:
        found = fitted(workspace, budget, micro=200_000, random_bytes=lambda count: bytes(range(count)))
    assert found.signed.document.card["reports"] != len(TABLE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("classes", [2, 51, 60, 256])
def test_made_up_records_have_two_of_every_class(method, classes):
    """Every method takes them, also with the largest trimmed share."""
    schema = build_schema(Label("label", [f"c{each}" for each in range(classes)]), SCHEMA.features)
    records = made_up_records(schema)
    assert np.bincount(records.labels, minlength=classes).min() >= 2
    assert list(doubts_of(records)) == []
    assert records.rows >= fitting.REHEARSED
    assert records.codes.max(axis=0).tolist() == [feature.size - 1 for feature in SCHEMA.observed]
    terms = FitTerms(method, 1_000_000, adjacency=CHANGE_FEATURES, noise=NOISES.get(method), trim_micro=499_999)
    METHODS[method].check_records(records, terms)


def test_a_curators_model_does_not_take_the_name_of_a_model_from_devices(workspace, budget):
    """Curator, nodes and devices shared a name: a device installed the curator's model as the next of its own."""
    name = "a name of its own"
    terms = FitTerms("sums", 1_000_000, adjacency=CHANGE)
    made = fit_records(workspace, TABLE, SCHEMA, terms, budget, name=name, now=NOW)
    body = canonical.unpack(read_envelope(made.signed.raw, "model").payload)

    def local(version, before):
        card = body["card"] | {"trust": "local"}
        return canonical.pack(body | {"version": version, "previous": before, "card": card})

    error = failure(workspace.publish, "model", name, NOW, local)
    assert error.reason == "name_taken"
    assert "the model 'a name of its own' of this workspace is of trust 'central'" in str(error)
    assert workspace.latest("model", name).version == 1
