"""The guarantee sheet of a masked campaign, as ``hearsay guarantee`` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aggregator.cli.nodes.describe import cost_text, in_words, noise_text
from aggregator.cli.output import counted, print_facts, print_json
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import RECORD
from protocol.epsilon import format_micro
from protocol.masked.terms import masked_terms_of

if TYPE_CHECKING:
    from aggregator.guarantee.masked import MaskedGuarantee
    from protocol.documents.campaign import Campaign


def print_masked_guarantee(found: Campaign, parties: int | None, *, as_json: bool) -> None:
    """Compute and print the guarantee sheet of a masked campaign.

    Args:
        found: the campaign.
        parties: number of parties; None for the most that the campaign allows.
        as_json: whether to print one JSON object.

    Raises:
        InputError: ``argument_invalid``: the campaign does not allow so many parties.
    """
    from aggregator.guarantee.masked import masked_guarantee

    sheet = masked_guarantee(found, parties=parties)
    if as_json:
        print_json(sheet.to_json())
        return
    _print_facts(sheet)
    click.echo()
    click.echo("no test of the messages can see:")
    for sentence in sheet.unseen:
        click.echo(f"  - {sentence}")


def _print_facts(sheet: MaskedGuarantee) -> None:
    found, spent = sheet.campaign, sheet.spending
    assert found.nodes is not None
    terms, header, words = masked_terms_of(found), found.header, in_words(found)
    unit = "each record of a party" if terms.unit == RECORD else "all records of a party together"
    deltas = "; ".join(f"{delta:g} for {words[name]}" for name, delta in sheet.deltas.items())
    print_facts(
        {
            "campaign": f"{header.name}, version {header.version}, masked, for nodes of '{found.nodes.list_name}'",
            "ε per period": cost_text(sheet.privacy, words),
            "δ per period": deltas,
            "ε in its life": f"at most {format_micro(spent.life)} booked, if the owner's policy allows masked "
            f"campaigns: {spent.answered} of {counted(spent.periods, 'period')}",
            "covers": f"{unit}, against all who see totals and models, the aggregator included",
            "rests on": f"the dealer {keyid(terms.dealer).hex()}, who keeps the keys, and on at most "
            f"{sheet.colluding} of {sheet.parties} parties colluding or adding no noise",
            "smallest set": f"{sheet.least} of {sheet.parties} parties; the dealer releases no sum of fewer",
            "noise": f"{terms.noise}; {noise_text(sheet.privacy, terms)}",
            "most claimed": f"{sheet.most_claimed} records more or less in each count, by one party, unnoticed",
        }
        | {f"private pilot {number}": cost.shown for number, cost in enumerate(found.pilots, 1)}
    )
