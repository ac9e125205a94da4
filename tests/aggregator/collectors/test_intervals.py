"""Intervals of totals of two collectors hold the truth as often as they say, and wrong variances are found."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.binomial import agrees

from aggregator.collectors import statistics
from benchmarks.estimates.shared_intervals import Setting, coverage

FLEETS = 150
LIMITS = Fraction(185, 2), Fraction(195, 2)
"""Per cent of fleets."""
SETTINGS = [
    Setting("1", "laplace", 3, 3_000, 1),
    Setting("0.1", "laplace", 3, 30_000, 4),
    Setting("1", "gaussian", 12, 3_000, 1),
    Setting("1", "laplace", 3, 30_000, 4),
]
KNOWN = 0.02
"""Share of ratios that are not determined, and so count as covered, up to which their coverage is compared."""


def right(setting):
    """Whether every cell, and the mean over all cells of each quantity, is covered in 92.5 to 97.5 per cent of fleets.

    About 650 cells are compared in one of the settings, and 2,000 in all: right intervals fail in one of 500 seeds by a
    cell; the means have standard errors of 0.4 points at most for counts, and of 1 point for the three classes' shares,
    whose limits are therefore those of one cell.
    """
    found = {(name, whom): (inside, unknown) for name, whom, inside, unknown in coverage(setting, FLEETS)}
    assert len(found) == 6
    cells = all(
        agrees(round(FLEETS * share), FLEETS, *LIMITS)
        for inside, unknown in found.values()
        for share in inside
        if unknown < KNOWN
    )
    means = [found["counts", whom][0].mean() for whom in ("devices", "population")]
    return cells and all(0.925 <= mean <= 0.975 for mean in means)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: "-".join(map(str, one)))
def test_intervals_of_totals_hold_the_truth_as_often_as_they_say(setting):
    assert right(setting)


@pytest.mark.parametrize("factor", [0.5, 2])
def test_noise_of_one_collector_or_of_four_is_found(monkeypatch, factor):
    own = statistics.variance_of
    monkeypatch.setattr(statistics, "variance_of", lambda campaign: factor * own(campaign))
    assert not right(SETTINGS[0])


def test_devices_of_several_periods_taken_for_different_ones_are_found(monkeypatch):
    own = statistics.of_sums
    monkeypatch.setattr(statistics, "of_sums", lambda *given, **named: own(*given[:4], None, **named))
    assert not right(SETTINGS[3])
