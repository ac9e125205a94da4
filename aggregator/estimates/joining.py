"""Joining: statistics of several sources on one schema become statistics of one population.

Two campaigns may ask the same questions of two fleets, or of one fleet at two values of ε. The counts alone cannot
show that both sources are samples of one population. The analyst declares it, and a test of homogeneity reports the
evidence against the declaration.

The sources may ask about different features of one schema. Then a feature has the statistics of the sources that asked
about it, and the shares of the classes are those of all sources together. Campaigns of one series need no declaration:
their devices are drawn by chance from one fleet, and none answers twice.

Source: docs/decisions/0053, 0063.
"""

from __future__ import annotations

from dataclasses import replace
from math import isclose, isfinite, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Law
from aggregator.estimates.homogeneity import Homogeneity, homogeneity
from aggregator.estimates.intervals import Interval, normal_interval, score_interval
from aggregator.estimates.question_estimate import QuestionEstimate, Right, Weighted, relative_spread
from aggregator.estimates.ratios import Pairs
from aggregator.estimates.statistics import Statistics
from protocol.documents.asked import restricted
from protocol.errors import InputError
from protocol.shown import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import Sample
    from protocol.documents.campaign import Fit
    from protocol.questions import Subject
    from protocol.schema import Schema

    Floats = NDArray[np.float64]


class Joined(NamedTuple):
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
) -> Joined:
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

    Returns:
        Statistics about the features that any source asked about, in the order of the stated schema, and the test.

    Raises:
        InputError: ``population_undeclared``, ``one_population`` is False; ``argument_invalid``, fewer than two
            parts; ``schema_differs``, stated labels, features or projections differ; ``groups_differ``, two parts ask
            about one feature in different groups; ``source_repeated``, two parts contain the same campaign;
            ``fit_differs``, the campaigns say different fits and none is given;
            ``not_joinable``, the campaigns evaluate different models, or a mechanism states no variance.
    """
    in_series = of_one_series(parts)
    _check(parts, one_population=one_population or in_series)
    disjoint = disjoint or in_series
    schema, parts = _aligned(parts)
    fits = [part.fit if postprocess is None else part.fit._replace(postprocess=postprocess) for part in parts]
    if fit is None and any(one != fits[0] for one in fits):
        raise InputError("fit_differs", "the campaigns differ in how a model is made; say which way is meant")
    asked: dict[Subject, list[QuestionEstimate]] = {}
    for part in _apart(parts, disjoint=disjoint):
        for subject, questions in _by_subject(part.questions).items():
            # Several questions of one campaign may be about one subject. The same devices answer them: never disjoint.
            asked.setdefault(subject, []).append(joined_question(questions, disjoint=False))
    found = tuple(joined_question(each, disjoint=disjoint) for each in asked.values())
    sources = tuple(source for part in parts for source in part.sources)
    statistics = Statistics(schema, fits[0] if fit is None else fit, found, sources)
    return Joined(statistics, homogeneity(list(asked.values()), schema, len(parts)))


def of_one_series(parts: Sequence[Statistics]) -> bool:
    """Whether all campaigns are of the series of one name. An honest device then answered in one of them at most."""
    found = [source.campaign.series for part in parts for source in part.sources]
    return None not in found and len({series.name for series in found if series is not None}) == 1


def _aligned(parts: Sequence[Statistics]) -> tuple[Schema, list[Statistics]]:
    """The schema of all features that some part is about, and the parts with questions about that schema.

    Raises:
        InputError: ``groups_differ``: two parts are about one feature in different groups.
    """
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
    stated = parts[0].sources[0].campaign.stated
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
    """Refuse parts that cannot be joined.

    Raises:
        InputError: ``population_undeclared``, ``argument_invalid``, ``schema_differs``, ``source_repeated``;
            ``not_joinable``: the campaigns evaluate different models. :func:`join` explains the reasons.
    """
    if len(parts) < 2:
        raise InputError("argument_invalid", f"a join has at least two parts, not {len(parts)}")
    if not one_population:
        raise InputError(
            "population_undeclared",
            "sources are joined where the analyst declares them samples of one population, or are of one series",
        )
    campaigns = [source.campaign for part in parts for source in part.sources]
    if any(_described(campaign.stated) != _described(campaigns[0].stated) for campaign in campaigns):
        raise InputError("schema_differs", "sources are joined on one schema; these have several")
    if len({campaign.id for campaign in campaigns}) < len(campaigns):
        raise InputError(
            "source_repeated",
            "a campaign's reports are counted in one store, which takes none twice; ingest them there",
        )
    if len({campaign.evaluated for campaign in campaigns}) > 1:
        raise InputError("not_joinable", "the campaigns evaluate different models, or one of them none")


def _described(schema: Schema) -> tuple[object, ...]:
    """Label, features and projection of a schema as comparable values."""
    projection = schema.projection
    features = [feature.to_dict() for feature in schema.features]
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
        shift = (strata, people)
        moved = tuple(_shifted(one, *shift, disjoint=disjoint) for one in part.questions)
        found.append(replace(part, questions=moved))
        strata += 1 + max((sample.stratum for sample in samples), default=0)
        people += 1 + max((sample.people for sample in samples), default=0)
    return found


def _shifted(one: QuestionEstimate, strata: int, people: int, *, disjoint: bool) -> QuestionEstimate:
    """The estimate with all samples renumbered by :func:`_moved`."""

    def of(sample: Sample) -> Sample:
        return _moved(sample, strata, people, disjoint=disjoint)

    votes = tuple(vote._replace(sample=of(vote.sample)) for vote in one.classes)
    return replace(one, classes=votes, samples=tuple(part._replace(sample=of(part.sample)) for part in one.samples))


def _moved(sample: Sample, strata: int, people: int, *, disjoint: bool) -> Sample:
    """The sample with the stratum number raised by ``strata``; the device set by ``people`` if ``disjoint``, else 0."""
    own = sample.people + people if disjoint else 0
    return sample._replace(people=own, stratum=sample.stratum + strata)


def _weights(parts: Sequence[QuestionEstimate]) -> list[float]:
    """Weights w_j of :func:`join`; exactly n_j/n if one answer has the same planned variance in all parts."""
    each = [one.planned_variance * one.n for one in parts]
    if not all(map(isfinite, each)):
        raise InputError("not_joinable", "a mechanism states no variance before its answers are seen")
    if all(isclose(one, each[0], rel_tol=1e-12) for one in each):
        total = sum(one.n for one in parts)
        return [one.n / total for one in parts]
    precision = [1 / one.planned_variance for one in parts]
    return [one / sum(precision) for one in precision]


def _by_subject(questions: Iterable[QuestionEstimate]) -> dict[Subject, list[QuestionEstimate]]:
    found: dict[Subject, list[QuestionEstimate]] = {}
    for question in questions:
        found.setdefault(question.subject, []).append(question)
    return found


def joined_question(given: Sequence[QuestionEstimate], *, disjoint: bool) -> QuestionEstimate:
    """One estimate from several estimates of one subject, by the weights of :func:`join`.

    Args:
        given: at least one estimate. Those without answers are left out, unless all are without.
        disjoint: True if no device answered in two of them.

    Raises:
        InputError: ``not_joinable``: a mechanism states no variance.
    """
    parts = [one for one in given if one.n] or given[:1]
    first = parts[0]
    if len(parts) == 1:
        return first
    n = sum(one.n for one in parts)
    weights = _weights(parts)
    by_number = all(isclose(w * n, one.n, rel_tol=1e-12) for w, one in zip(weights, parts, strict=True))
    factors = [1.0 if by_number else n * w / one.n for w, one in zip(weights, parts, strict=True)]
    estimate = _sum(factor * one.estimate for factor, one in zip(factors, parts, strict=True))
    share = np.clip(estimate / n, 0, 1)
    means = _sum(w * one.spread for w, one in zip(weights, parts, strict=True))
    spread = share * (1 - share) if first.is_share else means
    per_answer = [factor**2 * one.n / n for factor, one in zip(factors, parts, strict=True)]
    law = _law([one.law for one in parts], per_answer)
    if law is not None and first.is_share:
        noise = n * law.at(share)
    else:
        noise = _sum(factor**2 * one.noise_variance for factor, one in zip(factors, parts, strict=True))
    chosen = sum(part * one.devices_scatter for part, one in zip(per_answer, parts, strict=True))
    drawn = chosen + n * _concentration(weights, parts, disjoint=disjoint)
    made = replace(
        first,
        n=n,
        estimate=estimate,
        noise_variance=noise,
        spread=np.asarray(spread, np.float64),
        devices_scatter=chosen,
        scatter=drawn,
        planned_variance=1 / sum(1 / one.planned_variance for one in parts),
        law=law,
        pairs=_pairs([one.pairs for one in parts], per_answer),
        is_binomial=by_number and all(one.is_binomial and one.law == first.law for one in parts),
        adds_up=all(one.adds_up for one in parts),
        samples=_samples(parts, weights),
        classes=tuple(vote for one in parts for vote in one.classes),
        right=_right([one.right for one in parts], weights, per_answer),
    )
    return replace(made, interval=_interval(made, drawn), devices_interval=_interval(made, chosen))


def _sum(terms: Iterable[Floats]) -> Floats:
    """Sum of float64 arrays of one shape."""
    return np.asarray(np.sum(list(terms), axis=0), np.float64)


def _law(laws: Sequence[Law | None], factors: Sequence[float]) -> Law | None:
    """Σ factor·law, again linear in the share. None if a law is missing."""
    known = [law for law in laws if law is not None]
    if len(known) < len(laws):
        return None
    if all(law == known[0] for law in known) and isclose(sum(factors), 1, rel_tol=1e-12):
        return known[0]
    return Law(*(sum(f * end for f, end in zip(factors, ends, strict=True)) for ends in zip(*known, strict=True)))


def _pairs(found: Sequence[Pairs | None], factors: Sequence[float]) -> Pairs | None:
    """Σ factor·covariances. None if a source's covariances are not known."""
    known = [pairs for pairs in found if pairs is not None]
    if len(known) < len(found):
        return None
    return Pairs(*(sum(f * end for f, end in zip(factors, ends, strict=True)) for ends in zip(*known, strict=True)))


def _samples(parts: Sequence[QuestionEstimate], weights: Sequence[float]) -> tuple[Weighted, ...]:
    """The samples of all sources, each with its share of the source's weight."""
    return tuple(
        Weighted(sample, w * weight) for w, part in zip(weights, parts, strict=True) for sample, weight in part.samples
    )


def _right(found: Sequence[Right | None], weights: Sequence[float], factors: Sequence[float]) -> Right | None:
    """Joined share of right predictions; None if a source has none or has no law."""
    known = [right for right in found if right is not None]
    law = _law([right.law for right in known], factors) if len(known) == len(found) else None
    return law and Right(sum(w * right.share for w, right in zip(weights, known, strict=True)), law)


def _concentration(weights: Sequence[float], parts: Sequence[QuestionEstimate], *, disjoint: bool) -> float:
    """Concentration c of the joined answers, by :func:`join`; c_j = (``scatter`` − ``devices_scatter``)/n_j."""
    each = [max(one.scatter - one.devices_scatter, 0.0) / one.n for one in parts]
    if disjoint:
        return sum(w**2 * c for w, c in zip(weights, each, strict=True))
    return sum(w * sqrt(c) for w, c in zip(weights, each, strict=True)) ** 2


def _interval(found: QuestionEstimate, scatter: float) -> Interval:
    """95 % interval with the given scatter, by the rules for one source."""
    n, least = found.n, found.least
    if found.law is None:
        return normal_interval(found.estimate, np.sqrt(found.noise_variance + n * found.spread * scatter))
    dependence: Floats | float = scatter
    if not found.is_share:
        dependence = 1 + (scatter - 1) * relative_spread(n, found.estimate, found.spread, least=least)
    width = 1 - least
    ends = score_interval((found.estimate / n - least) / width, n, found.law, dependence, is_binomial=found.is_binomial)
    return Interval(n * (least + width * ends.low), n * (least + width * ends.high))
