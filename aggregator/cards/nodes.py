"""The guarantee sheet of a campaign for nodes: what a summary costs people, what lying nodes can do, what stays unseen.

A lying node sends any numbers that intake accepts: counts from −H to M + H, where M is the campaign's largest number of
records of one node and H the range of the noise. Plain addition believes these counts, in every table. The share of a
class is pooled from all tables of counts by class, with weights w_j, Σ_j w_j = 1. A share of table j is the sum over
the table's K_j values. So one node states at most U records of a class for the pooled share, and at least −D:

    U = Σ_j w_j K_j (M + H_j)      D = Σ_j w_j K_j H_j      w_j ∝ 1/(K_j v_j/n + (k − 1)/k²)

with k classes, v_j the noise variance of a count of one node, and n the mean number of records that the nodes state.
U and D rise with n, because tables of many values then weigh more. The largest n that can be stated is taken:
n = (1 − λ)r + λk(M + H), with a share λ of lying nodes, and r records of an honest node. Of L lying nodes beside nodes
with R records in all, the published share of one class moves by at most the largest of

    LU/(R + LU − L(k − 1)D)            U records of the class, −D of each other class
    L(k − 1)D/R                        the same claims, if the other classes have L(k − 1)D honest records
    L(k − 1)U/(R − LD + L(k − 1)U)     −D records of the class, U of each other class

and by no more than 1.

Source: docs/math.md, section 5; docs/decisions/0078.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aggregator.cards.sheet import Spending, spending
from aggregator.nodes.campaigns.sheet import NodeSheet, node_sheet, usual_cost
from protocol.documents.campaign import Campaign
from protocol.epsilon import format_micro
from protocol.errors import InputError
from protocol.nodes.smooth import noise_variance
from protocol.nodes.terms import ranges, released_vectors, shares, terms_of
from protocol.questions import CELL, CLASS, PRESENT

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
        most_claimed: the largest count that one summary can state in one cell of a table.
        tables: number of tables of counts from which the share of a class is pooled.
        reach: how far lies move a class's share; a row for each mean number of records.
        unseen: what no test of the summaries can see, in sentences.
    """

    campaign: Campaign
    privacy: NodeSheet
    spending: Spending
    most_claimed: int
    tables: int
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
            "tables": self.tables,
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
    claims, classes = _claims(found), len(found.schema.label.classes)
    means = [records] if records is not None else [found.nodes.max_records * part for part in FULLNESS]
    return NodeGuarantee(
        found,
        node_sheet(found),
        spending(found, usual_cost(found)),
        max(table.most for table in claims),
        len(claims),
        tuple(Reach(mean, {one: _moved(claims, classes, mean, one, nodes) for one in liars}) for mean in means),
        UNSEEN,
    )


class _Table(NamedTuple):
    """What one summary can claim in one table of counts by class.

    Attributes:
        values: number K of values for each class.
        noise: H, the largest count below 0 that can be stated.
        most: M + H, the largest count that can be stated.
        variance: smallest noise variance of one count.
    """

    values: int
    noise: int
    most: int
    variance: float


def _claims(found: Campaign) -> list[_Table]:
    """The tables from which the share of a class is pooled; the class counts are the first."""
    classes, least_epsilon = len(found.schema.label.classes), terms_of(found).least_epsilon_micro
    vectors = zip(released_vectors(found), ranges(found, least_epsilon), shares(found), strict=True)
    return [
        _Table(subject.size // classes, -least, most, noise_variance(found, subject, share))
        for subject, (least, most), share in vectors
        if subject.kind in (CLASS, CELL, PRESENT)
    ]


def _pooled_claims(claims: Sequence[_Table], classes: int, records: float) -> tuple[float, float]:
    """U and D: the most and, negated, the least records of a class that one node states for the pooled share.

    ``records``: n, the mean number of records that the nodes state.
    """
    equal = (classes - 1) / classes**2
    weights = [1 / (table.values * table.variance / records + equal) for table in claims]
    each = list(zip(weights, claims, strict=True))
    most = sum(weight * table.values * table.most for weight, table in each)
    noise = sum(weight * table.values * table.noise for weight, table in each)
    return most / sum(weights), noise / sum(weights)


def _moved(claims: Sequence[_Table], classes: int, records: float, share: float, nodes: int | None) -> float:
    """The largest change of a class's share by lying nodes, from 0 to 1.

    Args:
        claims: what one summary can claim.
        classes: number k of classes.
        records: mean number of records of the honest nodes.
        share: share of lying nodes.
        nodes: number of all nodes; None for a large number.
    """
    lying = share if nodes is None else min(nodes, max(1, round(share * nodes))) / nodes
    honest, others = (1 - lying) * records, classes - 1
    most, noise = _pooled_claims(claims, classes, honest + lying * classes * claims[0].most)
    up, below, down = lying * most, lying * others * noise, lying * others * most
    return max(_part(up, honest + up - below), _part(below, honest), _part(down, honest - lying * noise + down))


def _part(number: float, of: float) -> float:
    """``number / of``, at most 1; 1 if ``of`` is not positive, since sums of claims then exceed the records."""
    return min(1.0, number / of) if of > 0 else 1.0
