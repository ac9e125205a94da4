"""The option ``--cluster``: whose processors a command uses instead of this machine's threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aggregator.intake.store import Store


def cluster_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--cluster ADDRESS``, passed on as ``cluster``: an address, or None."""
    text = "Work on a Dask cluster: tcp:// or tls://HOST:PORT of one, or local:N for N processes here."
    return click.option("--cluster", callback=parse_cluster, metavar="ADDRESS", help=text)(command)


def parse_cluster(context: click.Context | None, parameter: click.Parameter | None, text: str | None) -> str | None:
    """An address that may be one of a cluster."""
    if text is None:
        return None
    from aggregator.intake.cluster import check_address

    problem = ""
    try:
        check_address(text)
    except InputError as error:
        problem = error.detail
    if problem:
        raise click.BadParameter(problem, context, parameter)
    return text


@contextmanager
def working_on(store: Store, cluster: str | None) -> Iterator[None]:
    """Let a store's work be done by a cluster, if one is named.

    Raises:
        InputError: ``missing_extra``.
        StorageError: ``cluster_unreachable``.
    """
    if cluster is None:
        yield
        return
    from aggregator.intake.cluster import open_cluster

    with open_cluster(cluster) as workers:
        store.cluster = workers
        try:
            yield
        finally:
            store.cluster = None
