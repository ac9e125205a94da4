"""``hearsay simulate``: what accuracy a schema, a mechanism and an ε would give, on records one has."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from aggregator.cli.output import note, print_facts, print_json, progress, warn
from aggregator.models.postprocess import POSTPROCESSES
from aggregator.planning.expected import choose
from aggregator.publishing.campaigns import Terms, campaign_subjects, parse_answers
from aggregator.publishing.workspace import create_workspace
from aggregator.schema_draft import draft_schema
from aggregator.schema_file import load_schema, parse_schema_text
from aggregator.tables import check_label, read_table, typed
from edge_sdk.entropy import system_entropy
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO, micro_epsilon
from protocol.errors import InputError
from simulation.design import Design, parse_reduction
from simulation.experiment import ENGINES, Laboratory, make_task, run_trial, seeded_entropy
from simulation.splits import Division, resample

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from protocol.schema import Schema
    from simulation.experiment import Trial

SIMULATED_NOW = 1_900_000_000
"""The time of seeded simulations: everything that is signed says it, so it must not move."""

file_option = click.Path(path_type=Path)
DEFAULT_TEST_SHARE = 0.2


@click.command()
@click.argument("data", type=file_option)
@click.option("--label", required=True, help="Column to predict.")
@click.option("--epsilon", required=True, help="Total that each device spends, summed over its answers.")
@click.option("--mechanism", default="direct", show_default=True, help="A mechanism for values or numbers, or auto.")
@click.option("--answers", default="one", show_default=True, help="Answers per device: one, all, auto, a number.")
@click.option("--schema", "schema_file", type=file_option, help="Schema; default: drafted from the data.")
@click.option("--bins", type=int, default=4, show_default=True, help="Bins of a numeric feature in a drafted schema.")
@click.option("--max-values", type=int, default=12, show_default=True, help="Whole numbers with more become numeric.")
@click.option("--drop", multiple=True, help="Column to leave out of a drafted schema; repeatable.")
@click.option("--family", default="discrete", show_default=True, help="discrete, gaussian, or auto.")
@click.option("--approach", type=int, help="How laplace asks for moments: 1 all at once, 3 one.")
@click.option("--reduce", "reduction", default="none", show_default=True, help="none, pca:K or dca:K.")
@click.option("--reduce-fit", type=click.Choice(["pilot", "train"]), default="pilot", show_default=True)
@click.option("--rho", type=click.FloatRange(0), default=1e-3, show_default=True, help="Ridge of DCA.")
@click.option("--postprocess", default="simplex", show_default=True, help=f"One of {', '.join(POSTPROCESSES)}.")
@click.option("--theta", help="Threshold of 'the'; default 0.25.")
@click.option("--test", "test_file", type=file_option, help="File of test records; default: a part of the data.")
@click.option("--test-share", type=float, help=f"Share of the records to test on; default {DEFAULT_TEST_SHARE}.")
@click.option("--folds", type=click.IntRange(2), help="Cross-validation with so many parts.")
@click.option("--devices", type=click.IntRange(1), help="Fleet drawn with replacement; default: everybody once.")
@click.option("--engine", type=click.Choice(ENGINES), default="device", show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True)
@click.option("--evaluate", is_flag=True, help="Let the test people's devices evaluate the model privately, at ε.")
@click.option("--seed", type=click.IntRange(0), help="Fixes splits and, in the simulation only, all noise.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    data: Path,
    label: str,
    epsilon: str,
    mechanism: str,
    answers: str,
    schema_file: Path | None,
    bins: int,
    max_values: int,
    drop: tuple[str, ...],
    family: str,
    approach: int | None,
    reduction: str,
    reduce_fit: str,
    rho: float,
    postprocess: str,
    theta: str | None,
    test_file: Path | None,
    test_share: float | None,
    folds: int | None,
    devices: int | None,
    engine: str,
    repeats: int,
    seed: int | None,
    *,
    evaluate: bool,
    as_json: bool,
) -> None:
    """Try a campaign on records you have: people, devices, reports, counts, a signed model, its accuracy.

    Every person of the learning part becomes a device that answers once; the signed model is verified
    and used by another device on the test part.

    \b
    Example:
      hearsay simulate mushroom.csv --label class --epsilon 1 --mechanism oue --repeats 5
    """  # noqa: D301
    frame = read_table(data)
    check_label(frame, label)
    schema = load_schema(schema_file).schema if schema_file else _draft(frame, label, data, bins, max_values, drop)
    method, components = parse_reduction(reduction)
    if schema.label.name != label:
        raise InputError("label_missing", f"the schema predicts '{schema.label.name}', not '{label}'")
    if (folds is not None) + (test_file is not None) + (test_share is not None) > 1:
        raise click.UsageError("give one of --folds, --test and --test-share", click.get_current_context())
    design = Design(schema, bins, schema_file is None, method, components, rho, reduce_fit)
    test = None if test_file is None else _test_part(test_file, schema)
    options = {} if theta is None else {"theta": theta}
    terms = Terms("simulation", micro_epsilon(epsilon), mechanism, options=options, family=family, approach=approach)
    stand_in = design.stand_in()
    chosen = choose(stand_in, family, mechanism, approach, terms.epsilon_micro)
    if chosen is not None:
        terms = terms._replace(family=chosen.family, mechanism=chosen.mechanism, approach=chosen.approach)
        note(f"{chosen.family} by {chosen.mechanism}: the smallest variance that theory gives for this schema and ε")
    questions = len(campaign_subjects(stand_in, terms.family, terms.mechanism, terms.approach))
    terms = terms._replace(answers=parse_answers(answers, questions, terms.epsilon_micro))
    if design.needs_pilot and reduce_fit == "train":
        warn("bounds and projection are fitted on the very people who take part: that is outside the guarantee")
    if terms.warning:
        warn(terms.warning)
    with progress("repetitions", repeats) as callback:
        trials = run_simulation(
            typed(frame, schema),
            design,
            terms,
            Division(test, folds, DEFAULT_TEST_SHARE if test_share is None else test_share),
            postprocess=postprocess,
            devices=devices,
            engine=engine,
            repeats=repeats,
            seed=seed,
            evaluation_micro=min(terms.epsilon_micro, MAX_ANSWER_MICRO) if evaluate else None,
            progress=callback,
        )
    result = summarise(trials, terms, engine, repeats)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _test_part(path: Path, schema: Schema) -> pd.DataFrame:
    frame = read_table(path)
    check_label(frame, schema.label.name)
    return typed(frame, schema)


def _draft(frame: pd.DataFrame, label: str, data: Path, bins: int, max_values: int, drop: tuple[str, ...]) -> Schema:
    name = data.name.split(".")[0]
    return parse_schema_text(draft_schema(frame, label, name=name, bins=bins, max_values=max_values, drop=drop)).schema


def run_simulation(
    frame: pd.DataFrame,
    design: Design,
    terms: Terms,
    division: Division,
    *,
    postprocess: str,
    devices: int | None = None,
    engine: str = "device",
    repeats: int = 1,
    seed: int | None = None,
    evaluation_micro: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """All trials: one per repetition and split.

    Args:
        frame: typed records with their label.
        design: how their schema is made.
        terms: of the campaign.
        division: how people are kept for the test.
        postprocess: how estimates become probabilities.
        devices: size of a fleet drawn with replacement; None is everybody once.
        engine: one of :data:`simulation.experiment.ENGINES`.
        repeats: how often, with new splits and new noise.
        evaluation_micro: ε of a private evaluation on every test part; None makes none.
        seed: fixes everything; None takes the operating system's entropy.
        progress: called with (repetitions done, repetitions).
    """
    now = int(time.time()) if seed is None else SIMULATED_NOW
    splitting, rng = np.random.default_rng(seed).spawn(2)  # splits must not depend on the noise
    entropy = system_entropy if seed is None else seeded_entropy(b"hearsay simulate %d" % seed)
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
        workspace = create_workspace(Path(folder) / "workspace", name="simulation", now=now, entropy=entropy)
        lab = Laboratory(workspace, terms, engine, postprocess, now, rng, entropy, evaluation_micro)
        task = None if design.needs_pilot else make_task(lab, design.schema)
        for repeat in range(repeats):
            for split in division.splits(frame, splitting):
                schema, people = design.for_people(split.people, splitting)
                current = task or make_task(lab, schema)
                trials.append(run_trial(lab, current, split, resample(people, devices, splitting)))
            if progress is not None:
                progress(repeat + 1, repeats)
    return trials


def summarise(trials: list[Trial], terms: Terms, engine: str, repeats: int) -> dict[str, Any]:
    """Means over all trials, and what one device paid for them."""
    accuracies = [trial.accuracy for trial in trials]
    rejected: dict[str, int] = {}
    for trial in trials:
        for reason, count in trial.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    private = [trial.accuracy_private for trial in trials if trial.accuracy_private is not None]
    evaluation = (
        {
            "accuracy_private": fmean(found.estimate for found in private),
            "accuracy_private_low": fmean(found.low for found in private),
            "accuracy_private_high": fmean(found.high for found in private),
        }
        if private
        else {}
    )
    return {
        **evaluation,
        "accuracy": fmean(accuracies),
        "accuracy_sd": stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracy_nonprivate": fmean(trial.accuracy_nonprivate for trial in trials),
        "accuracy_majority": fmean(trial.accuracy_majority for trial in trials),
        "epsilon_total": terms.epsilon_micro / MICRO,
        "epsilon_per_answer": (terms.epsilon_micro // terms.answers) / MICRO,
        "devices": trials[0].devices,
        "answers_per_device": terms.answers,
        "mechanism": terms.mechanism,
        "engine": engine,
        "repeats": repeats,
        "trials": len(trials),
        "reports": sum(trial.reports for trial in trials),
        "rejected": rejected,
    }


def _print(result: dict[str, Any]) -> None:
    spread = "" if result["accuracy_sd"] is None else f" (sd of one trial {result['accuracy_sd']:.1%})"
    private = {}
    if "accuracy_private" in result:
        low, high = result["accuracy_private_low"], result["accuracy_private_high"]
        private["as devices told it"] = f"{result['accuracy_private']:.1%} (mean interval {low:.1%} to {high:.1%})"
    print_facts(
        {
            "accuracy": f"{result['accuracy']:.1%}{spread}",
            **private,
            "not private": f"{result['accuracy_nonprivate']:.1%}",
            "largest class": f"{result['accuracy_majority']:.1%}",
            "ε": f"{result['epsilon_total']:g} per device, {result['epsilon_per_answer']:g} per answer",
            "devices": f"{result['devices']}, {result['answers_per_device']} answers each by '{result['mechanism']}'",
            "trials": f"{result['trials']}, {result['reports']} reports in all",
        }
    )
