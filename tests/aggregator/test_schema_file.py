"""Schema files and their table ``[ask]``: what they say is what devices code, and a draft can be read back."""

from __future__ import annotations

import random
import re
import shlex
import tomllib
from decimal import Decimal
from fractions import Fraction
from math import isfinite

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands import invoke, mushrooms, run, told
from support.examples import examples
from support.failures import failure, reason_of, refusal
from support.publisher import NOW

from aggregator.common.tables import COMMA_OF_THOUSANDS, DECIMAL_COMMA, EITHER_COMMA, advice_on_commas
from aggregator.operations.campaigns import plan_campaign
from aggregator.planning.feature_selection.schema_text import ask_text, schema_text
from aggregator.publishing.ask_table import AskedFeature, ask_of, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.schemas.schema_doubts import doubt, doubts, large_marker, look_alike, marker, misleading
from aggregator.publishing.schemas.schema_draft import draft_schema, outward
from aggregator.publishing.schemas.schema_file import SchemaFile, equal_width_edges, load_schema, parse_schema_text
from protocol import SCALE
from protocol.documents.campaign import parse_campaign
from protocol.errors import InputError
from protocol.features import Categorical, Numeric, parse_feature
from protocol.schema import Component, Label, Projection, build_schema

HEAD = 'name = "s"\n[label]\nname = "y"\nclasses = ["e", "p", 3, true]\nsubstitute = 3\nunlisted = "refuse"\n'


def feature(text):
    return parse_schema_text(f"{HEAD}[[features]]\nname = 'x'\n{text}").schema.features[0]


def test_a_label_and_numbers_are_as_stated():
    label = parse_schema_text(f"{HEAD}[[features]]\nname='x'\nkind='categorical'\nvalues=['a']").schema.label
    assert (label.name, label.classes, label.substitute, label.unlisted) == ("y", ("e", "p", "3", "true"), 2, "refuse")
    made = feature("kind = 'numeric'\nlow = -1.10\nhigh = '1.1'\nedges = [-0.55, 0, '0.55']\nsubstitute = 1.1")
    assert (made.low, made.high, made.edges, made.substitute) == ("-1.10", "1.1", (-32768, 0, 32768), 65536)
    assert feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4").edges == (-32768, 0, 32768)
    assert feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4").substitute == 0
    coded = feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4\nmissing = 'code'")
    assert (coded.substitute, coded.size, coded.code(None)) == (None, 5, 4)
    made = feature("kind = 'categorical'\nvalues = ['a', '\U0001fae9']")
    assert [made.code(value) for value in ("a", "\U0001fae9", "b")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "substitute", "unlisted", "size"),
    [
        ("", None, "missing", 3),
        ('missing = "code"', None, "missing", 3),
        ('missing = "b"', 1, "missing", 2),
        ('missing = "b"\nunlisted = "other"', 1, "other", 3),
        ('unlisted = "refuse"', None, "refuse", 3),
    ],
)
def test_categories_as_stated(text, substitute, unlisted, size):
    made = feature(f"kind = 'categorical'\nvalues = ['a', 'b']\n{text}")
    assert made.labels()[:2] == ["a", "b"]
    assert (made.substitute, made.unlisted, made.size) == (substitute, unlisted, size)


REFUSED = [
    *(f"low = 0\nhigh = 8\nbins = 4\n{more}" for more in ("missing='code'\nsubstitute=1", "missing='3'", "missing=3")),
    *(f"low = 0\nhigh = {high}\nedges = [5]" for high in ("inf", "nan", '"1_0"', '"+10"', '" 10"', '".5"', "1e301")),
    'low = 0\nhigh = "1\\n"\nedges = [5]',
    *(f"low = 0\nhigh = 1\nedges = {edges}" for edges in ("[2]", "[0.5, 7]", "[-1]", "[-1, 0.5]")),
]


@pytest.mark.parametrize("text", REFUSED)
def test_bounds_edges_and_substitutes_that_no_reader_would_take_are_refused(text):
    error = failure(feature, f"kind = 'numeric'\n{text}")
    assert error.reason == "schema_invalid"
    assert "edges = [5]" in text or "edges" not in text or "edge" in error.detail


decimals = st.decimals(-10_000, 10_000, places=4, allow_nan=False)


@given(decimals, decimals, st.integers(2, 40))
def test_edges_of_equal_width_are_exact(low, high, bins):
    if low == high:
        high += 1
    low, high = sorted((low, high))
    edges = equal_width_edges("x", str(low), str(high), bins)
    start, span = Fraction(low), Fraction(high) - Fraction(low)
    assert edges == [round(Fraction(j, bins) * 2 * 65536) - 65536 for j in range(1, bins)]
    made = Numeric("x", str(low), str(high), edges)
    for j in range(1, bins):
        assert made.known_code(float(start + j * span / bins)) == j  # an edge belongs to the bin above it


@given(decimals, decimals)
def test_bounds_are_rounded_outward_by_little(least, most):
    if least == most:
        most += 1
    least, most = sorted((least, most))
    low, high = map(Decimal, outward(least, most))
    span = most - least
    assert low <= least
    assert most <= high
    assert high - low <= span * Decimal("1.2")


def draft(rows, label="y", **options):
    columns = list(rows)
    return draft_schema(pd.DataFrame(rows, columns=columns, dtype=object), label, name="pilot", **options)


def test_a_draft_decides_by_the_pilot():
    n = 40
    pilot = {
        "y": ["e", "p"] * 20,
        "never_missing": ["a", "b", "b", "b"] * 10,
        "missing": ["a", "?", "b", ""] * 10,
        "few_integers": ["2", "10", "1", "10"] * 10,
        "many_integers": [str(i) for i in range(n)],
        "few_decimals": ["0.5", "1.5"] * 20,
        "mixed": ["1", "x"] * 20,
    }
    text = draft(pilot)
    features = {item["name"]: item for item in tomllib.loads(text)["features"]}
    assert features["never_missing"]["missing"] == "b"
    assert (features["missing"]["missing"], features["missing"]["values"]) == ("code", ["a", "b"])
    assert features["few_integers"]["values"] == ["1", "2", "10"]
    assert [features["many_integers"][key] for key in ("low", "high", "bins")] == ["0", "39", 4]
    assert [features[name]["kind"] for name in ("few_decimals", "mixed")] == ["numeric", "categorical"]
    assert text.count("bounds must be public knowledge") == 2
    assert text.startswith("#")
    rows = {"y": ["e", "p", "p"], "x": ["1", "2", "-"], "z": ["5", "6", "7"]}
    text = draft(rows, max_values=1, bins=7, missing=("-",), drop=("z",))
    (only,) = tomllib.loads(text)["features"]
    assert (only["name"], only["kind"], only["bins"]) == ("x", "numeric", 7)
    assert tomllib.loads(text)["label"]["substitute"] == "p"


def overflows(text):
    """Infinite or NaN to a computer: a draft refuses such a cell among numbers."""
    try:
        return not isfinite(float(text))
    except ValueError:
        return False


texts = (
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=8)
    .map(str.strip)
    .filter(lambda text: text.isprintable() and text not in ("", "?") and not overflows(text))
)


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # words of this tree are drawn, ``nan`` among them
@given(st.lists(st.tuples(st.sampled_from(["e", "p"]), texts, texts), min_size=2, max_size=30), texts)
def test_a_draft_says_what_the_pilot_holds_in_any_script(rows, name):
    """Quotes, backslashes, any alphabet: the draft reads back, and every pilot value has a code."""
    rows = [("e", "a", "1"), ("p", "b", "2"), *rows]
    frame = pd.DataFrame(rows, columns=["the label", f"{name} 1", f"{name} 2"], dtype=object)
    try:
        text = draft_schema(frame, "the label", name=name)
    except InputError as error:  # a few words among numbers: refused by a test of its own
        assert error.reason == "value_invalid"  # noqa: PT017 - most examples are no refusals
        assert any(number in "0123456789" for row in rows for number in row[2])
        return
    schema = parse_schema_text(text).schema
    assert [feature.name for feature in schema.features] == [f"{name} 1", f"{name} 2"]
    for made, column in zip(schema.features, ("1", "2"), strict=True):
        for cell in frame[f"{name} {column}"]:
            value = float(cell) if made.kind == "numeric" else cell
            assert made.known_code(value) is not None
        assert made.code(None) == made.missing_code


@pytest.mark.parametrize("number", ["1_0", "+10", "1_0.0", "1e1", "1E+1", "+1_0.0e-0", "0x0a", "0b1010", '"1.0e1"'])
def test_a_number_of_toml_becomes_a_text_that_every_reader_takes(number):
    made = feature(f"kind = 'numeric'\nlow = 0\nhigh = {number}\nedges = [5]")
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", made.high)
    assert Decimal(made.high) == 10
    assert parse_feature(made.to_dict(), "invalid_campaign").to_dict() == made.to_dict()


@pytest.mark.parametrize("bad", ["x" * 1025, "\u00a0", "\u200b"], ids=ascii)
def test_texts_of_a_schema_are_those_that_a_document_may_hold(bad):
    assert reason_of(InputError, feature, f"kind = 'categorical'\nvalues = ['a', '{bad}']") == "schema_invalid"
    text = f"{HEAD}[[features]]\nname = '{bad}'\nkind = 'categorical'\nvalues = ['a']"
    assert reason_of(InputError, parse_schema_text, text) == "schema_invalid"


@pytest.mark.parametrize("cells", [["1.5", "-0.25", "1E0", "+2.5", "3"], ["+1.5", ".5", "5.", "+1", "+3"]])
def test_a_number_that_devices_do_not_read_is_refused_by_its_place(cells):
    """As text a device would call it missing, so a schema that is drafted from it would mean less than it says."""
    refused = failure(draft, {"y": ["e", "p", "p", "e", "p"], "x": cells}, max_values=2)
    assert refused.reason == "value_invalid"
    assert "spelled as devices do not read it" in refused.detail
    free = [place for place, cell in enumerate(cells) if cell[0] in "+." or cell[-1] == "."]
    assert f"record {free[0]}" in refused.detail


def test_a_pilot_may_spell_its_numbers_as_bounds_and_a_draft_that_no_campaign_would_take_is_refused():
    cells = ["1.5", "0.50", "005", "1E0", "-0.25"]
    (feature,) = tomllib.loads(draft({"y": ["e", "p", "p", "e", "p"], "x": cells}, max_values=2))["features"]
    assert (feature["kind"], Decimal(feature["low"]) <= Decimal("-0.25")) == ("numeric", True)
    wide = {"y": [str(i % 256) for i in range(512)], "x": [str(i) for i in range(512)]}
    assert reason_of(InputError, draft, wide, bins=300) == "schema_invalid"


@pytest.mark.parametrize("gaps", [False, True])
def test_a_number_that_is_missing_in_the_pilot_gets_a_code_and_another_is_said_to_count_as_the_middle(gaps):
    cells = [f"{number}.5" for number in range(20)] + [""] * gaps
    pilot = pd.DataFrame({"y": ["a", "b"] * 10 + ["a"] * gaps, "x": cells}, dtype=object)
    text = draft_schema(pilot, "y", name="n")
    (feature,) = parse_schema_text(text).schema.features
    assert (feature.substitute is None) == gaps
    assert ("in reports a missing number counts as the middle" in text and "a prediction leaves it out" in text) != gaps


def test_a_byte_order_mark_of_an_editor_is_no_part_of_a_schema(tmp_path):
    (tmp_path / "s.toml").write_text(mushrooms(name="s"), encoding="utf-8-sig")
    assert load_schema(tmp_path / "s.toml").name == "s"
    text = mushrooms() + "\n[decision]\nby = 1.5\n"
    assert reason_of(InputError, parse_schema_text, text) == "schema_invalid"


# Schemas as text --------------------------------------------------------------------------------------


TEXTS = st.lists(st.sampled_from(["a", 'quote"', "back\\slash", "ä", "1", "code ", "x y"]), min_size=2, unique=True)
EDGES = st.lists(st.integers(-SCALE + 1, SCALE), min_size=1, max_size=4, unique=True).map(sorted)
BOUNDS = st.sampled_from([("-1", "1"), ("0", "0.3"), ("17", "90"), ("-1e3", "1e6"), ("0.001", "0.0012")])


@st.composite
def features(draw, name):
    unlisted = draw(st.sampled_from(["missing", "refuse"]))
    if draw(st.booleans()):
        values = draw(TEXTS)
        return Categorical(name, values, unlisted, draw(st.none() | st.integers(0, len(values) - 1)))
    substitute = draw(st.none() | st.integers(-SCALE, SCALE))
    return Numeric(name, *draw(BOUNDS), draw(EDGES), unlisted, substitute)


@given(st.data(), TEXTS)
@examples(60)
def test_every_schema_reads_back_as_itself(data, classes):
    label = Label("class", classes, data.draw(st.integers(0, len(classes) - 1)), "refuse")
    made = [data.draw(features(name)) for name in ("one", "the other")]
    file = SchemaFile("named", build_schema(label, made), {"one": AskedFeature(share=3)})
    again = parse_schema_text(schema_text(file))
    assert again.schema.label.to_dict() == label.to_dict()
    assert [each.to_dict() for each in again.schema.features] == [each.to_dict() for each in made]
    assert (again.name, again.ask) == (file.name, file.ask)


def test_a_projection_is_refused():
    number = Numeric("x", "-1", "1", [0])
    with_projection = build_schema(Label("class", ["a", "b"]), [number])._replace(
        projection=Projection((0,), ((1,),), (0,), 0, (number,))
    )
    with pytest.raises(InputError, match="no projection"):
        schema_text(SchemaFile("x", with_projection))


# The table [ask] --------------------------------------------------------------------------------------


LABEL = Label("label", ["e", "p"])
SCHEMA = build_schema(
    LABEL,
    [
        Categorical("odor", ["a", "l", "n", "f"]),
        Categorical("(missing)", ["x", "(missing)"]),
        Numeric("width", "0", "8", [-32768, 0, 32768], substitute=None),
        Numeric("height", "0", "8", [0]),
    ],
)
PROJECTED = build_schema(
    LABEL, SCHEMA.features, Projection([3], [[1]], [0], 0, [Component("component 1", -65536, 65536, [-9, 0, 9])])
)


def asked(text):
    return parse_schema_text(mushrooms(label="label", bins=2) + text).ask


def test_the_table_is_written_as_it_is_read_and_without_it_everything_is_asked_about():
    whole = resolve(SCHEMA, asked(""))
    assert whole.stated is whole.schema is SCHEMA
    assert list(whole.shares) == [0, 1, 2, 3]
    odor = AskedFeature(groups=(("a", 'q"\\'), ("n",)), share=3)
    ask = {"odor": odor, 'a "name"': AskedFeature(bins=(2, 1)), "plain": AskedFeature()}
    assert dict(asked(ask_text(ask))) == ask
    assert ask_text({}) == ""


def test_values_that_no_group_names_are_the_last_group():
    found = resolve(SCHEMA, {"odor": AskedFeature(groups=(("n",), ("a", "f")))})
    assert found.stated.groups == ((0, 1, 2, 0, 1), None, None, None)  # the codes a, l, n, f, missing
    assert found.schema.observed[0].labels() == ["{a, f}", "{l, (missing)}", "n"]
    alone = resolve(SCHEMA, {"odor": AskedFeature(groups=(("(missing)",), ("a", "f")))})
    assert alone.schema.observed[0].labels() == ["{a, f}", "{l, n}", "(missing)"]
    found = resolve(SCHEMA, {"(missing)": AskedFeature(groups=(("x", "(missing)"),))})
    assert found.stated.groups[1] == (0, 0, 1)  # a listed value comes before the code of its name


def test_bins_are_runs_and_missing_numbers_stay_alone():
    found = resolve(SCHEMA, {"width": AskedFeature(bins=(1, 3))})
    assert found.stated.groups[2] == (0, 1, 1, 1, 2)
    assert found.schema.observed[0].labels() == ["[0, 2)", "{[2, 4), [4, 6), [6, 8]}", "(missing)"]
    component = resolve(PROJECTED, {"component 1": AskedFeature(bins=(2, 2))})
    assert component.schema.observed[0].size == 2
    assert [feature.name for feature in component.schema.features] == ["height"]


def groups(*members):
    return AskedFeature(groups=members)


@pytest.mark.parametrize(
    ("schema", "name", "ask", "says"),
    [
        (SCHEMA, "odr", AskedFeature(), "near: 'odor'"),
        (SCHEMA, "zzz", AskedFeature(), "there are 'odor', '(missing)', 'width', 'height'"),
        (SCHEMA, "label", AskedFeature(), "is the label"),
        (PROJECTED, "height", AskedFeature(), "input of the projection"),
        (SCHEMA, "odor", groups(("a", "ll")), "lists no value 'll'; near: 'l'"),
        (SCHEMA, "odor", groups(("a",), ("a",)), "in two groups"),
        (SCHEMA, "odor", groups(("a", "l", "n", "f", "(missing)")), "only one group"),
        (SCHEMA, "odor", groups(("a",), ("l",), ("n",), ("f",)), "a group of its own"),
        (SCHEMA, "odor", AskedFeature(bins=(1, 4)), "divided by groups"),
        (SCHEMA, "width", groups(("a",)), "divided by bins"),
        (SCHEMA, "width", AskedFeature(bins=(1, 2)), "has 4 bins"),
        (SCHEMA, "width", AskedFeature(bins=(1, 1, 1, 1)), "a group of its own"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(schema, name, ask, says):
    error = failure(resolve, schema, {name: ask})
    assert error.reason == "ask_invalid"
    assert says in error.detail


WRONG = ["values = []", "groups = ['a']", "groups = [[]]", "groups = [[1.5]]", "bins = [0, 1]", "bins = [true]"]
WRONG += ["bins = [1]\ngroups = [['a']]", "share = -1", "share = 1000001", "share = 1.5"]


@pytest.mark.parametrize(
    "lines", ["[ask]\n", "[ask]\nodor = 1\n", "ask = 1\n", *(f"[ask.odor]\n{key}\n" for key in WRONG)]
)
def test_tables_that_are_none(lines):
    text = mushrooms(label="label", bins=2)
    text = lines + text if lines.startswith("ask =") else text + lines
    assert reason_of(InputError, parse_schema_text, text) == "schema_invalid"


def test_names_on_the_command_line():
    table = {"odor": AskedFeature(groups=(("a",),))}
    assert ask_of(None, table) is table
    assert list(ask_of("odor, width", table)) == ["odor", "width"]
    assert ask_of("odor", table) == {"odor": AskedFeature()}
    assert ask_of(["a, b"], {}) == {"a, b": AskedFeature()}
    for wrong in ("", "odor,,width", "odor,odor", [], [3]):
        assert reason_of(InputError, ask_of, wrong, {}) == "ask_invalid"


def built(ask, **options):
    parameters = CampaignParameters("c", 1_000_000, ask=ask, **{"mechanism": "direct", **options})
    return parse_campaign(build_campaign(SCHEMA, parameters, 1, NOW))


def test_shares_weigh_the_questions():
    made = built({"odor": AskedFeature(share=3), "width": AskedFeature(groups=(), bins=(2, 2), share=2)})
    bounds = [question.bound for question in made.questions]
    assert bounds == [2**32 * part // 6 for part in (1, 4, 6)]
    assert refusal(built, {"odor": AskedFeature(share=3)}, answers=2) == "weights_invalid"


def test_a_gaussian_campaign_asks_about_some_numbers():
    made = built({"width": AskedFeature(share=2), "odor": AskedFeature()}, family="gaussian", mechanism="bits")
    assert [one.kind for one in made.questions] == ["class", "cell", "present", "moment", "moment"]
    assert [one.feature for one in made.questions] == [None, 0, 1, 1, 1]
    shares = [made.assignment.interval(place, 0) for place in range(5)]
    assert [round(12 * (high - low) / 2**32) for low, high in shares] == [3, 3, 2, 2, 2]
    whole = built({"width": AskedFeature(), "height": AskedFeature()}, family="gaussian", mechanism="duchi")
    assert whole.questions[-1].kind == "moments"
    assert [feature.name for feature in whole.schema.features] == ["width", "height"]


@pytest.mark.parametrize(
    ("ask", "options", "reason"),
    [
        ({"width": AskedFeature()}, {"mechanism": "duchi"}, "ask_invalid"),
        ({"width": AskedFeature()}, {"mechanism": "laplace", "approach": 1}, "ask_invalid"),
        ({"width": AskedFeature(bins=(2, 2))}, {"mechanism": "bits"}, "ask_invalid"),
        ({"odor": AskedFeature()}, {"mechanism": "bits"}, "no_numbers"),
    ],
)
def test_what_a_gaussian_campaign_can_not_ask(ask, options, reason):
    assert reason_of(InputError, built, ask, family="gaussian", **options) == reason


# A draft says which columns are most likely no features, and is silent about the others


DRAW = random.Random(7)


def doubt_of(cells):
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
SERIAL_NAMES = [[f"SN-{number:04x}" for number in DRAW.sample(range(1 << 16), 40)]]
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
    ("columns", "word"), [(TIMES, "times"), (SERIALS, "a serial number"), (SERIAL_NAMES, "names or serial numbers")]
)
def test_what_is_no_feature_is_doubted(columns, word):
    for cells in columns:
        assert word in (doubt_of(cells) or ""), cells


def test_what_is_a_feature_is_not_doubted_and_other_texts_and_commas_are_not_told():
    for cells in FEATURES:
        assert doubt_of(cells) is None, cells
    for texts in (["yes", "no"], ["a", "b", "ab"], ["1", "10", "01"], [], ["x"], ["-", "_"]):
        assert not look_alike(texts), texts
    for texts in (["1, 2", "3"], ["a,b"], ["1.5"], ["1,2,3"], ["3,5", "a"], [], [None, 3.5]):
        assert advice_on_commas(texts) == "", texts


@given(st.lists(st.text(max_size=8) | st.text("0123456789-:T. ", max_size=20), max_size=40))
def test_no_cell_breaks_it_or_is_quoted(cells):
    why = doubt_of(cells)
    assert why is None or why.startswith(("it ", "no text"))


def test_spellings_that_no_number_and_no_truth_value_has_are_doubted():
    for texts in (["0.0", "1.0"], ["1", "02"], ["1e2", "a"], ["-0", "1"], ["False", "True"], ["TRUE", "x"]):
        assert "matches that text alone" in misleading(texts), texts
    for texts in (["0", "1"], ["-1", "1"], ["a", "b"], ["0.5", "1"], ["1.2.3", "x"], ["false", "true"]):
        assert misleading(texts) is None, texts
    frame = pd.DataFrame({"flag": ["True", "False"] * 30, "size": ["1.0", "2.0"] * 30, "y": ["e", "p"] * 30})
    assert doubted(frame) == ["flag"]


def doubted(frame, word="", missing=("",)):
    return [line.split("'")[1] for line in doubts(frame, "y", missing, ()) if word in line]


@pytest.mark.parametrize(
    "texts",
    [["yes", "yes "], ["Yes", "yes"], ["STRASSE", "Straße"], ["a b", "a  b", "c"], ["²", "2"], ["\u00c5", "A\u030a"]],
)
def test_texts_that_look_alike_are_told(texts):
    assert look_alike(texts)
    frame = pd.DataFrame({"odor": ["n", "f"] * 30, "kind": (texts * 60)[:60], "y": (texts * 60)[:60]})
    doubt_of = doubts(frame, "y", ("",), ())
    assert [line.split("differ")[0] for line in doubt_of if "differ" in line] == [
        "column 'kind': some of its values ", "column 'y': some of its classes ",
    ]  # fmt: skip
    assert not any(text in line for line in doubt_of for text in texts if len(text) > 2 and text != "yes")


def test_spaces_around_cells_and_names_are_told_and_numbers_that_begin_with_zeros():
    cells = {"kind ": ["a", "b", "a"], "odor": [" n", "f", "01"], "y": ["e ", "p", "p"], "z": ["1", "2", "3"]}
    frame = pd.DataFrame({name: column * 20 for name, column in cells.items()})
    assert doubted(frame) == doubted(frame, "spaces around") == ["kind ", "odor", "y"]
    frame = frame.assign(zip=["01234", "1234", "99999"] * 20)
    assert doubted(frame, "begin with zeros") == ["zip"]


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
        assert doubted(frame, "numbers with a unit (write the number alone") == ["width"] * is_told, texts
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
    doubt_of = [line for line in doubts(frame, "y", ("", "?"), ()) if "order is lost" in line]
    assert len(doubt_of) == told
    assert not told or f"its {len(texts)} classes are numbers" in doubt_of[0]


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
    doubt_of = [line for line in doubts(frame, "y", (), ()) if "1.234 is read" in line]
    assert len(doubt_of) == told
    assert not told or "if it means 1234, write 1234" in doubt_of[0]


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
    doubt_of = [text for text in doubts(frame, "y", ("", "?"), ()) if "largest number" in text]
    assert ["--missing=999" in text for text in doubt_of] == [True] * (found is not None)


def test_a_number_far_from_all_others_is_told():
    """Before, one 1e30 became a bound without a word, and all other numbers shared a bin."""
    numbers = [f"{number}.5" for number in range(40)]
    frame = pd.DataFrame({"label": list("ep") * 20, "n": numbers})
    assert doubts(frame, "label", ("",), ()) == []
    (doubt_of,) = doubts(frame.assign(n=[*numbers[:-1], "1e30"]), "label", ("",), ())
    assert doubt_of.startswith("column 'n': a number is over 1000 times farther out ")
