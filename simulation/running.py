"""All repetitions of a simulation, and their summary: mean accuracies and a confidence interval.

An analyst runs this on her own records. The results are not private.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt, tan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.models.foresight import foresee
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.workspace import Workspace, create_workspace
from edge_sdk.arguments import system_entropy
from protocol.epsilon import MICRO
from protocol.schema import Schema
from simulation.asking import Asking, run_asking
from simulation.design import Design, Division, Split, resample
from simulation.experiment import SimulationConfig, Trial, make_task, run_trial, seeded_entropy
from simulation.settings import Settings

CONFIDENCE = 0.95
SMALLEST_SPREAD = 1e-12
"""Values that differ by less are equal: the difference is rounding."""


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % confidence interval of the mean of n independent, identically distributed values.

    The ends are x̄ − t·s/√n and x̄ + t·s/√n. x̄ is the sample mean, s the sample standard deviation, t the quantile of
    Student's distribution with n − 1 degrees of freedom. The interval is exact for normal values. It covers the mean
    less often than in 95 % of all cases if the values are far from normal, for example if only few values are possible.
    None for n < 2, and if all values are equal: equal values do not show how much the values vary.
    """
    if len(values) < 2 or max(values) - min(values) < SMALLEST_SPREAD:
        return None
    half = two_sided_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def within(t: float, freedom: int) -> float:
    """The probability P(|T| ≤ t) for Student's T with ν = ``freedom`` degrees of freedom.

    With θ = atan(t/√ν): 2/π·(θ + sin θ·Σ) for odd ν and sin θ·Σ for even ν, where Σ runs over
    cos θ, cos³θ·2/3, cos⁵θ·2·4/(3·5) … (odd) or 1, cos²θ·1/2, cos⁴θ·1·3/(2·4) … (even), up to the power ν − 2.
    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power + 1) / (power + 2)
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def two_sided_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t with P(|T| ≤ t) = ``confidence``, for Student's T with ν = ``freedom`` degrees of freedom.

    The search halves the range of the angle atan(t/√ν).
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if within(tan(middle) * sqrt(freedom), freedom) < confidence:
            low = middle
        else:
            high = middle
    return tan(low) * sqrt(freedom)


RunTrial = Callable[[Schema, Split, pd.DataFrame, int], Trial]


SIMULATED_NOW = 1_900_000_000
"""The time of seeded simulations. Signed documents state it, so it must be constant."""


class Randomness(NamedTuple):
    """The random generators of a simulation, one per purpose, and its time.

    Test people, pilots, fleets and noise have a generator each. So a setting that changes how many numbers one of these
    draws, for example the mechanism or the kind of trust, does not change the others.

    Attributes:
        now: the time of all steps, in seconds since 1970.
        splitting: chooses the test people.
        choosing: chooses the pilots.
        noise: noise and random questions of all reports that numpy draws.
        fleets: seed of the fleets. Each trial spawns one child.
        entropy: randomness of keys, devices and curators: returns a given number of bytes.
    """

    now: int
    splitting: np.random.Generator
    choosing: np.random.Generator
    noise: np.random.Generator
    fleets: np.random.SeedSequence
    entropy: Callable[[int], bytes]


def randomness_of(seed: int | None, split_seed: int | None = None) -> Randomness:
    """The randomness of one simulation, of any kind of trust. Equal seeds give equal streams.

    Args:
        seed: of all randomness; the time is then :data:`SIMULATED_NOW`. None for entropy of the operating system, and
            the present time.
        split_seed: of splits, pilots and fleets if ``seed`` is None; None for entropy of the operating system.
    """
    divisions, noise = np.random.SeedSequence(seed).spawn(2)
    if seed is None and split_seed is not None:
        divisions = np.random.SeedSequence(split_seed)
    pilots, fleets = divisions.spawn(2)
    return Randomness(
        now=int(time.time()) if seed is None else SIMULATED_NOW,
        splitting=np.random.default_rng(divisions),
        choosing=np.random.default_rng(pilots),
        noise=np.random.default_rng(noise),
        fleets=fleets,
        entropy=system_entropy if seed is None else seeded_entropy(b"hearsay simulate %d" % seed),
    )


@contextmanager
def simulated_workspace(randomness: Randomness) -> Iterator[Workspace]:
    """A workspace with new keys, for a ``with`` block. The end of the block deletes the workspace."""
    with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
        yield create_workspace(
            Path(folder) / "workspace", name="simulation", now=randomness.now, entropy=randomness.entropy
        )


@dataclass(frozen=True, eq=False)
class OfRecords(ABC):
    """A simulation that is ready to run, in which somebody holds the records of many people: a curator, or nodes.

    Attributes:
        settings: the settings.
        frame: the records, with the value types of the schema.
        design: how every repetition makes its schema.
        division: how to choose the test people.
        notes, warnings: texts for the analyst, to be read before the results.
    """

    settings: Settings
    frame: pd.DataFrame
    design: Design
    division: Division
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @abstractmethod
    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation. Returns the summary and all trials, which do not keep their models.

        With equal seeds the test people and pilots are those of the other kinds of trust.

        Args:
            split_seed: seed of the random choice of test people and pilots, if the settings have no seed; None for
                entropy of the operating system.
            progress: called with (repetitions done, repetitions).

        Raises:
            InputError, PolicyError: the records can not be divided, or no model can be made.
        """


def run_prepared(
    prepared: OfRecords,
    trial_in: Callable[[Workspace, Randomness], RunTrial],
    split_seed: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[Trial]:
    """Run all trials of a prepared simulation in a new workspace.

    Args:
        prepared: the simulation.
        trial_in: makes the function of one trial, which :func:`run_trials` calls, for a workspace.
        split_seed: seed of the choice of test people and pilots, if the settings have no seed.
        progress: called with (repetitions done, repetitions).

    Raises:
        InputError, PolicyError: the reasons of :func:`run_trials`.
    """
    settings = prepared.settings
    randomness = randomness_of(settings.seed, split_seed)
    with simulated_workspace(randomness) as workspace:
        of_people = trial_in(workspace, randomness)

        def trial(schema: Schema, split: Split, people: pd.DataFrame, number: int) -> Trial:
            drawn = resample(people, settings.devices, np.random.default_rng(randomness.fleets.spawn(1)[0]))
            return of_people(schema, split, drawn, number)

        parts = (prepared.frame, prepared.design, prepared.division, randomness, trial)
        return run_trials(*parts, repeats=settings.repeats, progress=progress)


def run_trials(
    frame: pd.DataFrame,
    design: Design,
    division: Division,
    randomness: Randomness,
    trial: RunTrial,
    *,
    repeats: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Divide the records, make a schema and run one trial, for every repetition and split.

    Args:
        frame: typed records with their label.
        design: how to make the schema.
        division: how to choose the test people.
        randomness: of the simulation. Splits and pilots depend on it, ``frame``, ``design`` and ``division`` only.
        trial: called with the schema, the split, the split's people without the pilot, and the number of trials so far.
        repeats: number of repetitions.
        progress: called with (repetitions done, repetitions).

    Returns:
        the trials in order of repetitions. Only the first trial keeps its model.

    Raises:
        InputError, PolicyError: the records can not be divided (:meth:`Division.splits`), no schema can be made
            (:meth:`Design.for_people`), or ``trial`` fails.
    """
    trials: list[Trial] = []
    for repeat in range(repeats):
        for split in division.splits(frame, randomness.splitting):
            schema, people = design.for_people(split.people, randomness.choosing)
            found = trial(schema, split, people, len(trials))
            trials.append(found._replace(signed=None) if trials else found)
        if progress is not None:
            progress(repeat + 1, repeats)
    return trials


def run_simulation(
    frame: pd.DataFrame,
    design: Design,
    parameters: CampaignParameters,
    division: Division,
    *,
    postprocess: str,
    devices: int | None = None,
    engine: str = "device",
    repeats: int = 1,
    seed: int | None = None,
    split_seed: int | None = None,
    evaluation_micro: int | None = None,
    asking: Asking | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Run all trials: one per repetition and split.

    Args:
        frame: typed records with their label.
        design: how to make the schema.
        parameters: of the campaign.
        division: how to choose the test people.
        postprocess: name of the method that turns estimates into probabilities.
        devices: size of a fleet drawn with replacement; None for every person once.
        engine: ``device`` runs the device code for every person; ``vector`` draws all reports by numpy.
        repeats: number of repetitions, each with new splits and new noise.
        evaluation_micro: ε of a private evaluation on every test part, in millionths; None for no evaluation.
        asking: how each trial chooses what to ask (:mod:`simulation.asking`); None asks what ``parameters`` say.
        seed: of all randomness; None for entropy of the operating system.
        split_seed: of splits, pilots and resampling if ``seed`` is None. Simulations with equal ``split_seed`` and
            equal ``division`` have the same splits, whatever else differs. Each of their fleets begins with the same
            people if the people who may report are the same.
        progress: called with (repetitions done, repetitions).

    Returns:
        the trials in order of repetitions. Only the first trial has its model.

    Raises:
        InputError, PolicyError: the records can not be divided (:meth:`Division.splits`), no schema can be made
            (:meth:`Design.for_people`), or a trial fails (:func:`simulation.experiment.run_trial`).
    """
    randomness = randomness_of(seed, split_seed)
    now, rng, entropy = randomness.now, randomness.noise, randomness.entropy
    with simulated_workspace(randomness) as workspace:
        config = SimulationConfig(workspace, parameters, engine, postprocess, now, rng, entropy, evaluation_micro)
        shared = None if design.needs_pilot or asking is not None else make_task(config, design.schema)

        def trial(schema: Schema, split: Split, people: pd.DataFrame, number: int) -> Trial:
            if asking is not None:
                return run_asking(config, schema, split._replace(people=people), devices, asking, number)
            task = shared or make_task(config, schema)
            fleet = resample(people, devices, np.random.default_rng(randomness.fleets.spawn(1)[0]))
            return run_trial(config, task, split, fleet, foretell=None if number else foresee)

        return run_trials(frame, design, division, randomness, trial, repeats=repeats, progress=progress)


def summarise(
    trials: list[Trial],
    parameters: CampaignParameters,
    engine: str,
    repeats: int,
    *,
    evaluation_micro: int | None = None,
) -> dict[str, Any]:
    """Summarise a simulation: mean accuracies over all trials, the ε that one device spent, settings, report counts.

    Args:
        trials: all trials, in the order of repetitions.
        parameters: of the campaign.
        engine: name of the engine, for the summary.
        repeats: number of repetitions.
        evaluation_micro: ε of the private evaluations, in millionths; None without evaluations.

    ``accuracy_sd`` is the standard deviation of one trial's accuracy, None for one trial. ``devices`` is the size of
    the first trial's fleet. Keys that begin with ``accuracy_private`` are there only if evaluations ran.
    ``accuracy_low`` and ``accuracy_high`` are a 95 % confidence interval of the expected accuracy on these records;
    None for one repetition, and if all repetitions gave the same accuracy. The interval is computed from the means of
    the repetitions, because the folds of one repetition are not independent. It covers the expected accuracy in 95 % of
    all simulations if these means are near normal. It says nothing about other records. ``test_records`` is the number
    of labelled test records of the first trial. ``epsilon_evaluation`` is the ε of the private evaluations.
    """
    rejected: dict[str, int] = {}
    for trial in trials:
        for reason, count in trial.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    return {
        **_private(trials),
        **({} if evaluation_micro is None else {"epsilon_evaluation": evaluation_micro / MICRO}),
        **accuracies(trials, repeats),
        "epsilon_total": parameters.epsilon_micro / MICRO,
        "epsilon_per_answer": (parameters.epsilon_micro // parameters.answers) / MICRO,
        "devices": trials[0].devices,
        "test_records": trials[0].test_records,
        "answers_per_device": parameters.answers,
        "family": parameters.family,
        "mechanism": parameters.mechanism,
        "engine": engine,
        "repeats": repeats,
        "trials": len(trials),
        "reports": sum(trial.reports for trial in trials),
        "rejected": rejected,
        **({"steps": [list(trial.steps) for trial in trials]} if any(trial.steps for trial in trials) else {}),
    }


def accuracies(trials: Sequence[Trial], repeats: int) -> dict[str, Any]:
    """The entries of a summary that every kind of trust has: means of the accuracies, and a confidence interval.

    Args:
        trials: all trials, in the order of repetitions.
        repeats: number of repetitions.
    """
    found = [trial.accuracy for trial in trials]
    interval = mean_interval(_by_repetition(found, repeats))
    majority = fmean(trial.accuracy_majority for trial in trials)
    return {
        "accuracy": fmean(found),
        "accuracy_sd": stdev(found) if len(found) > 1 else None,
        "accuracy_low": None if interval is None else max(0.0, interval[0]),
        "accuracy_high": None if interval is None else min(1.0, interval[1]),
        "accuracy_nonprivate": fmean(trial.accuracy_nonprivate for trial in trials),
        "accuracy_majority": majority,
        "below_majority": fmean(found) < majority,
    }


def _by_repetition(accuracies: Sequence[float], repeats: int) -> list[float]:
    """The mean of each repetition. All repetitions have equally many trials, which follow one another."""
    size = len(accuracies) // repeats
    return [fmean(accuracies[start : start + size]) for start in range(0, len(accuracies), size)]


def _private(trials: Sequence[Trial]) -> dict[str, float]:
    """Means of the private evaluations and of their interval ends; empty without evaluations."""
    evaluations = [trial.accuracy_private for trial in trials if trial.accuracy_private is not None]
    if not evaluations:
        return {}
    return {
        "accuracy_private": fmean(found.estimate for found in evaluations),
        "accuracy_private_low": fmean(found.low for found in evaluations),
        "accuracy_private_high": fmean(found.high for found in evaluations),
    }
