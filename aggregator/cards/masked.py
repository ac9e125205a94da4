"""The guarantee sheet of a masked campaign: what a message costs, whom the guarantee rests on, what stays unseen.

Only the total of a set of parties is decrypted, so no rule bounds what one party puts into it. A total is refused if it
is beyond n·(M + H), n parties of at most M records each and noise of at most H. One party alone can move every count of
the total by that much, and nothing shows which party did.

Source: docs/math.md, section 6; docs/decisions/0079 and 0081.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aggregator.cards.sheet import Spending, spending
from aggregator.nodes.campaigns.sheet import NodeSheet, node_sheet, usual_cost
from aggregator.nodes.masked.totals import largest_claim
from protocol.documents.campaign import Campaign
from protocol.epsilon import MICRO, PICO, format_micro
from protocol.errors import InputError
from protocol.masked.costs import cost
from protocol.masked.terms import least_parties, masked_terms_of
from protocol.sums.adjacency import ADD_REMOVE, CHANGE

UNSEEN = (
    "whether the dealer keeps its secret: the dealer's secret and the messages together decrypt every party's sums",
    (
        "whether the publisher's node list has enough honest nodes: whoever adds nodes of their own to the list makes "
        "the set large, and the honest part of the noise small"
    ),
    "whether a party's numbers are true: one party can move every count as far as stated above, and nobody sees which",
    (
        "which party encrypted with a wrong key: a period with one such message can not be decrypted, and nothing "
        "tells who sent it"
    ),
    "whether a person's records are at two parties, or in the messages of two periods: they count, and cost, twice",
    "who takes part is no secret: a message is signed by its node",
    "nothing hides the records from the party itself, and from whoever can read its disk or time its computations",
)
"""What no test of a campaign's messages can see, in sentences."""


class MaskedGuarantee(NamedTuple):
    """All guarantees of a masked campaign.

    Attributes:
        campaign: the campaign.
        privacy: the exact privacy loss of every vector.
        spending: what one node books under the limits of its owner, for changed records.
        deltas: adjacency → δ of one message, for one unit.
        parties: n, the number of parties that the next attributes are about.
        least: the smallest set whose sum the dealer releases.
        colluding: the number of parties that may collude with the aggregator, or add no noise.
        most_claimed: the largest change of one count by one lying party, in records.
        unseen: what no test of the messages can see, in sentences.
    """

    campaign: Campaign
    privacy: NodeSheet
    spending: Spending
    deltas: dict[str, float]
    parties: int
    least: int
    colluding: int
    most_claimed: int
    unseen: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``hearsay guarantee --json`` prints for a masked campaign."""
        header, spent, terms = self.campaign.header, self.spending, masked_terms_of(self.campaign)
        return {
            "campaign": self.campaign.id.hex(),
            "name": header.name,
            "version": header.version,
            "privacy": self.privacy.to_json(),
            "node": {
                "epsilon_per_period": format_micro(spent.period),
                "epsilon_per_day": format_micro(spent.day),
                "epsilon_in_life": format_micro(spent.life),
                "periods": spent.periods,
                "periods_answered": spent.answered,
            },
            "delta": self.deltas,
            "dealer": terms.dealer.hex(),
            "noise": terms.noise,
            "unit": terms.unit,
            "parties": self.parties,
            "least_parties": self.least,
            "colluding_parties": self.colluding,
            "most_claimed": self.most_claimed,
            "unseen": list(self.unseen),
        }


def masked_guarantee(found: Campaign, *, parties: int | None = None) -> MaskedGuarantee:
    """Compute the guarantee sheet of a masked campaign. Run by analysts, owners and auditors.

    Args:
        found: a masked campaign. Its signatures are not checked here.
        parties: n, the number of parties in the key book; None for the most that the campaign allows.

    Raises:
        InputError: ``campaign_not_masked``; ``argument_invalid``: n is below 2, or above what the campaign allows.
    """
    terms = masked_terms_of(found)
    number = terms.most_parties if parties is None else parties
    if not 2 <= number <= terms.most_parties:
        raise InputError("argument_invalid", f"this campaign has 2 to {terms.most_parties} parties")
    return MaskedGuarantee(
        found,
        node_sheet(found),
        spending(found, usual_cost(found)),
        {name: cost(found, name)[1] / PICO for name in (ADD_REMOVE, CHANGE)},
        number,
        least_parties(terms, number),
        terms.colluding_micro * number // MICRO,
        largest_claim(found, number),
        UNSEEN,
    )
