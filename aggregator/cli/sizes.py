"""The option ``--memory SIZE``: how much a command may hold at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}) ?(|KiB|MiB|GiB|TiB)")
LEAST = 1 << 20


def parse_size(context: click.Context | None, parameter: click.Parameter | None, text: str | None) -> int | None:
    """``512MiB`` or ``1GiB``, or a number of bytes, as bytes."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    if size < LEAST:
        raise click.BadParameter("a size is at least 1MiB, for example 512MiB or 1GiB", context, parameter)
    return size


def memory_option(default: str | None = None) -> Callable[[Any], Any]:
    """``--memory SIZE``, passed on as ``memory``: bytes; None without a default, where the store's own counts."""
    text = "How much memory to use for reports." + ("" if default else "  [default: 1GiB]")
    return click.option("--memory", callback=parse_size, default=default, show_default=True, metavar="SIZE", help=text)
