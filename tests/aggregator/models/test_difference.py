"""Models of one truth differ by noise alone; a true change is found; parameters beside their intervals."""

import json
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from support.asked import ASK, answered, people
from support.commands import invoke, run
from support.estimated import answered as answers
from support.estimated import campaign_about, tallied
from support.estimated import nobody as unanswered
from support.failures import reason_of
from support.publisher import NOW, Publisher
from support.reports import made

import aggregator
from aggregator.estimates.cells import NOT_DETERMINED, parameter_rows
from aggregator.estimates.conditional import conditionals
from aggregator.models.comparison import (
    QUANTILES,
    Change,
    _adjusted,
    _Known,
    _quantile,
    _tested,
    agreement,
    compare,
    counts,
    largest,
    unshared,
)
from aggregator.models.fitting import fit
from aggregator.models.published import MOST_FEATURES, interval_card, published
from aggregator.models.scoring import Model
from protocol import canonical
from protocol.documents.asked import restricted
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.questions import CELL
from protocol.schema import Label, build_schema

OTHER_WIDTH = Numeric("width", "0", "9", [0])
CAMPAIGN = made(mechanism="direct", epsilon_micro=2_000_000)


def truth(seed):
    """A joint distribution of class and value for every question, all with one class distribution."""
    rng = np.random.default_rng(seed)
    classes = len(CAMPAIGN.schema.label.classes)
    prior = rng.dirichlet(np.full(classes, 5.0))
    joint = []
    for question in CAMPAIGN.questions:
        values = question.size // classes
        joint.append((rng.dirichlet(np.full(values, 3.0), classes).T * prior).ravel())
    return joint


def drawn(joint, n, rng):
    """Statistics of n answers to every question, and their model."""
    statistics = answers(CAMPAIGN, n, lambda question: joint[CAMPAIGN.questions.index(question)], rng)
    parameters = fit(statistics)
    return Model(statistics.schema, parameters.log_prior, parameters.terms), statistics


def pairs(number, before, after, n=4_000):
    rng = np.random.default_rng(11)
    for _ in range(number):
        (old, old_statistics), (new, new_statistics) = drawn(before, n, rng), drawn(after, n, rng)
        yield compare(old, new, old_statistics, new_statistics)


@pytest.mark.slow
def test_models_of_one_truth_seldom_differ_and_half_the_noise_would_be_seen():
    """In 100 pairs at most 14 have a significant row: P(Binomial(100, 0.05) > 14) = 1.4e-4, the false-alarm rate.

    With intervals of half the width (quantile 0.98) far more than 14 pairs would have one.
    """
    found = list(pairs(100, truth(1), truth(1)))
    assert sum(counts(rows)["significant"] > 0 for rows in found) <= 14
    tested = [row for rows in found for row in rows if row.low is not None]
    inside = np.mean([row.low <= 0 <= row.high for row in tested])
    assert 0.93 < inside < 0.985
    halved = np.mean([abs((row.low + row.high) / 2) <= (row.high - row.low) / 4 for row in tested])
    assert halved < 0.9


def test_a_true_change_is_found_and_no_more():
    before, after = truth(1), truth(1)
    after[1] = truth(2)[1].reshape(-1, 2) / truth(2)[1].reshape(-1, 2).sum(0) * before[1].reshape(-1, 2).sum(0)
    after[1] = after[1].ravel()
    found = list(pairs(20, before, after, n=20_000))
    changed = {row.parameter for row in found[0] if abs(row.new - row.old) > 0.1}
    assert changed
    for rows in found:
        assert {row.parameter for row in rows if row.significant} >= changed
        assert rows[0].parameter.startswith("P(")


def test_a_p_value_is_no_smaller_than_the_level_at_which_a_ratio_is_determined():
    """From the 95 % half widths alone, 0.2 and 0.3, the p-value of 0.1 → 0.9 would be 1e-5."""
    beyond = (None,) * (len(QUANTILES) - 2)
    old = _Known(0.1, ((0.0, 0.3), (0.0, 0.45), *beyond))
    new = _Known(0.9, ((0.6, 1.0), (0.3, 1.0), *beyond))
    row = _tested(Change("a", 0.1, 0.9), old, new)
    assert row.p == pytest.approx(2 * NormalDist().cdf(-QUANTILES[1]))
    assert (row.low, row.high) == pytest.approx((0.8 - np.hypot(0.2, 0.3), 0.8 + np.hypot(0.1, 0.1)))
    # A half width that grows in proportion to the quantile gives the p-value of a normal estimate.
    assert _quantile(0.3, [0.1 * z for z in QUANTILES]) == pytest.approx(3.0)
    assert _quantile(0.05, [0.1 * z for z in QUANTILES]) == pytest.approx(0.5)
    assert _quantile(9.0, [0.1 * z for z in QUANTILES]) == QUANTILES[-1]
    assert _quantile(0.0, [0.0]) == 0


def test_p_values_are_holms_and_rows_that_are_not_determined_count():
    rows = _adjusted(
        [Change("a", 0, 0, p=0.01), Change("b", 0, 0), Change("c", 0, 0, p=0.04), Change("d", 0, 0, p=0.03)]
    )
    assert [row.p for row in rows] == pytest.approx([0.04, None, 0.09, 0.09])
    assert [row.significant for row in rows] == [True, None, False, False]
    assert [row.parameter for row in largest(rows, 2)] == ["a", "c"] or largest(rows, 2)[0].parameter == "a"


def test_without_statistics_only_values_are_compared():
    rng = np.random.default_rng(5)
    old, _ = drawn(truth(1), 500, rng)
    new, statistics = drawn(truth(3), 500, rng)
    rows = compare(old, new, None, statistics)
    assert counts(rows)["tested"] == 0
    assert rows == compare(old, new)
    assert [row.old for row in rows[:2]] == pytest.approx(np.exp(old.log_prior).tolist())
    total = sum(term.size for term in old.terms) + len(old.classes)
    assert len(rows) == total
    frame = pd.DataFrame([dict.fromkeys(f.name for f in old.schema.features)])
    assert agreement(old, old, frame, frame) == 1


def test_values_that_are_asked_in_groups_are_compared_in_groups(tmp_path):
    work = tmp_path / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(3000)
    other = frame.assign(odor=frame["odor"].where(frame["label"] == "p", "n"))
    made = []
    for name, records, ask in (("a", frame, ASK), ("b", other, ASK)):
        store = answered(work, tmp_path, records, name, seed=len(made), ask=ask)
        made.append((aggregator.make_model(work, store, now=NOW).model, aggregator.open_store(store).statistics()))
    (old, before), (new, after) = made
    rows = {row.parameter: row for row in compare(old, new, before, after)}
    assert rows["P(odor={a, l} | label=e)"].significant
    assert rows["P(odor={a, l} | label=e)"].old == pytest.approx(2 / 3, abs=0.1)
    assert rows["P(odor={a, l} | label=e)"].new == pytest.approx(0, abs=0.1)
    assert not rows["P(odor={f, (missing)} | label=p)"].significant
    assert "P(odor=a | label=e)" in {row.parameter for row in compare(old, new)}


@pytest.mark.parametrize(
    "options", [["--periods", ".."], ["--old-periods", ".."], ["--old-store", "s"], ["--missing", "?"]]
)
def test_options_that_would_do_nothing_are_refused(tmp_path, options):
    (tmp_path / "a.hsm").write_bytes(Publisher().model())
    refused = invoke("diff", tmp_path / "a.hsm", tmp_path / "a.hsm", *options)
    assert refused.exit_code == 2
    assert "give --" in refused.stderr


def test_a_model_of_fewer_features_is_compared_in_what_both_have_and_of_another_schema_refused():
    """A model of the second feature alone has its parameters and the classes' in common with the model of both."""
    old, statistics = drawn(truth(1), 500, np.random.default_rng(5))
    few = Model(restricted(old.schema, [1]), old.log_prior, old.terms[1:])
    names = [row.parameter for row in compare(old, few)]
    assert names == [row.parameter for row in compare(few, old)]
    assert len(names) == len(old.classes) + old.terms[1].size
    assert (unshared(old, few), unshared(few, old)) == (["odor"], [])
    for wrong in (
        Model(restricted(old.schema, [0]), old.log_prior, old.terms[:1]),  # no feature in common with ``few``
        Model(old.schema._replace(features=(old.schema.features[0], OTHER_WIDTH)), old.log_prior, old.terms),
    ):
        with pytest.raises(InputError, match="schemas_differ"):
            compare(few, wrong)
    with pytest.raises(InputError, match="the reports are of another schema"):
        compare(few, few, statistics, statistics)
    old, statistics = drawn(truth(1), 500, np.random.default_rng(5))
    schema = build_schema(Label("other", list(old.classes)), old.schema.features)
    model = Model(schema, old.log_prior, old.terms)
    assert reason_of(InputError, compare, old, model) == "schemas_differ"
    with pytest.raises(InputError, match="the reports are of another schema"):
        compare(model, model, statistics, statistics)


def test_the_command_prints_the_rows(tmp_path):
    (tmp_path / "a.hsm").write_bytes(Publisher().model())
    (tmp_path / "b.hsm").write_bytes(Publisher().model())
    result = run("diff", tmp_path / "a.hsm", tmp_path / "b.hsm", "--json")
    body = json.loads(result.stdout)
    assert body["significant"] == 0
    assert {row["new"] - row["old"] for row in body["changes"]} == {0.0}
    shown = invoke("diff", tmp_path / "a.hsm", tmp_path / "b.hsm")
    assert "no intervals: --store counts" in shown.stderr


# Parameters of a model side by side ------------------------------------------------------------------


PLAIN = made()
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
    return tallied(PLAIN, counts)


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
    raw = cells[(cells["feature"] == PLAIN.schema.observed[0].name) & (cells["class"] == cells["class"].iloc[0])]
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
    label = PLAIN.schema.label
    assert rows[0][0] == f"P({label.name}={label.classes[0]})"
    assert f"| {label.name}={label.classes[1]})" in rows[3][0]
    nobody = unanswered(PLAIN)
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
    assert list(card["class_intervals"]) == list(PLAIN.schema.label.classes)
    assert set(card["interval_widths"]) == {feature.name for feature in PLAIN.schema.observed}
    assert all(text.startswith("median width 0.") for text in card["interval_widths"].values())
    assert canonical.pack(interval_card(gaussian("duchi")))

    schema = build_schema(Label("y", ["a", "b"]), [Categorical(f"f{n}", ["0", "1"]) for n in range(MOST_FEATURES + 6)])
    campaign = campaign_about(schema, "direct", 4)
    statistics = tallied(campaign, [(40,) * question.mechanism.answers for question in campaign.questions])
    assert len(interval_card(statistics)["interval_widths"]) == MOST_FEATURES
