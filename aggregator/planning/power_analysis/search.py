"""Search for the best design: list alternatives, leave some out by closed-form standard errors, simulate the others.

Among designs with the same coding (family, bins and reduction), those that differ from the best one in more than one
choice are left out. All others are ranked by their expected accuracy, from simulated campaigns (rehearsals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, hypot, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.planning.power_analysis.precision import precisions, typical_error
from aggregator.planning.power_analysis.rehearsal import Fleet, Forecast, Rehearsal
from aggregator.planning.power_analysis.study import CHOSEN, Design, Study, with_bins
from aggregator.publishing.campaigns import campaign_subjects, parse_answers
from aggregator.publishing.mechanisms.choice import APPROACHES, AUTO, forms, is_numeric, named
from protocol import mechanisms
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign
from protocol.errors import HearsayError, InputError
from protocol.features import Numeric
from protocol.mechanisms import ValueMechanism
from protocol.schema import Schema

FIRST, MORE = 10, 20
"""Simulated campaigns of every design at the start, and of a leading design in each round."""
LEADERS = 4
"""Number of designs for which a round simulates more campaigns."""
ROUNDS = 14
SURE = 2.0
"""Standard errors of the difference at which a design that is behind the first one drops out."""
FINE = 0.005
"""Standard error of a design's accuracy, from the simulation alone, at which no more campaigns are simulated."""
BINS = (2, 3, 4, 6, 8)
SHARED = "shared"
"""What stands for a mechanism where two collectors make totals."""
COMPONENTS = (1, 2, 4, 8)
SOME_ANSWERS = ("1", "2", "4")
TIED = 2.0
"""Two designs whose difference is at most this number of standard errors are not told apart by the records."""
STEPS = ROUNDS + 1
"""Number of steps of a search, to report progress."""


def race(running: Mapping[Design, Rehearsal], step: Callable[[], None]) -> None:
    """Simulate campaigns of all designs until one is clearly best, at most :data:`ROUNDS` rounds with ``step``."""
    for rehearsal in running.values():
        rehearsal.run(max(2, _per_fold(rehearsal, FIRST)))
    step()
    for _ in range(ROUNDS):
        for design in _open(running)[:LEADERS]:
            running[design].run(_per_fold(running[design], MORE))
        step()


def _open(running: Mapping[Design, Rehearsal]) -> list[Design]:
    """Return designs that may be the best and need more simulations, the most promising first; none if one is clear."""
    found = {design: rehearsal.forecast() for design, rehearsal in running.items()}
    leader = max(found, key=lambda design: found[design].accuracy)
    first = found[leader]
    near = [
        design
        for design, one in found.items()
        if design == leader or first.accuracy - one.accuracy < SURE * hypot(first.noise, one.noise)
    ]
    if near == [leader]:
        return []
    wanting = [design for design in near if found[design].noise > FINE]
    return sorted(wanting, key=lambda design: -(found[design].accuracy + SURE * found[design].noise))


def _per_fold(rehearsal: Rehearsal, campaigns: int) -> int:
    return ceil(campaigns / rehearsal.folds)


def behind(first: Rehearsal, other: Rehearsal) -> tuple[float, float]:
    """Return the first rehearsal's accuracy minus the other's on the same records, and its standard error."""
    if first is other:
        return 0.0, 0.0
    away = first.by_record - other.by_record
    away = away[np.isfinite(away)]
    noise = first.forecast().noise ** 2 + other.forecast().noise ** 2
    return float(away.mean()), sqrt(float(away.var()) / len(away) + noise)


class Scope(NamedTuple):
    """The choices that the search may make. A value other than ``auto`` is fixed.

    With a pilot and the coding ``auto`` the search also chooses features, and counts the pilot (:func:`of_pilot`).

    ``answers``: ``one``, ``all``, a number, or ``auto`` for 1, 2, 4, all and the number of ``hearsay campaign``'s rule.
    ``coding``: ``auto`` for bins and reductions, ``schema`` for the schema as it is, or one projection like ``dca:2``.
    ``chooses``: whether features may be chosen; not if a table ``[ask]`` says which are asked about.
    """

    family: str = AUTO
    mechanism: str = AUTO
    answers: str = AUTO
    coding: str = AUTO
    chooses: bool = True


class RankedDesign(NamedTuple):
    """One design, its number of questions, its expected accuracy (``forecast``), and the number of simulated campaigns.

    ``error``: root of the mean variance of its statistics; ``behind``: the first design's accuracy minus this one's, on
    the same records, with its standard error; ``plain``: accuracy without privacy and with endless devices.
    """

    design: Design
    questions: int
    error: float
    forecast: Forecast
    behind: float
    behind_error: float
    campaigns: int
    plain: float


class PrunedDesign(NamedTuple):
    """A design that was not simulated. ``error``: its standard error, ``ratio`` times the least one of its coding."""

    design: Design
    error: float
    ratio: float


class Ranking(NamedTuple):
    """The result of a search: the simulated designs, the best first, and the designs that were not simulated.

    ``expected``: the accuracy of the first design, on records that took no part in ranking it first.
    """

    ranked: tuple[RankedDesign, ...]
    pruned: tuple[PrunedDesign, ...]
    expected: Forecast

    def headed_by(self, design: Design) -> Ranking:
        """Return the ranking with ``design`` first if it is at most :data:`TIED` errors behind; else unchanged."""
        head = next((one for one in self.ranked if one.design == design), self.ranked[0])
        if head is self.ranked[0] or head.behind > TIED * head.behind_error:
            return self
        rest = [
            one._replace(
                behind=one.behind - head.behind,
                behind_error=head.behind_error if one is self.ranked[0] else hypot(one.behind_error, head.behind_error),
            )
            for one in self.ranked
            if one is not head
        ]
        return Ranking((head._replace(behind=0.0, behind_error=0.0), *rest), self.pruned, head.forecast)


def codings(study: Study, scope: Scope) -> list[tuple[str, int | None, str]]:
    """Return the codings (family, bins and reduction) that the search tries.

    Reductions are tried only with a pilot, and only if all features have the same share of the devices: shares are
    about features, and a projection has components.

    Raises InputError ``family_unknown``, ``no_numbers``, ``mechanism_unknown``, ``not_fittable`` (a Gaussian campaign
    without the question about the class); ``plan_invalid``: a projection to be fitted, and shares of features.
    """
    schema, families = study.schema, _families(study, scope)
    found: list[tuple[str, int | None, str]] = [(family, None, "none") for family in families]
    if scope.coding not in (AUTO, "schema"):
        if study.shares:
            raise InputError("plan_invalid", "shares in [ask] are about features, and a projection has components")
        return [(family, None, scope.coding) for family in families]
    if scope.coding != AUTO or schema.projection is not None or schema.groups or schema.asked_as:
        return found
    numbers = sum(isinstance(feature, Numeric) for feature in schema.features)
    if DISCRETE in families and numbers:
        found += [(DISCRETE, bins, "none") for bins in BINS if not _has_bins(schema, bins)]
    if study.pilot is not None and numbers > 1 and not study.shares:
        counts = [count for count in COMPONENTS if count < numbers]
        reductions = [f"pca:{count}" for count in counts]
        reductions += [f"dca:{count}" for count in counts if count <= max(2, len(schema.label.classes) - 1)]
        found += [(family, None, reduction) for family in families for reduction in reductions]
    return found


def _families(study: Study, scope: Scope) -> list[str]:
    if study.noise is not None:
        if scope.family not in (AUTO, DISCRETE) or scope.mechanism != AUTO or scope.answers not in (AUTO, "one"):
            raise InputError("plan_invalid", "two collectors count values: leave out family, mechanism and answers")
        return [DISCRETE]
    if scope.family not in (AUTO, DISCRETE, GAUSSIAN):
        raise InputError("family_unknown", "a family is discrete, gaussian or auto")
    if scope.mechanism != AUTO:
        named(scope.mechanism)
    families = [scope.family] if scope.family != AUTO else [DISCRETE, GAUSSIAN]
    if scope.mechanism != AUTO:
        fitting = GAUSSIAN if is_numeric(scope.mechanism) else DISCRETE
        if fitting not in families:
            raise InputError("mechanism_unknown", f"the family {scope.family} has no mechanism {scope.mechanism}")
        families = [fitting]
    refusals = [
        (study.schema.numeric, "no_numbers", "a Gaussian model needs a numeric feature; this schema has none"),
        (not study.schema.asked_as, "ask_invalid", "a Gaussian campaign joins no features"),
        (study.class_question, "not_fittable", "a Gaussian campaign needs the question about the class alone"),
    ]
    for is_fitting, reason, sentence in refusals:
        if GAUSSIAN in families and not is_fitting:
            if len(families) == 1:
                raise InputError(reason, sentence)
            families.remove(GAUSSIAN)
    return families


def _has_bins(schema: Schema, bins: int) -> bool:
    pairs = zip(schema.features, with_bins(schema, bins).features, strict=True)
    return all(
        one.edges == other.edges for one, other in pairs if isinstance(one, Numeric) and isinstance(other, Numeric)
    )


def _alternatives(coding: tuple[str, int | None, str], study: Study, scope: Scope) -> list[Design]:
    family, bins, reduction = coding
    if study.noise is not None:
        return [Design(family, SHARED, 1, bins, reduction)]
    micro = study.epsilon_micro
    names = [scope.mechanism] if scope.mechanism != AUTO else list(forms()) if family == GAUSSIAN else _of_values(study)
    found = []
    for name in names:
        for approach in APPROACHES.get(name, (None,)) if family == GAUSSIAN else (None,):
            questions = _questions(study, study.schema, Design(family, name, approach=approach))
            wanted = [*SOME_ANSWERS, AUTO, "all"] if scope.answers == AUTO else [scope.answers]
            wanted = [text for text in wanted if text not in SOME_ANSWERS or int(text) <= questions]
            numbers = sorted({parse_answers(text, questions, micro) for text in wanted})
            found += [Design(family, name, answers, bins, reduction, approach) for answers in numbers]
    return found


def _questions(study: Study, schema: Schema, design: Design) -> int:
    if study.noise is not None:
        return 1
    family, name, approach = design.family, design.mechanism, design.approach
    return len(campaign_subjects(schema, family, name, approach, class_question=study.class_question))


def _of_values(study: Study) -> list[str]:
    """Return ``auto`` (per question) if the questions differ in size, and the mechanisms of discrete campaigns."""
    found = [name for name in mechanisms.names() if issubclass(mechanisms.kind(name), ValueMechanism)]
    asked = campaign_subjects(study.schema, DISCRETE, found[0], None, class_question=study.class_question)
    sizes = {subject.size for subject in asked}
    return [AUTO, *found] if len(sizes) > 1 else found


def pruned_designs(study: Study, scope: Scope, fleet: Fleet) -> tuple[dict[Design, float], list[PrunedDesign]]:
    """Return the designs to simulate, with their typical standard errors, and the designs that these errors leave out.

    At a family's first coding every mechanism is kept with its best number of answers, and every number with its best
    mechanism; at each other coding the better of the two best. Raises the first design's error if none is possible.
    """
    kept: dict[Design, float] = {}
    left: list[PrunedDesign] = []
    best: dict[str, list[Design]] = {}
    refused: HearsayError | None = None
    for coding in codings(study, scope):
        family = coding[0]
        errors: dict[Design, float] = {}
        try:
            tried = _like(best[family], coding, study, scope) if family in best else _alternatives(coding, study, scope)
        except HearsayError as error:
            refused = refused or error
            continue
        for design in tried:
            try:
                campaign, population = study.campaign(design)
                errors[design] = typical_error(precisions(campaign, fleet, population))
            except HearsayError as error:
                refused = refused or error
        if not errors:
            continue
        rising = sorted(errors, key=errors.__getitem__)
        chosen = rising[:1] if family in best else _one_by_one(rising)
        best.setdefault(family, rising[:2])
        kept |= {design: errors[design] for design in chosen}
        left += [
            PrunedDesign(design, errors[design], errors[design] / errors[rising[0]])
            for design in rising
            if design not in chosen
        ]
    for design in of_pilot(study, scope, fleet, kept):
        try:
            campaign, population = study.campaign(design)
            kept[design] = typical_error(precisions(campaign, fleet, population))
        except HearsayError as error:  # too few records to choose from
            refused = refused or error
    if not kept:
        assert refused is not None
        raise refused
    return kept, left


def of_pilot(study: Study, scope: Scope, fleet: Fleet, known: Iterable[Design]) -> list[Design]:
    """Return the designs that use a pilot: those of chosen features, and those that count its records, too.

    There are none for two collectors, nor if the coding is fixed, or the schema has groups, shares or a projection.
    """
    schema = study.schema
    if study.pilot is None or study.noise is not None or scope.coding != AUTO:
        return []
    if study.shares or schema.groups or schema.asked_as or schema.projection is not None:
        return []
    plain = [design for design in known if design.coding == (DISCRETE, None, "none")]
    plain = sorted(plain, key=lambda design: design.mechanism != AUTO)[:1]
    chosen = []
    if plain and scope.mechanism == AUTO and scope.chooses:
        wanted = ("one", AUTO) if scope.answers == AUTO else (scope.answers,)
        numbers = sorted({parse_answers(text, len(schema.observed), study.epsilon_micro) for text in wanted})
        total = fleet.devices * fleet.periods
        chosen = [Design(DISCRETE, AUTO, number, None, f"{CHOSEN}:{number * total}") for number in numbers]
    return [*chosen, *(design._replace(counted=True) for design in (*plain, *chosen))]


def _one_by_one(rising: Sequence[Design]) -> list[Design]:
    """Return from ``rising``, designs by rising error, the first with each mechanism and each number of answers."""
    by_mechanism: dict[tuple[str, int | None], Design] = {}
    by_answers: dict[int, Design] = {}
    for design in rising:
        by_mechanism.setdefault((design.mechanism, design.approach), design)
        by_answers.setdefault(design.answers, design)
    chosen = {*by_mechanism.values(), *by_answers.values()}
    return [design for design in rising if design in chosen]


def _like(known: Sequence[Design], coding: tuple[str, int | None, str], study: Study, scope: Scope) -> list[Design]:
    _, bins, reduction = coding
    found = []
    for design in known:
        other = design._replace(bins=bins, reduction=reduction)
        schema = other.schema_of(study.schema, study.pilot)
        questions = _questions(study, schema, other)
        all_asked = scope.answers == "all" or design.answers > questions
        found.append(other._replace(answers=questions if all_asked else design.answers))
    return found


def _asked(campaign: Campaign) -> int:
    return len(campaign.questions) or len(campaign.blocks)


def search(study: Study, scope: Scope, fleet: Fleet, step: Callable[[], None]) -> Ranking:
    """Rank designs by expected accuracy. ``step``: called :data:`STEPS` times, after each part of the work.

    Raises the error of the first design if no campaign is possible with any.
    """
    errors, left = pruned_designs(study, scope, fleet)
    running: dict[Design, Rehearsal] = {}
    for design in errors:
        try:
            running[design] = study.rehearsal(design, fleet)
        except HearsayError:  # a fold's records may be too few for a projection
            left.append(PrunedDesign(design, errors[design], 1.0))
    race(running, step)
    ordered = sorted(running, key=lambda design: -running[design].forecast().accuracy)
    first = running[ordered[0]]
    ranked = [
        RankedDesign(
            design,
            _asked(study.folds(design)[0].campaign),
            errors[design],
            running[design].forecast(),
            *behind(first, running[design]),
            running[design].campaigns,
            study.plain(design),
        )
        for design in ordered
    ]
    return Ranking(tuple(ranked), tuple(left), unbiased(running, study.divisions))


def unbiased(running: Mapping[Design, Rehearsal], divisions: Sequence[tuple[Integers, Integers]]) -> Forecast:
    """Return the accuracy of the design that is best on all records but a fold's, on these, over all folds.

    The best of many estimates is too good on the records that it is the best on.
    """
    right = {design: one.by_record for design, one in running.items()}
    found, noise = np.full(len(next(iter(right.values()))), np.nan), 0.0
    for learned, tested in divisions:
        best = max(right, key=lambda design: float(np.nanmean(right[design][learned])))
        found[tested] = right[best][tested]
        noise += running[best].forecast().noise ** 2 / len(divisions)
    return Forecast.of(found, noise)
