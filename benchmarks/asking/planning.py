"""How well a plan predicts: standard errors, accuracies from a small pilot, and the better family.

    python -m benchmarks.asking.planning errors [--draws 5000] [--epsilon 1]
    python -m benchmarks.asking.planning accuracy [--data votes wine adult] [--pilots 20] [--repeats 100]
    python -m benchmarks.asking.planning families [--data wine breast-cancer australian pima] [--pilots 3]
                                                  [--repeats 100]

``errors`` compares closed-form standard errors with those of single answers drawn one by one, for every mechanism.
``accuracy`` makes a plan from a random fifth of the records (at least 60), and compares the expected accuracy with
the mean accuracy of campaigns: the fleet is drawn with replacement from four fifths of all records, and the
model is tested on these and on the last fifth. ``families`` asks which of both families a plan of such a pilot ranks
first, and how much less accurate this family is in campaigns than the better one. Both families learn from the same
splits.

Wine and breast-cancer come from scikit-learn. Other data sets are read from the folder that HEARSAY_REFERENCE names.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.common.tables import read_table, typed
from aggregator.estimates.debias import debias
from aggregator.estimates.question_estimate import is_stretched
from aggregator.models.population import Population, assumed
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.scoring import model_of
from aggregator.planning.power_analysis.precision import precisions
from aggregator.planning.power_analysis.rehearsal import Fleet, laws_of, simulated
from aggregator.planning.power_analysis.search import Scope, pruned_designs, race
from aggregator.planning.power_analysis.study import Design, Study
from aggregator.publishing.mechanisms.choice import forms
from aggregator.publishing.mechanisms.draws import draw
from aggregator.publishing.mechanisms.inputs import inputs_of
from aggregator.publishing.schemas.schema_draft import draft_schema
from aggregator.publishing.schemas.schema_file import equal_width_edges, parse_schema_text
from benchmarks.shared.harness import arguments, machine
from benchmarks.shared.reference import FOLDER
from protocol import mechanisms
from protocol.features import Categorical, Numeric
from protocol.mechanisms import INTEGERS, SINGLE
from protocol.schema import Label, Schema, build_schema

EPSILONS = (0.5, 1.0, 4.0)
DEVICES = (500, 5_000, 50_000)
OF_SKLEARN = {"wine": "load_wine", "breast-cancer": "load_breast_cancer"}
FILES = {"adult": "adult.train"}
LEAST_PILOT, PILOT_SHARE = 60, 0.2
MOST_TESTED = 2000
ANSWERS = 400
AT_ONCE = 250
"""Sets of answers that are drawn at once."""


class Data(NamedTuple):
    """Typed records and the schema that is drafted from them."""

    frame: pd.DataFrame
    schema: Schema


def load(name: str) -> Data:
    """A data set by name, with a drafted schema: four bins of equal width per number."""
    if name in OF_SKLEARN:
        import sklearn.datasets

        found = getattr(sklearn.datasets, OF_SKLEARN[name])(as_frame=True)
        table = found.data.round(6).astype(str)
        table["label"] = found.target_names[found.target]
    else:
        table = read_table(FOLDER / "datasets" / f"{FILES.get(name, name)}.csv.gz")
    schema = parse_schema_text(draft_schema(table, "label", name="plan")).schema
    return Data(typed(table, schema), schema)


def pilots(data: Data, number: int) -> Iterator[pd.DataFrame]:
    """Random fifths of the records, at least 60 each."""
    size = max(LEAST_PILOT, round(PILOT_SHARE * len(data.frame)))
    for seed in range(number):
        yield data.frame.sample(size, random_state=seed)


def best_designs(data: Data, micro: int, fleet: Fleet) -> list[Design]:
    """The design of each family whose statistics have the least standard errors, with one answer per device."""
    families = ["discrete", "gaussian"] if data.schema.numeric else ["discrete"]
    pilot = next(pilots(data, 1))
    study = Study(data.schema, micro, DEFAULT, pilot=pilot, effect=1.0, seed=0)
    found = []
    for family in families:
        kept, _ = pruned_designs(study, Scope(family, answers="one", coding="schema"), fleet)
        found.append(min(kept, key=kept.__getitem__))
    return found


def campaigns(data: Data, designs: Sequence[Design], micro: int, fleet: Fleet, repeats: int) -> Floats:
    """Accuracies of campaigns, (2, repeats, designs) float64: for new people, and on held-out records.

    All designs of a repeat have the same split. The fleet is drawn from n records, four fifths of all. On the records
    that are held out the model is a little too bad for a fleet of new people, because it has met n different records
    only; on the n records it is too good by as much. The accuracy for new people is the mean of the two.
    """
    rng = np.random.default_rng(1)
    people = Population.of_frame(data.frame, data.schema)
    made = [design.campaign(data.schema, micro, DEFAULT) for design in designs]
    found = np.zeros((2, repeats, len(designs)))
    for repeat in range(repeats):
        order = rng.permutation(len(data.frame))
        held = len(order) // 5
        learned, own, tested = (
            people.take(rows) for rows in (order[held:], order[held:][:MOST_TESTED], order[:held][:MOST_TESTED])
        )
        shares = np.full(len(learned.labels), 1 / len(learned.labels))
        for place, campaign in enumerate(made):
            drawn = simulated(campaign, laws_of(campaign, learned, shares), fleet, rng)
            model = model_of(drawn, campaign.fit.postprocess)
            right = [
                float((model.scores_of(part.scored).argmax(axis=1) == part.truth)[part.known].mean())
                for part in (own, tested)
            ]
            found[:, repeat, place] = sum(right) / 2, right[1]
    return found


def errors(names: Sequence[str], draws: int, epsilons: Sequence[float]) -> list[dict[str, object]]:
    """Closed-form standard errors over those of ``draws`` sets of drawn answers, smallest and largest ratio."""
    width = Numeric("width", "0", "10", equal_width_edges("width", "0", "10", 4))
    schema = build_schema(
        Label("class", ["a", "b", "c"]), [Categorical("colour", ["red", "green", "blue", "black"]), width]
    )
    rng = np.random.default_rng(1)
    people = assumed(schema, 1.5, rng, 500)
    rows = []
    for name in names:
        for epsilon in epsilons:
            family = "gaussian" if name in forms() else "discrete"
            campaign = Design(family, name).campaign(schema, round(epsilon * 1e6), "simplex")
            expected = precisions(campaign, Fleet(ANSWERS * len(campaign.questions)), people)
            ratios: list[float] = []
            for question, one in zip(campaign.questions, expected, strict=False):
                inputs = inputs_of(schema, question.subject, people.reported, people.labels)
                estimates = drawn(question.mechanism, inputs, draws, round(one.answers), rng)
                if is_stretched(question.subject):
                    estimates /= 2
                ratios += (one.errors / estimates.std(axis=0)).tolist()
            rows.append({"mechanism": name, "epsilon": epsilon, "least": min(ratios), "most": max(ratios)})
            print(f"{name:<10} ε = {epsilon:<4g} expected/simulated {min(ratios):.3f} to {max(ratios):.3f}", flush=True)
    return rows


def drawn(
    mechanism: mechanisms.Mechanism, inputs: NDArray[np.int64], draws: int, answers: int, rng: np.random.Generator
) -> Floats:
    """Estimated shares or means of ``draws`` sets of single answers: (draws, K) float64."""
    found = []
    for start in range(0, draws, AT_ONCE):
        sets = min(AT_ONCE, draws - start)
        given = draw(mechanism, inputs[rng.integers(0, len(inputs), sets * answers)], rng).reshape(sets, answers, -1)
        if mechanism.layout == SINGLE:
            counts = np.array([np.bincount(one[:, 0], minlength=mechanism.answers) for one in given])
        else:
            counts = (np.clip(given, *mechanism.counted) if mechanism.layout == INTEGERS else given).sum(axis=1)
        found += [debias(mechanism, answers, one).estimate / answers for one in counts.tolist()]
    return np.array(found)


def accuracy(options: argparse.Namespace) -> list[dict[str, object]]:
    """Expected accuracy from small pilots against the mean accuracy of campaigns."""
    rows = []
    for name in options.data or ("votes", "wine", "adult"):
        data = load(name)
        for devices in options.devices or (len(data.frame), 5_000):
            for epsilon in options.epsilon or (1.0, 4.0):
                micro, fleet = round(epsilon * 1e6), Fleet(devices)
                for design in best_designs(data, micro, fleet):
                    truth, held = campaigns(data, [design], micro, fleet, options.repeats)[..., 0]
                    found, covered = [], 0
                    for pilot in pilots(data, options.pilots):
                        study = Study(data.schema, micro, DEFAULT, pilot=pilot, effect=1.0, seed=len(found))
                        rehearsal = study.rehearsal(design, fleet)
                        rehearsal.run(options.per_fold)
                        forecast = rehearsal.forecast()
                        found.append(forecast.accuracy)
                        covered += forecast.low <= truth.mean() <= forecast.high
                    away = np.array(found) - truth.mean()
                    row = {
                        "data": name,
                        "devices": devices,
                        "epsilon": epsilon,
                        "design": design.name,
                        "campaigns": float(truth.mean()),
                        "held_out": float(held.mean()),
                        "campaigns_error": float(truth.std() / sqrt(len(truth))),
                        "expected": float(np.mean(found)),
                        "away": float(away.mean()),
                        "away_error": float(sqrt(away.var() / len(away) + truth.var() / len(truth))),
                        "of_one_pilot": float(sqrt((away**2).mean())),
                        "covered": covered / len(found),
                    }
                    rows.append(row)
                    print(
                        f"{name:<6} N = {devices:<6} ε = {epsilon:<4g} {design.name:<24} campaigns "
                        f"{row['campaigns']:.1%} (held out {row['held_out']:.1%}) expected {row['expected']:.1%} "
                        f"away {row['away']:+.1%} ± {row['away_error']:.1%}, one pilot {row['of_one_pilot']:.1%}, "
                        f"covered {row['covered']:.0%}",
                        flush=True,
                    )
    return rows


def families(options: argparse.Namespace) -> list[dict[str, object]]:
    """The family that plans of small pilots rank first, and what it loses against the better one."""
    rows = []
    for name in options.data or ("wine", "breast-cancer", "australian", "pima"):
        data = load(name)
        for epsilon in options.epsilon or EPSILONS:
            for devices in options.devices or DEVICES:
                micro, fleet = round(epsilon * 1e6), Fleet(devices)
                designs = best_designs(data, micro, fleet)
                truth, _ = campaigns(data, designs, micro, fleet, options.repeats)
                means = truth.mean(axis=0)
                away = truth[:, means.argmax()] - truth[:, means.argmin()]
                error = float(away.std() / sqrt(len(away)))
                wrong, simulated_campaigns = 0, []
                for seed, pilot in enumerate(pilots(data, options.pilots)):
                    study = Study(data.schema, micro, DEFAULT, pilot=pilot, effect=1.0, seed=seed)
                    running = {design: study.rehearsal(design, fleet) for design in designs}
                    race(running, lambda: None)
                    expected = [running[design].forecast().accuracy for design in designs]
                    wrong += int(np.argmax(expected) != means.argmax())
                    simulated_campaigns.append(sum(rehearsal.campaigns for rehearsal in running.values()))
                lost = wrong / options.pilots * float(away.mean())
                row = {
                    "data": name,
                    "epsilon": epsilon,
                    "devices": devices,
                    **{design.family: float(mean) for design, mean in zip(designs, means, strict=True)},
                    "difference": float(away.mean()),
                    "difference_error": error,
                    "wrong": wrong / options.pilots,
                    "lost": lost,
                    "simulated": float(np.mean(simulated_campaigns)),
                    "within": bool(lost - 2 * error * wrong / options.pilots <= 0.01),
                }
                rows.append(row)
                print(
                    f"{name:<13} ε = {epsilon:<4g} N = {devices:<6} discrete {row['discrete']:.1%} gaussian "
                    f"{row['gaussian']:.1%} difference {row['difference']:.1%} ± {2 * error:.1%}, wrong in "
                    f"{wrong} of {options.pilots}, lost {lost:.1%}{'' if row['within'] else '  MISSED'}",
                    flush=True,
                )
    return rows


def main() -> None:
    """Run one of the three comparisons."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("part", choices=["errors", "accuracy", "families"])
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--epsilon", nargs="+", type=float)
    parser.add_argument("--devices", nargs="+", type=int)
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--pilots", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--per-fold", type=int, default=10, help="accuracy: simulated campaigns per fold of a pilot")
    options = parser.parse_args()
    if options.part == "errors":
        rows = errors(options.data or mechanisms.names(), options.draws, options.epsilon or EPSILONS)
    else:
        rows = (accuracy if options.part == "accuracy" else families)(options)
    if options.json:
        json.dump({"title": f"Planning: {options.part}", "machine": machine(), "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
