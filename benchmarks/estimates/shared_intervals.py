"""How often 95 % intervals hold the truth, for totals of two collectors.

    python -m benchmarks.estimates.shared_intervals [--fleets 400] [--json]

A fleet is drawn from a known population: three classes of 60, 30 and 10 %, and features of five codes. Its exact counts
get noise of both collectors' law; the statistics of the total then state intervals, for these devices and for their
population. With several periods the same devices answer in each. A ratio that is not determined counts as covered,
since it excludes nothing. For every quantity: per cent of the fleets, the mean over all cells and the least and the
largest cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.collectors.campaigns import shared_terms
from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.statistics import Shared, shared_statistics
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.conditional import conditionals
from aggregator.estimates.statistics import Statistics
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from benchmarks.shared.harness import Table, arguments
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.shared_terms import shared_subjects
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from protocol.shared.report import terms_of
from simulation.collectors import made_up_pair

START = 1_790_000_000
CLASSES = np.array([0.6, 0.3, 0.1])
CODES = np.array([0.45, 0.25, 0.15, 0.1, 0.05])
DELTA = "0.000001"
COLUMNS = (
    "ε<5 noise<10 features>8 devices>9 periods>8 quantity>14 of>12 mean>8.1f least>8.1f most>8.1f open>7.1f cells>7"
)


class Setting(NamedTuple):
    """A campaign about ``features``, answered by ``devices`` in each of ``periods``."""

    epsilon: str
    noise: str
    features: int
    devices: int
    periods: int


SETTINGS = tuple(Setting(*one) for one in product(("0.1", "1"), ("laplace", "gaussian"), (3, 12), (300, 3_000), (1, 4)))


def campaign_of(setting: Setting) -> Campaign:
    """Return an unsigned campaign."""
    values = [str(code) for code in range(len(CODES) - 1)]
    features = [Categorical(f"f{place}", values) for place in range(setting.features)]
    schema = build_schema(Label("y", ["a", "b", "c"]), features)
    delta = DELTA if setting.noise == "gaussian" else "0"
    micro = micro_epsilon(setting.epsilon)
    terms = shared_terms(made_up_pair(), shared_subjects(schema), micro, delta=delta, noise=setting.noise)
    parameters = CampaignParameters("x", micro, shared=terms)
    return parse_campaign(build_campaign(schema, parameters, 1, START))


def tables(features: int) -> Floats:
    """Return P(code | class) of every feature, (features, codes, classes) float64: the same shares in other orders."""
    return np.array(
        [np.array([np.roll(CODES, place + at) for at in range(len(CLASSES))]).T for place in range(features)]
    )


def fleet(given: Floats, devices: int, rng: np.random.Generator) -> Integers:
    """Return the exact counts of a fleet that is drawn from the population: (features, codes, classes) int64."""
    counts = rng.multinomial(devices, CLASSES)
    drawn = [
        [rng.multinomial(count, given[place, :, at]) for at, count in enumerate(counts)] for place in range(len(given))
    ]
    return np.array(drawn).transpose(0, 2, 1)


def statistics_of(campaign: Campaign, exact: Integers, periods: int, rng: np.random.Generator) -> Statistics:
    """Return the statistics of totals in which the same devices answer in every period."""
    terms = terms_of(campaign)
    noise = SharedNoise(campaign.epsilon_micro, terms.delta_pico, terms.noise)
    totals = {at: tuple((exact.ravel() + noise.draw(len(exact), exact.size, rng)).tolist()) for at in range(periods)}
    return shared_statistics(Shared(campaign, totals, dict.fromkeys(totals, int(exact[0].sum()))))


Held = dict[tuple[str, str], tuple[NDArray[np.bool_], NDArray[np.bool_]]]


def held(found: Statistics, exact: Integers, given: Floats, periods: int) -> Held:
    """Return for each quantity, and whom it is about, which intervals hold the truth, and which are not determined."""
    n, joint = found.reports, given * CLASSES
    sums = exact.sum(axis=1)[0] / exact[0].sum()
    truths = {
        "devices": (periods * exact.reshape(len(exact), -1), exact / exact.sum(axis=1, keepdims=True), sums),
        "population": (n * joint.reshape(len(joint), -1), given, CLASSES),
    }
    ratios = conditionals(found.questions, found.schema)
    result: Held = {}
    for whom, (counts, shares, classes) in truths.items():
        ends = [one.devices_interval if whom == "devices" else (one.low, one.high) for one in found.questions]
        inside = np.array([(low <= truth) & (truth <= high) for (low, high), truth in zip(ends, counts, strict=True)])
        result["counts", whom] = inside.ravel(), np.zeros(inside.size, np.bool_)
        parts = [getattr(one, whom) for one in ratios]
        for name, part, truth in (("classes", parts[:1], classes), ("value | class", parts[1:], shares)):
            low, high, known = (
                np.concatenate([getattr(one, what) for one in part]) for what in ("low", "high", "determined")
            )
            result[name, whom] = (low <= truth.ravel()) & (truth.ravel() <= high), ~known.astype(np.bool_)
    return result


def coverage(setting: Setting, fleets: int, seed: int = 1) -> Iterator[tuple[str, str, Floats, float]]:
    """Yield quantity, whom it is about, the share of covered fleets of each cell, and the share not determined."""
    campaign, given, rng = campaign_of(setting), tables(setting.features), np.random.default_rng(seed)
    found = []
    for _ in range(fleets):
        exact = fleet(given, setting.devices, rng)
        found.append(held(statistics_of(campaign, exact, setting.periods, rng), exact, given, setting.periods))
    for name, whom in found[0]:
        inside, unknown = (np.mean([one[name, whom][part] for one in found], axis=0) for part in (0, 1))
        yield name, whom, inside, float(np.mean(unknown))


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--fleets", type=int, default=400)
    options = parser.parse_args()
    table = Table(f"Coverage of totals of two collectors, {options.fleets} fleets each", COLUMNS, as_json=options.json)
    for setting in SETTINGS:
        named = {
            "ε": setting.epsilon,
            **{name: value for name, value in setting._asdict().items() if name != "epsilon"},
        }
        for name, whom, inside, unknown in coverage(setting, options.fleets):
            part = {"mean": inside.mean(), "least": inside.min(), "most": inside.max(), "open": unknown}
            row = {name: 100 * float(value) for name, value in part.items()}
            table.add({**named, "quantity": name, "of": whom, **row, "cells": inside.size})
    least, most = min(row["mean"] for row in table.rows), max(row["mean"] for row in table.rows)
    table.end(f"means from {least:.1f} to {most:.1f} per cent")


if __name__ == "__main__":
    main()
