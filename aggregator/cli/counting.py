"""What ``estimate``, ``publish`` and ``evaluate show`` share: which of a store's reports they count, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.clusters import cluster_option, working_on
from aggregator.cli.output import working
from aggregator.cli.periods import chosen_periods, periods_option
from aggregator.cli.sizes import memory_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aggregator.estimates.statistics import Statistics
    from aggregator.fleet.roster import Roster
    from aggregator.periods import Span


def counted_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--periods``, ``--proven-only``, ``--memory`` and ``--cluster``, passed on under these names."""
    proven = click.option("--proven-only", is_flag=True, help="Leave out reports from damaged files.")
    for option in (cluster_option, memory_option(), proven, periods_option()):
        command = option(command)
    return command


def count_store(
    store: Path,
    periods: Span | None,
    memory: int | None,
    cluster: str | None,
    *,
    proven_only: bool,
    rosters: Sequence[Roster] = (),
) -> tuple[Statistics, bytes]:
    """The statistics of some of a store's reports, and its campaign's file.

    Args:
        store: its folder.
        periods: which; None for all.
        memory: bytes for the records; None for the store's own choice.
        cluster: the address of one, or None.
        proven_only: leave out reports from damaged files.
        rosters: fleet lists, so that it is known how often each device answered.

    Raises:
        InputError, StorageError: as the store's own methods.
    """
    from aggregator.store.store import open_store
    from aggregator.tally.counting import scope_of

    opened = open_store(store)
    if memory is not None:
        opened.memory_bytes = memory
    with working_on(opened, cluster), working("counting reports"):
        scope = scope_of(chosen_periods(periods, opened.campaign), proven_only=proven_only)
        return opened.statistics(scope, rosters=rosters), opened.campaign_bytes
