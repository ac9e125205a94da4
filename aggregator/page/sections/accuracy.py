"""The section on how often the model is right: what the card expects, and what private answers measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aggregator.estimates.cells import as_range, as_share
from aggregator.models.foresight import NEVER, Foresight
from aggregator.models.measured_accuracy import COLUMNS, RANKING_COLUMNS, RECALL_COLUMNS, Evaluation, Ranking
from aggregator.page.blocks import MOST_CELL, Block, Chart, Section, clipped, facts, items, paragraph, table
from aggregator.page.charts import Bar, whiskers
from aggregator.page.entries import foresight, rows_of
from protocol.documents.payload import quoted

if TYPE_CHECKING:
    from aggregator.page.subject import Measured


ANCHOR = "accuracy"
HEADING = "How often the model is right"
_CELLS = 36
_IN_CARD = "How sure it is"
_ELSEWHERE = ("class_intervals", "interval_widths", "influence", "influence_noise")
"""Entries of a card that other sections show."""
_SHOW = "hearsay evaluate show --store STORE"


def section(card: Mapping[str, object] | None, measured: Sequence[Measured]) -> Section:
    """Return the section. ``card``: the model's card, None without a model; ``measured``: results of evaluations."""
    blocks: list[Block] = []
    if card is not None:
        found = foresight(card)
        blocks += [paragraph("The model's card does not say what is expected.")] if found is None else _expected(found)
        told = rows_of(card, _IN_CARD, _ELSEWHERE if found is None else (*_ELSEWHERE, *found.to_card()))
        if found is not None and found.beats is not None:
            told["better than the largest class"] = "yes" if found.beats else "no"
        if found is not None:
            blocks += [
                paragraph(
                    found.reconciled(one.result.accuracy.estimate, one.result.accuracy.low, one.result.accuracy.high)
                )
                for one in measured
                if isinstance(one.result, Evaluation)
            ]
        if told:
            blocks.append(facts("As the model's card says", told))
    for one in measured:
        if one.result is None:
            blocks.append(paragraph(f"The evaluation {quoted(one.name)} has no result: {one.obstacle}.", "warning"))
        elif isinstance(one.result, Evaluation):
            blocks += _measured(one.result)
        else:
            blocks += _ranked(one.result)
        blocks.append(paragraph(one.about))
    if not measured:
        blocks.append(
            paragraph(
                "Nothing was measured. hearsay evaluate ask makes a campaign in which devices tell, with noise, "
                "whether the model is right; hearsay report --evaluation STORE shows its result here."
            )
        )
    return Section(ANCHOR, HEADING, tuple(blocks))


def _expected(found: Foresight) -> list[Block]:
    bars = [
        Bar("the model", found.accuracy, found.least, found.most),
        Bar("largest class", found.largest_class, found.low, found.high),
    ]
    rows = [
        (
            "expected accuracy of the model, over simulated fleets",
            _share(found.accuracy),
            _ends(found.least, found.most),
        ),
        (
            "share of the largest class, right without a model",
            _share(found.largest_class),
            _ends(found.low, found.high),
        ),
    ]
    numbers = table("In numbers", ("what", "share", "from … to"), rows, (1, 2))
    svg = whiskers("Expected accuracy, and share of the largest class", bars, unit="%", without=found.not_known)
    blocks: list[Block] = [Chart(svg, numbers, "Expected"), paragraph(f"Expected {found.assumes}.")]
    if found.recall:
        shown = [
            (one.name, NEVER if one.is_never else _share(one.expected), _ends(one.least, one.most))
            for one in found.recall
        ]
        caption = "Expected recall: of the records of a class, the share that the model gives this class"
        blocks.append(table(caption, ("class", "recall", "from … to"), shown, (1, 2)))
    blocks += [paragraph(text, "warning") for text in (found.warning, found.recall_warning) if text is not None]
    return blocks


def _measured(found: Evaluation) -> list[Block]:
    accuracy = found.accuracy
    bars = [_bar("right", accuracy.estimate, accuracy.low, accuracy.high)]
    bars += [
        _bar(f"{clipped(one.true, MOST_CELL)} → {clipped(one.predicted, MOST_CELL)}", one.share, one.low, one.high)
        for one in found.confusion[:_CELLS]
    ]
    pairs = {
        "answers": found.reports,
        "accuracy": as_share(accuracy.estimate),
        "95 % interval, these devices": as_range(accuracy.devices_low, accuracy.devices_high),
        "95 % interval, population": as_range(accuracy.low, accuracy.high),
        "assumed": found.populations["assumes"],
    }
    caption = "Confusion matrix: share of all records by true and predicted class, with 95 % intervals"
    numbers = table(caption, COLUMNS, found.rows(), (2, 3, 4), more=_SHOW)
    svg = whiskers("Share of records: right, then true class → predicted class", bars, unit="%")
    of_classes = "Measured recall: of the records of a class, the share that the model gives this class"
    recall = table(of_classes, RECALL_COLUMNS, found.recall_rows(), (1, 2, 3, 4), more=_SHOW)
    return [Chart(svg, numbers, "Measured"), recall, facts("Measured by private answers", pairs)]


def _ranked(found: Ranking) -> list[Block]:
    known = [one for one in found.models if one.accuracy is not None]
    bars = [
        _bar(clipped(one.name, MOST_CELL), one.accuracy.estimate, one.accuracy.low, one.accuracy.high)
        for one in known
        if one.accuracy is not None
    ]
    caption = f"Models compared by {found.reports} private answers, with 95 % intervals"
    numbers = table(caption, RANKING_COLUMNS, found.rows(), range(1, len(RANKING_COLUMNS)), more=_SHOW)
    said = items("What follows:", [*found.sentences(), f"Assumed: {found.populations['assumes']}."])
    if not bars:
        return [numbers, said]
    return [Chart(whiskers("Accuracy of each model", bars, unit="%"), numbers, "Measured"), said]


def _bar(name: str, estimate: float, low: float, high: float) -> Bar:
    """Return the bar of an estimated share. Estimates are unbiased and may leave [0, 1]; the table cuts them too."""
    return Bar(name, *(min(max(end, 0.0), 1.0) for end in (estimate, low, high)))


def _share(share: float | None) -> str:
    return "not known" if share is None else f"{share:.1%}"


def _ends(low: float | None, high: float | None) -> str:
    return "not determined" if low is None or high is None else f"{low:.1%} to {high:.1%}"
