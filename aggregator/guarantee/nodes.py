"""The guarantee sheet of a campaign for nodes: what a summary costs people, what lying nodes can do, what stays unseen.

A lying node sends any numbers that intake accepts: counts from −H to M + H, where M is the campaign's largest number of
records of one node and H the range of the noise. Plain addition believes these. L such nodes, beside nodes with n
records in all, move the share of one of k classes by at most

    up     L(M + H)/(n + L(M + H) − L(k − 1)H)         M + H records of the class, −H of each other class
    down   L(k − 1)(M + H)/(n − LH + L(k − 1)(M + H))    −H records of the class, M + H of each other class

and by no more than 1. The first is reached for a class that is rare among the honest nodes' records, the second for one
that all of these records have.

Source: docs/math.md, section 5; docs/decisions/0078.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.guarantee.sheet import Spending, spending
from aggregator.publishing.nodes.sheet import NodeSheet, node_sheet, usual_cost
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.nodes.terms import ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.documents.campaign import Campaign

FULLNESS = (1.0, 0.1, 0.01)
"""Honest nodes' mean number of records, as parts of the largest allowed number, where the reader states none."""
UNSEEN = (
    (
        "whether a node's records are about people, and one of each: a person with three records spends three times ε, "
        "and whoever invents records within the limits is believed"
    ),
    "whether a person's records are at two nodes, or in the summaries of two periods: they count, and cost, twice",
    (
        "lies that look like the sums of a node with other records. A trimmed mean, a median or Krum over many nodes "
        "of equal size (hearsay publish --robust) bounds what few nodes can do, and costs accuracy where no node lies"
    ),
    "who takes part is no secret: a summary is signed by its node, and states its ε",
    "nothing hides the records from the node itself, and from whoever can read its disk",
)
"""What no test of a campaign's summaries can see, in sentences."""


class Reach(NamedTuple):
    """How far lying nodes move the share of a class at most, under plain addition.

    Attributes:
        records: mean number of records of an honest node.
        moved: share of lying nodes among all → largest change of a class's share, from 0 to 1.
    """

    records: float
    moved: dict[float, float]


class NodeGuarantee(NamedTuple):
    """All guarantees of a campaign for nodes.

    Attributes:
        campaign: the campaign.
        privacy: the exact privacy loss of every vector.
        spending: what one node books under the default limits of its owner, for changed records.
        most_claimed: the largest count that one summary can state.
        reach: how far lies move a class's share; a row for each mean number of records.
        unseen: what no test of the summaries can see, in sentences.
    """

    campaign: Campaign
    privacy: NodeSheet
    spending: Spending
    most_claimed: int
    reach: tuple[Reach, ...]
    unseen: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object that ``hearsay guarantee --json`` prints for a campaign for nodes."""
        header, spent = self.campaign.header, self.spending
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
            "pilots": [one._asdict() for one in self.campaign.pilots],
            "most_claimed": self.most_claimed,
            "reach": [{"records": row.records, "moved": row.moved} for row in self.reach],
            "unseen": list(self.unseen),
        }


def node_guarantee(
    found: Campaign, *, nodes: int | None = None, records: float | None = None, liars: Sequence[float]
) -> NodeGuarantee:
    """Compute the guarantee sheet of a campaign for nodes. Run by analysts, owners and auditors.

    Args:
        found: a campaign with terms for nodes. Its signatures are not checked here.
        nodes: number of nodes that send a summary; None if it is not known. Shares of liars are then rounded to whole
            nodes, at least one.
        records: mean number of records of an honest node; None for the parts :data:`FULLNESS` of the largest number.
        liars: shares of lying nodes, each between 0 and 1.

    Raises:
        InputError: ``argument_invalid``: ``nodes`` or ``records`` is not positive, or a share is not between 0 and 1.
    """
    assert found.nodes is not None
    if (nodes is not None and nodes < 1) or (records is not None and records <= 0):
        raise InputError("argument_invalid", "the numbers of nodes and of records are above 0")
    if not all(0 < share < 1 for share in liars):
        raise InputError("argument_invalid", "a share of lying nodes is between 0 and 1")
    least, most = ranges(found, found.nodes.least_epsilon_micro)[0]
    means = [records] if records is not None else [found.nodes.max_records * part for part in FULLNESS]
    claims = _Claims(len(found.schema.label.classes), -least, most)
    return NodeGuarantee(
        found,
        node_sheet(found),
        spending(found, usual_cost(found)),
        most,
        tuple(Reach(mean, {share: _moved(claims, mean, share, nodes) for share in liars}) for mean in means),
        UNSEEN,
    )


class _Claims(NamedTuple):
    """What one summary can claim: number of classes k, H, and M + H (``most``)."""

    classes: int
    noise: int
    most: int


def _moved(claims: _Claims, records: float, share: float, nodes: int | None) -> float:
    """The largest change of a class's share by lying nodes, from 0 to 1.

    Args:
        claims: what one summary can claim.
        records: mean number of records of the honest nodes.
        share: share of lying nodes.
        nodes: number of all nodes; None for a large number.
    """
    lying = share if nodes is None else min(nodes, max(1, round(share * nodes))) / nodes
    honest, others = (1 - lying) * records, claims.classes - 1
    up, down = lying * claims.most, lying * others * claims.most
    return max(
        _part(up, honest + up - lying * others * claims.noise), _part(down, honest - lying * claims.noise + down)
    )


def _part(number: float, of: float) -> float:
    """``number / of``, at most 1; 1 if ``of`` is not positive, since sums of claims then exceed the records."""
    return min(1.0, number / of) if of > 0 else 1.0
