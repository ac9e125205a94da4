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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from aggregator.estimates.joining.homogeneity import Homogeneity, homogeneity
from aggregator.estimates.joining.moments import of_one_form
from aggregator.estimates.joining.questions import joined_question
from aggregator.estimates.question_estimate import QuestionEstimate, Sample
from aggregator.estimates.source import campaign_of
from aggregator.estimates.statistics import Statistics
from protocol.documents.asked import restricted
from protocol.documents.campaign import Campaign, Fit
from protocol.errors import InputError
from protocol.questions import Subject
from protocol.schema import Schema
from protocol.shown import quoted


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
            The variance floor is then the largest of the campaigns': the one for the noisiest source.

    Returns:
        Statistics about the features that any source asked about, in the order of the stated schema, and the test.

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
    return Joined(statistics, homogeneity(list(asked.values()), schema, len(parts)))


def of_one_series(parts: Sequence[Statistics]) -> bool:
    """Whether all campaigns are of the series of one name. An honest device then answered in one of them at most."""
    found = [None if source.campaign is None else source.campaign.series for part in parts for source in part.sources]
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
    """Refuse parts that cannot be joined.

    Raises:
        InputError: ``population_undeclared``, ``argument_invalid``, ``schema_differs``, ``source_repeated``;
            ``not_joinable``: the campaigns evaluate different models. :func:`join` explains the reasons.
    """
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

    A campaign for devices may ask about a part of what it states. Nodes sum every stated feature, so a campaign for
    nodes states only what its nodes have.
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


def _by_subject(questions: Iterable[QuestionEstimate]) -> dict[Subject, list[QuestionEstimate]]:
    found: dict[Subject, list[QuestionEstimate]] = {}
    for question in questions:
        found.setdefault(question.subject, []).append(question)
    return found
