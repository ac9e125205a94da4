"""Statistics of some of the features: for a model that leaves features out which were asked about.

The other questions keep their part in the estimated shares of the classes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from protocol.documents.asked import restricted
from protocol.errors import InputError
from protocol.shown import quoted

if TYPE_CHECKING:
    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.statistics import Statistics


def of_features(statistics: Statistics, names: Collection[str]) -> Statistics:
    """The statistics of some observed features, and of the classes.

    Args:
        statistics: statistics of a discrete campaign, or of several joined ones.
        names: the features or components to keep.

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
