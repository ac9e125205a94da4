"""Coverage of the 95 % intervals over random campaigns, for every mechanism and every published quantity.

    python -m benchmarks.estimates.coverage [--repeats 2000] [--mechanisms direct,oue] [--epsilon 0.5,1,4]
                                            [--out FILE] [--json]

Each campaign is drawn by ``drawn_campaigns``, counted into a tally and estimated by the aggregator's own functions.
Quantities: joint shares (counts divided by the number of answers), means of numbers, class priors, and ratios:
P(value | class) and means given the class. Every quantity has two intervals, for these devices and for the population.
A ratio that is not determined counts as covered. The rate of such ratios is compared with its expectation by Fieller's
theorem (:func:`expected_rate`). Results are appended to FILE, one JSON line per setting; finished settings are skipped.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.estimates.conditional import PRIOR, conditionals, joint_scatters, own_cells_weight, table_variance
from aggregator.estimates.debias import Z95
from aggregator.estimates.question_estimate import QuestionEstimate, pooled
from aggregator.estimates.recurrence import answers_by_stratum, known
from aggregator.estimates.reports import estimate
from aggregator.reports.tally.tally import Tally
from benchmarks.estimates.drawn_campaigns import CLASSES, NUMBERS, Drawn, Setting, draw, setting
from benchmarks.shared.harness import arguments, machine
from protocol.questions import CELL, CLASS, Subject

FREQUENCY = ("direct", "oue", "sue", "the", "she")
NUMERIC = ("bit", "bits", "piecewise", "hybrid", "laplace", "duchi")
PER_DRAW = 250
"""Number of campaigns that are drawn at once."""
DEVICES, POPULATION = "devices", "population"


class Score:
    """Counts of covered and undetermined intervals, by quantity, question and population."""

    def __init__(self) -> None:
        self.covered: dict[tuple[str, str, str], Floats] = {}
        self.undetermined: dict[str, Floats] = {}
        self.expected: dict[str, Floats] = {}

    def add(self, key: tuple[str, str, str], held: NDArray[np.bool_]) -> None:
        """Count one interval per cell."""
        self.covered[key] = self.covered.get(key, np.zeros(len(held))) + held


def truths(given: Setting, drawn: Drawn, place: int) -> dict[str, list[tuple[Floats, Floats]]]:
    """True class shares and joint tables of both populations, for campaign ``place`` of those drawn.

    Returns:
        Population → the class shares, shape (4,), with the joint table of every feature, shape (values, 4).
    """
    own = drawn.classes[place] / given.devices
    return {
        DEVICES: [(own, cells[place] / given.devices) for cells in drawn.cells],
        POPULATION: [(CLASSES, table * CLASSES) for table in given.tables],
    }


def shares_of(subject: Subject, found: list[tuple[Floats, Floats]]) -> Floats:
    """True shares or means of a question, in the order of its cells: shape (K,) float64."""
    classes, table = found[subject.feature or 0]
    if subject.kind == CLASS:
        return classes
    if subject.kind == CELL:
        return table.ravel()
    moments = (NUMBERS**subject.power) @ table
    return moments if subject.of_class is None else moments[subject.of_class : subject.of_class + 1]


def ratios_of(subject: Subject, found: list[tuple[Floats, Floats]]) -> Floats:
    """True probabilities or means given the class: shape (K,) float64; NaN for a class without devices."""
    classes, table = found[subject.feature or 0]
    if subject.kind == PRIOR:
        return classes
    with np.errstate(invalid="ignore"):
        if subject.kind == CELL:
            return (table / classes).ravel()
        column = slice(None) if subject.of_class is None else slice(subject.of_class, subject.of_class + 1)
        return shares_of(subject, found) / classes[column]


def score(given: Setting, repeats: int, generator: np.random.Generator) -> Score:
    """Draw campaigns and count covered intervals."""
    result = Score()
    for start in range(0, repeats, PER_DRAW):
        drawn = draw(given, min(PER_DRAW, repeats - start), generator)
        for place in range(len(drawn.n)):
            _score_one(given, drawn, place, result)
    return result


def _score_one(given: Setting, drawn: Drawn, place: int, result: Score) -> None:
    campaign = given.campaign
    tally = Tally(
        campaign.id,
        tuple(drawn.n[place].tolist()),
        tuple(tuple(counts[place].tolist()) for counts in drawn.counts),
    )
    squares = tuple(given.devices * given.periods**2 for _ in answers_by_stratum(campaign, tally))
    statistics = estimate(campaign, tally, recurrence=known(campaign, tally, squares))
    true = truths(given, drawn, place)
    for number, one in enumerate(statistics.questions):
        quantity = "shares" if one.is_share else "means"
        for population, interval in ((DEVICES, one.devices_interval), (POPULATION, one.interval)):
            share = one.n * shares_of(one.subject, true[population])
            held = (interval.low <= share + 1e-9) & (share <= interval.high + 1e-9)
            result.add((quantity, str(number), population), held)
    for number, ratio in enumerate(conditionals(statistics.questions, statistics.schema)):
        kind = ratio.subject.kind
        quantity = kind if kind == PRIOR else "probabilities" if kind == CELL else "means in classes"
        for population, interval in ((DEVICES, ratio.devices), (POPULATION, ratio.population)):
            value = ratios_of(ratio.subject, true[population])
            held = (interval.low <= value + 1e-9) & (value <= interval.high + 1e-9) | ~interval.determined
            result.add((quantity, str(number), population), held | np.isnan(value))
        if kind == CELL:
            missing = ~ratio.population.determined
            result.undetermined[str(number)] = result.undetermined.get(str(number), 0) + missing.astype(float)
            if str(number) not in result.expected:
                result.expected[str(number)] = expected_rate(given, statistics.questions, ratio.subject)


def expected_rate(given: Setting, questions: tuple[QuestionEstimate, ...], subject: Subject) -> Floats:
    """Rate at which Fieller's set for P(value | class) contains both 0 and 1: shape (K,) float64.

    The set contains 0 if the cell's estimate x̂ differs from 0 by at most z standard deviations of a cell that nobody
    holds, and 1 if the same is true of the rest of the class's share, r̂ = ŷ − x̂. ŷ = βĉ + (1 − β)ô, where ĉ is the sum
    of the class's cells and ô the share by the other questions. x̂ and r̂ are normal with their true means, variances
    and covariance; n is the expected number of answers. The probability is a sum over a fine grid.
    """
    place, one = next((place, found) for place, found in enumerate(questions) if found.subject == subject)
    strata = [question.stratum for question in given.campaign.questions]
    n = given.devices * given.periods / strata.count(strata[place])
    law, pairs, others = one.law, one.pairs, [found for found in questions if found is not one]
    assert law is not None
    assert pairs is not None
    assert subject.feature is not None
    elsewhere = pooled([vote for found in others for vote in found.classes])
    own = own_cells_weight(one, elsewhere, len(CLASSES))
    joint_scatter = joint_scatters(one, elsewhere)[1]
    joint = given.tables[subject.feature] * CLASSES
    s = len(joint)
    scatter = one.scatter
    slope, tilt = law.at_one - law.at_zero, pairs.at_one - pairs.at_zero
    tested = table_variance(one, CLASSES, own, elsewhere)
    found = np.zeros_like(joint)
    for (a, c), x in np.ndenumerate(joint):
        y = CLASSES[c]
        rest = y - x
        var_x = (law.at_zero + slope * x + scatter * x * (1 - x)) / n
        base = (s - 1) * law.at_zero + (s - 1) * (s - 2) * pairs.at_zero
        var_rest = (base + (slope + 2 * (s - 2) * tilt) * rest + scatter * rest * (1 - rest)) / n
        cov = ((s - 1) * pairs.at_zero + ((s - 1) * x + rest) * tilt - scatter * x * rest) / n
        var_others = float(elsewhere.noise.at(np.array(y))) + elsewhere.scatter * y * (1 - y)
        with_x, with_rest = joint_scatter * x * (1 - y), joint_scatter * rest * (1 - y)
        # r̂ = (β − 1) x̂ + β (the other cells of the class) + (1 − β) ô
        parts = np.array([own - 1, own, 1 - own])
        table = np.array([[var_x, cov, with_x], [cov, var_rest, with_rest], [with_x, with_rest, var_others]])
        ends = [Z95 * sqrt(float(tested.at(end)[1, 0, c])) for end in (0.0, 1.0)]
        moments = (var_x, float(parts @ table @ parts), float(table[0] @ parts))
        found[a, c] = _rectangle((x, rest), moments, ends)
    return found.ravel()


def _rectangle(mean: tuple[float, float], moments: tuple[float, float, float], ends: list[float]) -> float:
    """P(|X| ≤ ends[0], |Y| ≤ ends[1]) for X, Y normal with variances and covariance ``moments``."""
    var_x, var_y, cov = moments
    grid = np.linspace(-ends[0], ends[0], 2001)
    density = np.exp(-((grid - mean[0]) ** 2) / (2 * var_x)) / sqrt(2 * np.pi * var_x)
    middle = mean[1] + cov / var_x * (grid - mean[0])
    width = sqrt(max(var_y - cov**2 / var_x, 1e-300))
    inside = [_normal((end - middle) / width) for end in (-ends[1], ends[1])]
    return float(np.trapezoid(density * (inside[1] - inside[0]), grid))


def _normal(values: Floats) -> Floats:
    """Distribution function of the standard normal distribution. Float64 of one shape."""
    return np.array([0.5 * (1 + erf(value / sqrt(2))) for value in values.tolist()])


def summary(found: Score, repeats: int) -> dict[str, Any]:
    """Coverage by quantity and population (mean, smallest and largest cell), and rates of undetermined ratios."""
    groups: dict[str, list[Floats]] = {}
    for (quantity, _, population), covered in found.covered.items():
        groups.setdefault(f"{quantity}, {population}", []).append(covered / repeats)
    coverage = {}
    for name, parts in groups.items():
        each = np.concatenate(parts)
        coverage[name] = {"mean": float(each.mean()), "least": float(each.min()), "most": float(each.max())}
        coverage[name]["cells"] = len(each)
    rates: dict[str, Any] = {}
    if found.undetermined:
        seen = np.concatenate([one / repeats for one in found.undetermined.values()])
        theory = np.concatenate([found.expected[key] for key in found.undetermined])
        classes = np.arange(len(seen)) % len(CLASSES)
        rates = {
            "seen": [float(seen[classes == c].mean()) for c in range(len(CLASSES))],
            "expected": [float(theory[classes == c].mean()) for c in range(len(CLASSES))],
            "largest difference": float(np.abs(seen - theory).max()),
        }
    return {"coverage": coverage, "not determined": rates}


def settings(mechanisms: list[str], epsilons: list[float]) -> Iterator[tuple[str, float, int, int]]:
    """Mechanism, ε, answers and periods of every setting."""
    for name in mechanisms:
        for epsilon in epsilons:
            for answers in (1, 3):
                for periods in (1, 31):
                    yield name, epsilon, answers, periods


def _print(row: dict[str, Any]) -> None:
    for name, one in row["coverage"].items():
        where = f"{row['mechanism']:<10} {row['epsilon']:<4g} {row['answers']:<2} {row['periods']:<3}"
        print(f"{where} {name:<30} {one['mean']:6.1%}  {one['least']:6.1%} to {one['most']:6.1%}  {one['cells']:>3}")
    if row["not determined"]:
        both = zip(row["not determined"]["seen"], row["not determined"]["expected"], strict=True)
        text = "  ".join(f"{seen:.1%} ({theory:.1%})" for seen, theory in both)
        print(f"{'':21} not determined, by class (expected): {text}", flush=True)


def main() -> None:
    """Draw, count, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--mechanisms", default=",".join((*FREQUENCY, *NUMERIC)))
    parser.add_argument("--epsilon", default="0.5,1,4")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: dict[tuple[Any, ...], dict[str, Any]] = {}
    if options.out is not None and options.out.exists():
        for line in options.out.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            done[row["mechanism"], row["epsilon"], row["answers"], row["periods"]] = row
    rows = []
    if not options.json:
        print("mechanism  ε    r  periods  quantity, population   mean cell  least and largest cell, number of cells")
    for key in settings(options.mechanisms.split(","), [float(text) for text in options.epsilon.split(",")]):
        if key not in done:
            began = time.process_time()
            found = score(setting(*key), options.repeats, np.random.default_rng(57))
            name, epsilon, answers, periods = key
            about = {"mechanism": name, "epsilon": epsilon, "answers": answers, "periods": periods}
            done[key] = {**about, "repeats": options.repeats, **summary(found, options.repeats)}
            done[key]["seconds"] = round(time.process_time() - began, 1)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(done[key]) + "\n")
        rows.append(done[key])
        if not options.json:
            _print(done[key])
    if options.json:
        json.dump({"title": "Coverage of intervals", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
