"""Expected variances and the choice of ``auto``, compared with the formulas and with a simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from aggregator.publishing.mechanisms.choice import candidates, choose
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.mechanisms import from_micro
from protocol.schema import Label, build_schema

LABEL = Label("y", ["a", "b"])


def numbers(count):
    return build_schema(LABEL, [Numeric(f"x{i}", "0", "1", [-30000, 0, 30000]) for i in range(count)])


def test_the_expected_variances_follow_the_formulas():
    found = {(c.mechanism, c.approach): c for c in candidates(numbers(3), 1_000_000)}
    e = math.e
    one_bit = ((e + 1) / (e - 1)) ** 2 / 4
    assert found["bit", None].questions == 1 + 2 * 3 * 2
    assert found["bit", None].variance == pytest.approx(13 * one_bit, rel=1e-4)
    assert found["bits", None].variance == pytest.approx(7 * one_bit, rel=1e-4)
    assert found["laplace", 3].variance == pytest.approx(7 * 8 / 4, rel=1e-3)
    assert found["laplace", 1].variance == pytest.approx(3 * 2 * 36 / 4, rel=1e-3)
    assert found["duchi", None].questions == 3
    bits = found["bits", None]
    assert bits.standard_error(10_000) == pytest.approx(math.sqrt(bits.variance / 10_000))
    assert {c.family for c in found.values()} == {"gaussian"}, "a cell's variance is not comparable with a moment's"


def test_a_mechanism_whose_noise_reports_can_not_hold_is_no_candidate():
    few, many = ({(c.mechanism, c.approach) for c in candidates(numbers(n), 1_000)} for n in (1, 60))
    assert few - many == {("laplace", 1)}
    assert ("laplace", 3) in many


@pytest.mark.parametrize("epsilon_micro", [100_000, 1_000_000, 8_000_000])
def test_the_chosen_mechanism_has_the_smallest_error_in_a_simulation(epsilon_micro):
    """Mean square errors of many answers about the worst input order ``bit`` and ``piecewise`` as variances do."""
    schema = numbers(1)
    order = [c.mechanism for c in candidates(schema, epsilon_micro) if c.mechanism in ("bit", "piecewise")]
    errors = {}
    for name in order:
        mechanism = from_micro(name, epsilon_micro, 1)
        worst = 0.0
        for x in (-65536, 0, 65536):
            table = mechanism.distribution(x)
            answers = np.array([float(mechanism.estimate(answer)) for answer in table])
            chances = np.array([float(chance) for chance in table.values()])
            worst = max(worst, float((chances * (answers - x) ** 2).sum()))
        errors[name] = worst
    assert order == sorted(order, key=errors.__getitem__)


def test_only_what_is_left_open_is_chosen():
    schema = numbers(3)
    assert choose(schema, "discrete", "auto", None, 10**6) is None
    assert choose(schema, "gaussian", "bits", None, 10**6) is None
    assert choose(schema, "gaussian", "auto", None, 10**6) == candidates(schema, 10**6)[0]
    assert choose(schema, "gaussian", "auto", 1, 10**6)[1:3] == ("laplace", 1)
    categories = build_schema(LABEL, [Categorical("odor", ["x", "y", "z"])])
    with pytest.raises(InputError, match="no_numbers"):
        choose(categories, "gaussian", "auto", None, 10**6)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--family", "discrete", "--mechanism", "direct", "--approach", "1"], "approach_invalid"),
        (["--family", "gaussian", "--mechanism", "auto", "--approach", "2"], "approach_invalid"),
        (["--family", "gaussian", "--mechanism", "bit", "--theta", "0.3"], "option_unknown"),
        (["--family", "discrete", "--mechanism", "direct", "--devices", "100"], "devices_unused"),
        (["--family", "auto", "--mechanism", "bits", "--devices", "100"], "devices_unused"),
        (["--family", "gaussian", "--mechanism", "bits", "--split", "1:2:2", "--answers", "all"], "weights_invalid"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, arguments, reason):
    from click.testing import CliRunner

    from aggregator.cli.app import hearsay

    text = "".join(f"[[features]]\nname='x{i}'\nkind='numeric'\nlow=0\nhigh=1\nbins=4\n" for i in range(2))
    (tmp_path / "s.toml").write_text(f"name='n'\n[label]\nname='y'\nclasses=['a','b']\n{text}")
    runner = CliRunner()
    assert runner.invoke(hearsay, ["init", str(tmp_path / "w"), "--no-passphrase"]).exit_code == 0
    common = ["campaign", str(tmp_path / "s.toml"), "--workspace", str(tmp_path / "w"), "--epsilon", "1"]
    refused = runner.invoke(hearsay, [*common, "-o", str(tmp_path / "c.hsc"), *arguments])
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"{reason}: ")
    assert not (tmp_path / "c.hsc").exists()
