"""The option ``--periods A..B``: which periods of a campaign a command is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST = (1 << 32) - 1
_RANGE = re.compile(r"([0-9]{1,10})?(\.\.)?([0-9]{1,10})?")


class Periods(click.ParamType):
    """``A..B``, both included; ``A..`` and ``..B`` are open at one end, ``A`` is one period. Gives a ``range``."""

    name = "A..B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """The periods as a range of integers."""
        if isinstance(value, range):
            return value
        match = _RANGE.fullmatch(str(value))
        first, dots, last = match.groups() if match is not None else (None, None, None)
        if first is None and last is None:
            self.fail("periods are two numbers, for example 20770..20799; 'hearsay status' lists them", param, ctx)
        low = int(first or 0)
        high = int(last) if last is not None else (_LARGEST if dots else low)
        if not low <= high <= _LARGEST:
            self.fail("the first period comes after the last, or is no period", param, ctx)
        return range(low, high + 1)


def periods_option(*, required: bool = False) -> Callable[[Any], Any]:
    """``--periods A..B``, passed on as ``periods``: a range, or None."""
    text = "First and last period, both included; A.. and ..B are open at one end."
    return click.option("--periods", type=Periods(), metavar="A..B", required=required, help=text)
