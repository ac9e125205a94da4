"""The values that a model publishes, beside the raw estimates and intervals of the same parameters.

A post-processing makes the values, so a value may lie outside the parameter's interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.cells import NOT_DETERMINED, clipped_ranges
from aggregator.estimates.conditional import PRIOR, Conditional, conditionals
from aggregator.estimates.ratios import Ratio
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import NormalParameters, fit
from protocol.documents.campaign import EVALUATION
from protocol.errors import InputError
from protocol.questions import CELL, MOMENT, MOMENTS, SQUARE, Subject

MOST_FEATURES = 64
"""Number of features with an entry of their own in a model's card."""


def published(statistics: Statistics, postprocess: str | None = None) -> dict[Subject, Floats] | None:
    """Return the parameters of the fitted model: P(class), P(value | class), E[x | class] and E[x² | class].

    ``postprocess``: its name; by default as the statistics' ``fit`` says. The result has for each question's subject
    the values, shape (K,) float64, in the order of the question's estimates; it is None if no model can be made.
    """
    if statistics.fit.family == EVALUATION or not statistics.reports:
        return None
    postprocess = postprocess or statistics.fit.postprocess
    try:
        log_prior, terms = fit(statistics, postprocess)
    except InputError:
        return None
    found = {Subject(PRIOR, None, len(log_prior)): np.exp(log_prior)}
    for question in statistics.questions:
        subject = question.subject
        if subject.kind == CELL and subject.feature is not None:
            found[subject] = np.exp(np.asarray(terms[subject.feature])).ravel()
        elif subject.kind in (MOMENT, MOMENTS):
            found[subject] = _means(subject, terms, statistics.schema.numeric)
    return found


def _means(subject: Subject, terms: Sequence[NormalParameters | Floats], numeric: Sequence[int]) -> Floats:
    """Return E[x^power | class] of a fitted model, for all numbers x of one question: shape (K,) float64."""
    features = numeric if subject.kind == MOMENTS else [subject.feature]
    columns = []
    for feature in features:
        assert feature is not None
        term = terms[feature]
        assert isinstance(term, NormalParameters)
        value = term.variance + term.mean**2 if subject.power == SQUARE else term.mean
        columns.append(value if subject.of_class is None else value[subject.of_class : subject.of_class + 1])
    return np.concatenate(columns)


def interval_card(statistics: Statistics) -> dict[str, Any]:
    """Return a model card's entries about the 95 % intervals of the parameters, for the population, as texts.

    ``class_intervals`` has the interval of every class's share. ``interval_widths`` has, for the :data:`MOST_FEATURES`
    features with the widest intervals, their median and largest width, and how many are not determined.
    """
    schema = statistics.schema
    entries: dict[str, Any] = {}
    by_feature: dict[int, list[Conditional]] = {}
    for one in conditionals(statistics.questions, statistics.schema):
        kind, feature = one.subject.kind, one.subject.feature
        if kind == PRIOR:
            ranges = clipped_ranges(one.population, max(one.n, 1))
            entries["class_intervals"] = dict(zip(schema.label.classes, ranges, strict=True))
        elif kind == CELL and feature is not None:
            by_feature.setdefault(feature, []).append(one)
        elif kind in (MOMENT, MOMENTS) and one.subject.power != SQUARE:
            for index in schema.numeric if feature is None else [feature]:
                by_feature.setdefault(index, []).append(_of_feature(one, index, statistics))
    widths = [(_widths(parts), index) for index, parts in by_feature.items()]
    widest = sorted(widths, key=lambda one: (-float(np.median(one[0])), one[1]))[:MOST_FEATURES]
    entries["interval_widths"] = {
        schema.observed[index].name: _in_words(width, by_feature[index]) for width, index in widest
    }
    return entries


def _of_feature(found: Conditional, feature: int, statistics: Statistics) -> Conditional:
    """Return one feature's parameters, out of a question that may be about all numeric features together."""
    if found.subject.kind != MOMENTS:
        return found
    classes = len(statistics.schema.label.classes)
    start = statistics.schema.numeric.index(feature) * classes
    part = slice(start, start + classes)
    low, high, determined = found.population
    population = Ratio(low[part], high[part], determined[part])
    return found._replace(raw=found.raw[part], population=population)


def _widths(parts: Sequence[Conditional]) -> Floats:
    return np.concatenate([one.population.high - one.population.low for one in parts])


def _in_words(widths: Floats, parts: Sequence[Conditional]) -> str:
    unknown = sum(int((~one.population.determined).sum()) for one in parts)
    if unknown == len(widths):
        return NOT_DETERMINED
    missing = f", {unknown} of {len(widths)} not determined" if unknown else ""
    return f"median width {np.median(widths):.3f}, widest {widths.max():.3f}{missing}"
