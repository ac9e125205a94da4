"""Kinds for values: streams, ε, mechanisms, features, ids, assignment, reports."""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from typing import Any

from protocol import SCALE, mechanisms
from protocol.batches.report import (
    Layout,
    decode_answer,
    decode_report,
    encode_answer,
    encode_report,
    layout_for,
    report_id,
)
from protocol.documents.campaign import Series, place
from protocol.epsilon import micro_epsilon
from protocol.features import Categorical, Numeric, as_text
from protocol.mechanisms import SINGLE
from protocol.questions import Assignment, Question, build_questions, discrete_subjects, interval_bounds
from protocol.schema import Label, build_schema
from protocol.stream import Stream
from protocol.words import to_words
from vectors.runner import kind


def _tuples(value: Any) -> Any:
    """A JSON value as the mechanisms take it."""
    return tuple(value) if isinstance(value, list) else value


def _lists(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@kind
def stream_bytes(seed: str, tag: str, reads: list[int]) -> list[str]:
    """What successive reads of some lengths return."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [stream.read(count).hex() for count in reads]


@kind
def stream_below(seed: str, tag: str, bounds: list[int]) -> list[int]:
    """Successive uniform integers."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [stream.below(bound) for bound in bounds]


@kind
def stream_coin(seed: str, tag: str, thresholds: list[int]) -> list[int]:
    """Successive coins, 0 or 1."""
    stream = Stream(bytes.fromhex(seed), tag.encode())
    return [int(stream.coin(threshold)) for threshold in thresholds]


@kind
def epsilon(value: Any) -> int:
    """ε as text or JSON number, in millionths."""
    return micro_epsilon(value)


@kind
def parameters(mechanism: str, epsilon: Any, size: Any) -> dict[str, int]:
    """The integers that follow from ε, by the names a campaign carries them under."""
    stated = mechanisms.from_epsilon(mechanism, epsilon, size).to_dict()
    return {key: value for key, value in stated.items() if key not in ("name", "size", "epsilon_micro")}


@kind
def parameters_with(mechanism: str, epsilon: Any, size: Any, options: dict[str, Any]) -> dict[str, int]:
    """As ``parameters``, of a mechanism that takes options."""
    stated = mechanisms.from_epsilon(mechanism, epsilon, size, **options).to_dict()
    return {key: value for key, value in stated.items() if key not in ("name", "size", "epsilon_micro")}


@kind
def perturb_with(mechanism: str, epsilon: str, size: int, options: dict[str, Any], value: Any, seed: str) -> Any:
    """One answer of a mechanism that takes options."""
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    return _lists(chosen.perturb(_tuples(value), bytes.fromhex(seed)))


@kind
def accumulated(mechanism: str, epsilon: str, size: int, options: dict[str, Any], cases: int) -> str:
    """Many cases in a digest: the first 16 bytes of SHA-256 over their answer fields, one after another.

    Values and seeds come from one stream (seed 32 × 41, tag ``hearsay/1/accumulated``): per case the value
    is below(size) and the seed the next 32 bytes. Fields are in the layout of the mechanism alone.
    """
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    own = layout_for([chosen])
    inputs = Stream(b"\x41" * 32, b"hearsay/1/accumulated")
    digest = sha256()
    for _ in range(cases):
        value = inputs.below(size)
        digest.update(encode_answer(chosen, chosen.perturb(value, inputs.read(32)), own))
    return digest.hexdigest()[:32]


@kind
def accumulated_numbers(mechanism: str, epsilon: str, size: int, options: dict[str, Any], cases: int) -> str:
    """As ``accumulated``, of a numeric mechanism.

    Per case and coordinate x = below(2S + 1) − S; where one entry at most may differ from 0 (``bits``, and
    ``laplace`` with Δ = 2) the place is below(size) and then comes its x.
    """
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size, **options)
    own = layout_for([chosen])
    inputs = Stream(b"\x41" * 32, b"hearsay/1/accumulated")
    digest = sha256()
    for _ in range(cases):
        places = [inputs.below(size)] if mechanism == "bits" or options.get("delta") == 2 else range(size)
        entries = {place: inputs.below(2 * SCALE + 1) - SCALE for place in places}
        vector = tuple(entries.get(place, 0) for place in range(size))
        value = vector[0] if own.kind == SINGLE else vector
        digest.update(encode_answer(chosen, chosen.perturb(value, inputs.read(32)), own))
    return digest.hexdigest()[:32]


@kind
def perturb(mechanism: str, epsilon: str, size: int, value: Any, seed: str) -> Any:
    """One answer."""
    answer = mechanisms.from_epsilon(mechanism, epsilon, size).perturb(_tuples(value), bytes.fromhex(seed))
    return _lists(answer)


@kind
def perturb_each(mechanism: str, epsilon: str, size: int, value: Any, seeds: list[str]) -> list[Any]:
    """Answers to one value under several seeds."""
    chosen = mechanisms.from_epsilon(mechanism, epsilon, size)
    return [_lists(chosen.perturb(_tuples(value), bytes.fromhex(seed))) for seed in seeds]


@kind
def stated(parameters: Any) -> int:
    """A mechanism read from a document's integers; its size comes out."""
    return mechanisms.from_dict(parameters).size


@kind
def numeric_code(low: str, high: str, edges: list[int], values: list[Any]) -> list[list[Any]]:
    """U and bin of each value."""
    feature = Numeric("x", low, high, edges)
    return [[feature.scaled(value), feature.code(value)] for value in values]


@kind
def numeric_code_or_refusal(low: str, high: str, edges: list[int], values: list[Any]) -> list[list[Any]]:
    """As ``numeric_code``, of a feature whose unlisted values are refused."""
    feature = Numeric("x", low, high, edges, "refuse")
    return [[feature.scaled(value), feature.code(value)] for value in values]


@kind
def value_text(type: str, spelled: str) -> str | None:  # noqa: A002
    """The listed text that a value of some type matches; null where there is none.

    Args:
        type: ``text``, ``integer``, ``float`` (its nearest binary value of 64 bits) or ``decimal``.
        spelled: the value.
    """
    return as_text({"text": str, "integer": int, "float": float, "decimal": Decimal}[type](spelled))


@kind
def categorical_code(listed: list[str], unlisted: str, substitute: int | None, values: list[Any]) -> list[int]:
    """The code of each value."""
    feature = Categorical("x", listed, unlisted, substitute)
    return [feature.code(value) for value in values]


@kind
def id_of(secret: str, campaign: str, period: int, index: int) -> str:
    """A report's id."""
    return report_id(bytes.fromhex(secret), bytes.fromhex(campaign), period, index).hex()


@kind
def place_in_series(secret: str, series: str) -> int:
    """A device's place in a series."""
    return place(bytes.fromhex(secret), series)


@kind
def takes_part(secret: str, series: str, low: int, high: int) -> bool:
    """Whether a device takes part in a campaign with the share [low, high) of a series."""
    return Series(series, 0, low, high).has(bytes.fromhex(secret))


@kind
def words(identifier: str) -> str:
    """An id as pronounceable words."""
    return to_words(bytes.fromhex(identifier))


@kind
def bounds(weights: list[int]) -> list[int]:
    """The interval bounds of weighted questions."""
    return interval_bounds(weights)


@kind
def strata(questions: int, answers: Any) -> list[int]:
    """The stratum of each question when they are divided."""
    return [question.stratum for question in _questions(questions, answers)]


@kind
def assigned(questions: int, answers: int, ids: list[str], stratum: int) -> list[int]:
    """The question that each id is asked in a stratum, under equal weights."""
    assignment = Assignment(_questions(questions, answers))
    return [assignment.question_for(bytes.fromhex(identifier), stratum) for identifier in ids]


def _questions(count: int, answers: int) -> tuple[Question, ...]:
    features = [Categorical(f"f{index}", ["0"]) for index in range(count - 1)]
    subjects = discrete_subjects(build_schema(Label("y", ["0", "1"]), features))
    return build_questions(subjects, answers, lambda subject: mechanisms.from_epsilon("direct", 1, subject.size))


@kind
def layout(questions: list[tuple[str, str, int]]) -> dict[str, Any]:
    """The layout of a campaign whose questions have these (mechanism, ε, size)."""
    chosen = layout_for([mechanisms.from_epsilon(*question) for question in questions])
    return {"layout": chosen.kind, "record_length": chosen.record_length, "prefix": chosen.prefix.hex()}


@kind
def report(mechanism: list[Any], layout: list[int], identifier: str, period: int, question: int, answer: Any) -> str:
    """The bytes of a report; checked both ways."""
    chosen, shape = mechanisms.from_epsilon(*mechanism), Layout(*layout)
    field = encode_answer(chosen, _tuples(answer), shape)
    record = encode_report(shape, bytes.fromhex(identifier), period, question, field)
    assert len(record) == shape.record_length
    assert decode_report(shape, record) == (bytes.fromhex(identifier), period, question, field)
    assert decode_answer(chosen, field, shape) == _tuples(answer)
    return record.hex()


@kind
def answer_of(mechanism: list[Any], layout: list[int], field: str) -> Any:
    """The answer in an answer field; null where it is out of the domain."""
    return _lists(decode_answer(mechanisms.from_epsilon(*mechanism), bytes.fromhex(field), Layout(*layout)))
