"""The section with the guarantee: the sentences of ``hearsay guarantee``, and the alarms of ``hearsay status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.cards.alarms import Alarms
from aggregator.collectors.totals import TotalsStatus
from aggregator.common.facts import Facts
from aggregator.nodes.campaigns.sheet import warning_of
from aggregator.operations.campaigns import guarantee_sheet
from aggregator.operations.status import Status
from aggregator.page.blocks import Block, Section, facts, items, paragraph, table
from aggregator.page.entries import rows_of
from aggregator.page.sections.counts import AnyStatus
from protocol.documents.campaign import Campaign

ANCHOR = "guarantee"
HEADING = "What is guaranteed, and what is not"
_IN_CARD = "What it rests on"
_ALARMS, _REACH = 10, 40


def sheet_of(campaign: Campaign, raw: bytes, counted: AnyStatus | None) -> Facts:
    """Return a campaign's guarantee sheet for the devices or nodes of its store's fullest period (None: no store)."""
    number = 0
    if isinstance(counted, Status):
        number = int(counted.periods.devices.max(initial=0))
    elif isinstance(counted, TotalsStatus):
        number = max(counted.periods.values(), default=0)
    elif counted is not None and campaign.masked is None:
        number = max((each.seen for each in counted.periods), default=0)
    return guarantee_sheet(raw, devices=number or None).facts


def of_campaigns(found: Sequence[tuple[Campaign, Facts, AnyStatus | None]]) -> Section:
    """Return the section about campaigns, each given with its sheet and the status of its store, if there is one."""
    blocks: list[Block] = []
    for campaign, sheet, counted in found:
        if warning := warning_of(campaign):
            blocks.append(paragraph(warning, "warning"))
        blocks.append(facts(f"Guarantee sheet of {campaign.header.name}", dict(sheet.pairs())))
        if sheet.notes:
            blocks.append(items("", sheet.notes))
        if sheet.table is not None:
            reach = sheet.table
            numbers = [place for place, name in enumerate(reach.columns) if name in reach.numeric]
            blocks.append(paragraph(f"Reach of lies: {reach.meaning}."))
            more = "hearsay guarantee CAMPAIGN"
            blocks.append(
                table("Reach of lies", reach.columns, reach.rows, numbers, more=more, most=_REACH, folded=True)
            )
        blocks += [items(part.title[:1].upper() + part.title[1:], part.notes) for part in sheet.parts]
        if isinstance(counted, Status):
            blocks += _alarms(counted.alarms)
    return Section(ANCHOR, HEADING, tuple(blocks))


def of_card(card: Mapping[str, object]) -> Section:
    """Return the section of a model without its campaign: the threats that its card names."""
    told = rows_of(card, _IN_CARD)
    known = facts("As the model's card says", told) if told else paragraph("The model's card names no threats.")
    hint = "The whole guarantee sheet follows from the campaign's file: hearsay guarantee CAMPAIGN."
    return Section(ANCHOR, HEADING, (known, paragraph(hint)))


def _alarms(found: Alarms | None) -> list[Block]:
    if found is None:
        return [paragraph("No alarm is tested before the smallest batch is reached.")]
    said = f"Alarms (reports that honest devices hardly ever send): {found.summary()}."
    if not found.raised:
        return [paragraph(said, "good")]
    rows = [(test.kind, test.about, f"{test.p:.2g}", f"{test.corrected:.2g}") for test in found.raised]
    columns = ("alarm", "found", "p-value", "corrected")
    more = "hearsay status --store STORE --json"
    return [paragraph(said, "warning"), table("Alarms", columns, rows, (2, 3), more=more, most=_ALARMS)]
