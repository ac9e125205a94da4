"""The golden vectors agree with a second implementation, which was written from docs/formats.md only.

``tests/vectors/from_text.py`` shares nothing with the project. Here it repeats every golden case of the
frequency mechanisms, 10,000 cases per accumulated digest among them.
"""

from __future__ import annotations

import ast

import pytest
from support.mechanisms import kinds
from vectors import from_text, kinds_values, runner

from protocol.mechanisms import ValueMechanism
from protocol.mechanisms.numeric import NumericMechanism

NUMERIC = kinds(NumericMechanism)
REPEATED = (
    "accumulated",
    "accumulated_numbers",
    "parameters",
    "parameters_with",
    "perturb",
    "perturb_each",
    "perturb_with",
)
CASES = {name: case for name, case in runner.load_all() if case["kind"] in REPEATED and "expect" in case}
BY_TIER = [
    pytest.param(name, marks=pytest.mark.slow if case["kind"].startswith("accumulated") else ())
    for name, case in CASES.items()
]
"""Every case; digests of 10,000 answers are slow."""


def repeated(case):
    """The result of the second implementation for a case."""
    if case["mechanism"] in NUMERIC:
        return repeated_numbers(case)
    mechanism, epsilon, size = case["mechanism"], case["epsilon"], case["size"]
    theta = case.get("options", {}).get("theta", "0.25")
    if case["kind"] == "accumulated":
        return from_text.accumulated(mechanism, epsilon, size, case["cases"], theta)
    integers = from_text.parameters(mechanism, epsilon, size, theta)
    if case["kind"].startswith("parameters"):
        return integers | ({"theta_micro": round(float(theta) * 1_000_000)} if mechanism == "the" else {})
    seeds = case["seeds"] if case["kind"] == "perturb_each" else [case["seed"]]
    answers = [from_text.perturbed(mechanism, integers, size, case["value"], bytes.fromhex(seed)) for seed in seeds]
    return answers if case["kind"] == "perturb_each" else answers[0]


def repeated_numbers(case):
    """The same for a numeric mechanism: single numbers are vectors of one."""
    mechanism, epsilon, size = case["mechanism"], case["epsilon"], case["size"]
    delta = case.get("options", {}).get("delta")
    if case["kind"] == "accumulated_numbers":
        return from_text.accumulated_numbers(mechanism, epsilon, size, case["cases"], delta)
    integers = from_text.parameters(mechanism, epsilon, size, delta=delta)
    if case["kind"].startswith("parameters"):
        return integers
    single = not isinstance(case["value"], list)
    value = [case["value"]] if single else case["value"]
    seeds = case["seeds"] if case["kind"] == "perturb_each" else [case["seed"]]
    answers = [from_text.numbers(mechanism, integers, size, value, bytes.fromhex(seed)) for seed in seeds]
    answers = [answer[0] for answer in answers] if single else answers
    return answers if case["kind"] == "perturb_each" else answers[0]


@pytest.mark.parametrize("name", BY_TIER)
def test_the_second_implementation_agrees(name):
    assert repeated(CASES[name]) == CASES[name]["expect"]


def test_the_second_implementation_adds_up_and_estimates_alike():
    """Also sums and estimates: clipped means (``held``) term by term, where the project has a closed form."""
    seen = 0
    for _, case in runner.load_all():
        if case["kind"] == "sums" and "expect" in case:
            fields = [bytes.fromhex(field) for field in case["fields"]]
            answers = [[int.from_bytes(f[k : k + 4], "big", signed=True) for k in range(0, len(f), 4)] for f in fields]
            assert from_text.sums(case["mechanism"], answers) == case["expect"]
            seen += 1
        if case["kind"] == "held" and "expect" in case:
            found = from_text.held(case["epsilon"], case["n"], case["sums"])
            assert [f"{float(value):.9g}" for value in found] == case["expect"]
            seen += 1
    assert seen == 11


def test_every_mechanism_has_digests_of_several_sizes_and_epsilons():
    digests = [case for case in CASES.values() if case["kind"] == "accumulated"]
    assert all(case["cases"] == 10_000 for case in digests)
    for mechanism in kinds(ValueMechanism):
        own = [case for case in digests if case["mechanism"] == mechanism]
        assert len({case["size"] for case in own}) >= 3
        assert len({case["epsilon"] for case in own}) >= 3
    assert len({case["expect"] for case in digests}) == len(digests)


def test_every_numeric_mechanism_has_digests_too():
    digests = [case for case in CASES.values() if case["kind"] == "accumulated_numbers"]
    assert all(case["cases"] == 10_000 for case in digests)
    for mechanism in NUMERIC:
        assert len({case["epsilon"] for case in digests if case["mechanism"] == mechanism}) >= 3
    assert len({case["expect"] for case in digests}) == len(digests)


def test_the_second_implementation_imports_the_standard_library_alone():
    tree = ast.parse((runner.FOLDER / "from_text.py").read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module)
    assert imported == {"__future__", "decimal", "fractions", "hashlib", "math"}


@pytest.mark.parametrize("name", ["direct_1.0_8", "oue_4_32", "sue_1.0_13", "the_1.0_64", "she_1.0_3"])
def test_one_wrong_answer_in_ten_thousand_changes_the_digest(name, monkeypatch):
    """The last case alone is changed, by one step or one bit."""
    case = CASES[f"accumulated/{name}"]
    plain, calls = kinds_values.encode_answer, []

    def spoilt(mechanism, answer, layout):
        calls.append(answer)
        field = plain(mechanism, answer, layout)
        return field[:-1] + bytes([field[-1] ^ 1]) if len(calls) == case["cases"] else field

    monkeypatch.setattr(kinds_values, "encode_answer", spoilt)
    with pytest.raises(AssertionError, match="got"):
        runner.run(case)
