"""Whoever reads and counts in place of this process's threads: what a store needs of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.transaction import Ingest
    from aggregator.storage.manifest import Manifest
    from aggregator.tally.counting import Partition
    from protocol.documents.campaign import Campaign

Result = TypeVar("Result")


class Workers(Protocol):
    """Many processes that see a store's folder; ``aggregator.cluster.cluster`` has them on Dask."""

    @property
    def threads(self) -> int:
        """Tasks that run at a time on all of them."""

    @property
    def threads_each(self) -> int:
        """Tasks that run at a time on one of them."""

    def ingest(
        self, folder: Path, campaign: Campaign, manifest: Manifest, now: int, enrolled: Enrolled | None
    ) -> Ingest:
        """An ingest whose files they read. Arguments as of ``Ingest``."""

    def over_slices(
        self,
        function: Callable[..., Result],
        folder: Path,
        manifest: Manifest,
        work: Iterable[Partition],
        *more: object,
    ) -> Iterator[Result]:
        """``function(folder, campaign, manifest, slice, *more)`` of every slice, as they become ready."""

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """The results of many calls, as they become ready."""

    def share(self, value: Result) -> Any:
        """A value that every task may take."""
