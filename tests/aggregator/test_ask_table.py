"""The table ``[ask]`` of schema files and the option ``--ask``: what is asked, and what is refused."""

from __future__ import annotations

import pytest
from support.commands import mushrooms
from support.failures import failure, reason_of
from support.publisher import NOW

from aggregator.planning.feature_selection.schema_text import ask_text
from aggregator.publishing.ask_table import AskedFeature, ask_of, resolve
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.schemas.schema_file import parse_schema_text
from protocol.documents.campaign import parse_campaign
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Component, Label, Projection, build_schema

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
    """The table of a schema file that ends with these lines."""
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
