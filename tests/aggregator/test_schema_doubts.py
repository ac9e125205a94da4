"""A draft says which columns are most likely no features, and is silent about the others."""

from __future__ import annotations

import random
import shlex
import tomllib

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import invoke, run, told

from aggregator.common.tables import COMMA_OF_THOUSANDS, DECIMAL_COMMA, EITHER_COMMA, advice_on_commas
from aggregator.operations.campaigns import plan_campaign
from aggregator.publishing.schemas.schema_doubts import doubt, doubts, large_marker, look_alike, marker, misleading
from aggregator.publishing.schemas.schema_draft import draft_schema
from protocol.features import Categorical
from protocol.schema import Label, build_schema

DRAW = random.Random(7)


def said(cells):
    return doubt(pd.Series(list(cells), dtype=object, name="x"), ("", "?"))


TIMES = [
    [f"2026-11-{day:02d}" for day in range(1, 29)],
    [f"2026-11-22T10:{minute:02d}:00Z" for minute in range(30)],
    [f"2026-11-22 10:{minute:02d}:07.25 +01:00" for minute in range(5)],
    [f"{day}.11.2026" for day in range(1, 20)],
    [f"11/{day}/26 7:05" for day in range(1, 20)],
    [f"{hour}:05" for hour in range(24)],
    [str(1_790_000_000 + DRAW.randrange(10**7)) for _ in range(50)],
    [str(1_790_000_000_000 + DRAW.randrange(10**10)) for _ in range(5)],
    [str(1_790_000_000_000_000_000 + DRAW.randrange(10**15)) for _ in range(5)],
    [f"202611{day:02d}" for day in range(1, 29)],
    [*(f"2026-11-{day:02d}" for day in range(1, 29)), "", "?", "unknown"],
]
SERIALS = [
    map(str, range(1, 41)),
    map(str, range(4000, 3000, -7)),
    map(str, DRAW.sample(range(30), 30)),
    map(str, DRAW.sample(range(10**8, 10**9), 300)),
]
NAMES = [[f"SN-{number:04x}" for number in DRAW.sample(range(1 << 16), 40)]]
FEATURES = [
    [str(DRAW.randrange(18, 90)) for _ in range(300)],
    [f"{DRAW.gauss(20, 3):.4f}" for _ in range(300)],
    [str(DRAW.randrange(1000, 90_000)) for _ in range(60)],
    ["n", "f", "a"] * 30,
    ["2024", "2025", "2026"] * 20,
    ["1.2.3", "1.2.4"] * 30,
    ["2026-11-22"] * 30,
    ["10:1", "20:1"] * 20,
    [str(number) for number in range(10)],
    ["192.168.0.1", "10.0.0.1"] * 15,
    [],
]


@pytest.mark.parametrize(
    ("columns", "word"), [(TIMES, "times"), (SERIALS, "a serial number"), (NAMES, "names or serial numbers")]
)
def test_what_is_no_feature_is_doubted(columns, word):
    for cells in columns:
        assert word in (said(cells) or ""), cells


def test_a_feature_is_not():
    for cells in FEATURES:
        assert said(cells) is None, cells


@given(st.lists(st.text(max_size=8) | st.text("0123456789-:T. ", max_size=20), max_size=40))
def test_no_cell_breaks_it_or_is_quoted(cells):
    why = said(cells)
    assert why is None or why.startswith(("it ", "no text"))


def test_spellings_that_no_number_and_no_truth_value_has_are_doubted():
    for texts in (["0.0", "1.0"], ["1", "02"], ["1e2", "a"], ["-0", "1"], ["False", "True"], ["TRUE", "x"]):
        assert "matches that text alone" in misleading(texts), texts
    for texts in (["0", "1"], ["-1", "1"], ["a", "b"], ["0.5", "1"], ["1.2.3", "x"], ["false", "true"]):
        assert misleading(texts) is None, texts


def named(frame, word="", missing=("",)):
    return [line.split("'")[1] for line in doubts(frame, "y", missing, ()) if word in line]


def test_truth_values_are_doubted_in_features_too_and_numbers_only_in_labels():
    frame = pd.DataFrame({"flag": ["True", "False"] * 30, "size": ["1.0", "2.0"] * 30, "y": ["e", "p"] * 30})
    assert named(frame) == ["flag"]


@pytest.mark.parametrize(
    "texts",
    [["yes", "yes "], ["Yes", "yes"], ["STRASSE", "Straße"], ["a b", "a  b", "c"], ["²", "2"], ["\u00c5", "A\u030a"]],
)
def test_texts_that_look_alike_are_told(texts):
    assert look_alike(texts)
    frame = pd.DataFrame({"odor": ["n", "f"] * 30, "kind": (texts * 60)[:60], "y": (texts * 60)[:60]})
    said = doubts(frame, "y", ("",), ())
    assert [line.split("differ")[0] for line in said if "differ" in line] == [
        "column 'kind': some of its values ", "column 'y': some of its classes ",
    ]  # fmt: skip
    assert not any(text in line for line in said for text in texts if len(text) > 2 and text != "yes")


def test_spaces_around_cells_and_names_are_told_and_numbers_that_begin_with_zeros():
    cells = {"kind ": ["a", "b", "a"], "odor": [" n", "f", "01"], "y": ["e ", "p", "p"], "z": ["1", "2", "3"]}
    frame = pd.DataFrame({name: column * 20 for name, column in cells.items()})
    assert named(frame) == named(frame, "spaces around") == ["kind ", "odor", "y"]
    frame = frame.assign(zip=["01234", "1234", "99999"] * 20)
    assert named(frame, "begin with zeros") == ["zip"]


@pytest.mark.parametrize(
    "texts", [["ja", "j\u0430"], ["A", "\u0410"], ["A", "\u0391"], ["\u00e9", "e\u0301"], ["Yes", "yes"]]
)
def test_a_campaign_of_texts_that_look_alike_is_warned_of(texts):
    """Latin and Cyrillic ja went from draft to campaign without a word."""
    plain, label = Categorical("odor", ["n", "f"]), Label("y", ["e", "p"])
    for schema, what in (
        (build_schema(Label("y", texts), [plain]), "its label's classes"),
        (build_schema(label, [Categorical("x", texts)]), "values of 'x'"),
        (build_schema(label, [Categorical(name, ["n", "f"]) for name in texts]), "names of its features"),
        (build_schema(label, [plain]), None),
    ):
        planned = plan_campaign(schema, epsilon=1, mechanism="direct", name="n")
        alike = [warning for warning in planned.warnings if "look alike" in warning]
        assert [what in warning for warning in alike] == [True] * (what is not None)


def test_other_texts_do_not():
    for texts in (["yes", "no"], ["a", "b", "ab"], ["1", "10", "01"], [], ["x"], ["-", "_"]):
        assert not look_alike(texts), texts


MARKED = [
    ["-1", "0", "1", "2", "3"] + ["-1"] * 4,
    ["-1", "3", "4"],
    ["-9", "0.5", "1.5", "2.5", "-9"],
    ["-99", "31", "42", "", "?"],
    ["-9999", "31.5", "42"],
]
NOT_MARKED = [
    ["-1", "0", "1"] * 5,
    ["-1", "1"] * 5,
    ["-2", "-1", "0", "1", "2"],
    ["-1", "0", "0", "1", "2", "3"],
    ["-7", "3", "4"],
    ["1", "2", "3"],
    ["-1", "a", "b"],
    ["-1", "", "?"],
    [],
    ["x"],
]


@pytest.mark.parametrize("cells", MARKED, ids=range(len(MARKED)))
def test_a_number_that_means_missing_is_told(cells):
    column = pd.Series(cells, dtype=object, name="age")
    assert marker(column, ("", "?")) == cells[0]
    frame = pd.DataFrame({"age": cells, "y": (["e", "p"] * 9)[: len(cells)]})
    (line,) = doubts(frame, "y", ("", "?"), ())
    assert line.endswith(f"if so: hearsay schema --missing={cells[0]}")


def test_a_number_that_may_be_one_is_not_and_the_advice_repeats_what_was_said():
    for cells in NOT_MARKED:
        assert marker(pd.Series(cells, dtype=object, name="age"), ("", "?")) is None, cells
    frame = pd.DataFrame({"age": ["-1", "31", "42"] * 3, "y": ["e", "p", "p"] * 3})
    (line,) = doubts(frame, "y", ("", "gone"), ())
    assert line.endswith("if so: hearsay schema --not-missing='?' --missing=gone --missing=-1")


def drafted(tmp_path, rows, *options):
    (tmp_path / "p.csv").write_text("\n".join(rows) + "\n")
    asked = ["schema", tmp_path / "p.csv", "--label", "y", "-o", tmp_path / "s.toml", "--force"]
    found = run(*asked, *options)
    return found, tomllib.loads((tmp_path / "s.toml").read_text("utf-8"))["features"]


def test_the_advice_about_a_marker_is_a_command_that_helps(tmp_path):
    rows = [f"{'ep'[i % 2]},{-1 if i % 5 == 0 else 20 + i % 40},{'' if i % 7 == 0 else 'ab'[i % 2]}" for i in range(90)]
    first, _ = drafted(tmp_path, ["y,age,kind", *rows])
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("warning: ")]
    options = shlex.split(line.split("if so: hearsay schema ")[1])
    again, (age, kind) = drafted(tmp_path, ["y,age,kind", *rows], *options)
    assert "warning" not in again.stderr
    assert float(age["low"]) >= 20
    assert kind["values"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "beside", "advice"),
    [
        ("3,5", "4,5", DECIMAL_COMMA),
        ("-3,5", "1,234", DECIMAL_COMMA),
        ("1.234,5", "4,5", DECIMAL_COMMA),
        ("1 234,5", "4,5", DECIMAL_COMMA),
        ("1,234", "12,800", EITHER_COMMA),
        ("1,234", "950", EITHER_COMMA),
        ("1,234,567", "12,800", COMMA_OF_THOUSANDS),
        ("1,234.50", "12,800", COMMA_OF_THOUSANDS),
    ],
)
def test_commas_are_told_with_what_they_may_mean(text, beside, advice):
    """1,234 was called a decimal comma, and 1,234,567 nothing at all."""
    assert advice_on_commas([text, text, beside]) == advice
    frame = pd.DataFrame({"width": [text, text, beside] * 9, "y": ["e", "p", "p"] * 9})
    (line,) = doubts(frame, "y", ("", "?"), ())
    assert line == f"column 'width': its numbers have commas, so each is a text of its own; {advice}"


@pytest.mark.parametrize("word", ["NaN", "NA", "N/A", "None", "null", "<NA>", "none"])
def test_words_for_missing_values_are_told_and_the_advice_helps(word, tmp_path):
    pairs = [(word if i % 5 == 0 else "abc"[i % 3], word if i % 9 == 0 else i % 40 / 2) for i in range(90)]
    rows = ["y,kind,size", *(f"{'ep'[i % 2]},{kind},{size}" for i, (kind, size) in enumerate(pairs))]
    frame = pd.DataFrame(pairs, columns=["kind", "size"], dtype=str)
    told = [line for line in doubts(frame, "kind", ("", "?"), ("size",)) if "may mean missing" in line]
    assert [line.split("'")[1] for line in told] == ["kind"]
    found, (kind, size) = drafted(tmp_path, rows, *shlex.split(told[0].split("if so: hearsay schema ")[1]))
    assert "warning" not in found.stderr
    assert (kind["values"], kind["missing"], size["missing"]) == (["a", "b", "c"], "code", "code")


def test_numbers_with_a_unit_are_told(tmp_path):
    for texts, is_told in (
        (["5.31 mm", "4.2 mm", "17 mm"], True),
        (["12%", "3%", "0.5%"], True),
        (["$ 5", "$ 7.50", "$ 12"], True),
        (["7kg", "8kg", "9,5kg"], True),
        (["1st", "2nd", "3rd"], False),
        (["18-25", "26-40", "41-60"], False),
        (["a1", "a2", "a3"], False),
        (["5 mm", "x", "y"], False),
        (["1", "2", "3"], False),
    ):
        frame = pd.DataFrame({"width": texts * 9, "y": ["e", "p", "p"] * 9})
        assert named(frame, "numbers with a unit (write the number alone") == ["width"] * is_told, texts
    rows = "".join(f"{'ep'[i % 2]},{i / 4} mm\n" for i in range(300))
    (tmp_path / "p.csv").write_text(f"y,width\n{rows}")
    found = invoke("schema", tmp_path / "p.csv", "--label", "y", "-o", tmp_path / "s")
    assert "has 300 different texts, numbers with a unit (write the number alone" in found.stderr


@pytest.mark.parametrize(
    ("classes", "told"),
    [(map(str, range(18, 90)), True), (["0.5", "1.5", "2.5"], True), (map(str, range(10)), False), (["a", "b"], False)],
)
def test_a_label_of_many_numbers_is_told(classes, told):
    texts = list(classes)
    frame = pd.DataFrame({"odor": ["n", "f"] * len(texts), "y": texts * 2})
    said = [line for line in doubts(frame, "y", ("", "?"), ()) if "order is lost" in line]
    assert len(said) == told
    assert not told or f"its {len(texts)} classes are numbers" in said[0]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["1.234", "3,5", "12,7"], True),
        (["1.234", "2.500", "3,5"], True),
        (["1.234", "1.234,5", "7"], True),
        (["1.234", "2.5", "7"], False),
        (["1.23", "3,5", "12,7"], False),
        (["1.234", "3,5", "a", "b", "c", "d"], False),
    ],
)
def test_points_between_thousands_are_told_beside_decimal_commas(texts, told):
    frame = pd.DataFrame({"width": texts * 9, "y": ["e", "p", "p"] * (3 * len(texts))})
    said = [line for line in doubts(frame, "y", (), ()) if "1.234 is read" in line]
    assert len(said) == told
    assert not told or "if it means 1234, write 1234" in said[0]


def test_other_commas_are_not():
    for texts in (["1, 2", "3"], ["a,b"], ["1.5"], ["1,2,3"], ["3,5", "a"], [], [None, 3.5]):
        assert advice_on_commas(texts) == "", texts


def test_the_draft_and_the_command_say_it_where_the_author_looks(tmp_path):
    pilot = tmp_path / "pilot.csv"
    rows = [f"{i},2026-11-{i % 28 + 1:02d},{'nfa'[i % 3]},{i % 2}.0" for i in range(60)]
    pilot.write_text("\n".join(["serial,when,odor,label", *rows]) + "\n")
    made = run("schema", pilot, "--label", "label", "-o", tmp_path / "s.toml")
    warned = [line.split(";")[0] for line in made.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.split("'")[1] for line in warned] == ["serial", "when", "label"]
    text = (tmp_path / "s.toml").read_text("utf-8")
    doubted = [each.split("name = ")[1].split("\n")[0] for each in text.split("# Leave it out? ")[1:]]
    assert doubted == ['"serial"', '"when"']
    assert [each["name"] for each in tomllib.loads(text)["features"]] == ["serial", "when", "odor"]
    asked = ["--drop", "serial", "--drop", "when", "--force"]
    again = told("schema", pilot, "--label", "label", "-o", tmp_path / "s.toml", *asked)
    assert [line.split("'")[1] for line in again["doubts"]] == ["label"]
    frame = pd.DataFrame({"odor": ["n", "f"] * 20, "age": FEATURES[0][:40], "y": ["e", "p"] * 20})
    assert "Leave it out" not in draft_schema(frame, "y", name="s")


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([*map(str, range(18, 96)), "999", "999"], "999"),
        (["1.5", "99.5", "999", "999"], "999"),
        ([*map(str, range(18, 96)), "999"], None),
        (["95", "101", "999", "999"], None),
        (["5", "7", "99", "99"], None),
        (["5", "999", "999"], None),
        (["5", "7", "old", "999", "999"], None),
        ([], None),
    ],
)
def test_nines_far_above_all_other_numbers_may_mean_missing(cells, found):
    column = pd.Series(cells, dtype=object, name="age")
    assert large_marker(column, ("", "?")) == found
    frame = pd.DataFrame({"age": column, "y": column})
    said = [text for text in doubts(frame, "y", ("", "?"), ()) if "largest number" in text]
    assert ["--missing=999" in text for text in said] == [True] * (found is not None)


def test_a_number_far_from_all_others_is_told():
    """Before, one 1e30 became a bound without a word, and all other numbers shared a bin."""
    numbers = [f"{number}.5" for number in range(40)]
    frame = pd.DataFrame({"label": list("ep") * 20, "n": numbers})
    assert doubts(frame, "label", ("",), ()) == []
    (said,) = doubts(frame.assign(n=[*numbers[:-1], "1e30"]), "label", ("",), ())
    assert said.startswith("column 'n': a number is over 1000 times farther out ")
