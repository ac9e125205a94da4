"""Trials under every kind of trust: records are divided, participants answer, and a model of the answers is tested.

A :class:`Trust` says how the learning part of one trial becomes something that classifies, and what the summary tells
of it. A :class:`Simulation` runs all repetitions of one trust. The results are not private.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import atan, cos, pi, sin, sqrt, tan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.estimates.statistics import Statistics
from aggregator.models.baselines import fit_majority, fit_plain_family
from aggregator.models.encoding import MISSING, label_codes
from aggregator.models.measured_accuracy import Accuracy
from aggregator.models.scoring import Model
from aggregator.publishing.workspace import Workspace, create_workspace
from edge_sdk import Device
from edge_sdk.arguments import system_entropy
from protocol.documents.campaign import Campaign, Fit
from protocol.schema import Schema
from simulation.design import Design, Division, Split, resample
from simulation.fleet import seeded_entropy
from simulation.settings import Settings

CONFIDENCE = 0.95
SMALLEST_SPREAD = 1e-12
"""Values that differ by less are equal: the difference is rounding."""


SIMULATED_NOW = 1_900_000_000
"""The time of seeded simulations. Signed documents state it, so it must be constant."""


class Randomness(NamedTuple):
    """The random generators of a simulation, one per purpose, and its time in seconds since 1970, ``now``.

    A setting that changes how many numbers one generator draws does not change the draws of the others. ``splitting``
    chooses the test people, ``choosing`` the pilots, ``noise`` the questions and noise that numpy draws. ``fleets`` is
    a seed, of which each trial spawns one child. ``entropy`` returns as many bytes as it is asked for, for keys,
    devices and curators.
    """

    now: int
    splitting: np.random.Generator
    choosing: np.random.Generator
    noise: np.random.Generator
    fleets: np.random.SeedSequence
    entropy: Callable[[int], bytes]


def randomness_of(seed: int | None, split_seed: int | None = None) -> Randomness:
    """Return the randomness of one simulation, of any kind of trust. Equal seeds give equal random numbers.

    Args:
        seed: seed of all randomness; the time is then :data:`SIMULATED_NOW`. None for entropy of the operating system,
            and the present time.
        split_seed: seed of splits, pilots and fleets if ``seed`` is None; None for entropy of the operating system.
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
    """Open a context with a workspace with new keys. The workspace is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
        yield create_workspace(
            Path(folder) / "workspace", name="simulation", now=randomness.now, entropy=randomness.entropy
        )


class Lab(NamedTuple):
    """What all trials of one run share: the settings, a workspace with made-up keys, and the randomness."""

    settings: Settings
    workspace: Workspace
    randomness: Randomness


class Part(NamedTuple):
    """The records of one trial, whose number from 0 is ``number``.

    Attributes:
        split: people to learn from, including those of the pilot, and people to test on.
        people: the people to learn from without the pilot.
        sampling: random source that chooses the records of a fleet.
    """

    schema: Schema
    split: Split
    people: pd.DataFrame
    number: int
    sampling: np.random.SeedSequence

    def fleet(self, devices: int | None) -> pd.DataFrame:
        """Return the records that take part: ``people``, or ``devices`` records drawn from these with replacement."""
        return resample(self.people, devices, np.random.default_rng(self.sampling))


class Signed(NamedTuple):
    """The bytes of a signed model and of the root that verifies it. The simulation deletes the keys at its end."""

    model: bytes
    root: bytes


class Trial(NamedTuple):
    """The results of one split. Accuracies are shares of the ``test_records`` test records with a known label.

    Attributes:
        accuracy: of the private model; ``accuracy_nonprivate`` of Naive Bayes on the split's people, without privacy,
            ``accuracy_majority`` of always guessing the largest class.
        devices: size of the fleet that answered, or number of records that were summed.
        reports: number of counted reports, summaries or messages; with vertical trust of decrypted products.
        rejected: reason → number of reports that were not counted.
        accuracy_private: the estimate of an evaluation campaign on the devices of the test people; None without one.
        signed: the model and its root; None except in the first trial, and if a kind of trust keeps none.
        steps: of a trial that chose what to ask, each step with its share of the devices and what it decided.
        campaign: the campaign that was answered; None except in the first trial, and for central and vertical trust.
    """

    accuracy: float
    accuracy_nonprivate: float
    accuracy_majority: float
    devices: int
    reports: int
    rejected: Mapping[str, int]
    accuracy_private: Accuracy | None = None
    signed: Signed | None = None
    test_records: int = 0
    steps: tuple[Mapping[str, Any], ...] = ()
    campaign: Campaign | None = None


def trial_of(part: Part, learners: pd.DataFrame, schema: Schema, fit: Fit, **measured: Any) -> Trial:
    """Return a trial, with the accuracies of models without privacy and without features.

    ``learners``: the records from which the model without privacy learns.
    """
    test = part.split.test
    return Trial(
        accuracy_nonprivate=fit_plain_family(learners, schema, fit).accuracy(test),
        accuracy_majority=fit_majority(learners, schema).accuracy(test),
        test_records=int((label_codes(test, schema.label) != MISSING).sum()),
        **measured,
    )


class Trust(ABC):
    """One kind of trust, with the public terms of one simulation. The constructor refuses impossible settings.

    Attributes:
        warnings: texts for the analyst, to be read before the results.
    """

    warnings: tuple[str, ...] = ()

    def shared(self, lab: Lab) -> AbstractContextManager[Any]:
        """Return a context with what all trials of one run have in common; by default with None."""
        del lab
        return nullcontext()

    @abstractmethod
    def collect(self, lab: Lab, part: Part, shared: Any) -> Trial:
        """Run one trial: the participants answer, a model is made, and the test part is classified.

        Raises:
            InputError: ``no_labels``: no test record has a known label; or no model can be made.
            PolicyError: a device or node refuses the campaign.
        """

    @abstractmethod
    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return means of the accuracies, costs, terms and numbers of participants, for ``hearsay simulate --json``."""


class Simulation(NamedTuple):
    """A simulation that is ready to run: settings, typed records, schema, division and kind of trust.

    ``notes`` and ``warnings`` are texts for the analyst, to be read before the results.
    """

    settings: Settings
    frame: pd.DataFrame
    design: Design
    division: Division
    trust: Trust
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run all trials, one per repetition and split. Return the summary and the trials.

        Simulations with equal seeds and divisions have the same test people and pilots, whatever else differs, and
        their fleets begin with the same people if the same people may take part.

        Args:
            split_seed: seed of test people, pilots and fleets, if the settings have no seed; None for entropy of the
                operating system.
            progress: called with (repetitions done, repetitions).

        Raises InputError, PolicyError as :meth:`Division.splits`, :meth:`Design.for_people` and :meth:`Trust.collect`.
        """
        settings, randomness = self.settings, randomness_of(self.settings.seed, split_seed)
        trials: list[Trial] = []
        with simulated_workspace(randomness) as workspace:
            lab = Lab(settings, workspace, randomness)
            with self.trust.shared(lab) as shared:
                for repeat in range(settings.repeats):
                    for split in self.division.splits(self.frame, randomness.splitting):
                        schema, people = self.design.for_people(split.people, randomness.choosing)
                        part = Part(schema, split, people, len(trials), randomness.fleets.spawn(1)[0])
                        found = self.trust.collect(lab, part, shared)
                        trials.append(found._replace(signed=None, campaign=None) if trials else found)
                    if progress is not None:
                        progress(repeat + 1, settings.repeats)
        return self.trust.summary(trials, settings), trials


def accuracy_on_device(lab: Lab, model_bytes: bytes, test: pd.DataFrame) -> float:
    """Return the accuracy of a signed model that a new device has verified."""
    now, entropy = lab.randomness.now, lab.randomness.entropy
    with Device.open(None, trust=lab.workspace.root_bytes, clock=lambda: now, entropy=entropy) as device:
        return Model.of(device.install(model_bytes).model).accuracy(test)


def rejections(found: Sequence[Trial | Statistics]) -> dict[str, int]:
    """Return reason → number of all reports that were not counted."""
    rejected: dict[str, int] = {}
    for one in found:
        for reason, count in one.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    return rejected


def accuracies(trials: Sequence[Trial], repeats: int) -> dict[str, Any]:
    """Return the entries of a summary that every kind of trust has: means of the accuracies, and a confidence interval.

    ``accuracy_sd`` is the standard deviation of one trial's accuracy, None for one trial. ``accuracy_low`` and
    ``accuracy_high`` are a 95 % confidence interval of the expected accuracy on these records; None for one repetition,
    and if all repetitions gave the same accuracy. It is computed from the means of the repetitions, because the folds
    of one repetition are not independent. It covers the expected accuracy in 95 % of all simulations if these means are
    near normal. It says nothing about other records.
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
    """Return the mean of each repetition. All repetitions have equally many trials, which follow one another."""
    size = len(accuracies) // repeats
    return [fmean(accuracies[start : start + size]) for start in range(0, len(accuracies), size)]


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % confidence interval of the mean of n independent, identically distributed values.

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
    """Return the probability P(|T| ≤ t) for Student's T with ν = ``freedom`` degrees of freedom.

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
    """Return the t with P(|T| ≤ t) = ``confidence``, for Student's T with ν = ``freedom`` degrees of freedom.

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
