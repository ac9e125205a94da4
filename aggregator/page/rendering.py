"""Sections → the HTML of a page, by Jinja2, at most :data:`PAGE_BYTES` long whatever the sections hold.

A block that does not fit in what is left of its section's bytes is left out, and a sentence says how many are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from aggregator.common.extras import missing_extra
from aggregator.page.blocks import Block, Chart, Paragraph, Section, Table, clipped
from aggregator.page.sections import results
from protocol import VERSION

if TYPE_CHECKING:
    from jinja2 import Environment


PAGE_BYTES = 500_000
"""Every page is smaller."""
LARGEST = results.ANCHOR
LARGEST_BYTES = 250_000
"""Most bytes of the blocks of the section with the charts of the features."""
SECTION_BYTES = 25_000
"""Most bytes of the blocks of any other section."""
MOST_SECTIONS = 9


class Page(NamedTuple):
    """The content of a page; ``standing`` says whether signatures were verified, ``foot`` is the last line."""

    title: str
    standing: Paragraph
    subtitle: str
    sections: tuple[Section, ...]
    foot: str

    def html(self) -> str:
        """Return the text of the HTML file. Raises InputError ``missing_extra``: Jinja2 is not installed."""
        sections = [
            {
                "name": one.name,
                "title": one.title,
                "blocks": _fitting(one.blocks, LARGEST_BYTES if one.name == LARGEST else SECTION_BYTES),
            }
            for one in self.sections[:MOST_SECTIONS]
        ]
        return (
            _environment()
            .get_template("page.html")
            .render(
                title=clipped(self.title),
                standing=self.standing,
                subtitle=clipped(self.subtitle),
                sections=sections,
                foot=clipped(self.foot),
                style=_style(),
                version=VERSION,
            )
        )


def _fitting(blocks: Sequence[Block], left: int) -> list[Markup]:
    """Return the blocks that fit in ``left`` bytes as HTML. A chart that does not fit leaves its table, if possible."""
    found = []
    omitted = 0
    for block in blocks:
        choices: list[Block] = [block, block.table] if isinstance(block, Chart) else [block]
        shown = next((text for text in map(_shown, choices) if len(text.encode()) <= left), None)
        if shown is None:
            omitted += 1
            continue
        left -= len(shown.encode())
        found.append(shown)
    if omitted:
        what = "1 chart or table is" if omitted == 1 else f"{omitted} charts or tables are"
        found.append(_shown(Paragraph(f"{what} left out here, because a page stays below {PAGE_BYTES // 1000} kB.")))
    return found


def _shown(block: Block | Table) -> Markup:
    kind = type(block).__name__.lower()
    return Markup(_environment().get_template("block.html").render(kind=kind, block=block))  # noqa: S704 - the template escapes


@cache
def _environment() -> Environment:
    """Return a Jinja2 environment with this package's templates. It escapes all values that a template inserts."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("pages need Jinja2", "aggregator") from None
    return Environment(
        loader=PackageLoader("aggregator.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )


@cache
def _style() -> str:
    return files("aggregator.page").joinpath("style.css").read_text(encoding="utf-8")
