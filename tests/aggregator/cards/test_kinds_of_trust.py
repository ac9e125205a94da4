"""The card of every kind of statistics is canonical, bounded, and says whom its numbers rest on."""

from __future__ import annotations

import pytest

from aggregator.cards.card import MOST_BYTES, shortened
from aggregator.cards.card_words import REST, sections
from protocol import canonical


@pytest.mark.parametrize("size", [1, 1000, 100_000])
@pytest.mark.parametrize("value", ["x", ["x" * 100], {"x" * 900: "y" * 900}, [[["x" * 100]]]])
def test_any_card_is_shortened_to_its_bound_and_says_what_it_lost(size, value):
    grown = (
        value * size
        if isinstance(value, str | list)
        else {f"{n}{key}": v for n in range(size) for key, v in value.items()}
    )
    card = {"small": 1, "large": grown, "other": ["y" * 50] * 500}
    found = shortened(card)
    assert len(canonical.pack(found)) <= MOST_BYTES
    assert found["small"] == 1
    if len(canonical.pack(card)) <= MOST_BYTES:
        assert found == card
    else:
        lost = found["shortened"]
        for name, number in lost.items():
            whole = card[name]
            left = len(found[name]) if name in found else 0
            assert number == (1 if isinstance(whole, str) else len(whole) - left)


def test_a_shortened_card_says_so_to_people():
    found = shortened({"large": ["x" * 1000] * 100})
    assert any(name == "left out of the card" for _, rows in sections(found) for name, _ in rows)


@pytest.mark.parametrize("chosen", [None, "text", 3, [], [1], {"a": [{"b": {}}]}, {1: 2}, {"x" * 9000: ["y"] * 9000}])
def test_a_decision_of_any_form_is_shown_bounded(chosen):
    rows = [row for title, part in sections({"chosen": chosen}) if title != REST for row in part]
    assert sum(len(name) + len(text) for name, text in rows) < 100_000


def test_who_decided_and_why_come_first_and_tables_last():
    chosen = {"candidates": [{"names": "a"}, {"names": "b"}], "devices": 3, "why": "w", "by": "hearsay design"}
    ((_, rows),) = sections({"chosen": chosen})
    assert [name for name, _ in rows] == ["by", "why", "devices", "candidates 1", "candidates 2"]
