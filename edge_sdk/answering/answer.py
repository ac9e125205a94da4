"""One device's answers about one record for one period.

:func:`answer` is a pure function of campaign, observation, secret, period and seeds: observation → question (chosen by
the report's id) → input → perturbed answer → report bytes. :class:`AboutRecord` reads the record and draws the seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.batches.report import encode_answer, encode_report, report_id
from protocol.documents.evaluation import named_once, schema_read
from protocol.errors import InputError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_sdk.answering.meanings import Meanings
    from edge_sdk.answering.models import Models
    from edge_sdk.policy.policy import Policy
    from protocol.documents.campaign import Campaign
    from protocol.schema import Observation


def answer(
    campaign: Campaign,
    observation: Observation,
    label_code: int,
    secret: bytes,
    period: int,
    seeds: Sequence[bytes],
    predict: Callable[[int], int] | None = None,
) -> list[bytes]:
    """Make the reports of one period: r = ``campaign.answers`` of them. Report i answers a question of stratum i.

    A stratum is the group of questions from which one answer's question is chosen.

    Args:
        campaign: an accepted campaign.
        observation: the record as codes and scaled numbers.
        label_code: code of the record's class.
        secret: the device's 32-byte secret. Report ids are derived from it; noise is not.
        period: index of the period since 1970.
        seeds: r fresh seeds of 32 bytes for the noise, used for nothing else.
        predict: index of an evaluated model → code of the class that it predicts for the record; a single model has
            the index 0. Called in ``outcome`` campaigns only, for the model that the question is about; may be None in
            others.

    Returns:
        r byte strings of the campaign's record length.
    """
    classes = len(campaign.schema.label.classes)
    layout = campaign.layout
    reports = []
    for stratum in range(campaign.answers):
        identifier = report_id(secret, campaign.id, period, stratum)
        number = campaign.assignment.question_for(identifier, stratum)
        question = campaign.questions[number]
        predicted = predict(question.subject.model or 0) if predict is not None else 0
        value = question.input_of(observation, label_code, classes, predicted)
        field = encode_answer(question.mechanism, question.mechanism.perturb(value, seeds[stratum]), layout)
        reports.append(encode_report(layout, identifier, period, number, field))
    return reports


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
    ) -> None:
        """Nothing is read yet.

        Args:
            record: feature name → value.
            label: the record's class; None if it is not known; ``FROM_RECORD`` to read it from the record.
            models: the models that campaigns evaluate.
            meanings: counts the record's missing and unlisted values.
            entropy: n → n fresh random bytes.
        """
        self._record = record
        self._label = label
        self._models = models
        self._meanings = meanings
        self._entropy = entropy

    def check(self, campaign: Campaign) -> None:
        """Refuse a campaign for nodes.

        Raises:
            InputError: ``campaign_for_nodes``.
        """
        if campaign.nodes is not None:
            raise InputError(
                "campaign_for_nodes", "this campaign asks for sums of many records; a node summarises them for it"
            )

    def cost(self, campaign: Campaign, policy: Policy) -> tuple[int, int]:
        """The ε of the reports of one period, in millionths; no δ."""
        del policy
        return campaign.epsilon_micro, 0

    def make(self, campaign: Campaign, secret: bytes, period: int) -> list[bytes]:
        """The campaign's r reports. Each has noise from a fresh seed.

        Raises:
            InputError: ``record_invalid``, ``value_refused``.
            StorageError: ``entropy_unavailable``.
        """
        observation = campaign.schema.observe(self._record)
        label_code = campaign.schema.label.code(campaign.schema.label_in(self._record, self._label))
        seeds = [self._entropy(SEED_BYTES) for _ in range(campaign.answers)]
        predict = self._models.predictor(campaign, self._record) if campaign.evaluated else None
        return answer(campaign, observation, label_code, secret, period, seeds, predict)

    def note(self, campaign: Campaign) -> None:
        """Count the record's missing and unlisted values."""
        read = schema_read(campaign, self._models.evaluated(campaign))
        self._meanings.add(campaign, named_once(read.unread(self._record, self._label)))
