"""What holds of every card that this software writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.cards.card_words import REST, sections
from edge_sdk.explaining import as_text, model_in_words
from protocol import canonical

if TYPE_CHECKING:
    from aggregator.publishing.models import SignedModel

MOST_BYTES = 64 << 10
MOST_FEATURES = 64


def check_card(signed: SignedModel, trust: str) -> None:
    """The card is small, has a number for every feature, names its trust, and has words here and on a device."""
    document, card = signed.document, signed.document.card
    assert len(canonical.pack(card)) <= MOST_BYTES
    assert card["trust"] == trust
    names = {feature.name for feature in document.schema.observed}
    assert set(card["asked"]) == set(card["influence"]) == names
    assert len(names) <= MOST_FEATURES
    assert all(float(bits) >= 0 for bits in card["influence"].values())
    assert card["software"].startswith("hearsay ")
    assert card["threats"]
    if trust != "central":
        assert card["reach_of_lies"]
        assert all("ε" in line for line in card["costs"])
    titles = [title for title, _ in sections(card)]
    assert "What it rests on" in titles
    told = as_text(model_in_words(document, bytes(32)))
    assert "privacy rests on    not stated" not in told
    assert "at a cost of        not stated" not in told
    assert REST not in titles or len(titles) > 2
