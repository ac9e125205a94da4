"""Models of campaigns that ask about some features and groups: through files, the store, a device and the reports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.asked import ASK, SCHEMA, answered, people
from support.commands import run
from support.publisher import NOW
from support.reports import batch, opened, report

import aggregator
from aggregator.models.encoding import recognise
from aggregator.models.fitting import fit
from aggregator.models.interchange import to_json
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.schemas.schema_file import SchemaFile
from edge_sdk import Device
from protocol.documents.campaign import Fit, build_payload
from protocol.documents.payload import Header
from protocol.errors import InputError
from protocol.mechanisms import from_micro
from protocol.questions import Subject, build_questions

TEXT = schema_text(SchemaFile("c", SCHEMA, ASK))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    work = folder / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(3000)
    store = answered(work, folder, frame, ask=ASK)
    model = aggregator.make_model(work, store, now=NOW)
    model.save(folder / "m.hsm")
    return folder, work, frame, store, model


def test_the_model_holds_the_asked_features_with_all_codes_and_a_device_classifies_with_it(world):
    """Groups are divided equally, which changes no score: it classifies as the tables of the groups do."""
    _, work, frame, store, model = world
    document = model.document
    assert [feature.name for feature in document.schema.features] == ["odor", "width"]
    assert [feature["name"] for feature in to_json(model.model)["features"]] == ["odor", "width"]
    odor, width = (np.exp(table) for table in document.log_likelihood)
    assert (odor.shape, width.shape) == ((5, 2), (5, 2))
    assert np.allclose(odor.sum(axis=0), 1)
    for one, other in ((odor[0], odor[1]), (odor[3], odor[4]), (width[0], width[1])):  # f and missing are in no group
        assert np.allclose(one, other)
    statistics = aggregator.count(store)
    codes = recognise(frame, statistics.schema).codes
    parameters = fit(statistics, statistics.fit.postprocess)
    found = parameters.log_prior + sum(table[codes[:, index]] for index, table in enumerate(parameters.terms))
    difference = aggregator.Model.of(document).scores(frame) - found
    assert np.allclose(difference[:, 0], difference[:, 1], atol=1e-5)
    assert model.model.accuracy(frame) > 0.85
    records = frame.drop(columns="label").head(20)
    with Device.open(None, trust=aggregator.open_workspace(work).root_bytes, clock=lambda: NOW) as device:
        device.install(model.raw)
        answers = [device.model().predict(record) for record in records.to_dict("records")]
    assert answers == list(model.model.predict(records))


COMMANDS = [
    ("estimate", "--store", "STORE"),
    ("status", "--store", "STORE"),
    ("guarantee", "CAMPAIGN", "--devices", "3000"),
    ("show", "CAMPAIGN"),
    ("show", "MODEL"),
    ("export", "--store", "STORE", "--format", "csv", "-o", "OUT"),
    ("export-model", "MODEL", "--to", "json", "-o", "OUT"),
    pytest.param(("export-model", "MODEL", "--to", "sklearn", "-o", "OUT"), marks=pytest.mark.slow),
    ("diff", "MODEL", "MODEL", "--store", "STORE"),
    ("predict", "MODEL", "DATA"),
    pytest.param(("plan", "SCHEMA", "--epsilon", "4", "--devices", "3000", "--pilot", "DATA"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_report_and_document_of_it(world, tmp_path, command):
    folder, _, frame, store, _ = world
    (tmp_path / "s.toml").write_text(TEXT)
    frame.head(300).to_csv(tmp_path / "d.csv", index=False)
    names = {"STORE": store, "CAMPAIGN": folder / "c.hsc", "MODEL": folder / "m.hsm"}
    names |= {"OUT": tmp_path / "out", "DATA": tmp_path / "d.csv", "SCHEMA": tmp_path / "s.toml"}
    run(*(names.get(part, part) for part in command))


def test_the_file_the_option_and_python_ask_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    aggregator.create_workspace(tmp_path / "work", name="w", now=NOW)
    (tmp_path / "s.toml").write_text(TEXT)
    run("campaign", tmp_path / "s.toml", "--workspace", tmp_path / "work", "--epsilon", 4, "--mechanism", "direct",
        "-o", tmp_path / "a.hsc")  # fmt: skip
    from_file = aggregator.open_workspace(tmp_path / "work")
    made = aggregator.make_campaign(from_file, SCHEMA, name="c", epsilon=4, mechanism="direct", ask=ASK, now=NOW)
    shown = json.loads(run("show", tmp_path / "a.hsc", "--json").output)["payload"]
    assert shown["groups"] == [{"feature": 1, "group_of": [0, 0, 1, 2, 2]}, {"feature": 2, "group_of": [0, 0, 1, 1, 2]}]
    assert [feature.name for feature in made.campaign.stated.features] == ["cap", "odor", "width"]
    assert [one.bound for one in made.campaign.questions] == [one["bound"] for one in shown["questions"]]
    options = ["--ask", "cap,width", "--name", "d", "--days", 7, "--json", "-o", tmp_path / "b.hsc"]
    option = run("campaign", tmp_path / "s.toml", "--workspace", tmp_path / "work", "--epsilon", 4, "--mechanism",
                 "direct", *options)  # fmt: skip
    assert json.loads(option.output)["asked"] == "2 of 3 features"
    assert "groups" not in json.loads(run("show", tmp_path / "b.hsc", "--json").output)["payload"]


def test_a_campaign_about_the_class_alone_has_estimates_and_makes_no_model(world, tmp_path):
    """No command makes such a campaign, but its publisher may sign one."""
    folder, work, frame, *_ = world
    with pytest.raises(InputError, match="ask_invalid"):
        answered(work, folder, frame, name="none", ask=[])
    signer = aggregator.open_workspace(work)
    questions = build_questions([Subject("class", None, 2)], 1, lambda _: from_micro("direct", 1_000_000, 2))

    def payload_for(version, _before):
        return build_payload(
            Header("alone", version, NOW, NOW, NOW + 10**6), SCHEMA, questions, epsilon_micro=1_000_000, purpose="p",
            contact="c", time_precision=86_400, min_batch_size=1, fit=Fit("discrete", "posterior"),
        )  # fmt: skip

    raw = signer.publish("campaign", "alone", NOW, payload_for)
    campaign = opened(raw)
    (tmp_path / "a.hsr").write_bytes(batch(campaign, [report(campaign, device, device) for device in range(50)]))
    aggregator.ingest(raw, [tmp_path / "a.hsr"], tmp_path / "store", workspace=work, now=NOW)
    assert run("estimate", "--store", tmp_path / "store").exit_code == 0
    with pytest.raises(InputError, match="not_fittable: the campaign asks about no feature"):
        aggregator.make_model(signer, tmp_path / "store", now=NOW)
