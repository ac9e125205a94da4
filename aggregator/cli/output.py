"""Output of commands: tables, facts or JSON on standard output; notes and progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.common.facts import Fact, Facts
from aggregator.common.files import check_outputs, write_output
from protocol.documents.campaign import Campaign
from protocol.documents.payload import quoted
from protocol.words import expiry_warning, to_words

if TYPE_CHECKING:
    from aggregator.publishing.naming import SignedCampaign
    from aggregator.publishing.signatures import Signatures
    from aggregator.publishing.workspace import Published


RESULT_PRINTED: ContextVar[bool] = ContextVar("RESULT_PRINTED", default=False)
"""Whether this run has printed its JSON. A command that is refused after that prints no second object."""
KINDS = {
    "nodes": "node list",
    "node": "node summaries",
    "masked": "masked messages",
    "keys": "key book",
    "release": "release of a masked sum",
    "total": "total of shared answers",
    "counts": "counts of records",
}
"""Role of an envelope → kind of file, where people call it otherwise."""
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def as_json() -> bool:
    """Return whether the running command has ``--json``: it then prints one JSON object."""
    return bool(setting("as_json"))


def forced() -> bool:
    """Return whether the running command has ``--force``: an output that exists is replaced."""
    return bool(setting("force"))


def setting(name: str) -> Any:
    """Return the value of a :func:`aggregator.cli.options.shared` option of the running command, or None."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"hearsay.{name}")


def wrong_usage(text: str) -> click.UsageError:
    """Return the error for a command line that is used wrongly, which names the help of the running command."""
    return click.UsageError(text, click.get_current_context())


def check_files(*outputs: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise an error if an output exists, unless ``--force`` is given, or if it is one of the command's inputs."""
    check_outputs(outputs, force=forced(), inputs=inputs)


def write_file(output: Path, content: bytes, **options: Any) -> None:
    """Write an output. An existing file is replaced only with ``--force``. ``options``: those of ``write_output``."""
    write_output(output, content, **{"force": forced(), **options})


def complain(reason: str, detail: str) -> None:
    """Print a refusal on standard error as one line ``reason: detail``. Scripts may rely on ``reason``."""
    click.echo(f"{reason}: {printable(detail)}", err=True)


def note(text: str) -> None:
    """Print ``text`` as one line of information on standard error."""
    click.echo(f"note: {printable(text)}", err=True)


def warn(text: str) -> None:
    """Print ``text`` as a warning, one line on standard error, about something that the user should reconsider."""
    click.echo(f"warning: {printable(text)}", err=True)


def printable(text: str) -> str:
    """Return a text on one line, with U+FFFD for unprintable characters, so that no text of a file forges a line."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)


def print_json(value: Any) -> None:
    """Print ``value`` as standard JSON: bytes become hexadecimal text, infinities and NaN become null."""
    RESULT_PRINTED.set(True)
    click.echo(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two aligned columns, one fact on each line, through :func:`printable`."""
    print_pairs(facts.items())


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print pairs of a name and a value as :func:`print_facts` does; two pairs may have one name."""
    shown = [(printable(name), printable(str(value))) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        _echo(f"{name:<{width}}  {value}")


def print_sheet(sheet: Facts) -> None:
    """Print a sheet of facts for people: pairs, sentences about them, a table, then further sheets with titles."""
    print_pairs(sheet.pairs())
    for sentence in sheet.notes:
        click.echo(f"  - {sentence}")
    if sheet.table is not None and sheet.table.rows:
        if sheet.facts:
            click.echo()
        print_table(sheet.table.columns, sheet.table.rows, sheet.table.numeric)
        if sheet.table.meaning:
            click.echo(sheet.table.meaning)
    for part in sheet.parts:
        click.echo(f"\n{part.title}" if part.title else "")
        print_sheet(part)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], numeric: Iterable[str] = ()) -> None:
    """Print an aligned table. On a terminal long cells are folded to its width. Other outputs get one line per row.

    Other outputs are aligned here, because a layout by rich takes a second for a thousand rows. Floats have six digits.
    Columns named in ``numeric`` are aligned on the right and never folded, because half a number misleads.
    """
    right = set(numeric)
    shown = [[_cell(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in _aligned([list(columns), *shown], [column in right for column in columns]):
            _echo(line)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")  # rich adds a space
    for column in columns:
        number = column in right
        table.add_column(Text(column), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in shown:
        table.add_row(*map(Text, row))  # rich would take a plain [0, 1) for markup
    Console(file=sys.stdout, highlight=False).print(table)


def _aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Yield rows as aligned lines. ``right`` says of each column whether it is aligned on the right."""
    from rich.cells import cell_len

    def width(cell: str) -> int:
        return len(cell) if cell.isascii() else cell_len(cell)

    widths = [0] * len(right)
    for row in rows:
        widths[: len(row)] = map(max, widths, map(width, row))
    for row in rows:
        gaps = [" " * (most - width(cell)) for most, cell in zip(widths, row, strict=False)]
        parts = zip(row, gaps, right, strict=False)
        yield "  ".join(gap + cell if number else cell + gap for cell, gap, number in parts).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(str(value))


def _echo(text: str) -> None:
    """Print a line. Characters that the terminal's encoding lacks (ε under an old locale) become ``?``."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """Open a context with a progress bar; gives a callback for (steps done, total), or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Open a context that shows the text ``what`` on standard error, if that is a terminal, until it ends."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(file=sys.stderr).status(what):
        yield


def counted(number: int, what: str, ending: str = "s") -> str:
    """Return a number with the noun ``what``, which gets ``ending`` in the plural: ``1 report``, ``2 reports``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}{ending}"


def lasting(seconds: int) -> str:
    """Return ``seconds`` in words, in the largest unit that gives a whole number: ``1 day``, ``90 minutes``."""
    for unit, name in _UNITS:
        if seconds % unit == 0:
            return counted(seconds // unit, name)
    return counted(seconds, "second")


def when(seconds: int) -> str:
    """Return date and time, UTC, of a moment in ``seconds`` since 1970, or the number if no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"


def say(facts: Mapping[str, Any] | Iterable[Fact]) -> None:
    """Print facts: one JSON object with ``--json``, else aligned lines."""
    given = (Fact(*pair) for pair in facts.items()) if isinstance(facts, Mapping) else facts
    told = Facts("", tuple(given))
    if as_json():
        print_json(told.to_json())
    else:
        print_pairs(told.pairs())


def signatures(held: Signatures, key: str = "signatures") -> Fact:
    """Return the fact about the valid signatures of a document."""
    return Fact(key, held.to_output(as_json=True), held)


def document_facts(item: Published) -> list[Fact]:
    """Return the facts that name a document of a workspace."""
    return [Fact("kind", item.role), Fact("name", item.name), Fact("version", item.version)]


def signed_facts(campaign: Campaign, output: Path) -> dict[str, Any]:
    """Return the facts that a command prints of any campaign it has signed: file, name, version, id and family."""
    header = campaign.header
    return {
        "campaign": str(output),
        "name": header.name,
        "version": header.version,
        "id": campaign.id.hex(),
        "id_in_words": to_words(campaign.id),
        "family": campaign.fit.family,
    }


def warn_of_end(campaign: Campaign) -> None:
    """Print a warning if a campaign has expired, or will within a week. Print none if its publisher has ended it."""
    header = campaign.header
    then = "without a newer version devices answer it no more; hearsay renew signs it, into a store of its own"
    what = f"the campaign {quoted(header.name)}, version {header.version},"
    said = expiry_warning(what, header.expires, int(time.time()), then)
    if said and not campaign.ended:
        warn(said)


def warn_of_signed(made: SignedCampaign, output: Path) -> None:
    """Print the warnings about a campaign that was signed and written, and another if it lacks signatures."""
    for warning in made.warnings:
        warn(warning)
    warn_of_draft(made.standing, output)


def warn_of_draft(standing: Signatures, output: Path) -> None:
    """Print a warning if the document in the file ``output`` lacks signatures, since devices refuse it."""
    if not standing.complete:
        warn(f"devices refuse it: it has {standing}; see hearsay sign {output} --key KEY, and hearsay trust gather")
