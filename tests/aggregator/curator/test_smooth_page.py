"""docs/smooth.md says what the code does: its example runs, and its tables hold."""

from __future__ import annotations

import doctest
import re
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from aggregator.curator.noise import NAMES, calibrate, calibrate_to_rho, published
from aggregator.curator.smooth_sensitivity import (
    BoundedValues,
    global_sensitivity_of_mean,
    global_sensitivity_of_variance,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
)
from protocol.errors import InputError

PAGE = (Path(__file__).parents[3] / "docs" / "smooth.md").read_text("utf-8")
EPSILON, DELTA = Fraction(1, 10), Fraction(1, 10**6)


def table(first_heading):
    """The cells of the rows of a table, by the text of its first heading."""
    lines = re.search(rf"^\| {first_heading} \|.*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)[0].splitlines()[2:]
    return [[cell.strip().replace("`", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def numbers(text):
    return [float(Fraction(each)) for each in re.findall(r"\d+/\d+|\d+\.?\d*", text.split("(")[0])]


def test_the_example_prints_what_the_page_says():
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    example = doctest.DocTestParser().get_doctest(code, {}, "smooth.md", None, None)
    assert len(example.examples) > 10
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_table_of_noises_holds():
    rows = {row[0]: row for row in table("noise")}
    assert set(NAMES) == set(rows)
    for name in NAMES:
        found = calibrate(name, EPSILON, DELTA)
        _, _, _, default, deviation, paper = rows[name]
        assert numbers(default) == pytest.approx(
            [float(found.multiplier * EPSILON), float(found.beta / EPSILON)], rel=6e-3
        )
        if deviation == "infinite":
            assert found.law.variance == np.inf
        else:
            assert numbers(deviation) == pytest.approx([found.variance(Fraction(1)) ** 0.5 / 10], rel=6e-3)
        try:
            constants = published(name, EPSILON, DELTA)
        except InputError:
            assert paper == ""
        else:
            assert numbers(paper) == pytest.approx(
                [float(constants.multiplier * EPSILON), float(constants.beta / EPSILON)], rel=6e-3
            )


def test_what_is_said_of_laplace_log_normal_noise_holds():
    found = calibrate_to_rho("laplace-log-normal", EPSILON**2 / 2, DELTA)
    said = re.search(r"its kc is ([\d.]+) and the sd of its noise ([\d.]+)·S/c", " ".join(PAGE.split()))
    assert float(said[1]) == pytest.approx(float(found.multiplier * EPSILON), abs=0.05)
    assert float(said[2]) == pytest.approx(found.variance(Fraction(1)) ** 0.5 / 10, abs=0.05)


def test_the_table_of_scales_holds():
    n, half = 10_000, 1024
    shares = (np.arange(n) + 0.5) / n
    near = [round(NormalDist(0, half / 10).inv_cdf(share)) for share in shares]
    even = np.round((2 * shares - 1) * half).astype(np.int64)
    rows = [row for row in table("values, ε = 0.1") if row]
    data = [BoundedValues(values, -half, half) for values in (near, even) for _ in range(3)]
    noises = 2 * [calibrate("cauchy", EPSILON), published("cauchy", EPSILON), calibrate("student-t", EPSILON)]
    assert len(rows) == len(data)
    for row, each, noise in zip(rows, data, noises, strict=True):
        whole = global_sensitivity_of_mean(n, 2 * half)
        found = [
            smooth_sensitivity_of_variance(each, noise.beta).value / global_sensitivity_of_variance(n, 2 * half),
            smooth_sensitivity_of_mean(each, noise.beta).value / whole,
            smooth_sensitivity_of_mean(each, noise.beta, n // 20).value / whole,
        ]
        scales = [float(noise.multiplier * EPSILON * one) for one in found]
        assert [float(cell) for cell in row[2:]] == pytest.approx(scales, abs=0.006), row
