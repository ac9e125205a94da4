"""Kinds that go the whole way of a record: to the bytes of its reports, and to a class."""

from __future__ import annotations

from typing import Any

from edge_sdk.answering.answer import answer
from edge_sdk.classifier import Classifier
from protocol.batches.report import report_id
from protocol.documents.campaign import parse_campaign
from protocol.documents.model import parse_model
from protocol.errors import PolicyError
from vectors.kinds_values import _lists
from vectors.runner import kind


@kind
def reports_of_record(
    campaign: str, models: list[str], secret: str, period: int, seeds: list[str], record: dict[str, Any], label: Any
) -> dict[str, Any]:
    """What a device with this secret answers about a record.

    ``campaign`` is a campaign's payload, ``models`` are the payloads of the models that it evaluates, in its order.
    ``seeds`` are those of the answers, in order. Values of the record are JSON's own; a key that is not there is
    missing. What comes out: code and number (nil without one) of every observed feature, the class, and for every
    answer its question, the mechanism's input, and the bytes of the report.
    """
    found, key = parse_campaign(bytes.fromhex(campaign)), bytes.fromhex(secret)
    if found.series is not None and not found.series.has(key):
        raise PolicyError("series_not_member", "the device is not in the share")
    read = found.schema.observe(record)
    code = found.schema.label.code(label)
    classes = found.schema.label.classes
    predicted = [classes.index(class_of_record(model, record)) for model in models]
    reports = answer(
        found,
        read,
        code,
        key,
        period,
        [bytes.fromhex(seed) for seed in seeds],
        predicted.__getitem__ if models else None,
    )
    given = []
    for stratum, report in enumerate(reports):
        number = found.assignment.question_for(report_id(key, found.id, period, stratum), stratum)
        question = found.questions[number]
        which = predicted[question.subject.model or 0] if models else 0
        value = question.input_of(read, code, len(classes), which)
        given.append({"question": number, "input": _lists(value), "report": report.hex()})
    return {"codes": list(read.codes), "numbers": list(read.numbers), "class": code, "answers": given}


@kind
def class_of_record(model: str, record: dict[str, Any]) -> str:
    """The class that a model, the payload of its document, predicts for a record."""
    return Classifier(parse_model(bytes.fromhex(model)), lambda: 0).predict(record)
