"""What commands do with a store of nodes' summaries or masked messages: ingest, export, status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.counting import chosen_periods
from aggregator.cli.inputs import print_groups, print_intake, report_files, say_unread
from aggregator.cli.output import (
    as_json,
    counted,
    forced,
    note,
    print_facts,
    print_json,
    print_table,
    progress,
    warn_of_end,
)
from aggregator.common.periods import Span
from aggregator.nodes.campaigns.sheet import in_words
from aggregator.reports.storage.manifest import read_campaign
from aggregator.reports.tally.scope import scope_of
from protocol.epsilon import format_micro
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.nodes.store.envelope_store import EnvelopeIngest
    from aggregator.nodes.store.masked import MaskedStore
    from aggregator.nodes.store.status import NodeStatus


def ingest_summaries(
    campaign_bytes: bytes,
    names: tuple[str, ...],
    store: Path,
    list_bytes: bytes | None,
    book_bytes: bytes | None,
    now: int,
    *,
    recursive: bool,
    strict: bool,
) -> None:
    """Take in files of summaries or masked messages, and print the numbers.

    The campaign and the list of nodes were checked; None stands for the list or the key book that the store has. Raises
    InputError ``unreadable``: no file can be read, or one with ``strict``; and the errors of the store.
    """
    from aggregator.nodes.store.opening import kind_of, new_or_open

    kind = kind_of(read_campaign(campaign_bytes))
    given = report_files(names, recursive=recursive, suffixes=kind.suffixes())
    opened = new_or_open(store, campaign_bytes, list_bytes, given, book_bytes)
    with progress(f"reading {kind.what}", len(given)) as callback:
        taken = opened.ingest(given, now=now, progress=callback)
    _print_taken(taken, kind.what)
    if not given:
        note(f"there is no file of {kind.what}; nothing was added")
    if taken.rejected.get("node_not_listed"):
        note("give files with nodes that were not listed again when a newer list names them (--nodes)")
    if taken.rejected.get("stale_key"):
        note("give files with stale keys again when you have the key book that names these keys (--keys)")
    say_unread(len(taken.unreadable), taken.files, strict=strict)


def _print_taken(taken: EnvelopeIngest, what: str) -> None:
    facts = {
        "files": taken.files,
        "files not read": len(taken.unreadable),
        f"{what} added": taken.accepted,
        f"{what} repeated": taken.replayed,
    }
    print_intake(taken, facts | ({f"{what} in conflict": taken.conflicting} if taken.conflicting else {}))


def export_summaries(store: Path, kind: str, periods: Span | None, output: Path, *, everything: bool) -> None:
    """Write the summaries (``kind`` ``hsn``) or masked messages (``hse``) of a store to one file; print their number.

    With ``everything`` also those that do not count. ``periods`` is None for all. Raises InputError, StorageError: the
    store holds the other kind, or can not be read or written.
    """
    from aggregator.nodes.store.opening import open_node_store

    opened = open_node_store(store)
    if opened.suffix != f".{kind}":
        raise InputError("argument_invalid", f"this store holds {opened.what}: export them as {opened.suffix[1:]}")
    scope = scope_of(chosen_periods(periods, opened.campaign))
    number = opened.export(output, scope=scope, everything=everything, force=forced())
    if as_json():
        print_json({opened.what: number, "output": str(output)})
        return
    print_facts({opened.what: number, "written": str(output)})


def list_refused(store: Path, reason: str | None, *, pieces: bool) -> None:
    """Print by reason and file how much of files of summaries was refused; with ``pieces`` a line for each."""
    from aggregator.nodes.store.opening import open_node_store

    opened = open_node_store(store)
    counted = {each: number for each, number in opened.rejected().items() if reason in (None, each)}
    found = [(name, file, piece) for name, file, piece in opened.quarantined() if reason in (None, piece.reason)]
    if as_json():
        listed = [{"file": name, "identity": file.hex(), **piece._asdict()} for name, file, piece in found]
        print_json({"counted": counted, "kept": listed})
        return
    if pieces:
        rows = [(piece.reason, name, piece.offset, piece.length) for name, _, piece in found]
        print_table(["reason", "file", "offset", "bytes"], rows, ["offset", "bytes"])
    else:
        print_groups([(piece.reason, name, file.hex(), piece.length) for name, file, piece in found])
    for each, number in counted.items():
        kept = sum(piece.reason == each for _, _, piece in found)
        if number > kept:
            note(f"{each}: {number} were counted, the places of {kept} of them are kept")


_PERIODS = 31
_NAMES = 4


def print_node_status(store: Path) -> None:
    """Print the nodes of each period, and by reason the summaries that do not count."""
    from aggregator.nodes.store.masked import MaskedStore
    from aggregator.nodes.store.opening import open_node_store
    from aggregator.nodes.store.status import status

    opened = open_node_store(store)
    found = status(opened)
    warn_of_end(opened.campaign)
    sums = _sums(opened, found) if isinstance(opened, MaskedStore) else None
    if as_json():
        print_json({**found.to_json(), **({} if sums is None else {"sums": sums})})
        return
    _print(found, opened.what, in_words(opened.campaign)[found.adjacency])
    if sums:
        click.echo()
        rows = [["" if value is None else value for value in each.values()] for each in sums]
        print_table(("period", "messages", "needed", "asked for", "in the sum"), rows, numeric=("messages", "needed"))


def _sums(store: MaskedStore, found: NodeStatus) -> list[dict[str, object]]:
    """Return, per period, how many messages count, and how many parties a sum needs, was requested for, and has."""
    asked = store.asked()
    sums = {total.period: len(total.parties) for total in store.totals()}
    return [
        {
            "period": each.period,
            "messages": each.seen,
            "needed": store.needed(each.period),
            "asked_for": len(asked[each.period]) if each.period in asked else None,
            "decrypted": sums.get(each.period),
        }
        for each in found.periods
    ]


def _print(found: NodeStatus, what: str, neighbours: str) -> None:
    """Print the facts and the periods. ``neighbours`` says in words which records every ε is for."""
    from aggregator.page.sections.counts import period_row

    reached = "reached" if found.enough else "not reached"
    print_facts(
        {
            "campaign": found.name,
            "list of nodes": f"{found.list_name}, version {found.list_version}: {counted(found.listed, 'node')}",
            "nodes heard": found.nodes,
            what: sum(found.summaries.values()),
            "smallest batch": f"{counted(found.min_batch_size, 'node')}, {reached}",
        }
        | {f"of them with ε = {format_micro(each)} for {neighbours}": _stated(found, each) for each in found.summaries}
        | {f"set aside: {reason}": count for reason, count in found.rejected.items()}
    )
    if not found.periods:
        return
    click.echo()
    last = found.periods[-_PERIODS:]
    rows = [period_row(period, found.time_precision) for period in last]
    print_table(
        ["period", "nodes", "missing", "in conflict", "missing nodes"], rows, ["nodes", "missing", "in conflict"]
    )
    if len(last) < len(found.periods):
        note(f"{len(found.periods) - len(last)} earlier periods; --json has all, with the ids of all missing nodes")


def _stated(found: NodeStatus, epsilon_micro: int) -> str:
    """Return the number of summaries with this ε, and ids of their nodes if few, and others state another ε."""
    nodes = found.epsilon_nodes[epsilon_micro]
    names = f": {', '.join(nodes)}" if len(found.summaries) > 1 and len(nodes) <= _NAMES else ""
    return f"{found.summaries[epsilon_micro]}{names}"
