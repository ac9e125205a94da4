"""What a campaign really spends: the exact worst ratio of every question, from the file's integers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import allowance, mechanisms
from protocol.document import DAY_SECONDS
from protocol.documents.campaign import privacy_loss
from protocol.epsilon import MICRO, PrivacyLoss, format_micro
from protocol.errors import DocumentError, InputError
from protocol.questions import Question, Subject
from protocol.schema import refusing

if TYPE_CHECKING:
    from fractions import Fraction

    from protocol.documents.campaign import Campaign
    from protocol.schema import Schema

_REASON = "invalid_campaign"
HIGH_EPSILON_MICRO = 20 * MICRO
"""Above this total an answer hides next to nothing, so whoever makes, shows or verifies it is warned."""

MAX_DIGITS = 4000
"""A ratio whose numerator or denominator has more digits is told as a power of e."""
_BITS_PER_DIGIT = 3.32  # a little below log2(10)
_FLOAT_BITS = 1000  # 2^1000 is a float, 2^1024 is none


class PrivacySheet(NamedTuple):
    """Declared against spent.

    Attributes:
        questions: the campaign's questions; ``names`` are theirs, for people.
        losses: exact worst loss of one answer to each.
        total: of one device in one period: the largest of every stratum, added up.
        declared_micro: what the campaign says of the total, in millionths.
        model: digest of the model that an evaluation names, else None. What is read of a record, that model
            decides, so the file alone does not say it.
    """

    questions: tuple[Question, ...]
    names: tuple[str, ...]
    losses: tuple[PrivacyLoss, ...]
    total: PrivacyLoss
    declared_micro: int
    answers: int
    model: bytes | None = None

    @property
    def declared_per_answer_micro(self) -> int:
        """⌊declared / answers⌋; 0 for a campaign that has ended."""
        return self.declared_micro // self.answers if self.answers else 0

    @property
    def holds(self) -> bool:
        """Whether the campaign spends no more than it declares; decided with integers."""
        return not self.total.exceeds(self.declared_micro)

    def to_json(self) -> dict[str, Any]:
        """As ``hearsay verify --privacy --json`` prints it; ratios as exact fractions."""
        per_answer = format_micro(self.declared_per_answer_micro)
        return {
            "questions": [
                {
                    "question": name,
                    "mechanism": question.mechanism.name,
                    "size": question.size,
                    "stratum": question.stratum,
                    "worst_ratio": ratio_text(loss, most=None),
                    "epsilon": float(loss),
                    "declared_epsilon": per_answer,
                }
                for name, question, loss in zip(self.names, self.questions, self.losses, strict=True)
            ],
            "total": {"worst_ratio": ratio_text(self.total, most=None), "epsilon": float(self.total)},
            "declared": {
                "epsilon_total": format_micro(self.declared_micro),
                "epsilon_per_answer": per_answer,
            },
            "holds": self.holds,
            "model": None if self.model is None else self.model.hex(),
        }


def privacy_sheet(body: dict[str, Any]) -> PrivacySheet:
    """The sheet of a verified campaign payload, also of one that devices refuse for what it spends.

    Run by an auditor, who needs the file and the trust root only.

    Raises:
        DocumentError: ``invalid_campaign``: its questions can not be read.
    """
    features = body.get("features")
    entries = body.get("questions")
    declared, answers = body.get("epsilon_micro"), body.get("answers")
    if not isinstance(features, list) or not isinstance(entries, list):
        raise DocumentError(_REASON, "it has no features or no questions")
    if type(declared) is not int or type(answers) is not int or answers < 0 or bool(entries) != bool(answers):
        raise DocumentError(_REASON, "it declares no ε or no number of answers that fits its questions")
    questions = tuple(_question(entry) for entry in entries)
    names = _observed_names(body)
    return PrivacySheet(
        questions=questions,
        names=tuple(_name(question, names) for question in questions),
        losses=tuple(question.mechanism.privacy_loss() for question in questions),
        total=privacy_loss(questions),
        declared_micro=declared,
        answers=answers,
        model=model if isinstance(model := body.get("model"), bytes) else None,
    )


def _question(entry: Any) -> Question:
    problem = ""
    try:
        mechanism = mechanisms.from_dict(entry["mechanism"])
        return Question(
            Subject(str(entry["kind"]), entry.get("feature"), mechanism.size, entry.get("power"), entry.get("class")),
            int(entry["stratum"]),
            int(entry["bound"]),
            mechanism,
        )
    except InputError as error:
        problem = error.detail
    except (KeyError, TypeError, ValueError, AttributeError):
        problem = "a question can not be read"
    raise DocumentError(_REASON, problem)


def _name(question: Question, names: list[str]) -> str:
    """The kind of a question, and what it is about."""
    kind, index, _, power, of_class = question.subject
    about = f" {names[index]}" if type(index) is int and 0 <= index < len(names) else ""
    which = "" if power is None else f" power {power}"
    return f"{kind}{about}{which}{'' if of_class is None else f' class {of_class}'}"


def _observed_names(body: dict[str, Any]) -> list[str]:
    """Names of the features that are not projected, then of the components, as far as they can be read."""
    features = [entry.get("name") if isinstance(entry, dict) else "?" for entry in body.get("features", [])]
    projection = body.get("projection")
    if not isinstance(projection, dict):
        return [str(name) for name in features]
    inputs, parts = projection.get("inputs", []), projection.get("components", [])
    kept = [name for index, name in enumerate(features) if index not in inputs]
    return [str(name) for name in (*kept, *(part.get("name") for part in parts if isinstance(part, dict)))]


def epsilon_warning(epsilon_micro: int) -> str:
    """A sentence about a total ε so high that little is hidden; empty for any other."""
    if epsilon_micro <= HIGH_EPSILON_MICRO:
        return ""
    return "a total ε above 20 hides next to nothing: an answer is then almost surely the truth"


def refusal_warning(schema: Schema) -> str:
    """A sentence about a schema that refuses values, which tells about records beyond ε; empty for most."""
    names = ", ".join(f"'{name}'" for name in refusing(schema))
    if not names:
        return ""
    return (
        f"whether there is a report depends on the record, which ε does not cover ({names}: unlisted = refuse); "
        "devices accept such a campaign only if their owner says allow_refuse = true, for development"
    )


def model_warning(model: bytes | None) -> str:
    """A sentence about an evaluation, whose questions the model decides; empty for any other campaign."""
    if model is None:
        return ""
    return (
        f"what is read of a record is not in this file: the model {model.hex()} decides it; hearsay show MODEL.hsm "
        "lists its features under that id, and devices refuse the campaign without that model"
    )


def pace_warning(epsilon_micro: int, time_precision: int, lifetime_seconds: int) -> str:
    """A sentence about a campaign that devices of owners who set no limits would not answer to its end; or nothing.

    Args:
        epsilon_micro: what one period costs, in millionths.
        time_precision: seconds in a period.
        lifetime_seconds: from the campaign's first day to its last.
    """
    if epsilon_micro > allowance.PERIOD_MICRO:  # owners have to allow such an ε, and then say what they allow in a day
        return ""
    usual = "a device whose owner set no limits"
    daily = allowance.Limit(allowance.DAY_MICRO, DAY_SECONDS)
    held = allowance.paces(epsilon_micro, time_precision, [daily])
    days = allowance.days_paid(allowance.LIFETIME_MICRO // epsilon_micro, time_precision, held)
    parts = [f"answers {pace} (ε = {format_micro(daily.micro)} in 24 hours)" for pace in held]
    if days * DAY_SECONDS < lifetime_seconds:
        most = format_micro(allowance.LIFETIME_MICRO)
        parts.append(f"stops after {days} of {lifetime_seconds // DAY_SECONDS} days (ε = {most} in its life)")
    return f"{usual} {' and '.join(parts)}" if parts else ""


def campaign_warning(found: Campaign) -> str:
    """What whoever shows or verifies a campaign should know before taking part; empty for most."""
    return "; ".join(
        filter(None, (epsilon_warning(found.epsilon_micro), refusal_warning(found.schema), model_warning(found.model)))
    )


def periods(found: Campaign) -> int:
    """How many periods a campaign's life touches: ⌊(expires − 1)/T⌋ − ⌊not_before/T⌋ + 1, T seconds each.

    A device that answers in all of them spends that many times the campaign's ε. 0 if it has ended.
    """
    if found.ended:
        return 0
    first, last = found.period_at(found.header.not_before), found.period_at(found.header.expires - 1)
    return last - first + 1


def ratio_text(loss: PrivacyLoss, most: int | None = 48) -> str:
    """A worst ratio, exact: a fraction in lowest terms, times e to a fraction where noise is Laplace's.

    Many answers make numbers of thousands of digits, which nobody reads and Python does not print: of
    those the loss is told, as a power of e.

    Args:
        loss: of a question or in total.
        most: characters; a longer fraction becomes its first digits. None keeps it whole, up to
            :data:`MAX_DIGITS`.
    """
    if max(map(_bits, (loss.ratio, loss.exponent))) > MAX_DIGITS * _BITS_PER_DIGIT:
        return f"≈ e^{float(loss):.12g}"
    exact = str(loss.ratio)
    if most is not None and len(exact) > most:
        exact = f"≈ {_leading(loss)}"
    if loss.exponent == 0:
        return exact
    power = f"e^({loss.exponent})"
    return power if loss.ratio == 1 else f"{exact} · {power}"


def _bits(fraction: Fraction) -> int:
    return max(fraction.numerator.bit_length(), fraction.denominator.bit_length())


def _leading(loss: PrivacyLoss) -> str:
    """The ratio's first digits; as a power of e where it is beyond a float."""
    if loss.ratio.numerator.bit_length() - loss.ratio.denominator.bit_length() < _FLOAT_BITS:
        return f"{float(loss.ratio):.12g}"
    return f"e^{float(loss) - float(loss.exponent):.12g}"
