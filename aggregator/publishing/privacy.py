"""The ε that a campaign really spends, from the integers in its file, and warnings about campaigns.

The *worst ratio* of a question is the largest ratio between the probabilities of one answer under two inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from protocol import epsilon as allowance
from protocol import mechanisms
from protocol.documents.asked import privacy_loss
from protocol.documents.campaign import Campaign
from protocol.documents.memory_terms import Remembered
from protocol.documents.payload import DAY_SECONDS
from protocol.epsilon import MICRO, PrivacyLoss, format_micro
from protocol.errors import DocumentError, InputError
from protocol.questions import Question, Subject
from protocol.schema import Schema, refusing

_REASON = "invalid_campaign"
HIGH_EPSILON_MICRO = 20 * MICRO
"""Total ε above which an answer hides next to nothing. Commands then warn."""

MAX_DIGITS = 4000
"""Most digits of a printed numerator or denominator. A longer ratio is printed as a power of e."""
_BITS_PER_DIGIT = 3.32  # a little below log2(10)
_FLOAT_BITS = 1000  # a float holds 2^1000, but not 2^1024


class PrivacySheet(NamedTuple):
    """The ε that a campaign declares, and the ε that it spends.

    ``losses``: exact privacy loss of one answer to each question, in the worst case. ``total``: of one device in one
    period: the sum, over the strata (groups of questions of which a device answers one), of the largest loss.
    ``models``: digests of the models that an evaluation names.
    """

    questions: tuple[Question, ...]
    names: tuple[str, ...]
    losses: tuple[PrivacyLoss, ...]
    total: PrivacyLoss
    declared_micro: int
    answers: int
    models: tuple[bytes, ...] = ()

    @property
    def declared_per_answer_micro(self) -> int:
        """The ε that each answer may spend: ⌊declared ε / answers⌋, in millionths; 0 for a campaign that has ended."""
        return self.declared_micro // self.answers if self.answers else 0

    @property
    def holds(self) -> bool:
        """Whether the exact privacy loss of a device in one period (``total``) is at most the declared ε."""
        return not self.total.exceeds(self.declared_micro)

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``privacy`` in the output of ``hearsay verify --privacy --json``."""
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
            "model": self.models[0].hex() if len(self.models) == 1 else None,
            "models": [model.hex() for model in self.models],
        }


def privacy_sheet(body: dict[str, Any]) -> PrivacySheet:
    """Compute the ε that a campaign really spends, beside the ε that it declares, from its parsed payload ``body``.

    Run by an auditor, who needs only the campaign's file and the trust root; a campaign that spends more is not
    refused. Raises DocumentError ``invalid_campaign``: the payload can not be read.
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
        names=tuple(subject_text(question.subject, names) for question in questions),
        losses=tuple(question.mechanism.privacy_loss() for question in questions),
        total=privacy_loss(questions),
        declared_micro=declared,
        answers=answers,
        models=_models(body),
    )


def _models(body: dict[str, Any]) -> tuple[bytes, ...]:
    several = body.get("models")
    entries = [body.get("model"), *(several if isinstance(several, list) else [])]
    return tuple(entry for entry in entries if isinstance(entry, bytes))


def _question(entry: Any) -> Question:
    problem = ""
    try:
        mechanism = mechanisms.from_dict(entry["mechanism"])
        return Question(
            Subject(
                str(entry["kind"]),
                entry.get("feature"),
                mechanism.size,
                entry.get("power"),
                entry.get("class"),
                entry.get("model"),
            ),
            int(entry["stratum"]),
            int(entry["bound"]),
            mechanism,
        )
    except InputError as error:
        problem = error.detail
    except (KeyError, TypeError, ValueError, AttributeError):
        problem = "a question can not be read"
    raise DocumentError(_REASON, problem)


def subject_text(subject: Subject, names: Sequence[str]) -> str:
    """Return in words what a question or sum is about. ``names`` are the names of the observed features."""
    kind, index, _, power, of_class, model = subject[:6]
    about = f" {names[index]}" if type(index) is int and 0 <= index < len(names) else ""
    which = "" if power is None else f" power {power}"
    which = f" model {model + 1}" if type(model) is int else which
    return f"{kind}{about}{which}{'' if of_class is None else f' class {of_class}'}"


def _observed_names(body: dict[str, Any]) -> list[str]:
    """Return the names of all that devices are asked about, from an unchecked payload.

    These are the features that the projection (PCA or DCA) leaves as they are, then the components that it makes of
    the others.
    """
    features = [entry.get("name") if isinstance(entry, dict) else "?" for entry in body.get("features", [])]
    projection = body.get("projection")
    if not isinstance(projection, dict):
        return [str(name) for name in features]
    inputs, parts = projection.get("inputs", []), projection.get("components", [])
    kept = [name for index, name in enumerate(features) if index not in inputs]
    return [str(name) for name in (*kept, *(part.get("name") for part in parts if isinstance(part, dict)))]


def epsilon_warning(epsilon_micro: int) -> str:
    """Return a warning if the total ε, in millionths, is above :data:`HIGH_EPSILON_MICRO`; otherwise empty."""
    if epsilon_micro <= HIGH_EPSILON_MICRO:
        return ""
    return "a total ε above 20 hides next to nothing: an answer is then almost surely the truth"


def refusal_warning(schema: Schema) -> str:
    """Return a warning about a schema that refuses unlisted values, which ε does not cover; empty for other schemas."""
    names = ", ".join(f"'{name}'" for name in refusing(schema))
    if not names:
        return ""
    return (
        f"whether there is a report depends on the record, which ε does not cover ({names}: unlisted = refuse); "
        "devices accept such a campaign only if their owner says allow_refuse = true, for development"
    )


def model_warning(models: Sequence[bytes]) -> str:
    """Return a warning that the models of an evaluation (digests) decide what is read of a record; else empty."""
    if not models:
        return ""
    named = ", ".join(model.hex() for model in models)
    if len(models) == 1:
        return (
            f"what is read of a record is not in this file: the model {named} decides it; hearsay show MODEL.hsm "
            "lists its features under that id, and devices refuse the campaign without that model"
        )
    return (
        f"what is read of a record is not decided in this file: the models {named} decide it; hearsay show MODEL.hsm "
        "lists the features of each under its id, and devices refuse the campaign without all of these models"
    )


def pace_warning(epsilon_micro: int, time_precision: int, lifetime_seconds: int, who: str = "a device") -> str:
    """Return a warning that under default limits a device skips periods or stops early; empty if it does not.

    Empty, too, for an ε above the default limit of one period, which only devices with limits of their own answer.
    ``epsilon_micro``: ε of one period, in millionths. ``time_precision``: seconds in a period. ``who``: for the text.
    """
    if epsilon_micro > allowance.PERIOD_MICRO:  # Devices without a policy of their owner refuse such an ε.
        return ""
    usual = f"{who} whose owner set no limits"
    daily = allowance.Limit(allowance.DAY_MICRO, DAY_SECONDS)
    held = allowance.paces(epsilon_micro, time_precision, [daily])
    days = allowance.days_paid(allowance.LIFETIME_MICRO // epsilon_micro, time_precision, held)
    parts = [f"answers {pace} (ε = {format_micro(daily.micro)} in 24 hours)" for pace in held]
    if days * DAY_SECONDS < lifetime_seconds:
        most = format_micro(allowance.LIFETIME_MICRO)
        parts.append(f"stops after {days} of {lifetime_seconds // DAY_SECONDS} days (ε = {most} in its life)")
    return f"{usual} {' and '.join(parts)}" if parts else ""


def first_cost_warning(life_micro: int) -> str:
    """Return a warning if devices under default limits refuse a campaign with memory of this whole cost."""
    if life_micro <= allowance.PERIOD_MICRO:
        return ""
    most = format_micro(allowance.PERIOD_MICRO)
    return (
        f"a device whose owner set no limits refuses it: the first answer pays ε = {format_micro(life_micro)} for the "
        f"whole campaign, and {most} is allowed in a period"
    )


def memory_facts(found: Campaign) -> dict[str, object]:
    """Return what a command prints of a campaign whose devices keep their answers; empty for other campaigns."""
    terms = found.memory
    if terms is None:
        return {}
    return {
        "memory": terms.in_words(found.epsilon_micro),
        "renewals": terms.renewals,
        "periods_of_a_kept_answer": terms.stretch,
        "epsilon_of_one_report": format_micro(terms.report_micro),
        "chance_of_linking": round(linking(found), 4),
    }


def linking(found: Campaign) -> float:
    """Return the chance that the best guess links two of three reports of a campaign with memory; ½ is blind.

    It is the largest :attr:`protocol.documents.memory_terms.Remembered.pairing` of the campaign's questions.
    """
    kinds = {question.mechanism for question in found.questions}
    return max(kind.pairing for kind in kinds if isinstance(kind, Remembered))


def rounded_up(loss: float) -> str:
    """Return the text of a privacy loss with nine decimal places, rounded up: it never looks smaller than it is."""
    return f"{Decimal(loss).quantize(Decimal('1e-9'), ROUND_CEILING):f}"


def campaign_warning(found: Campaign) -> str:
    """Return all warnings about a campaign in one text, for people who decide whether to take part; mostly empty."""
    return "; ".join(
        filter(
            None,
            (
                epsilon_warning(found.epsilon_micro if found.memory is None else found.life_micro(1)),
                refusal_warning(found.schema),
                model_warning(found.evaluated),
            ),
        )
    )


def periods(found: Campaign) -> int:
    """Return the number of periods in a campaign's life, ⌊(expires − 1)/T⌋ − ⌊not_before/T⌋ + 1; 0 if it has ended."""
    if found.ended:
        return 0
    first, last = found.period_at(found.header.not_before), found.period_at(found.header.expires - 1)
    return last - first + 1


def most_answered(found: Campaign) -> int:
    """Return the largest number of periods that one device may answer: 1 in a series, else all :func:`periods`."""
    lived = periods(found)
    return lived if found.series is None else min(1, lived)


def ratio_text(loss: PrivacyLoss, most: int | None = 48) -> str:
    """Return the text of a worst ratio: an exact fraction in lowest terms; for Laplace noise, times a power of e.

    A fraction with more than about :data:`MAX_DIGITS` digits becomes an approximate power of e. One of more than
    ``most`` characters becomes ``≈`` and twelve significant digits; None prints the whole fraction.
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
    if loss.ratio.numerator.bit_length() - loss.ratio.denominator.bit_length() < _FLOAT_BITS:
        return f"{float(loss.ratio):.12g}"
    return f"e^{float(loss) - float(loss.exponent):.12g}"
