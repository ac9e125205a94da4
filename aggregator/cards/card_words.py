"""The card of any model in words: sections of names and texts, for ``hearsay show``.

Whoever signs models can write any map into a card: values of any type are shown, and texts are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.documents.payload import sentence

MOST_CHARACTERS = 400
MOST_ITEMS = 64
MOST_ROWS = 200
_DEPTH = 3

SECTIONS: Final = {
    "What it is": {
        "campaign_name": "campaign", "campaigns": "campaigns", "purpose": "purpose", "trust": "trust",
        "postprocess": "post-processing", "estimator": "estimator", "software": "made by",
        "series": "series", "memory": "memory",
    },
    "What was asked, and at which cost": {
        "asked": "asked about", "asked_besides": "and more features", "not_asked": "not asked about",
        "not_asked_count": "features not asked about", "mechanisms": "mechanisms",
        "answers_per_device": "answers per device",
        "epsilon_total": "ε in a period", "epsilon_per_answer": "ε per answer", "epsilon_smallest": "smallest ε",
        "delta": "δ", "delta_total": "δ in a period", "rho": "ρ", "adjacency": "neighbouring data sets",
        "sensitivity": "sensitivity", "noise": "noise", "division": "division of ε", "method": "method",
        "budget": "budget", "pilots": "private pilots", "costs": "costs",
    },
    "What was counted": {
        "reports": "reports", "records": "records in the clear",
        "answers": "answers about", "nodes": "nodes", "summaries": "summaries",
        "node_list": "list of nodes", "periods": "periods", "rejected": "set aside", "unproven": "from damaged files",
        "proven_only": "undamaged files only", "smallest_set": "smallest set of parties", "least_set": "least set",
    },
    "How sure it is": {
        "expected_accuracy": "expected accuracy", "expected_accuracy_low": "expected accuracy, at least",
        "expected_accuracy_high": "expected accuracy, at most",
        "expected_accuracy_assumes": "assumed", "expected_recall": "expected recall of each class",
        "largest_class": "largest class",
        "largest_class_low": "largest class, at least",
        "largest_class_high": "largest class, at most", "beats_largest_class": "better than the largest class",
        "homogeneity": "test of one population",
        "class_intervals": "classes, 95 %", "interval_widths": "widths of intervals", "intervals": "intervals are of",
        "influence": "bits about the class", "influence_noise": "bits of noise alone, at most",
    },
    "What it rests on": {
        "threats": "threats", "reach_of_lies": "reach of lies", "shuffling": "shuffling",
        "shortened": "left out of the card", "dealer": "dealer", "unit": "what is hidden",
        "honest_share": "share of honest parties", "colluding_share": "share that may collude",
    },
}  # fmt: skip
"""Section → key of a card → its name for people. Keys that are in no section are shown in a last section."""
REST = "Also"
DECIDED = "What was decided, and why"
_FIRST = ("by", "step", "why")
"""Entries of a decision that are shown before the others; tables come last."""


def sections(card: Mapping[Any, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return a card's entries by section, each as (name, text on one line). Empty sections are left out."""
    found = []
    left = dict(card)
    for title, names in SECTIONS.items():
        rows = [(name, in_words(left.pop(key))) for key, name in names.items() if key in left]
        if rows:
            found.append((title, rows))
    if decided := _decided(left.pop("chosen", None)):
        found.append((DECIDED, decided))
    rest = [(_clipped(str(key)), in_words(value)) for key, value in list(left.items())[:MOST_ITEMS]]
    if len(left) > MOST_ITEMS:
        rest.append(("more entries", str(len(left) - MOST_ITEMS)))
    return [*found, (REST, rest)] if rest else found


def _decided(chosen: object) -> list[tuple[str, str]]:
    if not chosen:
        return []
    if not isinstance(chosen, dict):
        return [("chosen", in_words(chosen))]
    found = []
    first = [key for key in _FIRST if key in chosen]
    order = [*first, *(key for key in list(chosen)[:MOST_ITEMS] if key not in first)]
    for key in sorted(order, key=lambda key: isinstance(chosen[key], list)):
        value = chosen[key]
        name = _clipped(str(key).replace("_", " "))
        if isinstance(value, list) and any(isinstance(row, dict) for row in value):
            found += [(f"{name} {number}", in_words(row)) for number, row in enumerate(value[:MOST_ITEMS], 1)]
            if len(value) > MOST_ITEMS:
                found.append((f"more {name}", str(len(value) - MOST_ITEMS)))
        else:
            found.append((name, in_words(value)))
    return found[:MOST_ROWS]


def in_words(value: object, depth: int = _DEPTH) -> str:
    """Return any value of a card as text on one line, of bounded length."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, bytes):
        return _clipped(value[:MOST_CHARACTERS].hex())
    if not isinstance(value, dict | list | tuple):
        return _clipped(str(value))
    if not depth:
        return f"{len(value)} items"
    if isinstance(value, dict):
        items = [f"{_clipped(str(name))} {in_words(value[name], depth - 1)}" for name in list(value)[:MOST_ITEMS]]
    else:
        items = [in_words(one, depth - 1) for one in value[:MOST_ITEMS]]
    more = [f"and {len(value) - len(items)} more"] if len(value) > len(items) else []
    return ", ".join([*items, *more]) or "none"


def _clipped(text: str) -> str:
    shown = sentence(text[: MOST_CHARACTERS + 1])
    return shown if len(shown) <= MOST_CHARACTERS else shown[:MOST_CHARACTERS] + "…"
