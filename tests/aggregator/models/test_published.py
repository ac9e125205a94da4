"""Parameters of a model side by side: raw estimate, published value, intervals; in tables, JSON and the card."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.estimated import campaign_about, tallied
from support.estimated import nobody as unanswered
from support.reports import made

from aggregator.estimates.cells import NOT_DETERMINED, parameter_rows
from aggregator.estimates.conditional import conditionals
from aggregator.models.published import MOST_FEATURES, interval_card, published
from protocol import canonical
from protocol.features import Categorical, Numeric
from protocol.questions import CELL
from protocol.schema import Label, build_schema

CAMPAIGN = made()
COUNTS = ((260, 140), (90, 10, 50, 60, 40, 30, 60, 60), (100, 60, 140, 100))
COLUMNS = {
    "raw": "parameter",
    "published": "published",
    "low": "parameter_low",
    "high": "parameter_high",
    "devices_low": "devices_parameter_low",
    "devices_high": "devices_parameter_high",
}
"""Name of each number in the JSON → column of the frame."""


def statistics_of(counts=COUNTS):
    return tallied(CAMPAIGN, counts)


@pytest.mark.parametrize("postprocess", ["paper", "simplex"])
def test_every_cell_has_a_raw_ratio_a_published_value_and_both_intervals(postprocess):
    statistics = statistics_of()
    values = published(statistics, postprocess)
    frame = statistics.frame(values)
    cells = frame[frame["kind"].isin([CELL, "prior"])]
    assert len(cells) == 8 + 4 + 2
    assert cells["published"].notna().all()
    assert cells.groupby(["question", "class"])["published"].sum().drop("prior").tolist() == pytest.approx([1] * 4)
    assert cells.loc[cells["kind"] == "prior", "published"].sum() == pytest.approx(1)
    raw = cells[(cells["feature"] == CAMPAIGN.schema.observed[0].name) & (cells["class"] == cells["class"].iloc[0])]
    assert np.ptp(raw["parameter"] / raw["estimate"]) == pytest.approx(0), "all are divided by one share of the class"
    assert frame.loc[frame["kind"] == "class", "parameter"].isna().all(), "the shares of the classes are pooled"
    known = cells[cells["parameter_low"].notna()]
    assert (known["parameter_low"] <= known["devices_parameter_low"]).all()
    assert known["parameter_high"].between(known["devices_parameter_high"], 1).all()


def test_json_says_the_same_and_null_is_not_determined():
    statistics = statistics_of()
    said = json.loads(json.dumps(statistics.to_json(published(statistics)), allow_nan=False))["parameters"]
    frame = statistics.frame(published(statistics))
    assert [one["kind"] for one in said] == ["prior", "cell", "cell"]
    first = frame[frame["kind"] == CELL].iloc[:8]
    for name, column in COLUMNS.items():
        found = [np.nan if number is None else number for number in said[1][name]]
        assert found == pytest.approx(first[column].tolist(), nan_ok=True), name
    nobody = json.loads(json.dumps(statistics_of(counts=((0, 0), (0,) * 8, (0,) * 4)).to_json(), allow_nan=False))
    assert nobody["parameters"][1]["raw"] == [None] * 8
    without = json.loads(json.dumps(statistics.to_json()))["parameters"]
    assert without[1]["published"] == [None] * 8
    assert all(name.startswith("P(") for one in said for name in one["cells"])


def test_the_table_names_every_parameter_and_says_what_is_not_determined():
    few = statistics_of(counts=((3, 2), (1, 0, 1, 1, 0, 1, 1, 0), (2, 1, 1, 1)))
    rows = parameter_rows(conditionals(few.questions, few.schema), published(few), few.schema)
    assert len(rows) == 2 + 8 + 4
    assert any(row[3] == row[4] == NOT_DETERMINED for row in rows)
    label = CAMPAIGN.schema.label
    assert rows[0][0] == f"P({label.name}={label.classes[0]})"
    assert f"| {label.name}={label.classes[1]})" in rows[3][0]
    nobody = unanswered(CAMPAIGN)
    assert published(nobody) is None
    blank = parameter_rows(conditionals(nobody.questions, nobody.schema), None, nobody.schema)
    assert {row[1:] for row in blank} == {("", "", "", "")}


def gaussian(mechanism):
    schema = build_schema(
        Label("y", ["a", "b"]), [Numeric("u", "-1", "1", [0], substitute=0), Categorical("f", ["0", "1"])]
    )
    campaign = campaign_about(schema, mechanism, 4, family="gaussian")
    return tallied(campaign, [(300,) * question.mechanism.answers for question in campaign.questions])


@pytest.mark.parametrize("mechanism", ["bits", "bit", "duchi", "laplace"])
def test_means_of_a_gaussian_model_are_published_beside_their_ratios(mechanism):
    statistics = gaussian(mechanism)
    values = published(statistics)
    frame = statistics.frame(values)
    means = frame[frame["kind"].isin(["moment", "moments"])]
    assert len(means) == 4
    assert means["published"].notna().all()
    assert means["parameter"].notna().all()
    assert means.loc[means["power"] == 2, "published"].min() >= 0


def test_the_card_is_small_and_canonical():
    card = interval_card(statistics_of())
    assert canonical.pack(card)
    assert list(card["class_intervals"]) == list(CAMPAIGN.schema.label.classes)
    assert set(card["interval_widths"]) == {feature.name for feature in CAMPAIGN.schema.observed}
    assert all(text.startswith("median width 0.") for text in card["interval_widths"].values())
    assert canonical.pack(interval_card(gaussian("duchi")))

    schema = build_schema(Label("y", ["a", "b"]), [Categorical(f"f{n}", ["0", "1"]) for n in range(MOST_FEATURES + 6)])
    campaign = campaign_about(schema, "direct", 4)
    statistics = tallied(campaign, [(40,) * question.mechanism.answers for question in campaign.questions])
    assert len(interval_card(statistics)["interval_widths"]) == MOST_FEATURES
