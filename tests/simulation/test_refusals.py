"""Settings that do not go with a kind of trust, or that no simulation can have: by the command, and in Python."""

from __future__ import annotations

import pytest
from support.commands import invoke
from support.failures import failure, reason

from simulation import simulate_campaign
from simulation.settings import ALIEN, Settings

CENTRAL = ("--trust", "central")
FEDERATED = ("--trust", "federated", "--nodes", "2")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*CENTRAL, "--answers", "all"), "--answers"),
        ((*CENTRAL, "--engine", "vector"), "--engine"),
        ((*CENTRAL, "--theta", "0.3"), "--theta"),
        ((*CENTRAL, "--design", "all"), "--design"),
        ((*CENTRAL, "--evaluate"), "--evaluate"),
        ((*CENTRAL, "--approach", "3"), "--approach"),
        ((*CENTRAL, "--no-class-question"), "--no-class-question"),
        ((*CENTRAL, "--ask", "odor"), "--ask"),
        (("--noise", "cauchy"), "--noise"),
        (("--delta", "1e-6"), "--delta"),
        (("--adjacency", "change"), "--adjacency"),
        (("--division", "equal"), "--division"),
        (("--trim", "0.1"), "--trim"),
        (("--sweep", "noise=cauchy,gamma4"), "--noise"),
        (("--trust", "trusted"), "--trust"),
        (("--trust", "shared", "--nodes", "2"), "--nodes"),
        (("--trust", "vertical", "--nodes", "2", "--reduce", "pca:1"), "--reduce"),
        (("--trust", "vertical", "--nodes", "2", "--noise", "diluted"), "--noise"),
        (("--trust", "distributed", "--nodes", "2", "--robust", "median"), "--robust"),
        ((*FEDERATED, "--honest-share", "0.5"), "--honest-share"),
        (("--trust", "federated", "--nodes", "0"), "--nodes"),
        ((*FEDERATED, "--mechanism", "sums"), "--mechanism does not go"),
        ((*FEDERATED, "--answers", "all"), "--answers does not go"),
        ((*FEDERATED, "--delta", "1e-6"), "--delta does not go"),
        ((*FEDERATED, "--out", "m.hsm"), "no ledger counts"),
    ],
)
def test_options_of_other_kinds_of_trust_are_a_wrong_usage(records, arguments, text):
    found = invoke("simulate", "--label", "label", records, "--epsilon", 1, *arguments)
    assert found.exit_code == 2
    assert text in found.stderr


def test_python_refuses_settings_of_the_other_trust(records):
    others = {"answers": "all", "theta": "0.3", "class_question": False, "engine": "vector", "evaluate": True,
              "asking": "all", "approach": 3, "delta": "1e-6", "adjacency": "change", "noise": "cauchy",
              "division": "equal", "trim": 0.1, "nodes": 3, "sensitivity": "smooth", "robust": "median",
              "mechanism": "sums", "honest_share": "0.5", "colluding_share": "0.1", "unit": "party",
              "family": "discrete", "postprocess": "paper", "reduce": "pca:1", "ridge": 1.0}  # fmt: skip
    assert set(others) == {name for alien in ALIEN.values() for name in alien} <= set(Settings._fields)
    for trust, alien in ALIEN.items():
        for name in alien:
            found = reason(simulate_campaign, records, "label", epsilon=1, trust=trust, **{name: others[name]})
            assert found == "setting_invalid", (trust, name)


GIVEN = {
    "local": {},
    "federated": {"nodes": 2},
    "distributed": {"nodes": 10, "engine": "vector"},
    "vertical": {"nodes": 2, "engine": "vector"},
}


@pytest.mark.parametrize(
    ("trust", "settings", "expected"),
    [
        ("local", {"epsilon": 0}, "epsilon_invalid"),
        ("local", {"folds": 2, "test_share": 0.2}, "split_invalid"),
        ("federated", {"nodes": None}, "setting_invalid"),
        ("federated", {"nodes": 2.5}, "setting_invalid"),
        ("federated", {"robust": "mode"}, "robust_invalid"),
        ("federated", {"robust": "median", "engine": "vector"}, "nodes_too_few"),
        ("federated", {"sensitivity": "smooth", "engine": "vector"}, "setting_invalid"),
        ("federated", {"postprocess": "magic"}, "postprocess_unknown"),
        ("federated", {"epsilon": "0.000001"}, "invalid_campaign"),
        ("federated", {"family": "auto"}, "family_unknown"),
        ("distributed", {"nodes": None}, "setting_invalid"),
        ("distributed", {"nodes": 1}, "setting_invalid"),
        ("distributed", {"nodes": 70_000}, "terms_invalid"),
        ("distributed", {"noise": "cauchy"}, "terms_invalid"),
        ("distributed", {"noise": "diluted", "delta": "0"}, "delta_invalid"),
        ("distributed", {"noise": "diluted", "delta": "few"}, "delta_invalid"),
        ("distributed", {"noise": "diluted", "delta": "nan"}, "delta_invalid"),
        ("distributed", {"noise": "diluted", "delta": "0.5"}, "delta_invalid"),
        ("distributed", {"honest_share": "0"}, "terms_invalid"),
        ("distributed", {"honest_share": "0.7", "colluding_share": "0.4"}, "terms_invalid"),
        ("distributed", {"honest_share": "0.00000001"}, "terms_invalid"),
        ("distributed", {"unit": "people"}, "terms_invalid"),
        ("distributed", {"unit": None}, "setting_invalid"),
        ("distributed", {"postprocess": "none"}, "postprocess_unknown"),
        ("distributed", {"epsilon": "0.000001"}, "epsilon_invalid"),
        ("vertical", {"nodes": None}, "setting_invalid"),
        ("vertical", {"nodes": 1}, "setting_invalid"),
        ("vertical", {"nodes": 3}, "setting_invalid"),
        ("vertical", {"epsilon": "0.000002"}, "epsilon_invalid"),
    ],
)
def test_settings_that_no_simulation_can_have(records, trust, settings, expected):
    given = {"epsilon": 1, "trust": trust, **GIVEN[trust], **settings}
    assert reason(simulate_campaign, records, "label", **given) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "Vector"}, {"engine": None}, {"repeats": 0}, {"repeats": 2.5}, {"repeats": True}, {"devices": 0},
        {"devices": "a"}, {"seed": -1}, {"seed": "x"}, {"answers": 2.5}, {"answers": None}, {"bins": "4"},
        {"max_values": -1}, {"approach": "1"}, {"drop": "odor"}, {"drop": 3}, {"reduce": None}, {"reduce_fit": "x"},
        {"ridge": -1}, {"ridge": float("nan")}, {"test_share": "a"}, {"folds": "3"}, {"evaluate": "no"},
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(records, wrong):
    error = failure(simulate_campaign, records, "label", epsilon=1, **wrong)
    assert error.reason == "setting_invalid"
    assert next(iter(wrong)) in str(error)
