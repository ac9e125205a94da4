"""Find the next step of a series of campaigns that learns which features to ask about, from private answers alone.

A series asks a part of the fleet about all features, then further parts about the strongest half, quarter and eighth.
Further parts evaluate candidate models; the rest answers about the chosen features. A share [low, high) of the fleet is
a range of the integers 0 … 2³². Source: decision 65.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.collectors.draws import SharedNoise
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.planning.feature_selection.candidates import (
    MOST_CANDIDATES,
    Choice,
    Measurement,
    Subset,
    candidates,
    choose,
    neighbours,
    ratings,
    strongest,
    unit_error,
)
from protocol.documents.asked import MAX_MODELS

WHOLE = 1 << 32
GRID = 10_000
WEIGHTS = 1000
"""About the sum of the weights of a campaign that asks about some features more often than about others."""
ROUNDS = (0.25, 0.08, 0.08, 0.08)
"""Parts of the fleet that are asked about all features, the strongest half, the strongest quarter and so on."""
LEAST_ASKED = 2
"""Smallest number of features of a round."""
FEWEST_FEATURES = 8
FEWEST_ANSWERS = 150
"""Fewest answers per feature for a choice with two classes, if all devices were asked, in units of 4c² answers.

c is the error of :attr:`SeriesFleet.error`.
"""
OF_CLASSES = 2.5
"""Power of (number of classes)/2 by which :data:`FEWEST_ANSWERS` is multiplied."""
COARSEST = 0.07
"""Largest standard error of a private accuracy that still tells candidates apart."""
BUDGET = 0.15
"""There are as many candidates as this part of the fleet could tell apart (:func:`number_of_candidates`)."""
LOCAL_ROUNDS = 2
SHARED_ROUND = 0.3
"""Part of the fleet that tells two collectors about all features."""
NOISIEST = 0.5
"""Largest noise of a cell of that part, as a share of its devices, with which a choice is made."""
STEPS = 50
"""Parts of a wave that are tried, to find the smallest that suffices."""
FINALISTS = 3
"""Number of best candidates that are evaluated again, besides the set of all features."""
ASK, EVALUATE, STOP, DONE = "ask", "evaluate", "stop", "done"


class Share(NamedTuple):
    """Those devices of a series whose number u, by chance, has low ≤ u < high; 0 ≤ low < high ≤ 2³²."""

    low: int
    high: int

    @property
    def part(self) -> float:
        """The share as a fraction of the fleet."""
        return (self.high - self.low) / WHOLE

    @property
    def shown(self) -> str:
        """The share as text for the option ``--share``, for example ``0.25:0.33``."""
        return f"{_shown(self.low)}:{_shown(self.high)}"


class FeatureCampaign(NamedTuple):
    """A campaign of the series that asks these devices about these features.

    ``weights``: a whole number per feature, in the proportion of the answers about each; empty for equal numbers.
    """

    features: Subset
    share: Share
    weights: tuple[int, ...] = ()


def after(low: int, part: float) -> Share:
    """Return the share of the fleet from ``low`` on of about ``part``, to a multiple of 1/:data:`GRID`, or the rest."""
    end = max(round((low / WHOLE + part) * GRID), _nearest(low) + 1)
    return Share(low, min(WHOLE, end * WHOLE // GRID))


def _shown(place: int) -> str:
    nearest = _nearest(place)
    if nearest * WHOLE // GRID == place:
        return f"{nearest / GRID:g}"
    return f"{place}/{WHOLE}"


def _nearest(place: int) -> int:
    """Return g of the lowest multiple g/:data:`GRID` of the fleet that is not below ``place``/2³²."""
    return -(-place * GRID // WHOLE)


def used(shares: Iterable[Share]) -> int:
    """Return the end of the last of these shares, where the next share begins; 0 without shares."""
    return max((share.high for share in shares), default=0)


def equalise(expected: Mapping[int, float], low: int) -> FeatureCampaign:
    """Return the campaign of the rest of the fleet, from ``low`` on, that makes the answers per feature equal.

    A feature that already has more answers is asked about as little as weights allow. ``expected``: each feature → its
    answers so far, as a fraction of the fleet.
    """
    share = Share(low, WHOLE)
    needs = _needs(expected, share.part)
    total = sum(needs.values())
    features = tuple(sorted(expected))
    weights = tuple(max(1, round(WEIGHTS * needs[index] / total)) for index in features)
    return FeatureCampaign(features, share, () if len(set(weights)) == 1 else weights)


def _needs(expected: Mapping[int, float], rest: float) -> dict[int, float]:
    """Return feature → its part of ``rest``, so that the feature with the fewest answers has as many as possible."""
    ordered = sorted(expected.values())
    level = 0.0
    for count, following in enumerate([*ordered[1:], None], start=1):
        level = (sum(ordered[:count]) + rest) / count
        if following is None or level <= following:
            break
    return {index: max(0.0, level - part) for index, part in expected.items()}


class Wave(NamedTuple):
    """The plan of an evaluation: the largest part of the fleet that it may ask, and the standard error it aims at."""

    part: float
    error: float


SCREENING = Wave(0.12, 0.02)
RACE = Wave(0.08, 0.01)
LOCAL = Wave(0.07, 0.02)


class Evaluation(NamedTuple):
    """An evaluation campaign of the series: its share of the devices, and the answers about each candidate."""

    share: Share
    measured: Mapping[Subset, Measurement]


class Step(NamedTuple):
    """The next step of a series of campaigns, with its reason.

    Attributes:
        kind: ``ask`` (ask about features), ``evaluate`` (evaluate candidates), ``stop`` (the choice is made: ask the
            rest of the fleet about the chosen features) or ``done`` (all devices were asked).
        why: the reason, in a sentence for people.
        asks: the campaigns to make; empty for ``evaluate`` and ``done``.
        models, share: only for ``evaluate``: the sets of features whose models are evaluated, and by which devices.
        features: the features of the final model; None until they are chosen.
        choice: how the choice was made; None if no candidates were evaluated.
    """

    kind: str
    why: str
    asks: tuple[FeatureCampaign, ...] = ()
    models: tuple[Subset, ...] = ()
    share: Share | None = None
    features: Subset | None = None
    choice: Choice | None = None


class SeriesFleet(NamedTuple):
    """The devices of a series: their number N, and ε of all answers of each, in millionths.

    Attributes:
        noise: of two collectors with whom the devices share their records, at ε; None for answers with own noise.
        is_same: whether each step asks all devices, with a part of ε; else it asks that part of the devices, with ε.
    """

    devices: int
    epsilon_micro: int
    noise: SharedNoise | None = None
    is_same: bool = False

    def variance(self, sets: int, part: float) -> float:
        """Return the largest variance of a private accuracy, if ``part`` of the fleet evaluates so many models.

        Two collectors learn from each device about every model, of the accuracy with half the noise of a cell
        (:func:`aggregator.estimates.sums.of_sums`). Other devices tell about one model each.
        """
        answers = max(1.0, part * self.devices)
        if self.noise is None:
            return self.error**2 / max(1.0, answers / sets)
        return 0.25 / (self.devices if self.is_same else answers) + self.noise.variance(sets) / 2 / answers**2

    def devices_for(self, sets: int, part: float, error: float) -> int:
        """Return the least number of devices with which :meth:`variance` is at most ``error``², for two collectors."""
        assert self.noise is not None
        chance, noise = 0.25 / (1.0 if self.is_same else part), self.noise.variance(sets) / 2 / part**2
        root = sqrt(chance**2 + 4 * noise * error**2)
        return ceil((chance + root) / (2 * error**2))

    def most(self, part: float, limit: int) -> int:
        """Return how many models, at most ``limit``, a part of the fleet tells two collectors about well enough."""
        return len([sets for sets in range(1, limit + 1) if self.variance(sets, part) <= COARSEST**2])

    def part_for(self, sets: int, wave: Wave) -> float:
        """Return the part of the fleet that evaluates so many models with the error of ``wave``, at most its part."""
        if self.noise is None:
            return min(wave.part, sets * self.answers_for(wave.error) / self.devices)
        tried = (wave.part * step / STEPS for step in range(1, STEPS))
        return next((part for part in tried if self.variance(sets, part) <= wave.error**2), wave.part)

    @property
    def error(self) -> float:
        """c, the standard error of a private accuracy times the root of the number of answers."""
        return unit_error(self.epsilon_micro)

    def answers_for(self, error: float) -> int:
        """Return the number of answers after which an accuracy has this standard error."""
        return ceil((self.error / error) ** 2)


def number_of_candidates(fleet: SeriesFleet) -> int:
    """Return how many candidates a part :data:`BUDGET` of the fleet can tell apart, at most all candidates."""
    if fleet.noise is not None:
        return fleet.most(SCREENING.part, MOST_CANDIDATES)
    return min(int(BUDGET * fleet.devices / fleet.answers_for(COARSEST)), MOST_CANDIDATES)


def can_choose(features: int, classes: int, fleet: SeriesFleet) -> str:
    """Return a sentence why a fleet can not choose between features, or the empty text if it can.

    With N devices, F features, k classes and c the error of :attr:`SeriesFleet.error`, a choice needs F ≥ 8,
    N/(4c²)/F ≥ 150 (k/2)^2.5, and two candidates that can be told apart. With two collectors the noise of a cell is
    at most :data:`NOISIEST` of the devices of the first round.
    """
    if features < FEWEST_FEATURES:
        return f"{features} features are too few to choose from; {FEWEST_FEATURES} would do"
    if fleet.noise is not None:
        return _too_few_to_share(features, fleet)
    needed = ceil(FEWEST_ANSWERS * (classes / 2) ** OF_CLASSES * 4 * fleet.error**2 * features)
    if fleet.devices < needed:
        of = f"{features} features" if classes <= 2 else f"{features} features for {classes} classes"
        return f"{fleet.devices} devices are too few to choose between {of}; {needed} would do"
    if number_of_candidates(fleet) < 2:
        needed = ceil(2 * fleet.answers_for(COARSEST) / BUDGET)
        return f"{fleet.devices} devices are too few to tell two models apart; {needed} would do"
    return ""


def _too_few_to_share(features: int, fleet: SeriesFleet) -> str:
    assert fleet.noise is not None
    needed = ceil(fleet.noise.variance(features) ** 0.5 / (NOISIEST * SHARED_ROUND))
    needed = max(needed, fleet.devices_for(FINALISTS + 1, RACE.part, COARSEST))
    if fleet.devices < needed:
        return f"{fleet.devices} devices are too few to choose between {features} features; {needed} would do"
    return ""


def round_sizes(features: int) -> list[int]:
    """Return how many features each round asks about: all, half, a quarter and an eighth, but at least two."""
    sizes = [max(LEAST_ASKED, -(-features // 2**number)) for number in range(len(ROUNDS))]
    return list(dict.fromkeys(sizes))


def next_round(
    features: int, classes: int, fleet: SeriesFleet, asked: Sequence[FeatureCampaign], tables: Tables | None
) -> Step | None:
    """Return the next campaign that asks about features before there are candidates; None if these rounds are over.

    ``asked``: the campaigns so far. ``tables``: P(class) and P(value | class) of all features; None without answers.
    """
    everything = tuple(range(features))
    low = used(each.share for each in asked)
    why = can_choose(features, classes, fleet)
    if why:
        return None if asked else Step(ASK, f"{why}: ask all", (equalise(dict.fromkeys(everything, 0.0), low),))
    sizes = round_sizes(features) if fleet.noise is None else [features]  # a shared answer is about all of them
    if len(asked) >= len(sizes):
        return None
    size, share = sizes[len(asked)], after(low, ROUNDS[len(asked)] if fleet.noise is None else SHARED_ROUND)
    if tables is None or not asked:
        why = f"no answers yet: ask {share.part:.0%} of the devices about all {features} features"
        return Step(ASK, why, (FeatureCampaign(everything, share),))
    chosen = tuple(sorted(strongest(tables)[:size]))
    why = f"ask {share.part:.0%} of the devices about the {size} features that tell most of the class so far"
    return Step(ASK, why, (FeatureCampaign(chosen, share),))


def next_evaluation(
    tables: Tables, fleet: SeriesFleet, asked: Sequence[FeatureCampaign], waves: Sequence[Evaluation], seed: int
) -> Step | None:
    """Return the next evaluation of candidates; None if the choice can be made.

    ``tables``: P(class) and P(value | class) of all features. ``asked``: the campaigns that asked about features.
    ``waves``: the evaluations so far, in order. ``seed``: of the greedy selection; the same for all evaluations.
    """
    low = used([*(each.share for each in asked), *(each.share for each in waves)])
    measured = pooled(waves)
    if not waves:
        sets = candidates(tables, number_of_candidates(fleet), np.random.default_rng(seed))
        return _evaluate(sets, SCREENING, fleet, low, f"compare {len(sets)} sets of features")
    everything = tuple(range(len(tables.likelihood)))
    best = [each.features for each in ratings(measured)]
    if len(waves) == 1:
        sets = list(dict.fromkeys([*best[:FINALISTS], everything]))
        return _evaluate(sets, RACE, fleet, low, "measure the best sets, and all features, more closely")
    if len(waves) >= 2 + LOCAL_ROUNDS or _settled(waves):
        return None
    if fleet.noise is None:
        most = int(LOCAL.part * fleet.devices / fleet.answers_for(COARSEST))
    else:
        most = fleet.most(LOCAL.part, MAX_MODELS)
    sets = neighbours(best[0], strongest(tables), measured)[:most]
    if not sets:
        return None
    why = f"try to add or remove a feature of the best set, which has {len(best[0])}"
    return _evaluate(sets if len(sets) > 1 else [*sets, best[0]], LOCAL, fleet, low, why)


def _settled(waves: Sequence[Evaluation]) -> bool:
    if len(waves) < 3:
        return False
    before, now = (ratings(pooled(part))[0].features for part in (waves[:-1], waves))
    return before == now


def _evaluate(sets: Sequence[Subset], wave: Wave, fleet: SeriesFleet, low: int, why: str) -> Step:
    """Return the step that evaluates ``sets``, each by as many devices as the standard error of ``wave`` needs."""
    share = after(low, fleet.part_for(len(sets), wave))
    error = fleet.variance(len(sets), share.part) ** 0.5
    said = f"{why}: {share.part:.1%} of the devices, standard error {100 * error:.1f} points each"
    return Step(EVALUATE, said, models=tuple(sets), share=share)


def pooled(waves: Sequence[Evaluation]) -> dict[Subset, Measurement]:
    """Return all answers about each candidate, added over all evaluations."""
    found: dict[Subset, Measurement] = {}
    for wave in waves:
        for features, measured in wave.measured.items():
            found[features] = found[features].plus(measured) if features in found else measured
    return found


def conclusion(
    features: int,
    classes: int,
    fleet: SeriesFleet,
    answers: Sequence[int],
    waves: Sequence[Evaluation],
    shares: Sequence[Share],
) -> Step:
    """Return the choice, with the campaign that asks the rest of the fleet about the chosen features.

    ``answers``: number of answers about each feature so far. ``waves``: all evaluations; without any, all features are
    chosen. ``shares``: the shares of all campaigns of the series so far.
    """
    everything = tuple(range(features))
    choice = choose(pooled(waves), everything, classes) if waves else None
    chosen = everything if choice is None else choice.features
    why, low = _why(choice, chosen, features), used(shares)
    if WHOLE - low < WHOLE // GRID:
        return Step(DONE, f"{why}; all devices were asked", features=chosen, choice=choice)
    if fleet.noise is None:
        rest = equalise({index: answers[index] / fleet.devices for index in chosen}, low)
    else:
        rest = FeatureCampaign(chosen, Share(low, WHOLE))
    said = f"{why}; ask the other {rest.share.part:.0%} of the devices about these"
    return Step(STOP, said, (rest,), features=chosen, choice=choice)


def _why(choice: Choice | None, chosen: Subset, features: int) -> str:
    if choice is None:
        return "no choice between features is made"
    gain = f"{100 * choice.gain:+z.1f} ± {100 * choice.error:.1f} points"
    if len(chosen) == features:
        best = len(choice.best.features)
        return "all features are best" if best == features else f"the best set ({best} features) is not clearly better"
    count = "1 feature is" if len(chosen) == 1 else f"{len(chosen)} features are"
    return f"{count} better than all {features} by {gain}"
