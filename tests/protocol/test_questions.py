"""Questions: every id answers exactly one question of each stratum; device and aggregator agree on it."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason
from support.publisher import Publisher, small_schema

from protocol import canonical, mechanisms
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import Layout, decode_answer, encode_answer, layout_for
from protocol.documents import campaign
from protocol.features import Categorical
from protocol.questions import Assignment, build_questions, discrete_subjects
from protocol.schema import Label, Observation, build_schema

WORD = 1 << 32
seeds = st.binary(min_size=32, max_size=32)


def questions_with(weights, answers):
    schema = build_schema(Label("y", ["0", "1"]), [Categorical(str(n), ["0"]) for n in weights[1:]])
    subjects = discrete_subjects(schema)
    return build_questions(subjects, answers, lambda one: mechanisms.from_epsilon("direct", 1, one.size), weights)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=30, unique=True), st.data())
def test_intervals_partition_the_ids_of_every_stratum(weights, data):
    answers = data.draw(st.integers(1, len(weights)))
    questions = questions_with(weights, answers)
    assignment = Assignment(questions)
    assert [question.stratum for question in questions] == sorted(question.stratum for question in questions)
    assert {question.stratum for question in questions} == set(range(answers))
    sizes = [sum(question.stratum == stratum for question in questions) for stratum in range(answers)]
    assert max(sizes) - min(sizes) <= 1
    for stratum in range(answers):
        members = [index for index, question in enumerate(questions) if question.stratum == stratum]
        intervals = [assignment.interval(index, stratum) for index in members]
        assert intervals[0][0] == 0
        assert intervals[-1][1] == WORD
        assert all(one[1] == other[0] for one, other in pairwise(intervals))
        edges = {edge for low, high in intervals for edge in (low, high - 1)}
        for u in edges | {data.draw(st.integers(0, WORD - 1))}:
            asked = assignment.question_for(u.to_bytes(4, "big") + b"tail", stratum)
            low, high = assignment.interval(asked, stratum)
            assert low <= u < high
            assert questions[asked].stratum == stratum


@pytest.mark.parametrize("weights", [[1, 2], [1, 0, 1], [1, -1, 1], [1, 1.0, 1], [1, True, 1], [1, 1 << 40, 1]])
def test_weights_are_positive_integers_one_per_question(weights):
    subjects = discrete_subjects(small_schema())
    mechanism = mechanisms.from_epsilon("direct", 1, 2)
    assert reason(build_questions, subjects, 1, lambda _: mechanism, weights) == "weights_invalid"


def test_the_input_of_a_cell_is_value_times_classes_plus_class():
    of_class, of_cell, *_ = campaign.parse_campaign(Publisher().campaign_payload()).questions
    for code, label in product(range(4), range(2)):
        seen = Observation((code, 0), (None, 0), (1,))
        assert (of_class.input_of(seen, label, 2), of_cell.input_of(seen, label, 2)) == (label, 2 * code + label)


@given(st.data(), st.sampled_from(["direct", "oue"]), st.integers(2, 40), st.integers(0, 3))
def test_an_answer_comes_back_from_its_field(data, name, size, spare):
    mechanism = mechanisms.from_epsilon(name, 1, size)
    least = layout_for([mechanism])
    layout = Layout(least.kind, least.answer_bytes + (spare if name == "oue" else 0))
    answer = mechanism.perturb(data.draw(st.integers(0, size - 1)), data.draw(seeds))
    field = encode_answer(mechanism, answer, layout)
    assert len(field) == layout.answer_bytes
    assert decode_answer(mechanism, field, layout) == answer


@given(st.binary(min_size=2, max_size=2), st.integers(2, 16), st.sampled_from(["direct", "oue"]))
def test_a_field_is_the_one_encoding_of_an_answer_or_no_answer(field, size, name):
    mechanism = mechanisms.from_epsilon(name, 1, size)
    layout = Layout(2, 2)
    answer = decode_answer(mechanism, field, layout)
    assert answer is None or encode_answer(mechanism, answer, layout) == field


@given(st.integers(1, 1 << 16))
def test_the_prefix_is_msgpacks_own_header(answer_bytes):
    if answer_bytes + 14 >= 1 << 16:
        return
    layout = Layout(2, answer_bytes)
    record = layout.prefix + bytes(14 + answer_bytes)
    assert len(record) == layout.record_length
    assert record == canonical.msgpack.packb(canonical.msgpack.ExtType(2, bytes(14 + answer_bytes)))
    assert write_batch(Header(bytes(32), 2, layout.record_length), [record])


def test_what_the_campaign_says_of_itself():
    parsed = campaign.parse_campaign(Publisher().campaign_payload(answers=3, epsilon_micro=1_500_001))
    assert parsed.epsilon_per_answer_micro == 500_000
    assert parsed.period_at(86_400 * 5 - 1) == 4
    assert not parsed.privacy_loss().exceeds(1_500_000)
    assert parsed.privacy_loss().exceeds(1_499_990)
    assert Publisher().campaign_payload() == Publisher().campaign_payload()


@pytest.mark.slow
def test_a_campaign_of_thousands_of_strata_is_checked_in_time():
    features = [Categorical(f"f{n}", [str(value) for value in range(1 + n % 50)]) for n in range(3000)]
    schema = build_schema(Label("y", ["0", "1"]), features)
    payload = Publisher(schema=schema).campaign_payload(answers=3001, epsilon_micro=3001 * 10_000)
    assert len(campaign.parse_campaign(payload).questions) == 3001
