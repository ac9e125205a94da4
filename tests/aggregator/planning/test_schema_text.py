"""A schema written as text reads back as the same schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.schemas.schema_file import SchemaFile, parse_schema_text
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, Projection, build_schema

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
