"""``hearsay refine --trust shared`` by the commands alone, with totals that numpy draws: parts of a fleet, or of ε."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.commands import invoke, run
from support.copies import FEATURES, SCHEMA, people
from support.shared import COLLECTOR_KEYS, PAIR

import aggregator
from aggregator.collectors.pair import write_pair
from aggregator.collectors.total import Total, sign_total
from aggregator.models.encoding import label_codes, observe
from aggregator.models.scoring import Model
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from simulation.drawn import collected

DEVICES, EPSILON = 20_000, "1"


def model_of(raw):
    return Model.of(parse_model(read_envelope(raw, "model").payload))


def total_of(folder, raw, models, frame, rng):
    """A store of the total that two collectors would make of these people, and its campaign."""
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    told = [model_of(Path(each).read_bytes()).scores(frame).argmax(axis=1) for each in models]
    labels, period = (
        label_codes(frame, campaign.schema.label, substitute=True),
        campaign.period_at(campaign.header.issued_at),
    )
    found = collected(campaign, observe(frame, campaign.schema), labels, period, rng, told)
    signed = sign_total(Total(campaign.id, period, len(frame), found.numbers, {}), COLLECTOR_KEYS[0])
    (folder / "t.hsz").write_bytes(signed)
    return campaign


@pytest.mark.parametrize("same", [[], pytest.param(["--same-devices"], marks=pytest.mark.slow)])
def test_a_series_of_totals_finds_the_features_that_do_not_repeat(tmp_path, same):
    """All features together are right in 70 %, the two that do not repeat in 80 %: known to 2 points, chance 1e-5."""
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "p.pair").write_bytes(write_pair(PAIR))
    work, frame, rng = (
        ["--workspace", tmp_path / "work"],
        people(np.random.default_rng(3), DEVICES),
        np.random.default_rng(9),
    )
    run("init", tmp_path / "work", "--no-passphrase")
    places, asked, spent = rng.random(DEVICES), np.zeros(DEVICES, int), 0
    stores, evaluations, kinds = [], [], []
    common = ["--trust", "shared", "--devices", DEVICES, "--epsilon", EPSILON, *same]
    while True:
        number, first = len(kinds), [] if stores else [tmp_path / "s.toml"]
        named = ["--series", "notes"] if first or same else []
        given = [part for store in stores for part in ("--store", store)]
        given += [part for store in evaluations for part in ("--evaluation", store)]
        out = tmp_path / f"next-{number}.toml"
        call = ["refine", *first, *named, *given, *common, *work, "--models", tmp_path / "candidates", "-o", out]
        ran = run(*call)
        said = json.loads(run(*call, "--force", "--json").stdout)
        kinds.append(said["step"])
        if said["share"] is None:
            break
        # The command that refine prints, with the names of this test's files.
        printed = ran.stderr[ran.stderr.index("next: hearsay ") + len("next: hearsay ") :].splitlines()[0]
        files = {"P.pair": tmp_path / "p.pair", "WORK": tmp_path / "work", "C.hsc": tmp_path / f"{number}.hsc"}
        files["E.hsc"] = files["C.hsc"]
        run(*(str(files.get(word, word)) for word in shlex.split(printed)))
        campaign = parse_campaign(read_envelope(files["C.hsc"].read_bytes(), "campaign").payload)
        low, high = (0, 2**32) if same else (campaign.series.low, campaign.series.high)
        members = (places * 2**32 >= low) & (places * 2**32 < high)
        asked, spent = asked + members, spent + campaign.epsilon_micro
        total_of(tmp_path, files["C.hsc"].read_bytes(), said["models"], frame[members], rng)
        store = tmp_path / f"totals-{number}"
        run("ingest", files["C.hsc"], tmp_path / "t.hsz", "--store", store, *work)
        (evaluations if said["step"] == "evaluate" else stores).append(store)
    assert kinds[:2] == ["ask", "evaluate"]
    assert kinds[-2:] == ["stop", "done"]
    if same:
        assert (campaign.series, spent) == (None, pytest.approx(10**6, abs=len(kinds)))
        assert spent <= 10**6
    else:
        assert (asked == 1).all()
    fleet = {"devices": DEVICES, "epsilon": EPSILON, "trust": "shared"}
    fleet |= {"same_devices": True, "series": "notes"} if same else {}
    found = aggregator.refine(stores[::-1], evaluations[::-1], **fleet).to_json()
    assert {key: said[key] for key in found} == found
    chosen = said["features"]
    assert len(chosen) < len(FEATURES)
    publish = ["publish", *given[: 2 * len(stores)], "--features", ",".join(chosen), "--name", "final", *work]
    if same:
        assert "population_undeclared" in invoke(*publish, "-o", tmp_path / "final.hsm").output
        publish.append("--one-population")
    run(*publish, "-o", tmp_path / "final.hsm")
    assert model_of((tmp_path / "final.hsm").read_bytes()).accuracy(frame) > 0.75
    made = [
        parse_model(read_envelope(file.read_bytes(), "model").payload) for file in (tmp_path / "candidates").iterdir()
    ]
    exact = {each.header.name: Model.of(each).accuracy(frame) for each in made}
    ranked = json.loads(run("evaluate", "show", "--store", evaluations[0], "--json").stdout)["models"]
    assert all(abs(one["accuracy"]["estimate"] - exact[one["name"]]) < 5 * one["standard_error"] for one in ranked)
