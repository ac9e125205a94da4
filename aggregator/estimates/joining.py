"""Joining: statistics of several sources on one schema become statistics of one population.

Two campaigns may ask the same questions of two fleets, or of one fleet at two values of ε. The counts alone cannot
show that both sources are samples of one population. The analyst declares it, and a test of homogeneity reports the
evidence against the declaration.

The sources may ask about different features of one schema. Then a feature has the statistics of the sources that asked
about it, and the shares of the classes are those of all sources together. Campaigns of one series need no declaration:
their devices are drawn by chance from one fleet, and none answers twice.

Source: decisions 53, 63.
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
from protocol.document import quoted
from protocol.documents.asked import restricted
from protocol.documents.campaign import Campaign, Fit
from protocol.errors import InputError
from protocol.questions import MOMENT, MOMENTS, Subject
from protocol.schema import Schema


class Join(NamedTuple):
    """Result of a join.

    Attributes:
        statistics: the joined statistics.
        homogeneity: the test whether the sources look like samples of one population.
    """

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
    """Combine the statistics of several sources into one estimate per subject, and test homogeneity. For analysts.

        share = Σ_j w_j s_j      w_j ∝ 1/v_j, Σ_j w_j = 1

    s_j is source j's estimate of a share or mean, v_j its planned variance. v_j depends only on the mechanism and the
    number n_j of answers, so the weighted sum is unbiased. If one answer has the same planned variance in all sources,
    the weights are proportional to n_j, and the sum is the same as the estimate from added counts.
    With n = Σ n_j and a_j = n w_j/n_j, n·share has

        noise variance Σ_j a_j² (noise variance of j),   devices_scatter n Σ_j w_j² D_j/n_j,
        concentration c = (Σ_j w_j √c_j)²  or  c = Σ_j w_j² c_j

    where D_j is the ``devices_scatter`` of source j and c_j the concentration of its devices' answers
    (``aggregator.estimates.recurrence``). The first c is an upper bound, for devices that may answer in several
    sources. The second c is for disjoint sources.

    Args:
        parts: at least two statistics, each of one source or of joined sources.
        one_population: the analyst's declaration that all sources are samples of one population. Not needed if all
            campaigns are of one series.
        disjoint: True if no device answered in two sources. Always so if all campaigns are of one series.
        fit: how a model is made from the estimates; by default as all campaigns say.
        postprocess: name of the post-processing in place of the campaigns', which may then differ; not with ``fit``.
            The variance floor is then the largest of the campaigns': the one for the noisiest source.

    Returns statistics about the features that any source asked about, in the order of the stated schema, and the test.

    Raises:
        InputError: ``population_undeclared``, ``one_population`` is False; ``argument_invalid``, fewer than two
            parts; ``schema_differs``, stated labels, features or projections differ (a campaign for nodes may state
            some of the features only); ``groups_differ``, two parts ask
            about one feature in different groups; ``source_repeated``, two parts contain the same campaign;
            ``fit_differs``, the campaigns say different fits and none is given, or also different families;
            ``not_joinable``, the campaigns evaluate different models, or a mechanism states no variance.
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
    asked: dict[Subject, list[QuestionEstimate]] = {}
    for part in _apart(parts, disjoint=disjoint):
        for subject, questions in _by_subject(part.questions).items():
            # Several questions of one campaign may be about one subject. The same devices answer them: never disjoint.
            asked.setdefault(subject, []).append(joined_question(questions, disjoint=False))
    found = tuple(joined_question(each, disjoint=disjoint) for each in asked.values())
    sources = tuple(source for part in parts for source in part.sources)
    statistics = Statistics(schema, fits[0] if fit is None else fit, found, sources)
    return Join(statistics, homogeneity(list(asked.values()), schema, len(parts)))


def of_one_series(parts: Sequence[Statistics]) -> bool:
    """Whether all campaigns are of the series of one name. An honest device then answered in one of them at most."""
    found = [None if source.campaign is None else source.campaign.series for part in parts for source in part.sources]
    return None not in found and len({series.name for series in found if series is not None}) == 1


def _aligned(parts: Sequence[Statistics]) -> tuple[Schema, list[Statistics]]:
    """The schema of all features that some part is about, and the parts with questions about that schema."""
    groups: dict[str, tuple[int, ...] | None] = {}
    for part in parts:
        own = part.schema.groups or (None,) * len(part.schema.observed)
        for feature, group in zip(part.schema.observed, own, strict=True):
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
    schema = restricted(whole, [place for place, name in enumerate(names) if name in groups])
    places = {feature.name: place for place, feature in enumerate(schema.observed)}
    return schema, [_about(part, schema, places) for part in parts]


def _about(part: Statistics, schema: Schema, places: Mapping[str, int]) -> Statistics:
    """The part with its questions' features as indices in ``schema.observed``, by the names' ``places`` there."""
    names = [feature.name for feature in part.schema.observed]
    moved = tuple(
        one
        if one.subject.feature is None
        else replace(one, subject=one.subject._replace(feature=places[names[one.subject.feature]]))
        for one in part.questions
    )
    return replace(part, schema=schema, questions=moved)


def _check(parts: Sequence[Statistics], *, one_population: bool) -> None:
    """Refuse parts that cannot be joined."""
    if len(parts) < 2:
        raise InputError("argument_invalid", f"a join has at least two parts, not {len(parts)}")
    campaigns = [campaign_of(source) for part in parts for source in part.sources]
    widest = _widest(parts)
    if not all(_fits(campaign, widest) for campaign in campaigns):
        raise InputError(
            "schema_differs", "sources are joined on one schema, of which nodes may state a part; these have several"
        )
    if not one_population:
        raise InputError(
            "population_undeclared",
            "sources are joined if they are of one series, or if the analyst declares them samples of one population: "
            "--one-population (one_population=True)",
        )
    if len({campaign.id for campaign in campaigns}) < len(campaigns):
        raise InputError(
            "source_repeated",
            "a campaign's reports are counted in one store, which takes none twice; ingest them there",
        )
    if len({campaign.evaluated for campaign in campaigns}) > 1:
        raise InputError("not_joinable", "the campaigns evaluate different models, or one of them none")


def _widest(parts: Sequence[Statistics]) -> Schema:
    """The stated schema with the most features; of equally wide ones the first."""
    return max(
        (campaign_of(source).stated for part in parts for source in part.sources), key=lambda one: len(one.observed)
    )


def _fits(campaign: Campaign, widest: Schema) -> bool:
    """Whether a campaign states the schema ``widest``, or is for nodes and states a part of it.

    Nodes sum every stated feature, so a campaign for nodes states only what its nodes have; one for devices may ask
    less.
    """
    label, features, projection = _described(campaign.stated)
    all_label, all_features, all_projection = _described(widest)
    if campaign.nodes is None:
        return (label, features, projection) == (all_label, all_features, all_projection)
    names = {feature.name for feature in widest.observed}
    return (
        label == all_label
        and all(feature in all_features for feature in features)
        and projection in (None, all_projection)
        and all(feature.name in names for feature in campaign.stated.observed)
    )


def _described(schema: Schema) -> tuple[object, list[object], object]:
    """Label, features and projection of a schema as comparable values."""
    projection = schema.projection
    features: list[object] = [feature.to_dict() for feature in schema.features]
    return schema.label.to_dict(), features, projection and projection.to_dict()


def _apart(parts: Sequence[Statistics], *, disjoint: bool) -> list[Statistics]:
    """The parts with renumbered strata, so that no two parts share a stratum's number.

    If ``disjoint``, sets of devices are renumbered in the same way.
    """
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
    """The estimate with strata renumbered by ``strata``, device sets by ``people``; None puts all in the set 0."""

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
    """The statistics with moments in one form: unchanged if all sources have the same, else single numbers.

    Campaigns ask about a number in one class, in all classes, or about all numbers at once; nodes sum every number in
    all classes. ``parts`` are about one schema.
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
    """One estimate per number if the question is about the moments of several, else the question itself."""
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
    """The estimate of the number at ``place``. It has no linear law: the law of the question is about all numbers."""
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
    """One estimate from several estimates of one subject, by the weights and formulas of :func:`join`.

    Args:
        given: at least one estimate. Those without answers are left out, unless all are without.
        disjoint: True if no device answered in two of them.

    Raises:
        InputError: ``not_joinable``: a mechanism states no variance.
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
    )
    return made.with_intervals() if all(one.has_interval for one in parts) else made.without_interval()


class _Mix(NamedTuple):
    """How the estimates of several parts are added: formulas in :func:`join`.

    Attributes:
        n: n, the answers of all parts.
        weights: w_j.
        factors: a_j = n w_j/n_j; exactly 1 if the weights are the numbers of answers (``by_number``).
        per_answer: a_j² n_j/n, by which a variance of one answer counts.
        by_number: whether the sum is that of the added counts.
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
        """Σ a_j·(estimate of part j)."""
        return _sum(factor * one for factor, one in zip(self.factors, estimates, strict=True))

    def law(self, laws: Sequence[Law | None]) -> Law | None:
        """The law of the sum's noise, again linear in the share. None if a law is missing."""
        known = [law for law in laws if law is not None]
        if len(known) < len(laws):
            return None
        if all(law == known[0] for law in known) and isclose(sum(self.per_answer), 1, rel_tol=1e-12):
            return known[0]
        return Law(*self._ends(known))

    def pairs(self, found: Sequence[Pairs | None]) -> Pairs | None:
        """The covariances of the sum's noise. None if a part's covariances are not known."""
        known = [pairs for pairs in found if pairs is not None]
        return None if len(known) < len(found) else Pairs(*self._ends(known))

    def _ends(self, known: Sequence[tuple[float, float]]) -> list[float]:
        """Both ends of laws or covariances, added by ``per_answer``."""
        return [sum(f * end for f, end in zip(self.per_answer, ends, strict=True)) for ends in zip(*known, strict=True)]

    def right(self, found: Sequence[Right | None]) -> Right | None:
        """The joined share of right predictions; None if a part has none or has no law."""
        known = [right for right in found if right is not None]
        law = self.law([right.law for right in known]) if len(known) == len(found) else None
        return law and Right(sum(w * right.share for w, right in zip(self.weights, known, strict=True)), law)


def _weights(parts: Sequence[QuestionEstimate]) -> list[float]:
    """Weights w_j of :func:`aggregator.join`; exactly n_j/n if an answer's planned variance is equal in all parts."""
    each = [one.planned_variance * one.n for one in parts]
    if not all(map(isfinite, each)):
        raise InputError("not_joinable", "a mechanism states no variance before its answers are seen")
    if all(isclose(one, each[0], rel_tol=1e-12) for one in each):
        total = sum(one.n for one in parts)
        return [one.n / total for one in parts]
    precision = [1 / one.planned_variance for one in parts]
    return [one / sum(precision) for one in precision]


def _sum(terms: Iterable[Floats]) -> Floats:
    """Sum of float64 arrays of one shape."""
    return np.asarray(np.sum(list(terms), axis=0), np.float64)


def _all_samples(parts: Sequence[QuestionEstimate], weights: Sequence[float]) -> tuple[SampleWeight, ...]:
    """The samples of all sources, each with its share of the source's weight."""
    return tuple(
        SampleWeight(sample, w * weight)
        for w, part in zip(weights, parts, strict=True)
        for sample, weight in part.samples
    )


def _kurtosis(parts: Sequence[QuestionEstimate], factors: Sequence[float]) -> float:
    """Excess kurtosis of the joined noise Σ a_j e_j, the largest of its numbers: Σ a_j⁴ v_j² κ_j/(Σ a_j² v_j)²."""
    if not any(one.kurtosis for one in parts):
        return 0.0
    pairs = list(zip(parts, factors, strict=True))
    total = _sum(factor**2 * one.noise_variance for one, factor in pairs) ** 2
    fourth = _sum(factor**4 * one.noise_variance**2 * one.kurtosis for one, factor in pairs)
    return float(np.divide(fourth, total, out=np.zeros_like(total), where=total > 0).max())


def _concentration(weights: Sequence[float], parts: Sequence[QuestionEstimate], *, disjoint: bool) -> float:
    """Concentration c of the joined answers, with c_j = (``scatter`` − ``devices_scatter``)/n_j."""
    each = [max(one.scatter - one.devices_scatter, 0.0) / one.n for one in parts]
    if disjoint:
        return sum(w**2 * c for w, c in zip(weights, each, strict=True))
    return sum(w * sqrt(c) for w, c in zip(weights, each, strict=True)) ** 2


def of_features(statistics: Statistics, names: Collection[str]) -> Statistics:
    """The statistics of some observed features (``names``) and of the classes, for a model that leaves others out.

    The other questions keep their part in the estimated shares of the classes.

    Raises:
        InputError: ``ask_invalid``: no name is given, or the statistics have no feature of that name;
            ``not_fittable``: a question is about several features at once.
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
