"""Campaigns with several mechanisms, and small schemas whose records can be enumerated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import mechanisms
from protocol.documents import campaign
from protocol.features import Categorical
from protocol.questions import build_questions, discrete_subjects
from protocol.schema import Label, Schema, build_schema
from support.publisher import DAY, Publisher

if TYPE_CHECKING:
    from collections.abc import Sequence


def tiny_schema() -> Schema:
    """Two classes and two features of two codes each: eight records in all, questions of 2, 4 and 4 values."""
    return build_schema(
        Label("label", ["e", "p"]), [Categorical("odor", ["a"]), Categorical("cap", ["x", "y"], "missing", 0)]
    )


def mixed_payload(names: Sequence[str], *, answers: int = 1, publisher: Publisher | None = None) -> bytes:
    """The payload of a campaign in which question i is answered by the mechanism called ``names[i]``.

    ε is one per answer.
    """
    publisher = publisher or Publisher()
    subjects = discrete_subjects(publisher.schema)
    chosen = dict(zip(subjects, names, strict=True))
    return campaign.build_payload(
        publisher.header("mixture"),
        publisher.schema,
        build_questions(
            subjects, answers, lambda subject: mechanisms.from_micro(chosen[subject], 1_000_000, subject.size)
        ),
        epsilon_micro=1_000_000 * answers,
        purpose="tell edible from poisonous",
        contact="someone@example.org",
        time_precision=DAY,
        min_batch_size=1,
        fit=campaign.Fit("discrete", "simplex"),
    )
