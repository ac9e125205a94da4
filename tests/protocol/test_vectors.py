"""Every conformance vector; and the runner must fail on unknown kinds of vectors."""

import copy
from bisect import bisect_left

import pytest
from support.ed25519 import verifies
from vectors import generate, kinds, runner

from protocol.documents import envelope
from protocol.documents.campaign import Series
from protocol.features import Categorical, Numeric
from protocol.questions import Question
from protocol.schema import Component, Schema

CASES = dict(runner.load_all())
assert kinds  # importing it registers them


def _all_cases():
    """Of vectors that digest ten thousand answers, ``make test`` takes the first of each mechanism."""
    seen = set()
    for name, case in CASES.items():
        mechanism = case["mechanism"] if case["kind"].startswith("accumulated") else None
        yield pytest.param(name, marks=pytest.mark.slow) if mechanism in seen else name
        seen |= {mechanism} - {None}


@pytest.mark.parametrize("name", [*_all_cases()])
def test_vector(name):
    runner.run(CASES[name])


def test_every_kind_has_a_case_that_succeeds_and_most_have_one_that_fails():
    succeeding = {case["kind"] for case in CASES.values() if "expect" in case}
    failing = [case for case in CASES.values() if "reason" in case]
    assert succeeding == runner.kinds()
    assert len(CASES) >= 800
    assert 2 * len(failing) >= len(CASES)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "stream_above"},
        {"surprise": 1},
        {"reason": "seed_invalid"},
        {"tag": None, "seed": None, "bounds": None},
    ],
    ids=["unknown kind", "unknown field", "two expectations", "missing fields"],
)
def test_the_runner_refuses_what_it_does_not_understand(change):
    case = copy.deepcopy(CASES["stream/first_eight_below_6"])
    case.update({key: value for key, value in change.items() if value is not None})
    for key in [key for key, value in change.items() if value is None]:
        del case[key]
    with pytest.raises(runner.UnfitVectorError):
        runner.run(case)


@pytest.mark.parametrize(
    ("name", "change"), [("first_eight_below_6", {"expect": [0] * 8}), ("seed_of_31_bytes", {"reason": "x"})]
)
def test_the_runner_sees_a_wrong_answer_and_a_wrong_reason(name, change):
    with pytest.raises(AssertionError, match="got"):
        runner.run({**CASES[f"stream/{name}"], **change})


@pytest.mark.parametrize(
    "content",
    [
        {"source": "", "cases": [], "extra": 1},
        {"cases": []},
        {"source": "", "cases": [{"name": "a", "data": "@absent"}]},
        {"source": "", "cases": [{"name": "a"}, {"name": "a"}]},
    ],
)
def test_the_loader_refuses_unknown_fields_documents_and_repeated_names(content):
    with pytest.raises(runner.UnfitVectorError):
        runner.load(content)


@pytest.mark.parametrize("name", generate.MAKERS)
def test_generated_vectors_are_those_that_the_generator_makes(name):
    written = (runner.FOLDER / "generated" / f"{name}.json").read_text(encoding="utf-8")
    same = generate.text_of(name) == written  # apart: pytest would spend minutes on telling how they differ
    assert same, "run: PYTHONPATH=tests python -m vectors.generate"


# The way of a record ----------------------------------------------------------------------------------

RECORDS = [case for name, case in CASES.items() if name.startswith("records/")]


def _transposed(question, read, code, classes, predicted=0):
    """The cell's index with value and class exchanged."""
    if question.kind == "cell":
        return code * (question.size // classes) + read.codes[question.feature]
    return INPUT_OF(question, read, code, classes, predicted)


def _predicted_first(question, read, code, classes, predicted=0):
    if question.kind == "outcome":
        return predicted * classes + code
    return INPUT_OF(question, read, code, classes, predicted)


def _by_class(question, read, code, classes, predicted=0):
    """The numbers of one class beside one another, in place of those of one feature."""
    if question.kind != "moments":
        return INPUT_OF(question, read, code, classes, predicted)
    vector, many = [0] * question.size, question.size // classes
    for place, value in enumerate(INPUT_OF(question, read, code, classes)[code::classes]):
        vector[code * many + place] = value
    return tuple(vector)


def _without_groups(schema, readings):
    return OBSERVATION(schema._replace(groups=()), readings)


def _substituted(schema, record):
    """Substitutes also where a class is predicted."""
    return [(code, number) for code, number in zip(*schema.observe(record)[:2], strict=True)]


INPUT_OF, OBSERVATION = Question.input_of, Schema.observation


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (Question, "input_of", _transposed),
        (Question, "input_of", _predicted_first),
        (Question, "input_of", _by_class),
        (Schema, "observation", _without_groups),
        (Schema, "recognise", _substituted),
        (Categorical, "known_code", lambda feature, value: feature._codes.get(value) if type(value) is str else None),
        (Numeric, "missing_code", property(lambda feature: len(feature.edges))),
        (Component, "code_of", lambda part, number: 0 if number is None else bisect_left(part.edges, number)),
        (Series, "has", lambda _series, _secret: True),
    ],
)
def test_a_wrong_step_on_the_way_of_a_record_fails(monkeypatch, owner, name, wrong):
    monkeypatch.setattr(owner, name, wrong)
    failed = 0
    for case in RECORDS:
        try:
            runner.run(case)
        except (AssertionError, IndexError):
            failed += 1
    assert failed >= 1


# For every signature check of docs/formats.md, section 5, some vector fails if a verifier leaves it out

SIGNED = {name: case for name, case in CASES.items() if name.startswith("signatures/")}


def broken(monkeypatch, **options):
    monkeypatch.setattr(envelope, "_verifies", lambda *signed: verifies(*signed, **options))
    found = set()
    for name, case in SIGNED.items():
        try:
            runner.run(case)
        except AssertionError:
            found.add(name.removeprefix("signatures/"))
    return found


def test_the_rules_of_the_document_decide_every_case_as_libsodium_does(monkeypatch):
    assert len(SIGNED) >= 20
    assert not broken(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"without": ("scalar",)}, {f"s_plus_{number}_times_the_order" for number in (1, 2, 8, 14)}),
        ({"without": ("key order",)}, {f"key_of_order_{order}" for order in (1, 2, 4, 8)}),
        ({"without": ("point order",)}, {"point_of_order_1"}),
        ({"cofactored": True}, {"point_with_a_part_of_small_order", "key_whose_part_of_small_order_is_left_over"}),
    ],
)
def test_a_check_that_is_left_out_or_changed_breaks_a_vector(faults, expected, monkeypatch):
    found = broken(monkeypatch, **faults)
    assert found >= expected
    assert "cofactored" not in faults or found == expected


@pytest.mark.slow
def test_spellings_that_are_not_the_shortest_are_refused_even_where_orders_are_not_looked_at(monkeypatch):
    """Only points of small order: for no other point with two encodings is a secret known."""
    plain = broken(monkeypatch, without=("key order", "point order"))
    lax = broken(monkeypatch, without=("key order", "point order", "key spelling", "point spelling"))
    assert lax - plain >= {"key_of_order_1_spelled_with_p_added", "point_of_order_1_spelled_with_p_added"}
