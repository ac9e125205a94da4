"""The section on what was asked, and at which cost in ε."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, exp

from aggregator.cards.card_words import in_words
from aggregator.cards.manipulation import weights_of
from aggregator.collectors.sheet import shared_sheet
from aggregator.common.facts import Facts
from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.page.blocks import Block, Section, facts, paragraph, table
from aggregator.page.entries import mapping, rows_of
from aggregator.publishing.privacy import PrivacySheet, privacy_sheet, rounded_up
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import read_payload
from protocol.epsilon import format_micro
from protocol.features import Grouped, Joined

ANCHOR = "asked"
HEADING = "What was asked, and at which cost"
_MOST = 60
_MOST_EXPONENT = 9.0
"""Above e^9 the factor of the odds is shown as a power alone."""
_COSTS = ("ε per period", "δ per period", "ε per day", "ε in its life", "δ in its life")
_IN_CARD = "What was asked, and at which cost"


def of_campaigns(campaigns: Sequence[tuple[Campaign, bytes, Facts]]) -> Section:
    """Return the section about campaigns: each given with its file and its guarantee sheet."""
    blocks: list[Block] = []
    for campaign, raw, sheet in campaigns:
        costs = {name: text for name, text in sheet.pairs() if name in _COSTS}
        if campaign.shared is not None:
            costs |= dict(shared_sheet(campaign).facts.pairs())
        elif campaign.nodes is None and campaign.answers:
            costs["odds of a guess"] = f"a reader of all answers of a period multiplies them by at most {_odds(raw)}"
            named = "ε of one answer" if campaign.memory is None else "ε of one kept answer"
            costs[named] = format_micro(campaign.epsilon_per_answer_micro)
            costs["answers of a device in a period"] = campaign.answers
        named = f"Cost of {campaign.header.name}, version {campaign.header.version}"
        blocks.append(facts(named, costs | _left_out(campaign)))
        if campaign.shared is None:
            blocks += _questions(campaign, raw) if campaign.nodes is None else [_vectors(campaign)]
    return Section(ANCHOR, HEADING, tuple(blocks))


def of_card(card: Mapping[str, object]) -> Section:
    """Return the section of a model from its card alone, for a model without its campaign."""
    told = rows_of(card, _IN_CARD, ("asked", "chosen"))
    blocks: list[Block] = [facts("Cost, as the model's card says", told)] if told else []
    if not told:
        blocks.append(paragraph("The model's card does not say at which cost its numbers were asked."))
    features = mapping(card, "asked")
    if features:
        rows = [(name, in_words(value)) for name, value in features.items()]
        columns = ["feature", "asked about"]
        blocks.append(
            table(
                "Features, as the model's card says", columns, rows, more="hearsay show MODEL", folded=True, most=_MOST
            )
        )
    return Section(ANCHOR, HEADING, tuple(blocks))


def _left_out(campaign: Campaign) -> dict[str, object]:
    """Return the features that the campaign states and does not ask about, joins, and groups of values."""
    names = {feature.name for feature in campaign.schema.features}
    rest = ", ".join(feature.name for feature in campaign.stated.features if feature.name not in names)
    found: dict[str, object] = {"not asked": rest} if rest else {}
    joined = [feature.name for feature in campaign.schema.observed if isinstance(feature, Joined)]
    found |= {"joined": "; ".join(joined)} if joined else {}
    grouped = [feature for feature in campaign.schema.single if isinstance(feature, Grouped)]
    return found | {f"groups of {feature.name}": " / ".join(feature.labels()) for feature in grouped[:_MOST]}


def _questions(campaign: Campaign, raw: bytes) -> list[Block]:
    if not campaign.questions:
        return [paragraph("The campaign has ended: it asks nothing.")]
    sheet = _sheet(raw)
    listed = zip(sheet.names, sheet.questions, sheet.losses, weights_of(campaign), strict=True)
    rows = [
        (name, question.mechanism.name, question.size, f"{100 * share:.3g}%", rounded_up(loss))
        for name, question, loss, share in listed
    ]
    columns = ("question", "mechanism", "possible answers", "chance in a period", "exact ε")
    caption = "Questions. A device is asked by chance, never by its record"
    more = "hearsay verify CAMPAIGN --trust ROOT --privacy"
    return [table(caption, columns, rows, (2, 3, 4), more=more, most=_MOST)]


def _sheet(raw: bytes) -> PrivacySheet:
    return privacy_sheet(read_payload(read_envelope(raw, "campaign").payload)[0])


def _odds(raw: bytes) -> str:
    """Return by which factor at most a device's answers of one period change the odds of any guess about its record."""
    loss = float(_sheet(raw).total)
    power = f"e^{rounded_up(loss)}"
    return power if loss > _MOST_EXPONENT else f"{ceil(100 * exp(loss)) / 100:g} ({power})"


def _vectors(campaign: Campaign) -> Block:
    rows = [
        (vector.name, vector.size, format_micro(vector.epsilon_micro), vector.deviation)
        for vector in node_sheet(campaign).vectors
    ]
    columns = ("sum", "numbers", "ε", "standard deviation of the noise")
    more = "hearsay verify CAMPAIGN --trust ROOT --privacy"
    return table("Sums that each node releases with noise", columns, rows, (1, 2, 3), more=more, most=_MOST)
