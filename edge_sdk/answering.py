"""One device's answers for one period, as a pure function of campaign, observation, secret, period and seeds.

The steps: observation → question (chosen by the report's id) → input → perturbed answer → report bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.batches.report import encode_answer, encode_report, report_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
