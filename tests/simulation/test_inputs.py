"""The array code and the device compute the same input of every question for the same record."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.models.encoding import MISSING, NO_NUMBER, label_codes, observe, recognise
from aggregator.publishing.mechanisms.choice import form_of, moment_mechanism
from aggregator.publishing.mechanisms.draws import inputs_of
from protocol import SCALE
from protocol.documents.asked import canonical_groups, restricted, ungroupable
from protocol.features import Categorical, Numeric
from protocol.mechanisms import from_micro
from protocol.questions import build_questions, discrete_subjects, gaussian_subjects, outcome_subjects, right_subjects
from protocol.schema import Component, Label, Projection, build_schema

LABEL = Label("label", ["e", "p", "q"], substitute=1)
FEATURES = [
    Numeric("a", "-1", "3", [-30000, 0, 20000]),
    Numeric("b", "0", "1", [0], substitute=None),
    Categorical("odor", ["x", "y"], substitute=0),
    Numeric("c", "0", "10", [0], substitute=-400),
]
PARTS = [
    Component("pca1", -SCALE, SCALE, [0], has_missing=True),
    Component("pca2", -500, 900, [7, 8], has_missing=True),
]
SCHEMAS = {
    "plain": build_schema(LABEL, FEATURES),
    "projected": build_schema(
        LABEL, FEATURES, Projection([0, 1, 3], [[3, -5, 7], [1 << 20, 4, -(1 << 19)]], [12345, -(1 << 30)], 12, PARTS)
    ),
}
SCHEMAS["grouped"] = SCHEMAS["plain"]._replace(groups=((0, 1, 1, 0), (0, 0, 1), None, None))
SCHEMAS["projected and grouped"] = SCHEMAS["projected"]._replace(groups=(None, (0, 1, 0), (0, 1, 1, 0)))

numbers = st.one_of(
    st.none(), st.floats(-3, 12), st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.5, 1.0])
)
rows = st.fixed_dictionaries(
    {
        "a": numbers,
        "b": numbers,
        "c": numbers,
        "odor": st.sampled_from(["x", "y", "z", None]),
        "label": st.sampled_from(["e", "p", "q", "r", None]),
    }
)


def frame_of(records):
    columns = {name: [record[name] for record in records] for name in ("a", "b", "c", "odor", "label")}
    frame = pd.DataFrame(columns, dtype=object)
    for name in "abc":
        frame[name] = frame[name].astype(float)
    return frame


@pytest.mark.parametrize("name", SCHEMAS)
@given(records=st.lists(rows, min_size=1, max_size=6))
def test_a_frame_is_observed_and_recognised_as_a_device_does(name, records):
    schema = SCHEMAS[name]
    frame = frame_of(records)
    seen, known = observe(frame, schema), recognise(frame, schema)
    for index, record in enumerate(records):
        one = schema.observe(record)
        assert tuple(seen.codes[index]) == one.codes
        assert [None if n == NO_NUMBER else n for n in seen.numbers[index]] == list(one.numbers)
        for place, reading in enumerate(schema.recognise(record)):
            code, number = (MISSING, None) if reading is None else reading
            assert known.codes[index, place] == code
            assert known.numbers[index, place] == (NO_NUMBER if number is None else number)


def all_questions(schema):
    """Every kind of question, in every form."""
    for mechanism in ("bit", "bits", "duchi"):
        subjects = gaussian_subjects(schema, form_of(mechanism))
        yield from build_questions(
            subjects, 1, lambda s, name=mechanism: moment_mechanism(name, 10**6, s, len(schema.numeric))
        )
    for subjects in (discrete_subjects(schema), outcome_subjects(schema), right_subjects(3)):
        yield from build_questions(subjects, 1, lambda s: from_micro("direct", 10**6, s.size))


@pytest.mark.parametrize("name", SCHEMAS)
@given(records=st.lists(rows, min_size=1, max_size=6), predicted=st.integers(0, 2))
def test_every_question_gets_the_input_that_a_device_would_give(name, records, predicted):
    schema = SCHEMAS[name]
    frame = frame_of(records)
    labels = label_codes(frame, schema.label, substitute=True)
    encoded, guessed = observe(frame, schema), np.full(len(records), predicted)
    for question in all_questions(schema):
        inputs = inputs_of(schema, question.subject, encoded, labels, guessed)
        for index, record in enumerate(records):
            code = schema.label.code(record["label"])
            expected = question.input_of(schema.observe(record), code, 3, predicted)
            assert np.array_equal(inputs[index], expected), question.subject
            question.mechanism.perturb(expected, bytes(32))  # no record lies outside a mechanism's domain


@pytest.mark.parametrize("name", ["plain", "projected"])
@given(records=st.lists(rows, min_size=1, max_size=3), data=st.data())
def test_an_asked_part_of_a_schema_is_that_part_of_the_whole(name, records, data):
    """Of random features in random groups: device and arrays read the groups of the codes of the whole schema."""
    whole = SCHEMAS[name]
    places = data.draw(st.sets(st.integers(0, len(whole.observed) - 1), min_size=1))
    groups = []
    for feature in whole.observed:
        drawn = canonical_groups(data.draw(st.lists(st.integers(0, 2), min_size=feature.size, max_size=feature.size)))
        groups.append(None if ungroupable(feature, drawn) else drawn)
    asked = restricted(whole._replace(groups=tuple(groups)), places)
    assert [part.name for part in asked.observed] == [whole.observed[place].name for place in sorted(places)]
    frame = frame_of(records)
    seen, known = observe(frame, asked), recognise(frame, asked)
    for index, record in enumerate(records):
        codes = whole.observe(record).codes
        expected = [codes[place] if groups[place] is None else groups[place][codes[place]] for place in sorted(places)]
        assert list(asked.observe(record).codes) == expected == list(seen.codes[index])
        readings = asked.recognise(record)
        assert [MISSING if reading is None else reading[0] for reading in readings] == list(known.codes[index])
