"""Interface of a remote executor: processes, also on other machines, that read and count for a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Executor(Protocol):
    """Processes that see a store's folder under the same path as the client, and have the same software.

    :class:`aggregator.reports.cluster.cluster.Cluster` implements it with Dask. Another engine is one more class with
    these
    members: what is read and counted remotely (:mod:`aggregator.reports.intake.remote`,
    :mod:`aggregator.reports.intake.tasks`) needs no others.
    """

    @property
    def threads(self) -> int:
        """Number of tasks that all processes together run at a time."""

    @property
    def threads_each(self) -> int:
        """Number of tasks that one process runs at a time. They share its memory."""

    @property
    def is_private(self) -> bool:
        """Whether calls and shared values travel encrypted, and so may hold secrets."""

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """Call a function once for each sequence of arguments, and yield the results as they become ready.

        Args:
            function: defined at the top of a module, so that its name can be sent. A lost call is repeated, so the
                function may run twice with the same arguments.
            calls: the arguments of each call; results of :meth:`share` may be among them.

        Raises:
            HearsayError: the function raised it.
            StorageError: the executor failed.
        """

    def share(self, value: object) -> Any:
        """Send a value to the processes. Give the result to :meth:`run` as an argument in place of the value."""
