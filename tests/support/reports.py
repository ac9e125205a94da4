"""Reports of honest devices, made with the protocol package only."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from protocol.batches.batch import Batch, Header, read_batches, write_batch
from protocol.batches.report import decode_answer, decode_report, encode_answer, encode_report, layout_for, report_id
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.mechanisms import INTEGERS, SINGLE
from protocol.questions import Assignment, Question
from support.publisher import NOW, Publisher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.documents.campaign import Campaign


def opened(raw: bytes) -> Campaign:
    """Parse the campaign of a signed file."""
    return parse_campaign(read_envelope(raw, "campaign").payload)


def made(**options) -> Campaign:
    """A campaign of the tests' publisher."""
    return opened(Publisher().campaign(**options))


RAW = Publisher().campaign()
CAMPAIGN = opened(RAW)
PERIOD = CAMPAIGN.period_at(NOW)
"""A campaign of the tests' publisher as a signed file and parsed, and its present period."""
RAWS = {"direct": RAW, **{name: Publisher().campaign(mechanism=name) for name in ("oue", "she")}}
CAMPAIGNS = {name: opened(raw) for name, raw in RAWS.items()}
"""Campaigns of the three layouts."""


def digest(*parts: object) -> bytes:
    """32 bytes that depend on all parts: secrets and seeds of the tests."""
    return sha256(repr(parts).encode()).digest()


def report(
    campaign: Campaign, device: int, value: int = 0, *, period: int | None = None, index: int = 0, secret: bytes = b""
) -> bytes:
    """The report of one device: ``value`` modulo the question's size is its true input. Its secret has a default."""
    period = campaign.period_at(NOW) if period is None else period
    identifier = report_id(secret or digest("secret", device), campaign.id, period, index)
    number = campaign.assignment.question_for(identifier, index)
    mechanism = campaign.questions[number].mechanism
    answer = mechanism.perturb(value % mechanism.size, digest("seed", device, period, index, value))
    field = encode_answer(mechanism, answer, campaign.layout)
    return encode_report(campaign.layout, identifier, period, number, field)


def moved(campaign: Campaign, record: bytes, days: int) -> bytes:
    """A record in a later period with the same id and answer, which only a faulty or dishonest device makes."""
    at = len(campaign.layout.prefix) + 8
    period = int.from_bytes(record[at : at + 4], "big") + days
    return record[:at] + period.to_bytes(4, "big") + record[at + 4 :]


def header(campaign: Campaign) -> Header:
    """The header of a batch of this campaign."""
    return Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)


def batch(campaign: Campaign, records: Iterable[bytes]) -> bytes:
    """Encode a complete batch."""
    return write_batch(header(campaign), list(records))


def records_in(content: bytes) -> list[tuple[bytes, bytes]]:
    """Campaign and bytes of each report in a batch file, which must be whole."""
    found = []
    for item in read_batches(content):
        assert isinstance(item, Batch), "a batch file is damaged"
        assert item.proven, "a batch file is torn"
        length = item.header.record_length
        for start, count in item.spans:
            places = range(start, start + count * length, length)
            found += [(item.header.campaign, content[place : place + length]) for place in places]
    return found


def summand(mechanism, answer):
    """The contribution of one answer to each sum of its question, by the text of docs/formats.md, section 4."""
    least, most = mechanism.counted
    return [min(max(part, least), most) for part in answer]


def counts_of(campaign: Campaign, records: Iterable[bytes]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The numbers of answers and the counts of a tally, by the scalar decoder and plain loops."""
    n = [0] * len(campaign.questions)
    counts = [[0] * question.mechanism.answers for question in campaign.questions]
    for record in records:
        _, _, number, field = decode_report(campaign.layout, record)
        mechanism = campaign.questions[number].mechanism
        answer = decode_answer(mechanism, field, campaign.layout)
        n[number] += 1
        parts = {answer: 1} if mechanism.layout == SINGLE else dict(enumerate(summand(mechanism, answer)))
        for place, amount in parts.items():
            counts[number][place] += amount
    return tuple(n), tuple(map(tuple, counts))


class Row(NamedTuple):
    """A mechanism that answers with integers, reduced to the attributes that intake uses."""

    answers: int
    layout: int = INTEGERS
    name: str = "row"
    size: int = 2
    bounds: tuple[int, int] = (-(1 << 31), (1 << 31) - 1)
    counted: tuple[int, int] = (-(1 << 31), (1 << 31) - 1)
    estimators = ""

    def impossible(self, answers):
        """Every answer is possible."""


def mixed(*kinds):
    """A campaign whose questions are answered by the given mechanisms, one stratum each."""
    template = made(answers=3, epsilon_micro=3_000_000)
    questions = tuple(
        Question(template.questions[0].subject._replace(size=kind.size), i, 1 << 32, kind)
        for i, kind in enumerate(kinds)
    )
    layout = layout_for(kinds)
    return template._replace(questions=questions, assignment=Assignment(questions), layout=layout, answers=len(kinds))
