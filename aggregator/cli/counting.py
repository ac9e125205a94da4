"""Counting the reports of a store that options of a command select."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.output import print_facts, warn, working
from aggregator.common.periods import Span
from aggregator.reports.cluster import open_cluster
from aggregator.reports.intake.remote import Executor
from aggregator.reports.tally.scope import scope_of
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics
    from aggregator.nodes.statistics.robust import Rule
    from aggregator.operations.models import Together
    from aggregator.operations.report_store import Store
    from aggregator.reports.fleet import Roster


def chosen_periods(periods: Span | None, campaign: Campaign) -> range | None:
    """The numbers of a campaign's periods that ``periods`` selects by dates or numbers; None (all) for None.

    Raises:
        InputError: ``periods_absent``: no period of the campaign's length begins in the span, or it is empty.
    """
    return None if periods is None else periods.of(campaign.time_precision)


@contextmanager
def workers_of(cluster: str | None) -> Iterator[Executor | None]:
    """Context manager that connects to the cluster at the address ``cluster``, and gives its workers.

    It gives None if ``cluster`` is None. A ``tcp://`` address is warned of, since its connection is not encrypted.

    Raises:
        InputError: ``missing_extra``: Dask is not installed.
        StorageError: ``cluster_unreachable``: no cluster with workers answers.
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
    """Context manager in whose block the cluster at the address ``cluster`` reads and counts for a store.

    If ``cluster`` is None, the threads of this process do it.

    Raises:
        InputError: ``missing_extra``: Dask is not installed.
        StorageError: ``cluster_unreachable``: no cluster with workers answers.
    """
    with workers_of(cluster) as workers:
        store.cluster = workers
        try:
            yield
        finally:
            store.cluster = None


def count_store(
    store: Path,
    periods: Span | None,
    memory: int | None,
    cluster: str | None,
    *,
    proven_only: bool,
    rosters: Sequence[Roster] = (),
    rule: Rule | None = None,
) -> tuple[Statistics, bytes]:
    """Count reports of a store, or add the summaries of a store of nodes.

    Of summaries only ``periods`` and ``rule`` matter: each is signed by itself and small.

    Args:
        store: folder of the store.
        periods: the periods to count; None for all.
        memory: bytes of memory for records; None for the store's own limit.
        cluster: address of a cluster; None for this machine.
        proven_only: leave out reports from damaged files.
        rosters: fleet lists, which tell how often each device answered.
        rule: a robust rule for summaries of nodes; None for plain addition.

    Returns:
        The statistics, and the bytes of the campaign's file.

    Raises:
        InputError: ``periods_absent``: no period is in the span; ``missing_extra``: Dask is not installed;
            ``fleet_incomplete``, ``reports_forgotten``: the rosters do not tell the devices of all reports.
        StorageError: ``cluster_unreachable``; or the store can not be opened or counted.
    """
    from aggregator.nodes.store.opening import is_node_store, open_node_store
    from aggregator.operations.report_store import open_store

    if is_node_store(store):
        nodes = open_node_store(store)
        with working("adding summaries"):
            scope = scope_of(chosen_periods(periods, nodes.campaign))
            return nodes.statistics(scope, rule), nodes.campaign_bytes
    opened = open_store(store)
    if memory is not None:
        opened.memory_bytes = memory
    with working_on(opened, cluster), working("counting reports"):
        scope = scope_of(chosen_periods(periods, opened.campaign), proven_only=proven_only)
        return opened.statistics(scope, rosters=rosters), opened.campaign_bytes


def count_stores(
    stores: Sequence[Path],
    periods: Span | None,
    memory: int | None,
    cluster: str | None,
    *,
    proven_only: bool,
    one_population: bool,
    disjoint: bool,
    postprocess: str | None = None,
    rosters: Sequence[Roster] = (),
    robust: str | None = None,
) -> tuple[Together, list[bytes]]:
    """Count reports of one store or of several, and join the statistics of several.

    Args:
        stores: folders of the stores, at least one.
        periods, memory, cluster, proven_only, rosters: as for :func:`count_store`, the same for every store.
        one_population, disjoint: the analyst's declarations about several stores.
        postprocess: post-processing of the joined statistics; None for the newest campaign's.
        robust: text of a robust rule for the stores of summaries; None for plain addition.

    Returns:
        The statistics with the test of homogeneity, and the bytes of every campaign's file.

    Raises:
        InputError: ``robust_invalid``: no such rule, or no store has summaries of nodes.
        InputError, StorageError: a store can not be counted (:func:`count_store`), or the stores do not fit together
            (:func:`aggregator.estimates.joining.join`).
    """
    from aggregator.nodes.statistics.robust import parse_rule
    from aggregator.nodes.store.opening import is_node_store
    from aggregator.operations.models import together

    rule = None if robust is None else parse_rule(robust)
    if rule is not None and not any(map(is_node_store, stores)):
        raise InputError("robust_invalid", "a robust rule is for summaries of nodes; these stores have reports")
    counted = [
        count_store(store, periods, memory, cluster, proven_only=proven_only, rosters=rosters, rule=rule)
        for store in stores
    ]
    found = together(
        [statistics for statistics, _ in counted],
        one_population=one_population,
        disjoint=disjoint,
        postprocess=postprocess,
    )
    return found, [raw for _, raw in counted]


def losses(statistics: Statistics) -> list[str]:
    """What robust rules cost on honest data, a sentence per source that was made by such a rule."""
    found = [source.card().get("robust_loss") for source in statistics.sources]
    return [str(loss) for loss in found if loss is not None]


def print_populations(populations: Mapping[str, Any]) -> None:
    """Print what the two intervals of each estimate are about, and the assumption of the second one.

    Args:
        populations: value of :attr:`aggregator.estimates.statistics.Statistics.populations`.
    """
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
