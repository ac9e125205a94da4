"""Make a device's answers about one record for one period, run evaluated models, and count unreadable values.

Whether a device reports must not depend on its record. So a value without a meaning for the campaign counts as missing,
and no error is raised; :class:`Meanings` lets the owner notice such values.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk.storage.ledger import is_booked
from protocol.batches.report import encode_answer, encode_report, report_id
from protocol.documents.model import evaluated_models, named_once, payloads_given, schema_read
from protocol.errors import InputError
from protocol.questions import CELL
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edge_sdk.policy import Policy
    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from protocol.documents.campaign import Campaign
    from protocol.documents.model import Evaluated
    from protocol.questions import Question
    from protocol.schema import Check, Observation


class Models:
    """Finds the models that a campaign evaluates among the installed ones, and runs them.

    ``now`` is the device's clock.
    """

    def __init__(self, documents: Documents, now: Callable[[], int]) -> None:
        self._documents = documents
        self._now = now
        self._evaluated: dict[bytes, Evaluated] = {}

    def evaluated(self, campaign: Campaign, given: Iterable[bytes] = ()) -> tuple[Evaluated, ...]:
        """Return the models that ``campaign`` evaluates; empty if the campaign evaluates none, or has ended.

        A model is taken from ``given``, verified payloads of models, or else from the installed models. Raises the
        errors of :func:`protocol.documents.model.payloads_given` and :func:`protocol.documents.model.evaluated_models`.
        """
        if not campaign.evaluated:
            return ()
        payloads = payloads_given(campaign, given)
        return evaluated_models(campaign, lambda digest: payloads.get(digest) or self._payload(digest), self._evaluated)

    def _payload(self, digest: bytes) -> bytes | None:
        return self._documents.payload("model", digest)

    def predictor(self, campaign: Campaign, record: Mapping[str, object]) -> Callable[[int], int]:
        """Return a function: index of an evaluated model → code of the class that it predicts for ``record``."""
        from edge_sdk.classifier import Classifier
        from protocol.documents.model import parse_model

        def predict(index: int) -> int:
            payload = self._payload(campaign.evaluated[index])
            assert payload is not None
            classifier = Classifier(parse_model(payload), self._now)
            return classifier.classes.index(classifier.predict(record))

        return predict


MOST_CAMPAIGNS = 64
"""Most campaigns with counts. If there are more, the counts of the least recently answered one are dropped."""


class Unread(NamedTuple):
    """Counts of a campaign's missing and unlisted values since the program started.

    Attributes:
        campaign: its name.
        records: number of records that were answered about.
        missing, unlisted: feature (or label) → number of records in which it was missing, or its value had no meaning.
    """

    campaign: str
    records: int
    missing: dict[str, int]
    unlisted: dict[str, int]


class _Counts:
    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.records = 0
        self.missing: Counter[str] = Counter()
        self.unlisted: Counter[str] = Counter()


class Meanings:
    """Counts missing and unlisted values by campaign and feature. Callers must have opened a transaction."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def add(self, campaign: Campaign, check: Check) -> None:
        """Count one more answered record. A new version of ``campaign`` begins its counts anew."""
        name = campaign.header.name
        counts = self._counts.pop(name, None)
        if counts is None or counts.id != campaign.id:
            counts = _Counts(campaign.id)
        self._counts[name] = counts
        counts.records += 1
        counts.missing.update(check.missing)
        counts.unlisted.update(check.unlisted)
        while len(self._counts) > MOST_CAMPAIGNS:
            del self._counts[next(iter(self._counts))]

    def of(self, names: Iterable[str]) -> tuple[Unread, ...]:
        """Return the counts of the campaigns in ``names``, sorted by name. Campaigns without counts are left out."""
        found = ((name, self._counts.get(name)) for name in sorted(names))
        return tuple(
            Unread(name, each.records, dict(each.missing), dict(each.unlisted)) for name, each in found if each
        )

    def clear(self) -> None:
        """Forget the counts of all campaigns."""
        self._counts.clear()


def answer(
    campaign: Campaign,
    observation: Observation,
    label_code: int,
    secret: bytes,
    period: int,
    seeds: Sequence[bytes],
    predict: Callable[[int], int] | None = None,
) -> list[bytes]:
    """Return the reports of one period, r = ``campaign.answers`` of them. Report i answers a question of stratum i.

    A stratum is the group of questions from which one answer's question is chosen.

    Args:
        secret: the device's 32-byte secret. Report ids are derived from it; noise is not.
        period: index of the period since 1970.
        seeds: r fresh seeds of 32 bytes for the noise, used for nothing else.
        predict: index of an evaluated model (0 for a single one) → code of the class that it predicts for the record;
            called only if the campaign evaluates models, and None otherwise.
    """
    classes = len(campaign.schema.label.classes)
    layout = campaign.layout
    reports = []
    if campaign.shared is not None:
        identifier = report_id(secret, campaign.id, period, 0)
        return [_shared_report(campaign, observation, label_code, identifier, period, seeds, predict)]
    for stratum in range(campaign.answers):
        identifier, number = campaign.identify(secret, period, stratum)
        question = campaign.questions[number]
        predicted = predict(question.subject.model or 0) if predict is not None else 0
        value = question.input_of(observation, label_code, classes, predicted)
        field = encode_answer(question.mechanism, question.mechanism.perturb(value, seeds[stratum]), layout)
        reports.append(encode_report(layout, identifier, period, number, field))
    return reports


def _shared_report(
    campaign: Campaign,
    observation: Observation,
    label_code: int,
    identifier: bytes,
    period: int,
    seeds: Sequence[bytes],
    predict: Callable[[int], int] | None,
) -> bytes:
    """Return the report of a shared campaign: the record's cells, split for two collectors."""
    from protocol.shared.report import make_field

    classes = len(campaign.schema.label.classes)
    cells = []
    for block in campaign.blocks:
        predicted = 0 if predict is None or block.kind == CELL else predict(block.model or 0)
        cells.append(block.input_of(observation, label_code, classes, predicted))
    return encode_report(
        campaign.layout, identifier, period, 0, make_field(campaign, cells, identifier, period, seeds[0])
    )


class AboutRecord:
    """Makes the reports of one period about one record (:class:`edge_sdk.answering.reporting.Making`)."""

    def __init__(
        self,
        record: Mapping[str, object],
        label: object,
        *,
        models: Models,
        meanings: Meanings,
        entropy: Callable[[int], bytes],
        state: State,
    ) -> None:
        """Keep the record unread. ``label``: its class, None if unknown, ``FROM_RECORD`` to read it from the record.

        ``state`` holds the answers that campaigns with memory keep.
        """
        self._record = record
        self._label = label
        self._models = models
        self._meanings = meanings
        self._entropy = entropy
        self._state = state

    def check(self, campaign: Campaign) -> None:
        """Raise InputError ``campaign_for_nodes`` if the campaign is for nodes."""
        if campaign.nodes is not None:
            raise InputError(
                "campaign_for_nodes", "this campaign asks for sums of many records; a node summarises them for it"
            )

    def cost(self, campaign: Campaign, policy: Policy) -> tuple[int, int]:
        """Return the ε in millionths and the δ in 10⁻¹² of the reports of one period.

        A campaign with memory is paid for at its first answer, and the other answers cost nothing.
        """
        if campaign.memory is not None and is_booked(self._state, campaign):
            return 0, 0
        return policy.cost_micro(campaign), policy.cost_delta(campaign)

    def make(self, campaign: Campaign, secret: bytes, period: int) -> list[bytes]:
        """Return the period's ``campaign.answers`` reports. Each has noise from a fresh seed.

        Raise InputError ``record_invalid`` or ``value_refused``, StorageError ``entropy_unavailable``.
        """
        observation = campaign.schema.observe(self._record)
        label_code = campaign.schema.label.code(campaign.schema.label_in(self._record, self._label))
        if campaign.memory is not None:
            from edge_sdk.answering.remembering import report  # imported here, since most devices never need it

            classes = len(campaign.schema.label.classes)

            def input_of(question: Question) -> Any:
                return question.input_of(observation, label_code, classes)

            return [report(self._state, campaign, secret, period, input_of, self._entropy)]
        seeds = [self._entropy(SEED_BYTES) for _ in range(campaign.answers)]
        predict = self._models.predictor(campaign, self._record) if campaign.evaluated else None
        return answer(campaign, observation, label_code, secret, period, seeds, predict)

    def note(self, campaign: Campaign) -> None:
        """Count the record's missing and unlisted values."""
        read = schema_read(campaign, self._models.evaluated(campaign))
        self._meanings.add(campaign, named_once(read.unread(self._record, self._label)))
