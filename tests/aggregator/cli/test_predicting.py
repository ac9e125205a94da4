"""``hearsay predict``: what it prints and writes is what the model says of every record."""

from __future__ import annotations

import csv
import gzip
import json
import math
from functools import partial
from io import StringIO

import pytest
from support import commands
from support.publisher import NOW, Publisher

from aggregator.common.spreadsheets import csv_text
from aggregator.models.scoring import Model, predict_file
from aggregator.publishing.workspace import create_workspace
from edge_sdk.classifier import Classifier
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.features import Categorical
from protocol.schema import Label, build_schema

run = partial(commands.run, "predict")
DATA = "odor,width,label,other\nn,3,e,x\nf,?,p,y\n,7.5,e,z\nn,abc,,x\nf,1e1,unheard,x\n"


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    """Now, also for the default clock, which a later day than the model's last must not change."""
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setitem(Model.verified.__func__.__kwdefaults__, "clock", lambda: NOW)


@pytest.fixture
def work(tmp_path):
    (tmp_path / "d.csv").write_text(DATA)
    (tmp_path / "m.hsm").write_bytes(Publisher().model())
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    return tmp_path


def test_the_classes_are_those_that_a_device_finds(work):
    given = (work / "m.hsm", work / "d.csv", "--trust", work / "root.hst")
    result = run(*given, "--proba")
    rows = list(csv.DictReader(StringIO(result.stdout)))
    device = Classifier(parse_model(read_envelope((work / "m.hsm").read_bytes(), "model").payload), lambda: NOW)
    for row, record in zip(rows, csv.DictReader(StringIO(DATA)), strict=True):
        held = {name: None if cell in ("", "?") else cell for name, cell in record.items()}
        assert row["predicted"] == device.predict(held)
        for name, share in device.predict_proba(held).items():
            assert float(row[f"p {name}"]) == pytest.approx(share)
    assert [row["line"] for row in rows] == ["2", "3", "4", "5", "6"]
    assert result.stderr.splitlines() == [
        "note: accuracy 100.0% of 3 records with a label",
        "warning: column 'label': 1 of 5 cells are no value of its schema, so they mean nothing",
        "warning: column 'width': 1 of 5 cells are no value of its schema, so they mean nothing",
    ]


def test_the_file_the_object_and_the_api_say_the_same(work):
    given = (work / "m.hsm", work / "d.csv", "--trust", work / "root.hst", "--proba")
    printed = run(*given).stdout
    text = run(*given, "-o", work / "o.csv").stdout
    assert (work / "o.csv").read_text() == printed
    assert "100.0% of 3 records with a label" in text
    found = predict_file(Model.load(work / "m.hsm", work / "root.hst", clock=lambda: NOW), work / "d.csv", proba=True)
    assert csv_text(found.frame) == printed
    said = json.loads(run(*given, "--json").stdout)
    assert (said["records"], said["labelled"], said["accuracy"]) == (5, 3, 1.0)
    assert said["predicted"] == found.frame["predicted"].tolist()
    assert [row[said["classes"].index("e")] for row in said["probabilities"]] == found.frame["p e"].tolist()
    assert all(math.isclose(sum(row), 1) for row in said["probabilities"])
    assert json.loads(run(*given, "-o", work / "p.csv", "--json").stdout) == {
        "records": 5, "labelled": 3, "accuracy": 1.0, "output": str(work / "p.csv")
    }  # fmt: skip


def test_what_is_odd_about_files_and_classes_is_told(work):
    """Before, a renamed column and numbers of another unit cost accuracy without a word."""
    (work / "d.csv.gz").write_bytes(gzip.compress(b"odor\nn\nf\n"))
    result = run(work / "m.hsm", work / "d.csv.gz")
    assert result.stdout == "line,predicted\n2,e\n3,p\n"
    assert "accuracy not known" in result.stderr
    assert "signature was not checked" in result.stderr
    schema = build_schema(Label("class", ["=1+1", "-2"]), [Categorical("odor", ["a", "n", "f"])])
    (work / "f.hsm").write_bytes(Publisher(schema=schema).model())
    found = run(work / "f.hsm", work / "d.csv").stdout.splitlines()
    assert {line.split(",")[1] for line in found[1:]} <= {"'=1+1", "-2"}
    (work / "renamed.csv").write_text("odor, width,label\nn,3,e\nf,4,p\n")
    (work / "unit.csv").write_text("odor,width,label\nn,-5000000,e\nf,1e30,p\nf,1,p\n")
    said = run(work / "m.hsm", work / "renamed.csv").stderr
    assert "warning: no column 'width': it counts as missing in every record; near: ' width'\n" in said
    said = run(work / "m.hsm", work / "unit.csv").stderr
    assert "warning: column 'width': 2 of 3 numbers are outside the schema's bounds" in said


def test_refusals_are_one_line(work):
    (work / "none.csv").write_text("smell\nn\n")
    (work / "other.hst").write_bytes(create_workspace(work / "w", name="w", now=NOW).root_bytes)
    model, data, trust = work / "m.hsm", work / "d.csv", ("--trust", work / "root.hst")
    for arguments, reason in (
        ((model, work / "none.csv", *trust), "columns_missing"),
        ((model, work / "absent.csv", *trust), "file_not_found"),
        ((work / "absent.hsm", data, *trust), "file_not_found"),
        ((work / "d.csv", data, *trust), "malformed"),
        ((model, data, "--trust", work / "other.hst"), "bad_signature"),
        ((model, data, *trust, "--workspace", work / "w"), "trust_ambiguous"),
        ((model, data, "--workspace", work / "w"), "bad_signature"),
        (("mushrooms", data, "--workspace", work / "w"), "model_unknown"),
        ((model, data, *trust, "-o", work / "d.csv"), "output_exists"),
    ):
        result = run(*arguments, status=1)
        assert result.stderr.startswith(f"{reason}: ")
        assert len(result.stderr.splitlines()) == 1
