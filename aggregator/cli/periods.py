"""The option ``--periods A..B``: which periods of a campaign a command is about, by number or by date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aggregator.periods import Moment, Span, parse_span, parse_start
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.documents.campaign import Campaign


def read_span(context: click.Context | None, parameter: click.Parameter | None, text: str | None) -> Span | None:
    """What ``--periods`` says; None if it is not given."""
    if text is None:
        return None
    problem = ""
    try:
        return parse_span(text)
    except InputError as error:
        problem = error.detail
    raise click.BadParameter(problem, context, parameter)


def read_start(context: click.Context | None, parameter: click.Parameter | None, text: str) -> Moment:
    """What an option says that names one period by number, day or minute."""
    problem = ""
    try:
        return parse_start(text)
    except InputError as error:
        problem = error.detail
    raise click.BadParameter(problem, context, parameter)


def periods_option(*, required: bool = False) -> Callable[[Any], Any]:
    """``--periods A..B``, passed on as ``periods``: a :class:`Span`, or None."""
    text = "First and last period or day, both included, UTC: 2026-11-01..2026-11-30, 20758.., .. for all."
    return click.option("--periods", callback=read_span, metavar="A..B", required=required, help=text)


def chosen_periods(periods: Span | None, campaign: Campaign) -> range | None:
    """The numbers of the periods in a campaign; None for all.

    Raises:
        InputError: ``periods_absent``.
    """
    return None if periods is None else periods.of(campaign.time_precision)
