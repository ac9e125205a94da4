"""Counting of the reports that the options of a command select."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.inputs import rosters_of
from aggregator.cli.options import Selection
from aggregator.cli.output import print_facts, warn, working
from aggregator.common.periods import Span
from aggregator.reports.cluster import open_cluster
from aggregator.reports.intake.remote import Executor
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics
    from aggregator.operations.models import JoinedStatistics
    from aggregator.operations.report_store import Store
    from aggregator.publishing.workspace import Workspace
    from aggregator.reports.fleet import Roster


def chosen_periods(periods: Span | None, campaign: Campaign) -> range | None:
    """Return the numbers of a campaign's periods that ``periods`` selects by dates or numbers, or None (all) for None.

    InputError ``periods_absent``: no period of the campaign's length begins in the span, or the span is empty.
    """
    return None if periods is None else periods.of(campaign.time_precision)


@contextmanager
def workers_of(cluster: str | None) -> Iterator[Executor | None]:
    """Open a context that connects to the cluster at the address ``cluster`` and gives its workers; None gives None.

    A warning is printed for a ``tcp://`` address, since its connection is not encrypted. Raises the errors of
    :func:`aggregator.reports.cluster.open_cluster`.
    """
    if cluster is None:
        yield None
        return

    if cluster.startswith("tcp://"):
        warn(
            f"anybody who reaches {cluster} can run any program as the user of its workers, and read and change the "
            "store; tls:// admits only holders of certificates"
        )
    with open_cluster(cluster) as workers:
        yield workers


@contextmanager
def working_on(store: Store, cluster: str | None) -> Iterator[None]:
    """Open a context in which a store is read and counted by a cluster, or by the threads of this process for None."""
    with workers_of(cluster) as workers:
        store.cluster = workers
        try:
            yield
        finally:
            store.cluster = None


def count_each(selection: Selection) -> list[tuple[Statistics, bytes]]:
    """Count the reports of every store, or add the summaries of a store of nodes.

    For a store of nodes only the periods and the robust rule of ``selection`` matter. The result has for each store its
    statistics, and the bytes of its campaign's file. Raises InputError ``robust_invalid``: no such rule, or no store
    has summaries of nodes. Raises InputError, StorageError: a store can not be opened or counted
    (:func:`aggregator.operations.models.count`).
    """
    from aggregator.nodes.statistics.robust import parse_rule
    from aggregator.nodes.store.opening import is_node_store

    if selection.robust is not None:
        parse_rule(selection.robust)
        if not any(map(is_node_store, selection.stores)):
            raise InputError("robust_invalid", "a robust rule is for summaries of nodes; these stores have reports")
    rosters = rosters_of(selection.lists)
    return [_counted(store, selection, rosters) for store in selection.stores]


def _counted(path: Path, selection: Selection, rosters: Sequence[Roster]) -> tuple[Statistics, bytes]:
    from aggregator.nodes.store.envelope_store import EnvelopeStore
    from aggregator.operations.models import count, open_any
    from aggregator.operations.report_store import Store

    store = open_any(path)
    periods = chosen_periods(selection.periods, store.campaign)
    if not isinstance(store, Store):
        with working("adding summaries"):
            robust = selection.robust if isinstance(store, EnvelopeStore) else None
            return count(store, periods, robust=robust), store.campaign_bytes
    if selection.memory is not None:
        store.memory_bytes = selection.memory
    with working_on(store, selection.cluster), working("counting reports"):
        found = count(store, periods, proven_only=selection.proven_only, rosters=rosters)
        return found, store.campaign_bytes


def count_stores(
    selection: Selection,
    postprocess: str | None = None,
    *,
    workspace: Workspace | Path | None = None,
    trust: Path | None = None,
) -> tuple[JoinedStatistics, list[bytes]]:
    """Count the selected stores, and join them with each other and with the selected counts of records.

    ``workspace``, ``trust``: whose key must have signed the counts. Return them with every campaign's file.
    """
    from aggregator.operations.models import counts_of, together

    counted = count_each(selection)
    files = [raw for _, raw in counted]
    records = counts_of(selection.counts, files, weight=selection.weight, workspace=workspace, trust=trust)
    found = together(
        [*(statistics for statistics, _ in counted), *records],
        one_population=selection.one_population,
        disjoint=selection.disjoint,
        postprocess=postprocess,
    )
    return found, files


def losses(statistics: Statistics) -> list[str]:
    """Return what robust rules cost on honest data: a sentence for each source of statistics that such a rule made."""
    found = [source.card().get("robust_loss") for source in statistics.sources]
    return [str(loss) for loss in found if loss is not None]


def print_populations(populations: Mapping[str, Any]) -> None:
    """Print what the two intervals of each estimate are about, from :attr:`.Statistics.populations`."""
    from aggregator.estimates.recurrence import BOUND

    click.echo()
    advice = "; --fleet LIST.hsf tells, in a closed fleet" if populations.get("basis") == BOUND else ""
    print_facts(
        {
            "these devices": populations["devices"],
            "population": populations["population"],
            "assumed": f"{populations['assumes']}{advice}",
        }
    )
