"""Join the statistics of several sources on one schema into statistics of one population.

That all sources are samples of one population is the analyst's declaration; a test of homogeneity reports the evidence.
Campaigns of one series need none: their devices are drawn from one fleet. Source: decisions 53, 63.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isclose, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Law, Pairs
from aggregator.estimates.homogeneity import Homogeneity, homogeneity
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import QuestionEstimate, Right, Sample, SampleWeight
from aggregator.estimates.source import campaign_of
from aggregator.estimates.statistics import Statistics
from protocol.documents.asked import restricted, with_joins
from protocol.documents.campaign import EVALUATION, Campaign, Fit
from protocol.documents.payload import quoted
from protocol.errors import InputError
from protocol.questions import MOMENT, MOMENTS, Subject
from protocol.schema import Schema


class Join(NamedTuple):
    """The joined ``statistics``, and the test ``homogeneity``: do the sources look like samples of one population?"""

    statistics: Statistics
    homogeneity: Homogeneity


def join(
    parts: Sequence[Statistics],
    *,
    one_population: bool = False,
    disjoint: bool = False,
    fit: Fit | None = None,
    postprocess: str | None = None,
) -> Join:
    """Combine all estimates of the same shares or means, over several sources, and test homogeneity. For analysts.

        share = Σ_j w_j s_j,  w_j ∝ 1/v_j;   of n·share: noise variance Σ_j a_j² (noise variance of j),
        devices_scatter n Σ_j w_j² D_j/n_j,   concentration (Σ_j w_j √c_j)², or Σ_j w_j² c_j for disjoint sources

    s_j: source j's estimate; v_j: its planned variance, which no answer changes; n_j: its answers, n = Σ n_j, a_j = n
    w_j/n_j; D_j, c_j: its ``devices_scatter`` and concentration (``aggregator.estimates.recurrence``). Raises
    InputError: ``population_undeclared``, ``one_population`` is False; ``argument_invalid``, fewer than two statistics;
    ``schema_differs``, stated labels, features or projections differ (a campaign for nodes, or a shared one, may state
    some of the features only); ``groups_differ``, two statistics ask about one feature's values in different groups;
    ``source_repeated``, two statistics contain the same campaign; ``fit_differs``, the campaigns say different fits and
    ``fit`` is None (``postprocess`` does not help if their families differ); ``not_joinable``, the campaigns evaluate
    different models, or a mechanism states no variance.

    Args:
        parts: at least two statistics, each of one source or of joined sources.
        one_population: the analyst's declaration that all sources are samples of one population; not needed for
            campaigns of one series.
        disjoint: True if no device answered in two sources. Taken as True if all campaigns are of one series.
        fit: how a model is made from the estimates; by default as all campaigns say.
        postprocess: name of a post-processing that replaces those of the campaigns, which may then differ; not
            together with ``fit``. The variance floor is then the largest of the campaigns' floors.
    """
    in_series = of_one_series(parts)
    _check(parts, one_population=one_population or in_series)
    disjoint = disjoint or in_series
    schema, parts = _aligned(parts)
    parts = of_one_form(parts)
    fits = [part.fit for part in parts]
    if postprocess is not None:
        floor = max(each.variance_floor_micro for each in fits)
        fits = [each._replace(postprocess=postprocess, variance_floor_micro=floor) for each in fits]
    if fit is None and any(one != fits[0] for one in fits):
        raise InputError(
            "fit_differs",
            "the campaigns differ in how a model is made; say --postprocess; families must agree",
        )
    asked = _asked(parts, disjoint=disjoint)
    found = tuple(joined_question(each, disjoint=disjoint) for each in asked.values())
    sources = tuple(source for part in parts for source in part.sources)
    tested = homogeneity(list(asked.values()), schema, len(parts))
    return Join(Statistics(schema, fits[0] if fit is None else fit, found, sources, tested), tested)


def joined_questions(parts: Sequence[Statistics], *, disjoint: bool) -> tuple[QuestionEstimate, ...]:
    """Return the joined estimates of statistics on one schema, in one form of questions, without any check."""
    return tuple(joined_question(each, disjoint=disjoint) for each in _asked(parts, disjoint=disjoint).values())


def _asked(parts: Sequence[Statistics], *, disjoint: bool) -> dict[Subject, list[QuestionEstimate]]:
    found: dict[Subject, list[QuestionEstimate]] = {}
    for part in _apart(parts, disjoint=disjoint):
        for subject, questions in _by_subject(part.questions).items():
            # Several questions of one campaign may be about one subject. The same devices answer them: never disjoint.
            found.setdefault(subject, []).append(joined_question(questions, disjoint=False))
    return found


def of_one_series(parts: Sequence[Statistics]) -> bool:
    """Return whether all campaigns belong to one series. An honest device then answered in one of them at most."""
    found = [None if source.campaign is None else source.campaign.series for part in parts for source in part.sources]
    return None not in found and len({series.name for series in found if series is not None}) == 1


def _aligned(parts: Sequence[Statistics]) -> tuple[Schema, list[Statistics]]:
    """Return the schema of all features that any of the statistics is about, and the statistics on that schema."""
    groups: dict[str, tuple[int, ...] | None] = {}
    asked: set[tuple[str, ...]] = set()
    for part in parts:
        single = part.schema.ungrouped
        asked |= {tuple(single[index].name for index in each) for each in part.schema.parts}
        for feature, group in zip(single, part.schema.groups or (None,) * len(single), strict=True):
            if groups.setdefault(feature.name, group) != group:
                raise InputError(
                    "groups_differ",
                    f"the campaigns ask about the values of {quoted(feature.name)} in different groups; join those "
                    "that ask in the same groups",
                )
    stated = _widest(parts)
    names = [feature.name for feature in stated.observed]
    grouped = tuple(groups.get(name) for name in names)
    whole = stated._replace(groups=grouped if any(group is not None for group in grouped) else ())
    whole = with_joins(whole, sorted(tuple(map(names.index, each)) for each in asked if len(each) > 1))
    schema = restricted(
        whole, [place for place, part in enumerate(whole.parts) if tuple(names[index] for index in part) in asked]
    )
    places = {feature.name: place for place, feature in enumerate(schema.observed)}
    return schema, [_about(part, schema, places) for part in parts]


def _about(part: Statistics, schema: Schema, places: Mapping[str, int]) -> Statistics:
    """Return the statistics on ``schema``; ``places``: a feature's name → its index in ``schema.observed``."""
    names = [feature.name for feature in part.schema.observed]
    moved = tuple(
        one
        if one.subject.feature is None
        else replace(one, subject=one.subject._replace(feature=places[names[one.subject.feature]]))
        for one in part.questions
    )
    return replace(part, schema=schema, questions=moved)


def _check(parts: Sequence[Statistics], *, one_population: bool) -> None:
    if len(parts) < 2:
        raise InputError("argument_invalid", f"a join has at least two parts, not {len(parts)}")
    sources = [source for part in parts for source in part.sources]
    campaigns = [source.campaign for source in sources if source.campaign is not None] or [campaign_of(sources[0])]
    widest = _widest(parts)
    if not all(_fits(campaign, widest) for campaign in campaigns):
        raise InputError(
            "schema_differs",
            "sources are joined on one schema, of which nodes and shared campaigns may state a part; these differ",
        )
    if not one_population:
        raise InputError(
            "population_undeclared",
            "sources are joined if they are of one series, or if the analyst declares them samples of one population: "
            "--one-population (one_population=True)",
        )
    marks = [mark for source in sources for mark in source.marks]
    if len(set(marks)) < len(marks):
        raise InputError(
            "source_repeated",
            "a campaign's reports are counted in one store, which takes none twice; ingest them there. Records are "
            "counted in one file, and files of different records have different names",
        )
    evaluated = [
        part.fit.family == EVALUATION and source.campaign and source.campaign.evaluated
        for part in parts
        for source in part.sources
        if source.campaign is not None
    ]
    if len(set(evaluated)) > 1:
        raise InputError("not_joinable", "the campaigns evaluate different models, or one of them none")


def _widest(parts: Sequence[Statistics]) -> Schema:
    """Return the stated schema of that campaign which has the most observed features; of several, of the first."""
    return max(
        (each.campaign.stated for part in parts for each in part.sources if each.campaign is not None),
        key=lambda one: len(one.observed),
    )


def _fits(campaign: Campaign, widest: Schema) -> bool:
    """Return whether a campaign states the schema ``widest``, or a part that nodes sum or two collectors ask about."""
    label, features, projection = _described(campaign.stated)
    all_label, all_features, all_projection = _described(widest)
    if campaign.nodes is None and campaign.shared is None:
        return (label, features, projection) == (all_label, all_features, all_projection)
    names = {feature.name for feature in widest.observed}
    return (
        label == all_label
        and all(feature in all_features for feature in features)
        and projection in (None, all_projection)
        and all(feature.name in names for feature in campaign.stated.observed)
    )


def _described(schema: Schema) -> tuple[object, list[object], object]:
    """Return label, features and projection of a schema as values that ``==`` compares."""
    projection = schema.projection
    features: list[object] = [feature.to_dict() for feature in schema.features]
    return schema.label.to_dict(), features, projection and projection.to_dict()


def _apart(parts: Sequence[Statistics], *, disjoint: bool) -> list[Statistics]:
    """Return the statistics with stratum indices that differ between sources; if ``disjoint``, device sets too."""
    found = []
    strata = people = 0
    for part in parts:
        samples = [vote.sample for question in part.questions for vote in question.classes]
        samples += [weighted.sample for question in part.questions for weighted in question.samples]
        shift = (strata, people if disjoint else None)
        moved = tuple(_shifted(one, *shift) for one in part.questions)
        found.append(replace(part, questions=moved))
        strata += 1 + max((sample.stratum for sample in samples), default=0)
        people += 1 + max((sample.people for sample in samples), default=0)
    return found


def _shifted(one: QuestionEstimate, strata: int, people: int | None) -> QuestionEstimate:
    """Return the estimate with ``strata`` added to stratum indices, ``people`` to device set indices (None: all 0)."""

    def of(sample: Sample) -> Sample:
        own = 0 if people is None else sample.people + people
        return sample._replace(people=own, stratum=sample.stratum + strata)

    votes = tuple(vote._replace(sample=of(vote.sample)) for vote in one.classes)
    return replace(one, classes=votes, samples=tuple(part._replace(sample=of(part.sample)) for part in one.samples))


def _by_subject(questions: Iterable[QuestionEstimate]) -> dict[Subject, list[QuestionEstimate]]:
    found: dict[Subject, list[QuestionEstimate]] = {}
    for question in questions:
        found.setdefault(question.subject, []).append(question)
    return found


def of_one_form(parts: Sequence[Statistics]) -> list[Statistics]:
    """Return the statistics with all questions about moments in one form, so that a join finds equal questions.

    If ``parts``, of one schema, ask about a number in one class, in all classes, or about all numbers in different
    ways, each such question becomes one per number and class.
    """
    forms = {
        (one.subject.kind, one.subject.of_class is None)
        for part in parts
        for one in part.questions
        if one.subject.kind in (MOMENT, MOMENTS)
    }
    if len(forms) < 2:
        return list(parts)
    return [
        replace(part, questions=tuple(each for one in part.questions for each in _one_by_one(one, part)))
        for part in parts
    ]


def _one_by_one(one: QuestionEstimate, part: Statistics) -> list[QuestionEstimate]:
    """Return one estimate per number and class if the question is about moments of several; else the question."""
    subject = one.subject
    if subject.kind not in (MOMENT, MOMENTS) or subject.of_class is not None:
        return [one]
    classes = len(part.schema.label.classes)
    found = []
    for place in range(len(one.estimate)):
        feature = part.schema.numeric[place // classes] if subject.feature is None else subject.feature
        found.append(_of_one_number(one, place, feature, place % classes))
    return found


def _of_one_number(one: QuestionEstimate, place: int, feature: int, of_class: int) -> QuestionEstimate:
    """Return entry ``place`` of an estimate as one of its own, without the law, which is about all entries."""
    cell = slice(place, place + 1)
    return replace(
        one,
        subject=Subject(MOMENT, feature, 1, one.subject.power, of_class),
        estimate=one.estimate[cell],
        noise_variance=one.noise_variance[cell],
        spread=one.spread[cell],
        interval=Interval(one.interval.low[cell], one.interval.high[cell]),
        devices_interval=Interval(one.devices_interval.low[cell], one.devices_interval.high[cell]),
        law=None,
        pairs=None,
        is_binomial=False,
        adds_up=False,
    )


def joined_question(given: Sequence[QuestionEstimate], *, disjoint: bool) -> QuestionEstimate:
    """Return one estimate from several estimates of the same shares or means, by the formulas of :func:`join`.

    Estimates without answers are left out, unless none has any. ``disjoint``: no device answered for two of them.
    Raises InputError ``not_joinable``: a mechanism states no variance.
    """
    parts = [one for one in given if one.n] or given[:1]
    if len(parts) == 1:
        return parts[0]
    first, mix = parts[0], _Mix.of(parts)
    n, estimate, law = mix.n, mix.sum(one.estimate for one in parts), mix.law([one.law for one in parts])
    share = np.clip(estimate / n, 0, 1)
    if law is not None and first.is_share:
        noise = n * law.at(share)
    else:
        noise = _sum(factor**2 * one.noise_variance for factor, one in zip(mix.factors, parts, strict=True))
    means = _sum(w * one.spread for w, one in zip(mix.weights, parts, strict=True))
    chosen = sum(part * one.devices_scatter for part, one in zip(mix.per_answer, parts, strict=True))
    made = replace(
        first,
        n=n,
        estimate=estimate,
        noise_variance=noise,
        spread=np.asarray(share * (1 - share) if first.is_share else means, np.float64),
        devices_scatter=chosen,
        scatter=chosen + n * _concentration(mix.weights, parts, disjoint=disjoint),
        planned_variance=1 / sum(1 / one.planned_variance for one in parts),
        law=law,
        pairs=mix.pairs([one.pairs for one in parts]),
        is_binomial=mix.by_number and all(one.is_binomial and one.law == first.law for one in parts),
        adds_up=all(one.adds_up for one in parts),
        samples=_all_samples(parts, mix.weights),
        classes=tuple(vote for one in parts for vote in one.classes),
        right=mix.right([one.right for one in parts]),
        kurtosis=_kurtosis(parts, mix.factors),
        noisy_n=None if all(one.noisy_n is None for one in parts) else sum(one.stated_n for one in parts),
        parts=tuple(each for one in parts for each in one.parts or (one,)),
    )
    return made.with_intervals() if all(one.has_interval for one in parts) else made.without_interval()


class _Mix(NamedTuple):
    """How the estimates of several sources are added; the letters are those of :func:`join`.

    ``factors``: a_j; ``per_answer``: a_j² n_j/n, the factor of source j's noise variance of one answer; ``by_number``:
    whether the weights are proportional to n_j, so that the sum is the estimate from added counts.
    """

    n: int
    weights: list[float]
    factors: list[float]
    per_answer: list[float]
    by_number: bool

    @classmethod
    def of(cls, parts: Sequence[QuestionEstimate]) -> _Mix:
        n, weights = sum(one.n for one in parts), _weights(parts)
        pairs = list(zip(weights, parts, strict=True))
        by_number = all(isclose(w * n, one.n, rel_tol=1e-12) for w, one in pairs)
        factors = [1.0 if by_number else n * w / one.n for w, one in pairs]
        per_answer = [factor**2 * one.n / n for factor, one in zip(factors, parts, strict=True)]
        return cls(n, weights, factors, per_answer, by_number)

    def sum(self, estimates: Iterable[Floats]) -> Floats:
        return _sum(factor * one for factor, one in zip(self.factors, estimates, strict=True))

    def law(self, laws: Sequence[Law | None]) -> Law | None:
        """Return the law of the sum's noise, again linear in the share; None if a source has no law."""
        known = [law for law in laws if law is not None]
        if len(known) < len(laws):
            return None
        if all(law == known[0] for law in known) and isclose(sum(self.per_answer), 1, rel_tol=1e-12):
            return known[0]
        return Law(*self._ends(known))

    def pairs(self, found: Sequence[Pairs | None]) -> Pairs | None:
        """Return the covariances of the sum's noise; None if those of a source are not known."""
        known = [pairs for pairs in found if pairs is not None]
        return None if len(known) < len(found) else Pairs(*self._ends(known))

    def _ends(self, known: Sequence[tuple[float, float]]) -> list[float]:
        """Return ``at_zero`` and ``at_one`` of laws or covariances, added with the weights ``per_answer``."""
        return [sum(f * end for f, end in zip(self.per_answer, ends, strict=True)) for ends in zip(*known, strict=True)]

    def right(self, found: Sequence[Right | None]) -> Right | None:
        known = [right for right in found if right is not None]
        law = self.law([right.law for right in known]) if len(known) == len(found) else None
        return law and Right(sum(w * right.share for w, right in zip(self.weights, known, strict=True)), law)


def _weights(parts: Sequence[QuestionEstimate]) -> list[float]:
    """Return the weights w_j of :func:`join`: n_j/n if one answer has the same planned variance in all sources."""
    each = [one.planned_variance * one.n for one in parts]
    if not all(map(isfinite, each)):
        raise InputError("not_joinable", "a mechanism states no variance before its answers are seen")
    if all(isclose(one, each[0], rel_tol=1e-12) for one in each):
        total = sum(one.n for one in parts)
        return [one.n / total for one in parts]
    precision = [1 / one.planned_variance for one in parts]
    return [one / sum(precision) for one in precision]


def _sum(terms: Iterable[Floats]) -> Floats:
    return np.asarray(np.sum(list(terms), axis=0), np.float64)


def _all_samples(parts: Sequence[QuestionEstimate], weights: Sequence[float]) -> tuple[SampleWeight, ...]:
    """Return the samples of all sources, each with its weight in the source times the source's weight."""
    return tuple(
        SampleWeight(sample, w * weight)
        for w, part in zip(weights, parts, strict=True)
        for sample, weight in part.samples
    )


def _kurtosis(parts: Sequence[QuestionEstimate], factors: Sequence[float]) -> float:
    """Return the excess kurtosis of the noise of ``parts``, times ``factors`` and added; the largest of all entries."""
    if not any(one.kurtosis for one in parts):
        return 0.0
    pairs = list(zip(parts, factors, strict=True))
    total = _sum(factor**2 * one.noise_variance for one, factor in pairs) ** 2
    fourth = _sum(factor**4 * one.noise_variance**2 * one.kurtosis for one, factor in pairs)
    return float(np.divide(fourth, total, out=np.zeros_like(total), where=total > 0).max())


def _concentration(weights: Sequence[float], parts: Sequence[QuestionEstimate], *, disjoint: bool) -> float:
    """Return how concentrated the joined answers are on few devices: c of :func:`join`, at most."""
    each = [max(one.scatter - one.devices_scatter, 0.0) / one.n for one in parts]
    if disjoint:
        return sum(w**2 * c for w, c in zip(weights, each, strict=True))
    return sum(w * sqrt(c) for w, c in zip(weights, each, strict=True)) ** 2


def of_features(statistics: Statistics, names: Collection[str]) -> Statistics:
    """Return the statistics of the observed features ``names`` and of the classes, for a model of these features only.

    Questions about other features still count in the classes' shares. Raises InputError ``ask_invalid``: no name, or an
    unknown one; ``not_fittable``: a question is about several features at once.
    """
    observed = [feature.name for feature in statistics.schema.observed]
    unknown = sorted(set(names) - set(observed))
    if not names or unknown:
        what = f"no answers are about the feature {quoted(unknown[0])}" if unknown else "name at least one feature"
        raise InputError("ask_invalid", what)
    places = [place for place, name in enumerate(observed) if name in names]
    moved = {place: index for index, place in enumerate(places)}
    if any(one.subject.feature is None and one.subject.power is not None for one in statistics.questions):
        raise InputError("not_fittable", "a question is about all numbers at once; its features can not be parted")
    kept: list[QuestionEstimate] = []
    votes = []
    for one in statistics.questions:
        feature = one.subject.feature
        if feature is None or feature in moved:
            place = None if feature is None else moved[feature]
            kept.append(replace(one, subject=one.subject._replace(feature=place)))
        else:
            votes += list(one.classes)
    kept[0] = replace(kept[0], classes=(*kept[0].classes, *votes))
    return replace(statistics, schema=restricted(statistics.schema, places), questions=tuple(kept))
