"""What one run of ``sync`` has done, and which steps were refused."""

from __future__ import annotations

from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """A refused step.

    Attributes:
        step: the place of the document; ``outbox`` for sealing, sending and acknowledging; ``policy`` for reading it.
        reason: the stable reason (docs/reference/reasons.md).
        detail: one sentence.
        status: exit status of a program that ends with the step's error (docs/reference/output.md).
    """

    step: str
    reason: str
    detail: str
    status: int = 1


class Taken(NamedTuple):
    """A newly accepted document."""

    name: str
    version: int


class Outcome(NamedTuple):
    """The results of one run.

    Attributes:
        root_version: version of the root that is trusted now.
        rotated: number of new roots that led to it.
        campaigns, models: documents that were accepted in this run.
        unchanged: number of documents that were accepted before and have not changed.
        absent: places where the source has no document. Documents that an argument of :func:`sync` names are not
            here: they are refused as ``not_published``.
        sent: number of files that have arrived, with files that were sent again.
        released: number of reports that were acknowledged and deleted.
        disabled: the owner had opted out when the run began, so no campaign was fetched and no file was sent.
        refusals: the refused steps.
        lists: lists of nodes that a node accepted in this run.
        key_books: key books of masked campaigns that a node accepted in this run, by the names of the campaigns.
    """

    root_version: int
    rotated: int
    campaigns: tuple[Taken, ...]
    models: tuple[Taken, ...]
    unchanged: int
    absent: tuple[str, ...]
    sent: int
    released: int
    disabled: bool
    refusals: tuple[Refusal, ...]
    lists: tuple[Taken, ...] = ()
    key_books: tuple[Taken, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The outcome as a dictionary for JSON."""
        return {
            **self._asdict(),
            "campaigns": [each._asdict() for each in self.campaigns],
            "models": [each._asdict() for each in self.models],
            "lists": [each._asdict() for each in self.lists],
            "key_books": [each._asdict() for each in self.key_books],
            "absent": list(self.absent),
            "refusals": [each._asdict() for each in self.refusals],
        }
