"""All repetitions of a simulation, and what they come to: means, an interval, and the warnings they deserve.

Run by an analyst, on records that she has; nothing of it is private.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.publishing.workspace import create_workspace
from edge_sdk.entropy import system_entropy
from protocol.epsilon import MICRO
from simulation.experiment import SimulationConfig, make_task, run_trial, seeded_entropy
from simulation.means import mean_interval
from simulation.splits import Division, resample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from aggregator.publishing.campaigns import CampaignParameters
    from simulation.design import Design
    from simulation.experiment import Trial

SIMULATED_NOW = 1_900_000_000
"""The time of seeded simulations: everything that is signed says it, so it must not move."""


def run_simulation(
    frame: pd.DataFrame,
    design: Design,
    terms: CampaignParameters,
    division: Division,
    *,
    postprocess: str,
    devices: int | None = None,
    engine: str = "device",
    repeats: int = 1,
    seed: int | None = None,
    split_seed: int | None = None,
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
        split_seed: fixes splits and resampling alone, so that several simulations differ in nothing else.
        progress: called with (repetitions done, repetitions).

    Returns:
        the trials, those of one repetition together. Only the first keeps its model.
    """
    now = int(time.time()) if seed is None else SIMULATED_NOW
    splitting, rng = np.random.default_rng(seed).spawn(2)  # splits must not depend on the noise
    if seed is None and split_seed is not None:
        splitting = np.random.default_rng(split_seed)
    entropy = system_entropy if seed is None else seeded_entropy(b"hearsay simulate %d" % seed)
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
        workspace = create_workspace(Path(folder) / "workspace", name="simulation", now=now, entropy=entropy)
        lab = SimulationConfig(workspace, terms, engine, postprocess, now, rng, entropy, evaluation_micro)
        task = None if design.needs_pilot else make_task(lab, design.schema)
        for repeat in range(repeats):
            for split in division.splits(frame, splitting):
                schema, people = design.for_people(split.people, splitting)
                current = task or make_task(lab, schema)
                trial = run_trial(lab, current, split, resample(people, devices, splitting))
                trials.append(trial._replace(signed=None) if trials else trial)
            if progress is not None:
                progress(repeat + 1, repeats)
    return trials


def summarise(trials: list[Trial], terms: CampaignParameters, engine: str, repeats: int) -> dict[str, Any]:
    """Means over all trials, and what one device paid for them.

    ``accuracy_low`` and ``accuracy_high`` are a 95 % interval of the mean over endless repetitions on these very
    records, from the repetitions' own means (the folds of one are not independent); None for one repetition.
    It says nothing of other records.
    """
    accuracies = [trial.accuracy for trial in trials]
    rejected: dict[str, int] = {}
    for trial in trials:
        for reason, count in trial.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    interval = mean_interval(_by_repetition(accuracies, repeats))
    majority = fmean(trial.accuracy_majority for trial in trials)
    return {
        **_private(trials),
        "accuracy": fmean(accuracies),
        "accuracy_sd": stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracy_low": None if interval is None else max(0.0, interval[0]),
        "accuracy_high": None if interval is None else min(1.0, interval[1]),
        "accuracy_nonprivate": fmean(trial.accuracy_nonprivate for trial in trials),
        "accuracy_majority": majority,
        "below_majority": fmean(accuracies) < majority,
        "epsilon_total": terms.epsilon_micro / MICRO,
        "epsilon_per_answer": (terms.epsilon_micro // terms.answers) / MICRO,
        "devices": trials[0].devices,
        "answers_per_device": terms.answers,
        "family": terms.family,
        "mechanism": terms.mechanism,
        "engine": engine,
        "repeats": repeats,
        "trials": len(trials),
        "reports": sum(trial.reports for trial in trials),
        "rejected": rejected,
    }


def _by_repetition(accuracies: Sequence[float], repeats: int) -> list[float]:
    """The mean of each repetition's trials, which are as many in each and stand together."""
    size = len(accuracies) // repeats
    return [fmean(accuracies[start : start + size]) for start in range(0, len(accuracies), size)]


def _private(trials: Sequence[Trial]) -> dict[str, float]:
    """What the test people's devices told, where they were asked."""
    told = [trial.accuracy_private for trial in trials if trial.accuracy_private is not None]
    if not told:
        return {}
    return {
        "accuracy_private": fmean(found.estimate for found in told),
        "accuracy_private_low": fmean(found.low for found in told),
        "accuracy_private_high": fmean(found.high for found in told),
    }
