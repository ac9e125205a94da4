"""One device's answers for one period: a pure function of campaign, observation, secret, period and seeds.

observation → question (assigned by the id) → input → answer → report bytes; nothing is read or kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.batches.report import encode_answer, encode_report, report_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign
    from protocol.schema import Observation


def answer(
    campaign: Campaign,
    observation: Observation,
    label_code: int,
    secret: bytes,
    period: int,
    seeds: Sequence[bytes],
    predicted: int = 0,
) -> list[bytes]:
    """The r reports of one period, answer i for stratum i.

    Args:
        campaign: an accepted campaign.
        observation: what the schema saw of the record.
        label_code: code of the class.
        secret: the device's 32-byte secret; makes the ids, never the noise.
        period: index of time.
        seeds: r fresh seeds of 32 bytes, used for nothing else.
        predicted: code of the class that the evaluated model predicts, in an ``outcome`` campaign.

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
        value = question.input_of(observation, label_code, classes, predicted)
        field = encode_answer(question.mechanism, question.mechanism.perturb(value, seeds[stratum]), layout)
        reports.append(encode_report(layout, identifier, period, number, field))
    return reports
