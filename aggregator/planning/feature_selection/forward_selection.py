"""Choose a campaign's features, groups and bins from a pilot, by the accuracy that N devices will give.

For m features, the answers of N devices at ε are simulated from the pilot's records outside a fold, and the fitted
tables classify the fold. The whole selection is repeated without each fold, since the best of many sets is too good on
the records that chose it. Source: decision 66.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.collectors.draws import SharedNoise
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.source import Origin
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import Curator, NoisySum, of_sums
from aggregator.models.encoding import MISSING, EncodedFrame, combined
from aggregator.models.population import Population
from aggregator.models.postprocess.methods import DEFAULT
from aggregator.models.postprocess.posterior import posterior_prior, posterior_tables
from aggregator.models.scoring import rows_of
from aggregator.planning.feature_selection.codings import AS_STATED, Cut, Way, cut, ways
from aggregator.planning.power_analysis.rehearsal import Fleet, simulated
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.draws import count_law
from protocol.documents.asked import MOST_JOINED
from protocol.documents.campaign import DISCRETE, Fit, parse_campaign
from protocol.features import Categorical, Joined
from protocol.questions import CELL, Subject
from protocol.schema import Label, Schema, build_schema

Flags = NDArray[np.bool_]
Scoring = Callable[[int, np.random.Generator], "Scores"]
"""Function that makes a model from this number of questions, and returns its scores of a part's test records."""
Tabling = Callable[[int, np.random.Generator], tuple[Floats, Sequence[Floats]]]
"""Function that simulates answers to this number of questions, and returns P(class) and P(value | class) per way."""
Tabled = Callable[["Part"], Scoring]


FOLDS = 5
DRAWS = 2
"""Simulated campaigns for each division of the records into folds."""
MOST_FEATURES = 10
MOST_CELLS = 1024
"""Most combinations of values and classes of a join that is tried."""
LEAST_TO_JOIN = 80
"""Fewest records from which joins are tried: four fifths of 100, the smallest pilot with which they were measured."""
CLEARLY = 0.5
PATIENCE = 2
"""The selection ends after this many sets in a row that are not better than a smaller one."""
_NOW = 1_900_000_000
"""Time in the header of a campaign that nobody signs."""


class Part(NamedTuple):
    """Records to learn from and records to test on, with the ways to ask about features.

    ``cuts``: with groups or edges from the records to learn from; ``learned``: codes of these, (learned, ways) int64;
    ``tested``: codes of the test records, (tested, ways), -1 for a missing value; ``rows``: their indices in the pilot,
    and ``truth``, their classes or -1: (tested,) int64; ``joined``: what a way joins, or None for one alone.
    """

    cuts: tuple[Cut, ...]
    learned: Integers
    learned_labels: Integers
    tested: Integers
    rows: Integers
    truth: Integers
    classes: tuple[str, ...]
    joined: tuple[Joined | None, ...] = ()

    def merged(self, blocks: Sequence[Sequence[int]]) -> Part:
        """Return the part with one way for each block of indices in ``cuts``: that way, or the join of several."""
        schema = _of_codes(self.classes, [each.size for each in self.cuts])._replace(asked_as=tuple(map(tuple, blocks)))
        learned, tested = (combined(EncodedFrame(codes, codes), schema).codes for codes in (self.learned, self.tested))
        cuts = tuple(
            self.cuts[block[0]]._replace(size=one.size) for block, one in zip(blocks, schema.observed, strict=True)
        )
        joined = tuple(one if isinstance(one, Joined) else None for one in schema.observed)
        return self._replace(cuts=cuts, learned=learned, tested=tested, joined=joined)


class Scores(NamedTuple):
    """Logarithms of one model's probabilities, whose sum over a set of features classifies the test records.

    ``prior``: shape (k,) float64, log P(class). ``terms``: shape (tested, ways, k) float64, log P(value | class) of
    each way; 0 for a missing value.
    """

    prior: Floats
    terms: Floats


class Candidate(NamedTuple):
    """Ways to ask about features, and ``right``: (records,), how often its models are right about each record.

    ``joins``: indices in ``ways`` of those that are asked about as one, for each join.
    """

    ways: tuple[Way, ...]
    right: Floats
    joins: tuple[tuple[int, ...], ...] = ()

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Indices in ``ways`` of what each question is about: one, or several that are joined."""
        return (*((place,) for place in range(len(self.ways)) if not any(place in join for join in self.joins)),
                *self.joins)  # fmt: skip

    @property
    def accuracy(self) -> float:
        """Mean of :attr:`right` over the records."""
        return float(np.nanmean(self.right))

    @property
    def error(self) -> float:
        """Standard error of the accuracy over the choice of the pilot's records."""
        return mean_error(self.right)


def mean_error(values: Floats) -> float:
    """Return the standard error of the mean of the finite values; ``values``: shape (records,) float64."""
    known = values[np.isfinite(values)]
    return float(known.std()) / sqrt(len(known))


def select(
    records: Population, schema: Schema, rows: Integers, tabled: Tabled, draws: int, rng: np.random.Generator
) -> list[Candidate]:
    """Return the path of the forward selection: the best set of each number of features, then all features as stated.

    Then come sets of the path with some of their features joined (:class:`_Joining`). ``rows``: (n,) int64, the records
    that the selection may see. ``tabled``: makes models of a part's records (:func:`fleet_scores`,
    :func:`plain_scores`). ``draws``: number of models per fold.
    """
    known = usable_ways(records, schema, rows)
    parts = [part_of(records, schema, known, *division) for division in divisions(records, rows, rng)]
    models = [(part, tabled(part)) for part in parts]
    path: list[Candidate] = []
    chosen: list[int] = []
    stated = [place for place, way in enumerate(known) if way.kind == AS_STATED]
    while len(chosen) < min(MOST_FEATURES, len(stated)) and not _stalled(path):
        judge = _Judge(models, len(chosen) + 1, draws, len(records.labels), rng)
        best = int(_others(judge, known, chosen).argmax())
        chosen = _exchanged(judge, known, [*chosen, best])
        path.append(Candidate(tuple(known[place] for place in chosen), judge.right(chosen)))
    if not path or set(chosen) != set(stated):
        judge = _Judge(models, len(stated), draws, len(records.labels), rng)
        path.append(Candidate(tuple(known[place] for place in stated), judge.right(stated)))

    sizes = [max(part.cuts[place].size for part, _ in models) for place in range(len(known))]
    joining = _Joining([part for part, _ in models], known, sizes, tabled, draws, rng)
    if len(rows) < LEAST_TO_JOIN:
        return path
    starts = {each.ways: each for each in (path[-1], max(path, key=lambda each: each.accuracy), best_of(path))}
    return [*path, *(joined for start in starts.values() for joined in joining.from_set(start, len(records.labels)))]


def best_of(path: Sequence[Candidate]) -> Candidate:
    """Return the smallest set that is at most a standard error of the difference worse than the most accurate set.

    This is so among the sets without joins. The most accurate set with joins is chosen if it is better than all of
    these by :data:`CLEARLY` standard errors of the difference.
    """
    alone = [each for each in path if not each.joins]
    best, most = (max(part, key=lambda each: each.accuracy) for part in (alone, path))
    if most.accuracy - best.accuracy > CLEARLY * mean_error(most.right - best.right):
        return most
    enough = [each for each in alone if best.accuracy - each.accuracy <= mean_error(best.right - each.right)]
    return min(enough, key=lambda each: (len(each.ways), -each.accuracy))


class _Joining(NamedTuple):
    """Joins ways to ask; the attributes are those of :func:`select`, ``sizes``: most codes of each way in ``known``."""

    parts: Sequence[Part]
    known: Sequence[Way]
    sizes: Sequence[int]
    tabled: Tabled
    draws: int
    rng: np.random.Generator

    def from_set(self, start: Candidate, records: int) -> list[Candidate]:
        """Return sets made of ``start`` step by step: the best of joining two of its ways, or leaving out one.

        The steps end where the next set is not more accurate. Sets without a join are left out.
        """
        best, found = start.accuracy, list[Candidate]()
        blocks: list[tuple[int, ...]] = [(self.known.index(way),) for way in start.ways]
        while len(start.ways) <= MOST_FEATURES and (moves := self._moves(blocks)):
            union = sorted({block for move in moves for block in move})
            models = [(merged, self.tabled(merged)) for merged in (part.merged(union) for part in self.parts)]
            judge = _Judge(models, len(blocks) - 1, self.draws, records, self.rng)
            right = [judge.right([union.index(block) for block in move]) for move in moves]
            top = int(np.argmax([np.nanmean(each) for each in right]))
            if not np.nanmean(right[top]) > best:
                break
            best, blocks = float(np.nanmean(right[top])), moves[top]
            places = [place for block in blocks for place in block]
            joins = tuple(tuple(map(places.index, block)) for block in blocks if len(block) > 1)
            if joins:
                found.append(Candidate(tuple(self.known[place] for place in places), right[top], joins))
        return found

    def _moves(self, blocks: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
        """Return the sets of blocks with two of them joined, in the order of their features, and with one less."""
        most = MOST_CELLS // len(self.parts[0].classes)
        found = [[each for each in blocks if each != one] for one in blocks] if len(blocks) > 1 else []
        for one, other in combinations(blocks, 2):
            block = tuple(sorted((*one, *other), key=lambda place: self.known[place].feature))
            if len(block) <= MOST_JOINED and prod(self.sizes[place] for place in block) <= most:
                found.append([*(each for each in blocks if each not in (one, other)), block])
        return found


def _stalled(path: Sequence[Candidate]) -> bool:
    if len(path) <= PATIENCE:
        return False
    before = max(each.accuracy for each in path[:-PATIENCE])
    return all(each.accuracy <= before for each in path[-PATIENCE:])


def usable_ways(records: Population, schema: Schema, rows: Integers) -> list[Way]:
    """Return all ways to ask about features that the records ``rows``, (n,) int64, allow; at least one per feature."""
    found = []
    for feature in range(len(schema.observed)):
        columns = (records.reported.codes[rows, feature], records.reported.numbers[rows, feature])
        found += [way for way in ways(schema, feature) if cut(way, schema, *columns, records.labels[rows]) is not None]
    return found


def divisions(records: Population, rows: Integers, rng: np.random.Generator) -> list[tuple[Integers, Integers]]:
    """Return for each fold the indices of the records to learn from and to test on; classes are spread evenly."""
    order = rows[np.lexsort((rng.permutation(len(rows)), records.truth[rows]))]
    return [(np.sort(np.delete(order, np.s_[fold::FOLDS])), order[fold::FOLDS]) for fold in range(FOLDS)]


def part_of(records: Population, schema: Schema, known: Iterable[Way], learned: Integers, tested: Integers) -> Part:
    """Return the part with these records; groups and edges are from ``learned``. A way without these asks as stated."""
    cuts = []
    for way in known:
        columns = (records.reported.codes[learned, way.feature], records.reported.numbers[learned, way.feature])
        found = cut(way, schema, *columns, records.labels[learned])
        cuts.append(found or Cut(way, schema.observed[way.feature].size))
    reported, scored = (
        np.column_stack([each.codes(part.codes[rows, each.way.feature], part.numbers[rows, each.way.feature])
                         for each in cuts])
        for part, rows in ((records.reported, learned), (records.scored, tested))
    )  # fmt: skip
    names = schema.label.classes
    return Part(tuple(cuts), reported, records.labels[learned], scored, tested, records.truth[tested], names)


def fleet_scores(devices: int, epsilon_micro: int) -> Tabled:
    """Return the ``tabled`` of :func:`select` for models from a fleet's simulated answers, one of each device."""

    def prepared(part: Part) -> Scoring:
        weights = np.full(len(part.learned), 1 / len(part.learned))
        inputs = part.learned * len(part.classes) + part.learned_labels[:, None]
        populations = [(column, weights) for column in inputs.T]
        tables = fleet_tables(devices, epsilon_micro, part.classes, [each.size for each in part.cuts], populations)
        return lambda number, rng: scores_of(part, *tables(number, rng))

    return prepared


def fleet_tables(
    devices: int,
    epsilon_micro: int,
    classes: Sequence[str],
    sizes: Sequence[int],
    populations: Sequence[tuple[Integers, Floats]],
) -> Tabling:
    """Return a function that simulates a campaign of m questions, and returns the model made from its answers.

    ``sizes``: number of values of each way to ask; ``populations``: for each the inputs value·k + class, (N,) int64,
    and their shares, (N,) float64. The function maps m and a source of randomness to P(class), (k,) float64, and for
    each way to ask, with A values, P(value | class), (A, k) float64.
    """
    schema = _of_codes(classes, sizes)
    parameters = CampaignParameters("design", epsilon_micro, "auto", class_question=False)
    campaign = parse_campaign(build_campaign(schema, parameters, 1, _NOW))
    pairs = zip(campaign.questions, populations, strict=True)
    laws = [count_law(question.mechanism, *population) for question, population in pairs]

    def tables(number: int, rng: np.random.Generator) -> tuple[Floats, Sequence[Floats]]:
        # All ways are asked about at once, each by as many devices as one of ``number`` questions gets.
        return _fitted(simulated(campaign, laws, Fleet(max(1, devices * len(laws) // number)), rng), number)

    return tables


def shared_scores(devices: int, noise: SharedNoise) -> Tabled:
    """Return the ``tabled`` of :func:`select` for totals of two collectors, with their noise in every cell."""

    def prepared(part: Part) -> Scoring:
        classes = len(part.classes)
        schema = _of_codes(part.classes, [each.size for each in part.cuts])
        inputs = part.learned * classes + part.learned_labels[:, None]
        equal = np.full(len(inputs), 1 / len(inputs))

        def scoring(number: int, rng: np.random.Generator) -> Scores:
            held = rng.multinomial(devices, equal)
            variance, sums = noise.variance(number), []
            for place, each in enumerate(part.cuts):
                subject = Subject(CELL, place, classes * each.size)
                exact = np.bincount(inputs[:, place], held, subject.size)
                total = (exact + noise.draw(number, subject.size, rng)).astype(np.float64)
                sums.append(NoisySum(subject, total, np.full(subject.size, variance), ()))
            source = Curator(Origin(b"", "design", "design"), devices, (), {})
            found = of_sums(sums, schema, Fit(DISCRETE, DEFAULT), source, is_counted=True)
            return scores_of(part, *_fitted(found, number))

        return scoring

    return prepared


def _of_codes(classes: Sequence[str], sizes: Sequence[int]) -> Schema:
    """Return a schema with one feature for each way to ask, of so many values."""
    features = [
        Categorical(str(place), [str(code) for code in range(size)], substitute=0) for place, size in enumerate(sizes)
    ]
    return build_schema(Label("class", list(classes)), features)


def _fitted(statistics: Statistics, number: int) -> tuple[Floats, Sequence[Floats]]:
    """Return P(class) and P(value | class) of all ways, as a model of ``number`` of them has them."""
    found = posterior_tables(statistics, range(len(statistics.questions)), number)
    prior = posterior_prior(replace(statistics, questions=statistics.questions[:number]))
    return prior, found.likelihood


def plain_scores(part: Part) -> Scoring:
    """Return a function that gives the scores of Naive Bayes on a part's plain records; it ignores its arguments."""
    classes = len(part.classes)
    prior = np.bincount(part.learned_labels, minlength=classes) + 1.0
    tables = []
    for place, each in enumerate(part.cuts):
        cells = np.bincount(part.learned[:, place] * classes + part.learned_labels, minlength=classes * each.size)
        joint = cells.reshape(each.size, classes) + 1.0
        tables.append(joint / joint.sum(axis=0))
    found = scores_of(part, prior / prior.sum(), tables)
    return lambda _number, _rng: found


def scores_of(part: Part, prior: Floats, tables: Sequence[Floats]) -> Scores:
    """Return the logarithms of a model's probabilities for the test records of a part."""
    terms = np.zeros((*part.tested.shape, len(part.classes)))
    for place, table in enumerate(tables):
        codes = part.tested[:, place]
        joined = part.joined[place] if part.joined else None
        terms[codes != MISSING, place] = rows_of(np.log(table), joined, codes[codes != MISSING])
    return Scores(np.log(prior), terms)


class _Judge:
    def __init__(
        self, models: Sequence[tuple[Part, Scoring]], size: int, draws: int, records: int, rng: np.random.Generator
    ) -> None:
        self._records = records
        self._models = [(part, scoring(size, rng)) for part, scoring in models for _ in range(draws)]

    def right(self, places: Sequence[int]) -> Floats:
        """Return how often models of the ways ``places`` are right about each record: (records,); NaN if not known."""
        total, times = np.zeros(self._records), np.zeros(self._records)
        for part, scores in self._models:
            guess = (scores.prior + scores.terms[:, places].sum(axis=1)).argmax(axis=1)
            known = part.truth != MISSING
            total[part.rows[known]] += (guess == part.truth)[known]
            times[part.rows[known]] += 1
        with np.errstate(invalid="ignore"):
            return np.asarray(total / times)

    def with_each(self, places: Sequence[int]) -> Floats:
        """Return the accuracy with the ways ``places`` and one more, for every way: shape (ways,) float64."""
        total, count = 0.0, 0
        for part, scores in self._models:
            known = part.truth != MISSING
            base = scores.prior + scores.terms[:, places].sum(axis=1)
            guess = (base[:, None] + scores.terms).argmax(axis=2)
            total = total + (guess == part.truth[:, None])[known].sum(axis=0)
            count += int(known.sum())
        return np.asarray(total / count)


def _others(judge: _Judge, known: Sequence[Way], chosen: Sequence[int]) -> Floats:
    """Return the accuracy of ``chosen`` with each way added, (ways,) float64; −1 if the way's feature is chosen."""
    features = {known[place].feature for place in chosen}
    found = judge.with_each(chosen)
    found[[place for place, way in enumerate(known) if way.feature in features]] = -1
    return found


def _exchanged(judge: _Judge, known: Sequence[Way], chosen: list[int]) -> list[int]:
    """Return ``chosen`` after replacing each way but the last by a better one, if there is one; each is tried once."""
    best = float(np.nanmean(judge.right(chosen)))
    for place in range(len(chosen) - 1):
        rest = [each for number, each in enumerate(chosen) if number != place]
        found = _others(judge, known, rest)
        if found.max() > best + 1e-9:
            best, chosen = float(found.max()), [*chosen[:place], int(found.argmax()), *chosen[place + 1 :]]
    return chosen
