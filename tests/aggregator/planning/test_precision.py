"""Closed-form standard errors agree with simulated ones, for every mechanism and statistic."""

from __future__ import annotations

import numpy as np
import pytest
from support.pilots import PLAN

from aggregator.estimates.class_shares import class_shares
from aggregator.models.population import assumed
from aggregator.planning.power_analysis.precision import CLASSES, devices_for_width, precisions, widest
from aggregator.planning.power_analysis.rehearsal import Fleet, laws_of, simulated
from aggregator.planning.power_analysis.study import Design
from aggregator.publishing.mechanisms.choice import forms
from aggregator.publishing.schemas.schema_file import parse_schema_text
from protocol import mechanisms

CAMPAIGNS = 200
SCHEMA = parse_schema_text(PLAN).schema
"""A simulated standard deviation has the relative error 1/√(2·200) = 5 %; 5 of these are allowed, at 6e-7 each."""
ALLOWED = 0.25


def population():
    return assumed(SCHEMA, 1.5, np.random.default_rng(3), 300)


def campaign_of(name, micro=2_000_000, answers=1):
    family = "gaussian" if name in forms() else "discrete"
    return Design(family, name, answers).campaign(SCHEMA, micro, "simplex")


def simulated_errors(campaign, fleet, people):
    """Standard deviations of every share or mean, and of the classes' shares, over simulated campaigns."""
    rng = np.random.default_rng(4)
    rows = len(people.labels)
    shares, classes = [], []
    even = np.full(rows, 1 / rows)
    laws = laws_of(campaign, people, even)
    for _ in range(CAMPAIGNS):
        if fleet.periods > 1:
            laws = laws_of(campaign, people, rng.multinomial(fleet.devices, even) / fleet.devices)
        found = simulated(campaign, laws, fleet, rng)
        shares.append(np.concatenate([one.estimate / one.n for one in found.questions]))
        classes.append(class_shares(found).share)
    return np.std(shares, axis=0), np.std(classes, axis=0)


def agree(campaign, fleet, people):
    """The expected errors, which must be near the simulated ones; and the ratios of these for all shares and means."""
    found = precisions(campaign, fleet, people)
    shares, classes = simulated_errors(campaign, fleet, people)
    expected = np.concatenate([one.errors for one in found if one.question != CLASSES])
    np.testing.assert_allclose(shares, expected, rtol=ALLOWED)
    np.testing.assert_allclose(classes, found[-1].errors, rtol=ALLOWED)
    return found, shares / expected


@pytest.mark.parametrize("name", mechanisms.names())
def test_expected_standard_errors_are_those_of_simulated_campaigns(name):
    _, ratios = agree(campaign_of(name), Fleet(6000), population())
    assert np.median(ratios) == pytest.approx(1, abs=0.06)
    unknown = precisions(campaign_of(name), Fleet(1000), None)  # equal shares and uniform numbers
    assert all(np.isfinite(one.errors).all() and (one.errors > 0).all() for one in unknown)


def test_devices_that_answer_every_day_add_noise_but_no_people():
    campaign, people = campaign_of("direct", 6_000_000), population()
    found, _ = agree(campaign, Fleet(300, 20), people)
    assert found[0].worst > 1.5 * precisions(campaign, Fleet(6000), people)[0].worst


def test_a_wrong_variance_would_be_seen():
    campaign, people = campaign_of("direct"), population()
    shares, _ = simulated_errors(campaign, Fleet(6000), people)
    wrong = precisions(campaign, Fleet(3000), people)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(shares, np.concatenate([one.errors for one in wrong[:-1]]), rtol=ALLOWED)


def test_the_number_of_devices_for_a_width_gives_that_width():
    campaign, people = campaign_of("oue"), population()
    needed = devices_for_width(precisions(campaign, Fleet(1000), people), 1000, 0.05)
    assert 0.0495 <= widest(precisions(campaign, Fleet(needed), people)).width <= 0.05
