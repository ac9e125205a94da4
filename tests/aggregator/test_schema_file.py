"""Schema files and their table ``[ask]``: what they say is what devices code, and a draft can be read back."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from fractions import Fraction
from math import isfinite

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands import mushrooms
from support.examples import examples
from support.failures import failure, reason_of
from support.publisher import NOW

from aggregator.planning.feature_selection.schema_text import ask_text, schema_text
from aggregator.publishing.ask_table import AskedFeature, ask_of, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
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


def test_a_label_as_stated():
    label = parse_schema_text(f"{HEAD}[[features]]\nname='x'\nkind='categorical'\nvalues=['a']").schema.label
    assert (label.name, label.classes, label.substitute, label.unlisted) == ("y", ("e", "p", "3", "true"), 2, "refuse")


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


def test_numbers_as_stated():
    made = feature("kind = 'numeric'\nlow = -1.10\nhigh = '1.1'\nedges = [-0.55, 0, '0.55']\nsubstitute = 1.1")
    assert (made.low, made.high, made.edges, made.substitute) == ("-1.10", "1.1", (-32768, 0, 32768), 65536)
    assert feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4").edges == (-32768, 0, 32768)
    assert feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4").substitute == 0
    coded = feature("kind = 'numeric'\nlow = 0\nhigh = 8\nbins = 4\nmissing = 'code'")
    assert (coded.substitute, coded.size, coded.code(None)) == (None, 5, 4)


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


def test_a_character_newer_than_the_interpreter_is_a_value():
    made = feature("kind = 'categorical'\nvalues = ['a', '\U0001fae9']")
    assert [made.code(value) for value in ("a", "\U0001fae9", "b")] == [0, 1, 2]


@pytest.mark.parametrize("cells", [["1.5", "-0.25", "1E0", "+2.5", "3"], ["+1.5", ".5", "5.", "+1", "+3"]])
def test_a_number_that_devices_do_not_read_is_refused_by_its_place(cells):
    """As text a device would call it missing, so a schema that is drafted from it would mean less than it says."""
    refused = failure(draft, {"y": ["e", "p", "p", "e", "p"], "x": cells}, max_values=2)
    assert refused.reason == "value_invalid"
    assert "spelled as devices do not read it" in refused.detail
    free = [place for place, cell in enumerate(cells) if cell[0] in "+." or cell[-1] == "."]
    assert f"record {free[0]}" in refused.detail


def test_a_pilot_may_spell_its_numbers_as_bounds():
    cells = ["1.5", "0.50", "005", "1E0", "-0.25"]
    (feature,) = tomllib.loads(draft({"y": ["e", "p", "p", "e", "p"], "x": cells}, max_values=2))["features"]
    assert (feature["kind"], Decimal(feature["low"]) <= Decimal("-0.25")) == ("numeric", True)


def test_a_draft_that_no_campaign_would_take_is_refused():
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
WRONG += ["bins = [1]\ngroups = [['a']]", "share = 0", "share = 1000001", "share = 1.5"]


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
    with pytest.raises(InputError, match="weights_invalid"):
        built({"odor": AskedFeature(share=3)}, answers=2)


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
