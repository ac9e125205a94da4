"""The option ``--cluster``: whose processors a command uses instead of this machine's threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.output import warn
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aggregator.store.store import Store


def cluster_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--cluster ADDRESS``, passed on as ``cluster``: an address, or None."""
    text = (
        "Work on a Dask cluster: tls://HOST:PORT of one, tcp:// only where nobody else is in the network, or local:N "
        "for N processes here, to try it out: threads, which need no option, are faster on one machine."
    )
    return click.option("--cluster", callback=parse_cluster, metavar="ADDRESS", help=text)(command)


def parse_cluster(context: click.Context | None, parameter: click.Parameter | None, text: str | None) -> str | None:
    """An address that may be one of a cluster."""
    if text is None:
        return None
    from aggregator.cluster.cluster import check_address

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
    from aggregator.cluster.cluster import open_cluster

    if cluster.startswith("tcp://"):
        warn(
            f"whoever reaches {cluster} can run any program as the user of its workers, and read and change the "
            "store; tls:// lets in the holders of certificates alone"
        )
    with open_cluster(cluster) as workers:
        store.cluster = workers
        try:
            yield
        finally:
            store.cluster = None
