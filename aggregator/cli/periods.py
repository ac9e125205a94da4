"""The option ``--periods A..B``: which periods of a campaign a command is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST = (1 << 32) - 1
_RANGE = re.compile(r"([0-9]{1,10})?(\.\.)?([0-9]{1,10})?")


def parse_periods(context: click.Context | None, parameter: click.Parameter | None, text: str | None) -> range | None:
    """``A..B``, both included, as a range; ``A..`` and ``..B`` are open at one end, ``A`` is one period."""
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    first, dots, last = match.groups() if match is not None else (None, None, None)
    if (first is None and last is None) or (dots is None and last is not None):
        problem = "periods are two numbers, for example 20770..20799; 'hearsay status' lists them"
        raise click.BadParameter(problem, context, parameter)
    low = int(first or 0)
    high = int(last) if last is not None else (_LARGEST if dots else low)
    if not low <= high <= _LARGEST:
        raise click.BadParameter("the first period comes after the last, or is no period", context, parameter)
    return range(low, high + 1)


def periods_option(*, required: bool = False) -> Callable[[Any], Any]:
    """``--periods A..B``, passed on as ``periods``: a range, or None."""
    text = "First and last period, both included; A.. and ..B are open at one end."
    return click.option("--periods", callback=parse_periods, metavar="A..B", required=required, help=text)
