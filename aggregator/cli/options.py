"""Options that several commands share, and parsers of the options' texts.

Each docstring names the parameters that the command then receives. This module opens no file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from aggregator.cli.output import setting, wrong_usage
from aggregator.common.passphrases import VARIABLE, read_passphrase
from aggregator.common.periods import Span, parse_span, parse_start
from aggregator.publishing.signatures import MAX_DAYS
from protocol.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


PATH = click.Path(path_type=Path)
"""The type of an argument or option that names a file or folder."""

MECHANISMS = {
    "direct": "the value itself, or another one at random (k-ary randomised response); good for few values",
    "oue": "a bit for each value, rare ones the most exact (optimised unary encoding); good for many values",
    "sue": "a bit for each value, zeros and ones flipped alike (basic RAPPOR)",
    "subset": "a set of values that mostly holds the true one (subset selection); good between few and many values",
    "the": "a bit for each value: whether a noisy count is above a threshold",
    "she": "a noisy 0 or 1 for each value (histogram encoding); large reports",
    "bit": "one bit about one number; good for small ε",
    "bits": "bit, for each class: hides the class with the number",
    "piecewise": "a number near the true one more often than one far from it; good for large ε",
    "hybrid": "a coin decides between piecewise and bit; good at every ε for few numbers",
    "laplace": "all numbers at once, with Laplace noise made of integers",
    "duchi": "one bit for each number, drawn together",
}
"""Mechanism of devices → what it does, in a line. ``auto`` compares those of the family."""

POSTPROCESSINGS = {
    "learned": "posterior with priors learned from all features; the default for sums of nodes, curators, collectors",
    "posterior": "the mean of what is probable after the answers; the default for devices' answers",
    "simplex": "the nearest table of non-negative counts, with half a report in every cell",
    "paper": "estimates that are not positive become 1, as the first paper prints it",
    "add-one": "negative estimates become 0, then one report more in every cell (Laplace's rule)",
    "floored": "sums below a floor are raised to it",
    "printed": "the fractions of noisy sums as they come out, as the papers on sums print them",
    "halves": "printed, with at least half a record in every cell",
}
"""Post-processing → how it makes probabilities from estimates, in a line."""

CENTRAL_METHODS = {
    "sums": "noise on counts, sums and sums of squares",
    "global-std": "of each number mean and deviation, with noise for the worst records that the bounds allow",
    "global-var": "of each number mean and variance, likewise",
    "smooth": "of each number mean and variance, with noise for records near these (smooth sensitivity)",
    "smooth-trimmed": "as smooth, of the records between two quantiles",
    "bun-steinke": "trimmed means of numbers and of their squares (Bun and Steinke)",
}
"""Method of a curator's fit → what it does, in a line."""


def glossary(**tables: Mapping[str, str]) -> str:
    """Return text for the end of a command's help: a title for each table, and a line for each word of the table."""
    parts = []
    for title, table in tables.items():
        width = max(map(len, table))
        lines = [f"  {word:<{width}}  {meaning}" for word, meaning in table.items()]
        parts.append("\n".join(["\b", f"{title.replace('_', ' ')}:", *lines]))
    return "\n\n".join(parts)


LEAST_BYTES = 1 << 20
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}) ?(|KiB|MiB|GiB|TiB)")


def _reader(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Make the callback of an option: None stays None, and a text that ``parse`` refuses is wrong usage."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        problem = ""
        try:
            return None if text is None else parse(text)
        except InputError as error:
            problem = error.detail
        raise click.BadParameter(problem, context, parameter)

    return read


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    if size < LEAST_BYTES:
        raise InputError("size_invalid", "a size is at least 1MiB, for example 512MiB or 1GiB")
    return size


def _cluster_address(text: str) -> str:
    from aggregator.reports.cluster import check_address

    check_address(text)
    return text


read_size, read_span, read_start = _reader(_size), _reader(parse_span), _reader(parse_start)
"""Callbacks of options that take a size in bytes, a range of periods (``Span``), or a period (``Moment``)."""


output = click.option("-o", "--output", type=PATH, required=True, help="File to write; must not exist.")
"""``output``: the path of the file to write."""


def together(*options: Decorator) -> Decorator:
    """Make a decorator that adds several options, which the help lists in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def shared(*names: str, **options: Any) -> Decorator:
    """Make a decorator that adds an option, which the command does not receive: :func:`.output.setting` returns it."""

    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        context.meta[f"hearsay.{parameter.name}"] = value
        return value

    return click.option(*names, expose_value=False, callback=remember, **options)


force = shared("--force", is_flag=True, help="Replace the output if it exists.")
"""For :func:`.output.check_files`, :func:`.output.write_file` and :func:`.output.forced`."""

json = shared("--json", "as_json", is_flag=True, help="Print one JSON object.")
"""For :func:`.output.say` and :func:`.output.as_json`."""

workspace = click.option("--workspace", type=PATH, required=True, help="Folder made by hearsay init.")
"""``workspace``: the folder whose keys sign."""

naming_workspace = click.option("--workspace", type=PATH, help="Workspace that knows campaigns by name or id.")
"""``workspace``: the folder that knows campaigns by name or id, or None."""

store = click.option("--store", type=PATH, required=True, help="Folder made by hearsay ingest.")
"""``store``: the folder of a store that exists."""


def several_stores(*, required: bool = False) -> Decorator:
    """Make a decorator that adds ``stores``, folders of stores in the given order; maybe empty if not ``required``."""
    text = "Folder made by hearsay ingest; repeatable: statistics of several campaigns on one schema add up."
    return click.option("--store", "stores", type=PATH, multiple=True, required=required, help=text)


class Selection(NamedTuple):
    """Which reports a command counts, and on which machines.

    ``one_population`` and ``disjoint`` are the analyst's declarations: all stores are of one population; no device is
    in two. ``periods``: None for all; ``memory``: in bytes, None for the store's limit; ``cluster``: an address;
    ``robust``: text of a rule for summaries, None for plain addition; ``lists``: fleet lists; ``counts``: files of
    counts of records, with the share of trust ``weight``.
    """

    stores: tuple[Path, ...]
    one_population: bool = False
    disjoint: bool = False
    periods: Span | None = None
    proven_only: bool = False
    memory: int | None = None
    cluster: str | None = None
    robust: str | None = None
    lists: tuple[Path, ...] = ()
    counts: tuple[Path, ...] = ()
    weight: float = 1.0


def selected(*, required: bool = False) -> Decorator:
    """Make a decorator that adds ``--store`` and declarations about several stores. The command gets ``selection``.

    The command must have the options :func:`counted` too, and may have :func:`robust` and :func:`roster`. A declaration
    about fewer than two stores is wrong usage.
    """
    disjoint = "Declare that no device answered in two of the stores; so in one series."
    population = "Declare that all stores are of samples of one population; not needed for campaigns of one series."

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @several_stores(required=required)
        @click.option("--one-population", is_flag=True, help=population)
        @click.option("--disjoint", is_flag=True, help=disjoint)
        @wraps(command)
        def checked(*args: Any, **given: Any) -> Any:
            found = Selection(**{name: given.pop(name) for name in Selection._fields if name in given})
            if (found.one_population or found.disjoint) and len(found.stores) + len(found.counts) < 2:
                raise wrong_usage("--one-population and --disjoint are about several stores, or about --counts")
            if found.counts and not found.stores:
                raise wrong_usage("--counts are joined with the reports of a --store")
            if found.weight != 1 and not found.counts:
                raise wrong_usage("--weight is the share of trust in the records of --counts")
            return command(*args, selection=found, **given)

        return checked

    return add


_PERIODS = {
    "device": ("1d", "A device answers once per period: seconds, 90m, 12h, 1d."),
    "node": ("30d", "A node sends one summary per period: seconds, 12h, 7d."),
}


def time(of: str) -> Decorator:
    """Make a decorator that adds ``contact``, ``period`` and ``days`` of a campaign; ``of``: device or node."""
    default, text = _PERIODS[of]
    return together(
        click.option("--contact", default="not stated", help="Whom the owner of a device can ask."),
        click.option("--period", default=default, show_default=True, help=text),
        life(30, "campaign"),
    )


def term(of: str) -> Decorator:
    """Make a decorator that adds ``name`` (None for the schema's), ``purpose``, and the options of :func:`time`."""
    return together(
        click.option("--name", help="Default: the schema's name. Versions rise per name."),
        click.option("--purpose", default="", help=f"Purpose, as a sentence for the owner of a {of}."),
        time(of),
    )


def missing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options to ``command``, which gets ``missing``, a tuple of the cell texts that mean a missing value."""

    @wraps(command)
    def with_tokens(*args: Any, missing: tuple[str, ...], not_missing: tuple[str, ...], **rest: Any) -> Any:
        from aggregator.common.tables import MISSING_TOKENS

        both = sorted(set(missing) & set(not_missing))
        if both:
            raise wrong_usage(f"a cell is either missing or not: {both[0]!r} is given as both")
        tokens = dict.fromkeys((*(token for token in MISSING_TOKENS if token not in not_missing), *missing))
        return command(*args, missing=tuple(tokens), **rest)

    kept = click.option(
        "--not-missing",
        multiple=True,
        help="Cell text that is a value, though by default it means missing; repeatable.",
    )
    added = click.option(
        "--missing", multiple=True, help="Cell text that means a missing value, as empty cells and ? do; repeatable."
    )
    return added(kept(with_tokens))


def says_missing() -> bool:
    """Return whether the user of the running command gave an option of :func:`missing`."""
    context = click.get_current_context()
    names = ("missing", "not_missing")
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


equal_frequency = click.option(
    "--equal-frequency", is_flag=True, help="Bin edges at the pilot's quantiles; default: bins of equal width."
)
"""``equal_frequency``: whether bins are cut at quantiles."""

passphrase = shared(
    "--passphrase-file",
    type=PATH,
    envvar=VARIABLE,
    help=f"File whose first line is the passphrase; default: the file in {VARIABLE}, or ask at the terminal.",
)
"""For :func:`existing_passphrase` and :func:`new_passphrase`."""

no_passphrase = shared(
    "--no-passphrase", is_flag=True, help="Store new secrets unencrypted, in files that only their owner can read."
)
"""For :func:`new_passphrase`."""


def min_batch(of: str) -> Decorator:
    """Make a decorator that adds ``min_batch_size``: nothing is shown of fewer reports, or nodes."""
    return click.option(
        "--min-batch-size",
        type=click.IntRange(1, (1 << 32) - 1),
        default=1,
        show_default=True,
        help=f"Publish nothing from fewer {of}.",
    )


def life(default: int, of: str) -> Decorator:
    """Make a decorator that adds ``days``, how long a document of the kind ``of`` is valid: 1 to 36,500."""
    text = f"Days until the {of} expires."
    return click.option("--days", type=click.IntRange(1, MAX_DAYS), default=default, show_default=True, help=text)


shared_answers = together(
    click.option(
        "--trust",
        type=click.Choice(["local", "shared"]),
        default="local",
        show_default=True,
        help="local: devices answer with noise; shared: they split their records for two collectors.",
    ),
    click.option(
        "--delta", default="0", show_default=True, help="Shared: δ of a device; with δ the noise may be Gaussian."
    ),
)
"""Options of commands that choose what to ask: ``trust`` and ``delta``."""
series = together(
    click.option(
        "--series",
        metavar="NAME",
        help="A device answers once in all campaigns and periods of the series of this name.",
    ),
    click.option(
        "--share",
        metavar="FROM:TO",
        help="Ask only this share of the devices in the series, by chance: 0:0.25, 1/3:2/3; default: all.",
    ),
)
"""``series`` and ``share`` of a campaign of a series: texts, or None."""


def signers(of: str) -> Decorator:
    """Make a decorator that adds ``trust`` and ``workspace``: whose keys must have signed; each a path or None."""
    return together(
        click.option("--trust", type=PATH, help=f"Trust root that must have signed the {of}."),
        click.option("--workspace", type=PATH, help="Workspace with that trust root."),
    )


counted_records = together(
    click.option(
        "--counts",
        type=PATH,
        multiple=True,
        metavar="FILE.hsu",
        help="Counts of records (hearsay count) to join; repeatable.",
    ),
    click.option(
        "--weight",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Share of trust in these records: n of them count as WEIGHT times n.",
    ),
)
"""``counts``: files of counts of records; ``weight``: the share of trust in them."""


def memory(default: str | None = None) -> Decorator:
    """Make a decorator that adds ``memory``, a number of bytes; None if there is no default: the store's own limit."""
    text = "How much memory to use for reports." + ("" if default else "  [default: 1GiB]")
    return click.option("--memory", callback=read_size, default=default, show_default=True, metavar="SIZE", help=text)


def periods(*, required: bool = False) -> Decorator:
    """Make a decorator that adds ``periods``, a range of periods (:class:`Span`), perhaps None if not ``required``."""
    text = "First and last period or day, both included, UTC: 2026-11-01..2026-11-30, 20758.., .. for all."
    return click.option("--periods", callback=read_span, metavar="A..B", required=required, help=text)


cluster = click.option(
    "--cluster",
    callback=_reader(_cluster_address),
    metavar="ADDRESS",
    help="Work on a Dask cluster: tls://HOST:PORT; tcp://HOST:PORT only in a network that nobody else can reach; "
    "local:N for N processes on this machine, to try it out. On one machine threads are faster and need no option.",
)
"""``cluster``: the address of a Dask cluster; None means this machine."""

_proven = click.option("--proven-only", is_flag=True, help="Leave out reports from damaged files.")
counted = together(periods(), _proven, memory(), cluster)
"""Which reports to count, and on which machines, for :func:`selected`."""

robust = click.option(
    "--robust",
    metavar="RULE",
    help="For summaries of many nodes of equal size, some of which may lie: trimmed-mean:SHARE, median or krum:LIARS. "
    "The cost on honest data is printed.",
)
"""``robust``: the text of a robust rule for nodes that may lie, or None."""


def fleet_lists(text: str, *, required: bool = False) -> Decorator:
    """Make a decorator that adds ``lists``, paths of fleet lists, as the option ``--fleet`` with this help text."""
    return click.option("--fleet", "lists", type=PATH, multiple=True, required=required, metavar="LIST.hsf", help=text)


roster = together(
    fleet_lists(
        "Fleet list of a closed fleet, which tells how often each device answered; several together are one fleet."
    ),
    passphrase,
)
"""``lists``: paths of fleet lists, which tell how often each device answered."""

enrolment = together(
    click.option(
        "--enrolled",
        type=PATH,
        metavar="IDS.hsi",
        help="Ids of a closed fleet, from hearsay fleet ids: all other reports are refused.",
    ),
    fleet_lists("Fleet list (.hsf) instead of ids; several together are one fleet."),
    passphrase,
)
"""``enrolled`` (a path or None) and ``lists`` (paths): the enrolled devices, by a file of ids or by fleet lists."""


def existing_passphrase(what: str = "") -> Callable[[], bytes]:
    """Make a function that returns the passphrase of existing secrets, from ``--passphrase-file`` or the terminal.

    Its first call reads the file or asks the user for the passphrase of ``what``. Later calls return the same.

    Raises (when the result is called):
        InputError: ``passphrase_missing``: there is neither a file nor a terminal, or the passphrase is empty; those of
            an unreadable file.
    """
    file: Path | None = setting("passphrase_file")

    @lru_cache(maxsize=1)
    def passphrase() -> bytes:
        return _from_terminal(what, again=False) if file is None else read_passphrase(file)

    return passphrase


def new_passphrase(what: str = "", option: str = "passphrase_file") -> bytes | None:
    """Read or ask for a passphrase for new secrets; None only with ``--no-passphrase`` (decision 47).

    ``option`` is the :func:`shared` option that names the file. Errors are those of :func:`existing_passphrase`.
    """
    if setting("no_passphrase"):
        return None
    file: Path | None = setting(option)
    return _from_terminal(what, again=True) if file is None else read_passphrase(file)


def is_terminal() -> bool:
    """Return whether standard input is a terminal, so that a person can answer questions."""
    return sys.stdin.isatty()


def _from_terminal(what: str, *, again: bool) -> bytes:
    """Ask for a passphrase at the terminal; with ``again`` twice, for a new passphrase."""
    if not is_terminal():
        clear = ", or --no-passphrase for none" if again else ""
        raise InputError(
            "passphrase_missing", f"give --passphrase-file, or set {VARIABLE}{clear}: there is no terminal to ask"
        )
    text: str = click.prompt(
        f"Passphrase of {what}" if what else "Passphrase", hide_input=True, confirmation_prompt=again, err=True
    )
    return text.encode()
