"""A signed model in words: what it was learned from, at which ε, how often it is right, and who could have moved it.

The card of a model is a map that its publisher writes, and that this device can not check. So no entry is taken as it
is: an entry that is missing, or of an unknown type or form, is "not stated", and texts are cut.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edge_sdk.explaining.explain import shown_date
from protocol.shown import quoted, sentence
from protocol.words import to_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.documents.model import Model

_MOST_TEXT = 400
_MOST_NAMES = 12
_MOST_NAME = 60
_MOST_COUNT = 10**15
_NOT_STATED, _NEVER = "not stated", "never predicted"
_SHARE = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?")
_KINDS = {
    "local": (
        "reports of devices",
        "each device added noise to its own answers, so nobody had to be trusted with a record",
        "whoever controls many devices, or invents reports",
    ),
    "federated": (
        "records of nodes (a noisy number)",
        "each node read its own records and added noise to their sums",
        "each node, by sums of records that it does not have; nobody sees that",
    ),
    "distributed": (
        "records of parties (a noisy number)",
        "the sums of the parties were opened only together; the dealer of the keys and the parties were trusted",
        "each party, by sums of records that it does not have; nobody sees that",
    ),
    "central": (
        "records",
        "a curator saw all records and added noise to what was published",
        "the curator, who chose the records",
    ),
}
"""Kind of trust → what was counted, on what the privacy rests, and who could have moved the numbers."""


def model_in_words(model: Model, digest: bytes) -> str:
    """Describe a model for the owner of the device, in several lines of bounded length.

    Args:
        model: a verified model, from ``parse_model``.
        digest: its id, SHA-256 of the payload.
    """
    header, schema, card = model.header, model.schema, model.card
    counted, rests, movers = _of_trust(_text(card, "trust"))
    threats, reach = _text(card, "threats"), _text(card, "reach_of_lies")
    lines = [
        f"Model {quoted(header.name)}, version {header.version}",
        f"  id         {digest.hex()}",
        f"  in words   {to_words(digest)}",
        f"  from       {shown_date(header.not_before)} to {shown_date(header.expires)}",
        f"  predicts   {_name(schema.label.name)}: {_names(schema.label.classes)}",
        f"  reads      {_names([feature.name for feature in schema.features])}",
        "",
        "Its publisher says, which this device can not check:",
        f"  purpose             {_text(card, 'purpose') or _NOT_STATED}",
        f"  learned from        {_text(card, 'reports') or 'an unknown number of'} {counted}",
        f"  at a cost of        {_cost(card)}",
        f"  privacy rests on    {rests}",
        f"  expected right      {_accuracy(card)}",
        f"  the largest class   {_share(card, 'largest_class')} of the records, right without any model",
        f"  moved by            {movers}{'; ' if reach else ''}{reach}",
        *([f"  it warns            {threats}"] if threats else []),
    ]
    if card.get("beats_largest_class") == "no":
        lines.append("By its own statistics it is right no more often than who always says the largest class.")
    elif card.get("beats_largest_class") != "yes":
        lines.append("It is not known whether it is right more often than who always says the largest class.")
    never = _never(card, schema.label.classes)
    if never:
        lines.append(f"By its own statistics it never says {_names(never)}.")
    return "\n".join(lines)


def _never(card: Mapping[str, object], classes: Sequence[str]) -> list[str]:
    """The classes that the card says the model never predicts."""
    recall = card.get("expected_recall")
    return [name for name in classes if recall.get(name) == _NEVER] if isinstance(recall, dict) else []


def _of_trust(text: str) -> tuple[str, str, str]:
    """What was counted, on what privacy rests and who could move the numbers; of several kinds, each in its turn.

    ``text`` is a kind of trust, or several with semicolons between them.
    """
    if not text:
        return "reports or records", _NOT_STATED, _NOT_STATED
    kinds = [
        _KINDS.get(kind, ("reports or records", f"in the words of its publisher: {quoted(kind)}", _NOT_STATED))
        for kind in text.split("; ")
    ]
    counted, rests, movers = ("; ".join(dict.fromkeys(texts)) for texts in zip(*kinds, strict=True))
    return counted, rests, movers


def _cost(card: Mapping[str, object]) -> str:
    """ε and δ of one person, as far as the card has them."""
    total, answer = _text(card, "epsilon_total"), _text(card, "epsilon_per_answer")
    delta = _text(card, "delta_total") or _text(card, "delta")
    when = " in all" if _text(card, "trust") == "central" or "series" in card else " in a period"
    found = f"ε = {total}{when}" if total else _NOT_STATED
    found += f", {answer} per answer" if total and answer and answer != total else ""
    return found + (f", δ = {delta}" if delta not in ("", "0") else "")


def _accuracy(card: Mapping[str, object]) -> str:
    """The expected accuracy, its range and what it assumes."""
    least, most = _share(card, "expected_accuracy_low"), _share(card, "expected_accuracy_high")
    found = _share(card, "expected_accuracy")
    if found.endswith("%"):
        between = f" ({least} to {most})" if least.endswith("%") and most.endswith("%") else ""
        found += f" of the records{between} {_text(card, 'expected_accuracy_assumes')}".rstrip()
    return found


def _share(card: Mapping[str, object], key: str) -> str:
    """A share as per cent; a text of another form, such as "not known yet", as it is."""
    text = _text(card, key)
    return f"{float(text):.1%}" if _SHARE.fullmatch(text) else text or _NOT_STATED


def _text(card: Mapping[str, object], key: str) -> str:
    """An entry of the card that is text or a whole number, cut and on one line; empty for any other entry."""
    value = card.get(key)
    if type(value) is int and abs(value) < _MOST_COUNT:
        return str(value)
    return _cut(value, _MOST_TEXT) if isinstance(value, str) else ""


def _cut(text: str, most: int) -> str:
    return sentence(text[:most]).strip() + ("…" if len(text) > most else "")


def _name(text: str) -> str:
    return quoted(text[:_MOST_NAME]) + ("…" if len(text) > _MOST_NAME else "")


def _names(names: list[str] | tuple[str, ...]) -> str:
    """The first names, and the number of the others."""
    more = len(names) - _MOST_NAMES
    return ", ".join(map(_name, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
