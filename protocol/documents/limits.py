"""The checks of a campaign's strata and of its ε: the number of answers, and the exact loss of all of them.

Source: docs/formats.md, section 5 (value limits). The checks do not trust the publisher: they recompute every integer
of the mechanisms, and the exact privacy loss, from the declared ε.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from protocol import mechanisms
from protocol.epsilon import MAX_ANSWER_MICRO, MIN_ANSWER_MICRO, PrivacyLoss, composed
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from protocol.questions import Question

_REASON = "invalid_campaign"
_WORD = 1 << 32


def privacy_loss(questions: tuple[Question, ...]) -> PrivacyLoss:
    """Exact worst privacy loss of all answers of a device in one period, in nats, for a campaign's ``questions``.

    A device answers one question of each stratum, so the result adds the largest loss of each stratum.
    """
    worst: dict[int, PrivacyLoss] = {}
    for question in questions:
        loss = _loss(question.mechanism)
        if question.stratum not in worst or loss.above(worst[question.stratum]):
            worst[question.stratum] = loss
    return composed(worst.values())


@lru_cache(maxsize=4096)
def _loss(mechanism: mechanisms.Mechanism) -> PrivacyLoss:
    return mechanism.privacy_loss()


def check_ended(questions: tuple[Question, ...], answers: int, epsilon_micro: int) -> None:
    """Check a campaign without questions, answers or ε: one that has ended has none of the three.

    Raises:
        DocumentError: ``invalid_campaign``: it has some of them.
    """
    if questions or answers or epsilon_micro:
        raise DocumentError(
            _REASON, "a campaign that has ended has no questions, 0 answers and an ε of 0; any other has all three"
        )


def check_strata(questions: tuple[Question, ...], answers: int) -> None:
    """Check strata and bounds: strata 0 … r − 1 in order; in each, bounds that increase strictly and end at 2^32.

    Args:
        questions: all questions of the campaign, in their order.
        answers: r, the stated number of answers of a device in one period.

    Raises:
        DocumentError: ``invalid_campaign``.
    """
    previous_stratum, previous_bound = -1, _WORD
    for question in questions:
        if question.stratum == previous_stratum + 1 and previous_bound == _WORD:
            previous_bound = 0
        elif question.stratum != previous_stratum:
            raise DocumentError(_REASON, "its strata are not in order, or one does not end at 2^32")
        if question.bound <= previous_bound:
            raise DocumentError(_REASON, "a question would never be asked: its interval is empty")
        previous_stratum, previous_bound = question.stratum, question.bound
    if previous_bound != _WORD or previous_stratum + 1 != answers:
        raise DocumentError(
            _REASON, "its number of answers is not its number of strata, or the last does not end at 2^32"
        )


def check_epsilon(questions: tuple[Question, ...], epsilon_micro: int, answers: int) -> None:
    """Compare each mechanism with the one that follows from ⌊ε/r⌋, and its exact loss with ⌊ε/r⌋.

    If all agree, r strata can not spend more than ε. Otherwise the composed loss of all strata decides the reason.

    Args:
        questions: all questions of the campaign.
        epsilon_micro: ε, the declared total per device and period, in millionths.
        answers: r, the number of strata, at least 1.

    Raises:
        DocumentError: ``epsilon_understated``: the loss is above ε; ``invalid_campaign``: ε per answer is not allowed,
            or a mechanism does not follow from it.
    """
    per_answer = epsilon_micro // answers
    problem = ""
    if not MIN_ANSWER_MICRO <= per_answer <= MAX_ANSWER_MICRO:
        problem = "its ε per answer is not between 0.001 and 16"
    elif not all(_follows(stated, per_answer) for stated in {question.mechanism for question in questions}):
        problem = "a mechanism's integers are not those that follow from its ε"
    if not problem:
        return
    if privacy_loss(questions).exceeds(epsilon_micro):
        raise DocumentError("epsilon_understated", "its questions reveal more than the ε it declares")
    raise DocumentError(_REASON, problem)


def _follows(stated: mechanisms.Mechanism, per_answer: int) -> bool:
    """Whether a mechanism is the one that follows from ``per_answer``, with a loss of at most ``per_answer``."""
    try:
        derived = mechanisms.from_micro(stated.name, per_answer, stated.size, **stated.options())
    except InputError:
        return False
    return derived == stated and not _loss(stated).exceeds(per_answer)
