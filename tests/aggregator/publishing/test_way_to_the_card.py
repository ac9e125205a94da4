"""A decision's way: design or refine write it into a schema file, a workspace keeps it, cards and pages repeat it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.asked import SCHEMA, answered, people
from support.commands import invoke, run
from support.failures import reason_of
from support.pages import check
from support.publisher import NOW

import aggregator
from aggregator.page.report import report as page_of
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.decisions import (
    FOLDER,
    MOST_BYTES,
    MOST_INTEGER,
    MOST_ROWS,
    bounded,
    decision_text,
    keep,
    kept,
    parse_decision,
)
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from protocol import canonical
from protocol.errors import InputError, StorageError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decided")
    frame = people(400)
    frame.iloc[:60].to_csv(folder / "pilot.csv", index=False)
    (folder / "s.toml").write_text(schema_text(SchemaFile("c", SCHEMA)), "utf-8")
    run("design", folder / "pilot.csv", "--schema", folder / "s.toml", "--epsilon", "4", "--devices", "1000", "--seed",
        "7", "-o", folder / "o.toml")  # fmt: skip
    aggregator.create_workspace(folder / "work", name="w", now=NOW)
    answered(folder / "work", folder, frame, schema=load_schema(folder / "o.toml"))
    return folder


def test_design_writes_who_decided_what_and_why(made):
    decision = load_schema(made / "o.toml").decision
    assert [decision[key] for key in ("by", "devices", "epsilon", "seed")] == ["hearsay design", 1000, "4", 7]
    assert [row["chosen"] for row in decision["candidates"]].count("yes") == 1
    assert all(row["accuracy"].endswith("%") and row["error"].endswith("%") for row in decision["candidates"])
    assert "on records that chose nothing" in decision["accuracy_of_the_fleet"]


@pytest.mark.slow
def test_the_workspace_keeps_it_and_the_card_and_pages_repeat_it(made, monkeypatch, tmp_path):
    monkeypatch.setattr("time.time", lambda: NOW)
    decision = dict(load_schema(made / "o.toml").decision)
    model = aggregator.make_model(made / "work", made / "c", now=NOW)
    assert model.document.card["chosen"] == decision
    assert kept(made / "work", model.document.campaign) == decision
    model.save(tmp_path / "m.hsm")
    shown = run("show", tmp_path / "m.hsm").stdout
    assert "What was decided, and why" in shown
    assert "hearsay design" in shown
    pages = {
        "model": page_of(tmp_path / "m.hsm", now=NOW),
        "workspace": page_of(made / "c", workspace=made / "work", now=NOW),
    }
    for name, page in pages.items():
        assert decision["why"] in check(page.html).words, name
    assert decision["why"] not in check(page_of(made / "c", now=NOW).html).words
    run("report", made / "c", "--schema", made / "o.toml", "-o", tmp_path / "p.html")
    assert decision["why"] in check((tmp_path / "p.html").read_text()).words
    refused = invoke("report", tmp_path / "m.hsm", "--schema", made / "o.toml", "-o", tmp_path / "q.html")
    assert refused.stderr.startswith("not_reportable: ")


def test_a_page_refuses_the_decision_about_another_campaign(made, tmp_path):
    text = (made / "o.toml").read_text("utf-8")
    label = f'name = "{SCHEMA.label.name}"'
    (tmp_path / "other.toml").write_text(text.replace(label, 'name = "another"'), "utf-8")
    assert reason_of(InputError, page_of, made / "c", schema=tmp_path / "other.toml", now=NOW) == "schema_differs"


def test_refine_writes_its_step(made):
    step = aggregator.refine(schema=made / "s.toml", series="x", devices=1000, epsilon=1)
    said = [step.decision[key] for key in ("by", "step", "series", "why")]
    assert said == ["hearsay refine", step.step.kind, "x", step.step.why]
    run("refine", made / "s.toml", "--series", "x", "--devices", "1000", "--epsilon", "1", "-o", made / "n.toml")
    assert load_schema(made / "n.toml").decision == step.decision


def test_other_features_than_the_file_says_are_no_decision_of_design(made, tmp_path):
    aggregator.create_workspace(tmp_path / "work", name="w", now=NOW)
    terms = {"epsilon": 4, "mechanism": "direct", "now": NOW}
    asked = aggregator.make_campaign(tmp_path / "work", made / "o.toml", ask="odor", **terms)
    assert kept(tmp_path / "work", asked.campaign.id) == {}


def test_the_card_of_a_series_has_the_last_decision_and_names_the_earlier_ones(tmp_path):
    work, frame = tmp_path / "work", people(400)
    aggregator.create_workspace(work, name="w", now=NOW)
    for place, name in enumerate(("first", "second")):
        file = SchemaFile(name, SCHEMA, {}, (), {"by": "hearsay refine", "why": f"reason {name}"})
        answered(work, tmp_path, frame.iloc[place::2], name=name, schema=file, series="s")
    model = aggregator.make_model(work, [tmp_path / "first", tmp_path / "second"], now=NOW)
    chosen = model.document.card["chosen"]
    (step,) = chosen["steps"]
    assert {chosen["why"], step["why"]} == {"reason first", "reason second"}


# The record -------------------------------------------------------------------------------------------

RECORD = {
    "by": "hearsay design",
    "why": 'the smallest "set" \\ of all',
    "devices": 100_000,
    "candidates": [{"features": "odor, größe", "accuracy": "94.1%"}, {"features": "all", "chosen": "no"}],
}
KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.text(max_size=1200) | st.integers(-MOST_INTEGER, MOST_INTEGER)
ROWS = st.lists(st.dictionaries(KEYS, PLAIN, min_size=1, max_size=4), min_size=1, max_size=60)


def read_back(record):
    return parse_decision(tomllib.loads(decision_text(record))["decision"])


@given(st.dictionaries(KEYS, PLAIN | ROWS, min_size=1, max_size=8))
def test_whatever_is_bounded_is_accepted_and_reads_back(record):
    made = bounded(record)
    assert read_back(made) == made
    assert len(canonical.pack(made)) <= MOST_BYTES


def test_what_a_long_table_loses_is_counted():
    made = bounded({"path": [{"number": number} for number in range(100)]})
    assert (len(made["path"]), made["path_left_out"]) == (MOST_ROWS, 60)
    wide = bounded({"path": [{"names": "n" * 1000} for _ in range(40)]})
    assert wide["path_left_out"] + len(wide["path"]) == 40
    assert len(canonical.pack(wide)) <= MOST_BYTES


@pytest.mark.parametrize(
    "body",
    [
        "text", [], {"Key": "x"}, {"k": 1.5}, {"k": True}, {"k": None}, {"k": "a\x1b[2J"}, {"k": "x" * 1001},
        {"k": 1 << 60}, {"k": []}, {"k": [{}]}, {"k": ["a"]}, {"k": [{"a": [1]}]}, {"k": [{"a": {}}]}, {"k": {"a": 1}},
        {"k": [{"a": 1}] * 41}, {f"k{number}": 1 for number in range(25)},
        {f"k{number}": "x" * 1000 for number in range(20)},
    ],
    ids=range(18),
)  # fmt: skip
def test_any_other_record_is_refused(body):
    assert reason_of(InputError, parse_decision, body) == "schema_invalid"


def test_a_workspace_keeps_it_by_the_campaign(tmp_path):
    assert bounded(RECORD) == read_back(RECORD) == RECORD
    keep(tmp_path, bytes(32), {})
    assert not (tmp_path / FOLDER).exists()
    assert kept(tmp_path, bytes(32)) == {}
    keep(tmp_path, bytes(32), RECORD)
    assert kept(tmp_path, bytes(32)) == RECORD
    assert kept(tmp_path, b"\1" * 32) == {}


@pytest.mark.parametrize("raw", [b"\xff", b"[decision", b"", b"[decision]\nk = 1.5\n", b"[[decision]]\n"])
def test_a_damaged_record_is_named(tmp_path, raw):
    keep(tmp_path, bytes(32), RECORD)
    (tmp_path / FOLDER / f"{bytes(32).hex()}.toml").write_bytes(raw)
    assert reason_of(StorageError, kept, tmp_path, bytes(32)) == "workspace_damaged"
