"""The section on what was learned: the shares of the classes, and a chart of every feature with 95 % intervals.

The features that tell most about the class come first. Features that do not fit on the page are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, isnan, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.cards.card_words import in_words
from aggregator.estimates.cells import NOT_DETERMINED, PARAMETER_COLUMNS, cells_of, parameter_rows
from aggregator.estimates.conditional import PRIOR, Conditional, Published, conditionals
from aggregator.estimates.statistics import Statistics
from aggregator.models.published import published
from aggregator.page.blocks import MOST_CELL, Block, Chart, Section, Table, clipped, paragraph, table
from aggregator.page.charts import Bar, whiskers
from aggregator.page.entries import interval, mapping
from protocol.documents.model import DiscreteModel, Normal
from protocol.features import Feature, Grouped, Joined, Numeric
from protocol.questions import MOMENT, MOMENTS, SQUARE, Subject
from protocol.schema import Component, Schema

if TYPE_CHECKING:
    from aggregator.page.subject import ModelSubject


ANCHOR = "results"
HEADING = "Classes and features, with 95 % intervals"
MOST_BARS = 300
"""Bars of all charts of features together."""
MOST_BARS_EACH = 36
"""Bars of the chart of one feature; the table below has more rows."""
_MOST_ROWS = 60
_MOST_NAMES, _MOST_NAME = 30, 24
_ESTIMATE = "hearsay estimate --store STORE"
_MODEL = "hearsay export-model MODEL --to json"


class _Drawn(NamedTuple):
    """The chart and table of one feature or of the classes.

    ``name``: of the feature; empty for the classes. ``chart``: at most :data:`MOST_BARS_EACH` bars; empty for a feature
    without a chart. ``columns``, ``rows``: the table with the same numbers, and more.
    """

    name: str
    chart: tuple[Bar, ...]
    low: float
    high: float
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def of_statistics(found: Statistics, influence: Mapping[str, float]) -> Section:
    """Return the section about the statistics of stores. ``influence``: name of a feature → bits, for the order."""
    values = published(found)
    classes: list[Block] = []
    drawn: list[_Drawn] = []
    for one in conditionals(found.questions, found.schema):
        if one.subject.kind in (MOMENT, MOMENTS) and one.subject.power != SQUARE:
            drawn += _means_of(one, values, found.schema)
            continue
        made = _of_conditional(one, values, found.schema)
        if one.subject.kind == PRIOR:
            classes.append(_block(made, f"Share of each class of {found.schema.label.name}", _ESTIMATE))
        else:
            drawn.append(made)
    about = found.populations
    bar = "No model can be made of these reports, so there are no bars. A whisker is"
    if values is not None:
        bar = "A bar is the value that a model publishes, its whisker"
    lead = (
        f"{bar} the 95 % interval for {about['population']}. Assumed: "
        f"{about['assumes']}. Not determined: the reports exclude neither 0 nor 1, or no law of the errors is known. "
        "A bar may end outside of its whisker: the model draws values towards what is usual where reports say little, "
        "and one interval in twenty misses the truth."
    )
    return _section(lead, classes, drawn, influence, _ESTIMATE, f"given {found.schema.label.name}")


def of_model(subject: ModelSubject, influence: Mapping[str, float]) -> Section:
    """Return the section about a model. Its file has no interval of a single value, only what the card says."""
    document, card = subject.document, subject.card
    label = document.schema.label
    classes_stated = mapping(card, "class_intervals")
    shares = np.exp(np.asarray(document.log_prior)).tolist()
    ends = [interval(classes_stated.get(name)) for name in label.classes]
    bars = [
        Bar(clipped(name, MOST_CELL), share, *(found or (None, None)))
        for name, share, found in zip(label.classes, shares, ends, strict=True)
    ]
    rows = [
        (name, f"{share:z.3f}", in_words(classes_stated[name]) if name in classes_stated else "not stated")
        for name, share in zip(label.classes, shares, strict=True)
    ]
    columns = ("class", "published", "95 % interval, as the card says")
    classes = _Drawn("", tuple(bars[:MOST_BARS_EACH]), 0.0, 1.0, columns, rows)
    widths = mapping(card, "interval_widths")
    terms = document.log_likelihood if isinstance(document, DiscreteModel) else document.terms
    drawn = [
        _of_normal(feature, term, label.classes)
        if isinstance(term, Normal)
        else _of_table(feature.name, feature.labels(), term, label.classes)
        for feature, term in zip(document.schema.observed, terms, strict=True)
    ]
    lead = (
        "A bar is the value that devices use. A model holds no interval of a single value; its store has them: "
        f"{_ESTIMATE}."
    )
    found = _section(
        lead,
        [_block(classes, f"Share of each class of {label.name}", _MODEL)],
        drawn,
        influence,
        _MODEL,
        f"given {label.name}",
        without="",
    )
    if not widths:
        return found
    caption = "Widths of the 95 % intervals of each feature, as the card says (of means: in half ranges)"
    stated = [(name, in_words(value)) for name, value in widths.items()]
    stated_widths = table(
        caption, ("feature", "widths"), stated, more="hearsay show MODEL", folded=True, most=_MOST_ROWS
    )
    return found._replace(blocks=(*found.blocks[:2], stated_widths, *found.blocks[2:]))


def _section(
    lead: str,
    classes: Sequence[Block],
    drawn: Sequence[_Drawn],
    influence: Mapping[str, float],
    command: str,
    given: str,
    *,
    without: str = NOT_DETERMINED,
) -> Section:
    """Return the section: the classes, then as many features as there is room for, those of most influence first."""
    blocks: list[Block] = [paragraph(lead), *classes]
    order = sorted(range(len(drawn)), key=lambda place: (-influence.get(drawn[place].name, 0.0), place))
    bars, left = 0, []
    for one in (drawn[place] for place in order):
        bars += max(len(one.chart), min(len(one.rows), _MOST_ROWS) // 2)
        if bars > MOST_BARS:
            left.append(one.name)
            continue
        blocks.append(_block(one, f"{one.name} {given}", command, one.name, without))
    if left:
        named = ", ".join(clipped(name, _MOST_NAME) for name in left[:_MOST_NAMES])
        more = f" and {len(left) - _MOST_NAMES} more" if len(left) > _MOST_NAMES else ""
        room = f"{len(left)} features have no room here; {command} prints them"
        blocks.insert(1, paragraph(f"{room}. They are left out: {named}{more}."))
    return Section(ANCHOR, HEADING, tuple(blocks))


def _block(
    drawn: _Drawn, caption: str, command: str, heading: str = "", without: str = NOT_DETERMINED
) -> Chart | Table:
    """Return a chart with a folded table of its numbers below; the table alone if there is nothing to draw."""
    numbers = range(1, len(drawn.columns))
    listed = table(caption, drawn.columns, drawn.rows, numbers, more=command, folded=True, most=_MOST_ROWS)
    if not drawn.chart:
        return listed
    title = clipped(caption, MOST_CELL)
    svg = whiskers(title, drawn.chart, low=drawn.low, high=drawn.high, without=without)
    return Chart(svg, listed, clipped(heading, MOST_CELL))


def _of_conditional(found: Conditional, values: Published | None, schema: Schema) -> _Drawn:
    """Return the chart of the parameters of one question; for means of squares, a table without a chart."""
    subject = found.subject
    name = "" if subject.feature is None else schema.observed[subject.feature].name
    rows = parameter_rows([found], values, schema)
    if subject.power == SQUARE:
        return _Drawn(f"{name or 'numbers'}², scaled to −1 … 1", (), 0.0, 1.0, PARAMETER_COLUMNS, rows)
    bars = [
        Bar(cell, value, *ends)
        for cell, (_, value, ends) in zip(_short(subject, schema), _cells(found, values), strict=True)
    ]
    return _Drawn(name, tuple(bars[:MOST_BARS_EACH]), 0.0, 1.0, PARAMETER_COLUMNS, rows)


def _cells(
    found: Conditional, values: Published | None
) -> list[tuple[float, float | None, tuple[float, float] | tuple[None, None]]]:
    """Return for every parameter: raw ratio, published value (None without a model), the population's interval."""
    own = None if values is None else values.get(found.subject)
    shown = [None] * len(found.raw) if own is None else own.tolist()
    ends = zip(found.population.low.tolist(), found.population.high.tolist(), strict=True)
    known = (found.population.determined & bool(found.n)).tolist()
    return [
        (raw, value, pair if is_known else (None, None))
        for raw, value, pair, is_known in zip(found.raw.tolist(), shown, ends, known, strict=True)
    ]


def _means_of(found: Conditional, values: Published | None, schema: Schema) -> list[_Drawn]:
    """Return the charts of the means of one question, one for each number, in the number's own units."""
    drawn: dict[str, tuple[list[Bar], list[Sequence[object]]]] = {}
    cells = zip(cells_of(found.subject, schema), _cells(found, values), strict=True)
    by_name = {feature.name: feature for feature in schema.observed}
    for cell, (raw, value, ends) in cells:
        assert cell.feature is not None
        bars, rows = drawn.setdefault(cell.feature, ([], []))
        in_units = partial(_in_units, by_name[cell.feature])
        published, low, high = (None if one is None else in_units(one) for one in (value, *ends))
        bars.append(Bar(clipped(cell.of_class, MOST_CELL), published, low, high))
        stated = NOT_DETERMINED if low is None or high is None else f"{low:.4g} to {high:.4g}"
        rows.append((cell.of_class, "" if isnan(raw) else in_units(raw), published, stated if found.n else ""))
    columns = ("mean in class", "raw", "published", "population")
    return [
        _Drawn(name, tuple(bars[:MOST_BARS_EACH]), *_ends(by_name[name]), columns, rows)
        for name, (bars, rows) in drawn.items()
    ]


def _ends(feature: object) -> tuple[float, float]:
    """Return the ends of a feature's range: a number's bounds in its own units, or −1 and 1 for a component."""
    return (float(feature.low), float(feature.high)) if isinstance(feature, Numeric) else (-1.0, 1.0)


def _in_units(feature: object, scaled: float) -> float:
    """Return ``scaled``, a number from −1 to 1, in the feature's own units."""
    low, high = _ends(feature)
    return low + (scaled + 1) / 2 * (high - low)


def _short(subject: Subject, schema: Schema) -> list[str]:
    """Return the names of a question's bars: value and class, or class."""
    parts = [(cell.value, cell.of_class) for cell in cells_of(subject, schema)]
    return [" | ".join(clipped(part, MOST_CELL) for part in pair if part is not None) for pair in parts]


def _of_table(name: str, labels: Sequence[str], term: Sequence[Sequence[float]], classes: Sequence[str]) -> _Drawn:
    """Return the chart of P(value | class) of a model's feature. ``term``: log P, a row of classes for each value."""
    found = [
        (label, one, exp(value))
        for label, row in zip(labels, term, strict=True)
        for one, value in zip(classes, row, strict=True)
    ]
    bars = [
        Bar(f"{clipped(label, MOST_CELL)} | {clipped(one, MOST_CELL)}", value)
        for label, one, value in found[:MOST_BARS_EACH]
    ]
    rows = [(f"P({name}={label} | {one})", f"{value:.3f}") for label, one, value in found]
    return _Drawn(name, tuple(bars), 0.0, 1.0, ("parameter", "published"), rows)


def _of_normal(feature: Feature | Component | Grouped | Joined, term: Normal, classes: Sequence[str]) -> _Drawn:
    """Return the table of a model's mean and standard deviation of one number by class, in the number's own units."""
    low, high = _ends(feature)
    means = [_in_units(feature, mean) for mean in term.mean]
    deviations = [sqrt(max(variance, 0.0)) * (high - low) / 2 for variance in term.variance]
    bars = [Bar(clipped(one, MOST_CELL), mean) for one, mean in zip(classes, means, strict=True)]
    columns = ("class", "mean", "standard deviation")
    rows = list(zip(classes, means, deviations, strict=True))
    return _Drawn(feature.name, tuple(bars[:MOST_BARS_EACH]), low, high, columns, rows)
