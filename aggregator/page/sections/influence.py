"""The section on which features tell most about the class."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.page.blocks import MOST_CELL, Chart, Section, clipped, paragraph, table
from aggregator.page.charts import Bar, whiskers
from aggregator.page.entries import influence_of

ANCHOR = "influence"
HEADING = "Which features matter"
_BARS = 30


def section(card: Mapping[str, object]) -> Section:
    """Return the section of a page with a card: mutual information of each feature and the class, in bits."""
    found = influence_of(card)
    if not found:
        return Section(ANCHOR, HEADING, (paragraph("The card does not say how much each feature tells."),))
    order = sorted(found, key=lambda name: -found[name][0])
    bars = [Bar(clipped(name, MOST_CELL), found[name][0], noise=found[name][1]) for name in order[:_BARS]]
    rows = [(name, f"{bits:.3f}", "" if noise is None else f"{noise:.3f}") for name, (bits, noise) in
            ((name, found[name]) for name in order)]  # fmt: skip
    top = max(number for both in found.values() for number in both if number is not None)
    columns = ("feature", "bits", "noise alone, at most")
    numbers = table("Bits that each feature tells about the class", columns, rows, (1, 2), more="hearsay show MODEL",
                    folded=True)  # fmt: skip
    svg = whiskers("Bits that each feature tells about the class", bars, high=max(top, 0.01), without="")
    text = (
        "Mutual information of feature and class under the published parameters, in bits: 0 tells nothing. Noise alone "
        "gives more than 0, in 19 of 20 cases up to the line across a bar. A feature whose bar ends before its line "
        "may tell nothing. A bar without a line, of a number, has no such measure."
    )
    return Section(ANCHOR, HEADING, (paragraph(text), Chart(svg, numbers)))
