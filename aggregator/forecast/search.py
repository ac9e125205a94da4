"""The search for the best design: pruning by closed-form standard errors, then rehearsals in rounds.

Designs with the same coding estimate the same statistics, so of their mechanisms and numbers of answers those with the
least standard error are enough. Designs with different codings can only be compared by their expected accuracy. All
are rehearsed a few times; in each later round the designs that are clearly worse than the best one are left out.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.forecast.designs import Design, with_bins
from aggregator.forecast.precision import precisions, typical_error
from aggregator.planning.choice import AUTO, forms
from aggregator.planning.expected import APPROACHES
from aggregator.publishing.campaigns import campaign_subjects, parse_answers
from protocol import mechanisms
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.errors import HearsayError, InputError
from protocol.features import Numeric
from protocol.mechanisms import ValueMechanism

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator.forecast.rehearsal import Fleet, Forecast, Rehearsal
    from aggregator.forecast.study import Study
    from protocol.schema import Schema

BINS = (2, 3, 4, 6, 8)
COMPONENTS = (1, 2, 4, 8)
NEARLY = 2.0
"""Designs with at most this multiple of the least standard error of their coding are rehearsed."""
PER_FAMILY = 3
"""Most rehearsed designs of a family's first coding; of its other codings one design is rehearsed."""
ROUNDS = ((1, 10), (2, 5), (4, 3))
"""Rounds: (rehearsals per fold, most designs in the next round)."""
LAST_ROUND = 8
MARGIN = 0.01


class Scope(NamedTuple):
    """The choices that the search may make. A value other than ``auto`` is fixed.

    Attributes:
        family: ``discrete``, ``gaussian`` or ``auto``.
        mechanism: name of a mechanism, or ``auto``.
        answers: ``one``, ``all``, a number, or ``auto`` for one, all and the number of ``hearsay campaign``'s rule.
        coding: ``auto`` for bins and reductions, ``schema`` for the schema as it is.
    """

    family: str = AUTO
    mechanism: str = AUTO
    answers: str = AUTO
    coding: str = AUTO


class Ranked(NamedTuple):
    """One design with its expected accuracy.

    Attributes:
        design: the design.
        questions: number of questions of the campaign.
        error: typical standard error of its statistics, the root of their mean variance.
        forecast: the expected accuracy.
        behind: the first design's accuracy minus this one's, on the same records; 0 for the first.
        behind_error: standard error of ``behind``.
        campaigns: number of simulated campaigns.
        plain: accuracy without privacy and with endless devices.
    """

    design: Design
    questions: int
    error: float
    forecast: Forecast
    behind: float
    behind_error: float
    campaigns: int
    plain: float


class Pruned(NamedTuple):
    """A design that was not rehearsed: its ``error`` is ``ratio`` times the least one of the same coding."""

    design: Design
    error: float
    ratio: float


class Found(NamedTuple):
    """The result of a search: rehearsed designs, the best first; designs that were not rehearsed."""

    ranked: tuple[Ranked, ...]
    pruned: tuple[Pruned, ...]


def codings(schema: Schema, scope: Scope, *, has_pilot: bool) -> list[tuple[str, int | None, str]]:
    """Family, bins and reduction of all designs that the search looks at; reductions only with a pilot.

    Raises:
        InputError: ``family_unknown``; ``no_numbers``: the family is gaussian, and the schema has no numeric feature;
            ``mechanism_unknown``: the family has no such mechanism.
    """
    if scope.family not in (AUTO, DISCRETE, GAUSSIAN):
        raise InputError("family_unknown", "a family is discrete, gaussian or auto")
    if scope.mechanism != AUTO and scope.mechanism not in mechanisms.names():
        raise InputError("mechanism_unknown", f"the mechanisms are {', '.join(mechanisms.names())}, or {AUTO}")
    families = [scope.family] if scope.family != AUTO else [DISCRETE, GAUSSIAN]
    if scope.mechanism != AUTO:
        fitting = GAUSSIAN if scope.mechanism in forms() else DISCRETE
        if fitting not in families:
            raise InputError("mechanism_unknown", f"the family {scope.family} has no mechanism {scope.mechanism}")
        families = [fitting]
    if GAUSSIAN in families and not schema.numeric:
        if len(families) == 1:
            raise InputError("no_numbers", "a Gaussian model needs a numeric feature; this schema has none")
        families.remove(GAUSSIAN)
    found: list[tuple[str, int | None, str]] = [(family, None, "none") for family in families]
    if scope.coding != AUTO or schema.projection is not None or schema.groups:
        return found
    numbers = sum(isinstance(feature, Numeric) for feature in schema.features)
    if DISCRETE in families and numbers:
        found += [(DISCRETE, bins, "none") for bins in BINS if not _has_bins(schema, bins)]
    if has_pilot and numbers > 1:
        counts = [count for count in COMPONENTS if count < numbers]
        reductions = [f"pca:{count}" for count in counts]
        reductions += [f"dca:{count}" for count in counts if count <= max(2, len(schema.label.classes) - 1)]
        found += [(family, None, reduction) for family in families for reduction in reductions]
    return found


def _has_bins(schema: Schema, bins: int) -> bool:
    """Whether all numeric features of a schema have ``bins`` bins of equal width."""
    pairs = zip(schema.features, with_bins(schema, bins).features, strict=True)
    return all(
        one.edges == other.edges for one, other in pairs if isinstance(one, Numeric) and isinstance(other, Numeric)
    )


def _alternatives(coding: tuple[str, int | None, str], schema: Schema, scope: Scope, micro: int) -> list[Design]:
    """All designs of one coding. ``schema``: of the coding."""
    family, bins, reduction = coding
    names = [scope.mechanism] if scope.mechanism != AUTO else list(forms()) if family == GAUSSIAN else _of_values()
    found = []
    for name in names:
        for approach in APPROACHES.get(name, (None,)) if family == GAUSSIAN else (None,):
            questions = len(campaign_subjects(schema, family, name, approach))
            wanted = ["one", AUTO, "all"] if scope.answers == AUTO else [scope.answers]
            numbers = dict.fromkeys(parse_answers(text, questions, micro) for text in wanted)
            found += [Design(family, name, answers, bins, reduction, approach) for answers in numbers]
    return found


def _of_values() -> list[str]:
    return [name for name in mechanisms.names() if issubclass(mechanisms.kind(name), ValueMechanism)]


def pruned_designs(study: Study, scope: Scope, fleet: Fleet) -> tuple[dict[Design, float], list[Pruned]]:
    """The designs to rehearse with their typical standard errors, and the designs that closed forms leave out.

    The mechanisms and numbers of answers of a family are compared at its first coding; at the other codings the
    two best ones are compared, and the better one is kept.

    Raises:
        InputError, DocumentError: no design makes a campaign; the first refusal.
    """
    kept: dict[Design, float] = {}
    left: list[Pruned] = []
    best: dict[str, list[Design]] = {}
    refused: HearsayError | None = None
    for coding in codings(study.schema, scope, has_pilot=study.pilot is not None):
        errors: dict[Design, float] = {}
        try:
            if coding[0] in best:
                known = best[coding[0]]
                tried = _like(known, coding, study, scope)
            else:
                tried = _alternatives(coding, study.schema, scope, study.epsilon_micro)
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
        least = errors[rising[0]]
        most = PER_FAMILY if coding[0] not in best else 1
        best.setdefault(coding[0], rising[:2])
        for place, design in enumerate(rising):
            if place < most and errors[design] <= NEARLY * least:
                kept[design] = errors[design]
            else:
                left.append(Pruned(design, errors[design], errors[design] / least))
    if not kept:
        assert refused is not None
        raise refused
    return kept, left


def _like(known: Sequence[Design], coding: tuple[str, int | None, str], study: Study, scope: Scope) -> list[Design]:
    """The mechanisms of these designs at another coding, with as many answers, or as few questions as it has."""
    family, bins, reduction = coding
    found = []
    for design in known:
        other = design._replace(bins=bins, reduction=reduction)
        schema = other.schema_of(study.schema, study.pilot)
        questions = len(campaign_subjects(schema, family, other.mechanism, other.approach))
        all_asked = scope.answers == "all" or design.answers > questions
        found.append(other._replace(answers=questions if all_asked else design.answers))
    return found


def search(study: Study, scope: Scope, fleet: Fleet, progress: Callable[[int, int], None] | None = None) -> Found:
    """Rank designs by expected accuracy.

    Args:
        study: the records.
        scope: the choices that may be made.
        fleet: devices and periods.
        progress: called with (finished steps, steps).

    Raises:
        InputError, DocumentError: no design makes a campaign.
    """
    errors, left = pruned_designs(study, scope, fleet)
    running: dict[Design, Rehearsal] = {}
    for design in errors:
        try:
            running[design] = study.rehearsal(design, fleet)
        except HearsayError:  # a fold's records may be too few for a projection
            left.append(Pruned(design, errors[design], 1.0))
    finished: dict[Design, Rehearsal] = dict(running)
    steps = len(ROUNDS) + 1
    for place, (times, most) in enumerate(ROUNDS):
        for rehearsal in running.values():
            rehearsal.run(times)
        if progress is not None:
            progress(place + 1, steps)
        running = _better(running, most)
    for rehearsal in running.values():
        rehearsal.run(LAST_ROUND)
    if progress is not None:
        progress(steps, steps)
    ordered = sorted(finished, key=lambda design: (design not in running, -finished[design].forecast().accuracy))
    first = finished[ordered[0]]
    ranked = [
        Ranked(
            design,
            len(study.folds(design)[0].campaign.questions),
            errors[design],
            finished[design].forecast(),
            *_behind(first, finished[design]),
            finished[design].campaigns,
            study.plain(design),
        )
        for design in ordered
    ]
    return Found(tuple(ranked), tuple(left))


def _better(running: dict[Design, Rehearsal], most: int) -> dict[Design, Rehearsal]:
    """The ``most`` best designs, without designs that are behind by two standard errors and more than one point."""
    rising = sorted(running, key=lambda design: -running[design].forecast().accuracy)
    first = running[rising[0]]
    kept = {}
    for design in rising[:most]:
        behind, error = _behind(first, running[design])
        if behind <= MARGIN + 2 * error:
            kept[design] = running[design]
    return kept


def _behind(first: Rehearsal, other: Rehearsal) -> tuple[float, float]:
    """The first rehearsal's accuracy minus the other's on the same records, and its standard error."""
    if first is other:
        return 0.0, 0.0
    away = first.by_record - other.by_record
    away = away[np.isfinite(away)]
    noise = first.forecast().noise ** 2 + other.forecast().noise ** 2
    return float(away.mean()), sqrt(float(away.var()) / len(away) + noise)
