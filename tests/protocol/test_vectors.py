"""Every conformance vector; and the runner must fail on unknown kinds of vectors."""

from __future__ import annotations

import copy

import pytest
from vectors import (
    generate,
    kinds_averaging,
    kinds_counts,
    kinds_device,
    kinds_files,
    kinds_masked,
    kinds_nodes,
    kinds_values,
    runner,
)

CASES = dict(runner.load_all())
assert all(
    (kinds_averaging, kinds_counts, kinds_device, kinds_files, kinds_masked, kinds_nodes, kinds_values)
)  # importing them registers their kinds


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


def test_the_runner_sees_a_wrong_answer_and_a_wrong_reason():
    with pytest.raises(AssertionError, match="got"):
        runner.run({**CASES["stream/first_eight_below_6"], "expect": [0] * 8})
    with pytest.raises(AssertionError, match="got"):
        runner.run({**CASES["stream/seed_of_31_bytes"], "reason": "bound_invalid"})


def test_the_loader_refuses_unknown_fields_documents_and_repeated_names():
    for content in (
        {"source": "", "cases": [], "extra": 1},
        {"cases": []},
        {"source": "", "cases": [{"name": "a", "data": "@absent"}]},
        {"source": "", "cases": [{"name": "a"}, {"name": "a"}]},
    ):
        with pytest.raises(runner.UnfitVectorError):
            runner.load(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", generate.MAKERS)
def test_generated_vectors_are_those_that_the_generator_makes(name):
    written = (runner.FOLDER / "generated" / f"{name}.json").read_text(encoding="utf-8")
    same = generate.text_of(name) == written  # apart: pytest would spend minutes on telling how they differ
    assert same, "run: PYTHONPATH=tests python -m vectors.generate"
