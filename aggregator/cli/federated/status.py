"""``hearsay status`` of a store of nodes' summaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.output import counted, note, print_facts, print_json, print_table, warn_of_end
from aggregator.common.periods import shown
from aggregator.nodes.campaigns.words import in_words
from protocol.epsilon import format_micro

if TYPE_CHECKING:
    from aggregator.nodes.masked.store import MaskedStore
    from aggregator.nodes.summaries.status import NodeStatus, PeriodCount


_PERIODS = 31
_NAMES = 4


def print_node_status(store: Path, *, as_json: bool) -> None:
    """Print the nodes of each period, and what does not count by reason.

    Args:
        store: folder of the store.
        as_json: print one JSON object.

    Raises:
        InputError, StorageError: the store can not be read (:func:`aggregator.nodes.summaries.status.status`).
    """
    from aggregator.nodes.masked.store import MaskedStore
    from aggregator.nodes.masked.stores import open_node_store
    from aggregator.nodes.summaries.status import status

    opened = open_node_store(store)
    found = status(opened)
    warn_of_end(opened.campaign)
    sums = _sums(opened, found) if isinstance(opened, MaskedStore) else None
    if as_json:
        print_json({**found.to_json(), **({} if sums is None else {"sums": sums})})
        return
    _print(found, opened.what, in_words(opened.campaign)[found.adjacency])
    if sums:
        click.echo()
        rows = [["" if value is None else value for value in each.values()] for each in sums]
        print_table(("period", "messages", "needed", "asked for", "in the sum"), rows, numeric=("messages", "needed"))


def _sums(store: MaskedStore, found: NodeStatus) -> list[dict[str, object]]:
    """For each period: messages that count, parties that a sum needs, parties of the request and of the sum."""
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
    """Print the facts and the periods; ``neighbours`` are the kind that every ε is for, in words."""
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
    rows = [_row(period, found.time_precision) for period in last]
    print_table(
        ["period", "nodes", "missing", "in conflict", "missing nodes"], rows, ["nodes", "missing", "in conflict"]
    )
    if len(last) < len(found.periods):
        note(f"{len(found.periods) - len(last)} earlier periods; --json has all, with the ids of all missing nodes")


def _stated(found: NodeStatus, epsilon_micro: int) -> str:
    """Number of summaries with this ε; with the ids of their nodes if these are few and other nodes state another ε."""
    nodes = found.epsilon_nodes[epsilon_micro]
    names = f": {', '.join(nodes)}" if len(found.summaries) > 1 and len(nodes) <= _NAMES else ""
    return f"{found.summaries[epsilon_micro]}{names}"


def _row(period: PeriodCount, time_precision: int) -> tuple[object, ...]:
    names = ", ".join(period.missing[:_NAMES]) + (", …" if len(period.missing) > _NAMES else "")
    return shown(period.period, time_precision), period.seen, len(period.missing), len(period.conflicting), names
