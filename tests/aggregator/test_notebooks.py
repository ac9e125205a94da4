"""What a notebook shows holds no markup but ours, whatever names a campaign has."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import stores
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator import create_workspace, make_campaign
from aggregator.common import notebooks, sealing
from aggregator.models.scoring import Model, predict_file
from aggregator.operations.status import status
from aggregator.planning.feature_selection.codings import Cut, Way
from aggregator.planning.feature_selection.forward_selection import Candidate
from aggregator.planning.feature_selection.from_pilot import Accuracy, PilotDesign
from aggregator.publishing import keys
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.reports.intake.sources import Unreadable
from aggregator.reports.intake.transaction import IngestSummary
from protocol.features import Categorical
from protocol.schema import Label, build_schema

OURS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p"}
PANDAS = {"style"}
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table><b>", "&lt;i&gt;", "'x"]


class Seen(HTMLParser):
    """Tags, attributes and text of a document."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts = set(), set(), []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.texts.append(data)


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_a_text_is_a_text(name):
    shown = notebooks.facts(name, {name: name}) + notebooks.table([name], [[name]])
    found = Seen(shown)
    assert found.tags <= OURS
    assert not found.attributes
    if name.isprintable() and name:
        assert found.texts.count(name) == 5
    assert not any(ord(character) < 0x20 for text in found.texts for character in text)


def test_turned_text_is_replaced_and_a_long_table_says_how_much_more_there_is():
    assert notebooks.text("a\u202eb\u200bc\x1b[31m") == "a\ufffdb\ufffdc\ufffd[31m"
    shown = notebooks.table(["n"], [[number] for number in range(100)])
    assert (shown.count("<tr>"), "and 40 more" in shown) == (notebooks.MOST_ROWS + 1, True)


def tables_of(name):
    """Results with this name in them, each with texts that its table shows."""
    yield SchemaFile(name, build_schema(Label("class", ("no", name)), [Categorical(name, ("a", "b"))])), (
        "Schema", name, f"no, {name}", "all features",
    )  # fmt: skip
    yield IngestSummary(3, 1, (Unreadable(name, "empty_file"),), 10, 2, {"invalid_message": 4}), (
        "Ingest", "10", "2", "set aside: invalid_message", f"not read: {name}", "empty_file",
    )  # fmt: skip
    schema = build_schema(
        Label("class", ("no", name)), [Categorical(name, ("a", "b")), Categorical("odor", ("c", "d"))]
    )
    path = tuple(Candidate(ways, np.full(4, 0.5)) for ways in ((Way(0),), (Way(0), Way(1))))
    designed = PilotDesign(
        SchemaFile("s", schema), (Cut(Way(0), 2),), path, path[0], Accuracy(0.9, 0.8, 0.95), Accuracy(0.7, 0.6, 0.8),
        lead=(0.2, 0.01), largest=(name, 0.6), used=4, records=4,
    )  # fmt: skip
    yield designed, (
        "Design", name, "1 *", "90.0% (80.0% to 95.0%)", f"{name} (60.0%)", designed.verdict,
        "all, as the schema states them",
    )  # fmt: skip
    yield designed._replace(fleet=None, alone=None, lead=None), ("Design",)


@pytest.mark.parametrize("name", HOSTILE)
def test_results_are_tables_without_markup_of_others(name):
    for result, texts in tables_of(name):
        found = Seen(result._repr_html_())
        assert (found.tags <= OURS, found.attributes, set(texts) - set(found.texts)) == (True, set(), set())
    assert "fleet" not in found.texts


@pytest.fixture
def hostile(tmp_path):
    """A store and a model of a campaign whose every name is markup."""
    schema = build_schema(Label(HOSTILE[0], HOSTILE[1:3]), [Categorical(HOSTILE[3], [HOSTILE[4], HOSTILE[1]])])
    publisher = Publisher(schema=schema)
    raw = publisher.campaign(name=HOSTILE[0])
    campaign = opened(raw)
    store = stores.stored(tmp_path, raw, batch(campaign, [report(campaign, n, 0) for n in range(40)]), now=NOW)
    (tmp_path / "m.hsm").write_bytes(publisher.model(name=HOSTILE[0]))
    return store, Model.load(tmp_path / "m.hsm", publisher.root(), clock=lambda: NOW)


def test_everything_that_is_shown_escapes_names(hostile, tmp_path):
    store, model = hostile
    data = tmp_path / "d.csv"
    data.write_text(f"{HOSTILE[3]},{HOSTILE[0]}\n'x,\n", "utf-8")
    statistics = store.statistics()
    for result in (model, status(store, target=0.02), statistics, store, predict_file(model, data, proba=True)):
        found = Seen(result._repr_html_())
        assert found.tags <= OURS | PANDAS, type(result)
        assert found.attributes <= {"border", "class", "style", "scoped"}, type(result)
    assert HOSTILE[0] in " ".join(Seen(model._repr_html_()).texts)


def test_no_estimate_is_shown_before_the_smallest_batch(tmp_path):
    raw = Publisher().campaign(min_batch_size=41)
    campaign = opened(raw)
    store = stores.stored(tmp_path, raw, batch(campaign, [report(campaign, n, 0) for n in range(40)]), now=NOW)
    shown = store.statistics()._repr_html_()
    assert "41, not reached" in shown
    assert "odor" not in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_workspace_is_a_table_without_secrets(tmp_path, monkeypatch, name):
    monkeypatch.setattr(keys, "COST", sealing.Cost(1, 8192))
    work = create_workspace(tmp_path / "w", name=name, now=NOW, passphrase="correct horse")
    schema = build_schema(Label("class", ("n", "y")), [Categorical("odor", ("a", "b"))])
    for _ in range(2):
        make_campaign(work, schema, name=name, epsilon=1, mechanism="direct", now=NOW)
    (tmp_path / "w" / "keys" / "model.key").unlink()
    shown = work._repr_html_()
    found = Seen(shown)
    assert found.tags <= OURS
    assert not found.attributes
    assert {"Workspace", str(tmp_path / "w"), f"{name}, version 1", "encrypted", "elsewhere"} <= set(found.texts)
    assert found.texts.count(name) == 1  # the newest version only
    hidden = [each.sealed for each in work.key_files()] + [each.public for each in work.key_files()]
    assert not any(secret.hex() in shown for secret in hidden)
    assert "correct horse" not in shown
    assert all(each.id in found.texts for each in work.key_files())
