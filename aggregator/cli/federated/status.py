"""``hearsay status`` of a store of nodes' summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aggregator.cli.output import counted, note, print_facts, print_json, print_table
from aggregator.periods import shown
from protocol.epsilon import format_micro

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.nodes.status import NodeStatus, PeriodCount

_PERIODS = 31
_NAMES = 4


def print_node_status(store: Path, *, as_json: bool) -> None:
    """Print the nodes of each period, and what does not count by reason.

    Args:
        store: folder of the store.
        as_json: print one JSON object.

    Raises:
        InputError, StorageError: the store can not be read (:func:`aggregator.nodes.status.status`).
    """
    from aggregator.nodes.status import status
    from aggregator.nodes.store import open_node_store

    found = status(open_node_store(store))
    if as_json:
        print_json(found.to_json())
        return
    _print(found)


def _print(found: NodeStatus) -> None:
    reached = "reached" if found.enough else "not reached"
    print_facts(
        {
            "campaign": found.name,
            "list of nodes": f"{found.list_name}, version {found.list_version}: {counted(found.listed, 'node')}",
            "nodes heard": found.nodes,
            "summaries": sum(found.summaries.values()),
            "smallest batch": f"{counted(found.min_batch_size, 'node')}, {reached}",
        }
        | {f"of them with ε = {format_micro(each)}": _stated(found, each) for each in found.summaries}
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
