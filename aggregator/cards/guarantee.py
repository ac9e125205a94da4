"""The guarantee sheet of a campaign: what a device or node spends, what lies can do, what no test can see.

Everything follows from the campaign's file and from what the reader of the sheet states; no reports are read. A sheet
is a tree of facts, printed as text or JSON. Source: docs/math.md, sections 5 and 6; decisions 58, 78, 79 and 81.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Protocol

from aggregator.cards.manipulation import LIARS, Bound, manipulation, moved_share, node_claims
from aggregator.cards.patterns import patterns_of
from aggregator.cards.set_bits import LYING_SHARE, power
from aggregator.cards.shuffling import Amplified, amplified
from aggregator.common.facts import Fact, Facts, Table, said, stated
from aggregator.nodes.campaigns.sheet import (
    NodeSheet,
    cost_text,
    in_words,
    is_refused,
    node_sheet,
    noise_text,
    usual_cost,
)
from aggregator.nodes.statistics.masked import largest_claim
from aggregator.publishing.privacy import PrivacySheet, linking, memory_facts, periods, privacy_sheet, rounded_up
from protocol import epsilon as allowance
from protocol.documents.asked import privacy_loss
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import RECORD
from protocol.documents.payload import DAY_SECONDS, quoted, read_payload
from protocol.epsilon import MICRO, PICO, format_micro
from protocol.errors import InputError
from protocol.masked.costs import cost, least_parties, masked_terms_of
from protocol.mechanisms import BITS, SINGLE
from protocol.questions import ADD_REMOVE, CHANGE, Question
from protocol.schema import refusing

MOST_DEVICES = 10**15
DELTA = 1e-6
"""δ of a sheet whose reader states none."""
_REPORTS = 100_000
"""Number of reports that a sheet assumes if the number of devices is not known."""
_FALSE_ALARMS = 0.01
_ENOUGH_POWER = 0.95
"""Power of a test from which on a sheet does not mention what the test misses."""
_GAIN = 0.99
"""A central ε above this part of the local one counts as no gain."""
FULLNESS = (1.0, 0.1, 0.01)
"""Mean numbers of records of an honest node, as parts of the largest allowed number, if the reader states none."""

UNSEEN_OF_NODES = (
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
UNSEEN_OF_PARTIES = (
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
"""What no test of a masked campaign's messages can see, in sentences."""


class Spending(NamedTuple):
    """The most ε that one device or node spends on a campaign under the default limits of its owner, in millionths.

    ``period``, ``day``, ``life``: ε of one period, in any 24 hours, and in the campaign's life. ``periods``: number of
    periods of that life, of which at most ``answered`` are answered.
    """

    period: int
    day: int
    life: int
    periods: int
    answered: int

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``device`` or ``node`` of a sheet."""
        return {
            "epsilon_per_period": format_micro(self.period),
            "epsilon_per_day": format_micro(self.day),
            "epsilon_in_life": format_micro(self.life),
            "periods": self.periods,
            "periods_answered": self.answered,
        }


class Losses(Protocol):
    """The exact privacy losses of a campaign."""

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``privacy`` of a sheet."""
        ...


@dataclass(frozen=True)
class GuaranteeSheet(ABC):
    """What a campaign guarantees, whoever answers it.

    ``privacy``: the exact ε of every question or of every vector of numbers that nodes release. ``unseen``: what no
    test of the reports can see, in sentences.
    """

    campaign: Campaign
    privacy: Losses
    spending: Spending
    unseen: tuple[str, ...]

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The whole sheet, for people and programs."""

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``hearsay guarantee --json`` prints."""
        return self.facts.to_json()

    def _sheet(self, facts: Iterable[Fact], of: str, notes: tuple[str, ...] = (), reach: Table | None = None) -> Facts:
        """Return a sheet of ``facts``, and of what no test of the reports, summaries or messages (``of``) can see."""
        unseen = (Facts(f"no test of the {of} can see:", notes=self.unseen),) if self.unseen else ()
        return Facts("guarantee", (*facts, stated("unseen", list(self.unseen))), notes, reach, unseen)

    def _first(self, of: str, cost: str) -> list[Fact]:
        header = self.campaign.header
        return [
            Fact("campaign", self.campaign.id.hex(), f"{header.name}, version {header.version}{of}"),
            stated("name", header.name),
            stated("version", header.version),
            Fact("privacy", self.privacy.to_json(), cost, "ε per period"),
        ]

    def _pilots(self) -> list[Fact]:
        return [said(f"private pilot {number}", one.shown) for number, one in enumerate(self.campaign.pilots, 1)]


# Devices --------------------------------------------------------------------------------------------


class Central(NamedTuple):
    """Privacy of the shuffled reports of one period, against those who read nothing else.

    ``obstacles`` says in words why no central ε is stated; then ``epsilon`` and ``bounds`` are None. ``local`` is the
    exact privacy loss of one device. ``epsilon`` is the smaller one of ``decomposition``, from the laws of the
    mechanisms, and ``clones``, from ``local`` alone. Each is the smaller one of two: of all answers of a device
    together, whose ``bounds`` are given, and the sum over its r answers, each shuffled by itself at δ/r.
    ``by_stratum``: ``epsilon`` is such a sum.
    """

    obstacles: tuple[str, ...]
    devices: int | None
    delta: float
    local: float
    epsilon: float | None = None
    decomposition: float | None = None
    clones: float | None = None
    by_stratum: bool = False
    bounds: Amplified | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``shuffled`` of a sheet."""
        bounds = self.bounds
        return {
            "applies": not self.obstacles,
            "obstacles": list(self.obstacles),
            "devices": self.devices,
            "delta": self.delta,
            "local_epsilon": self.local,
            "epsilon": self.epsilon,
            "decomposition": self.decomposition,
            "clones": self.clones,
            "by_stratum": self.by_stratum,
            "numeric": None if bounds is None else bounds.clones,
            "closed_form": None if bounds is None else bounds.closed_form,
            "closed_form_as_printed": None if bounds is None else bounds.printed,
        }

    def said(self) -> list[Fact]:
        """Return what is known about shuffled reports, as facts for people."""
        if self.bounds is None:
            return [said("central ε after shuffling", "not stated:")]
        bounds, way = self.bounds, "from the laws of its mechanisms"
        if self.by_stratum:
            told = min(bounds.decomposed, bounds.general)
            way = f"sum of the strata, each at δ/r; all answers of a device together: {told:.4g}"
        elif self.epsilon != bounds.decomposed:
            way = "numeric bound" if self.epsilon == bounds.clones else "closed form"
        found = [
            said(
                f"central ε after shuffling, δ = {self.delta:g}",
                f"{self.epsilon:.4g} ({way}), {self.devices} devices, local ε {self.local:.4g}",
            ),
            said("from the local ε alone", f"{self.clones:.4g} (bound of clones, which holds for every mechanism)"),
        ]
        if bounds.closed_form is not None and bounds.printed is not None:
            label = "closed form, all answers" if self.by_stratum else "closed form"
            found.append(said(label, f"{bounds.closed_form:.4g} (Theorem 3.1 as printed: {bounds.printed:.4g})"))
        return found

    def conditions(self) -> tuple[str, ...]:
        """Return why no central ε is stated, or, if one is stated, what it rests on; in sentences."""
        if self.obstacles:
            return self.obstacles
        found = (
            "against readers of the shuffled reports: not the shuffler, not holders of the fleet's secrets",
            "the devices counted are honest, and their reports are mixed together in every period",
            "k periods of one device cost at most k times ε and k times δ",
        )
        if self.devices is not None and self.delta * self.devices >= 1:
            return (*found, "δ is not below 1/N: so large a δ allows to publish one of the N reports as it is")
        return found


@dataclass(frozen=True)
class DeviceGuarantee(GuaranteeSheet):
    """Guarantees of a campaign for devices: of ``central`` shuffled reports, and how far ``lies`` move estimates."""

    privacy: PrivacySheet
    central: Central
    lies: tuple[Bound, ...]

    @property
    def facts(self) -> Facts:
        """The whole sheet, for people and programs."""
        spent, series = self.spending, self.campaign.series
        per_period, memory = f"{format_micro(spent.period)} declared, {rounded_up(self.privacy.total)} exact", []
        if self.campaign.memory is not None:
            alone = rounded_up(self.campaign.privacy_loss())
            kept = f"{format_micro(self.campaign.epsilon_micro)} declared, {rounded_up(self.privacy.total)} exact"
            per_period = f"at most {alone}, of one report alone; of one kept answer and all its reports {kept}"
            memory = [
                Fact("memory", memory_facts(self.campaign), self.campaign.memory.in_words(self.campaign.epsilon_micro)),
                said("a changed record", CHANGE_SHOWS),
                said("reports of one device", link_in_words(self.campaign)),
            ]
        facts = [
            *self._first("", per_period),
            Fact(
                "device",
                {**spent.to_json(), "series": None if series is None else series.name},
                f"at most {format_micro(spent.day)}, under the default limits of a device's owner",
                "ε per day",
            ),
            said("ε in its life", f"at most {format_micro(spent.life)}: {spent.answered} of {spent.periods} periods"),
            *memory,
            *([] if series is None else [said("series", f"{quoted(series.name)}: a device answers once in all of it")]),
            stated("pilots", [one._asdict() for one in self.campaign.pilots]),
            *self._pilots(),
            stated("shuffled", self.central.to_json()),
            *self.central.said(),
            stated("lies", [bound._asdict() for bound in self.lies]),
        ]
        return self._sheet(facts, "reports", self.central.conditions(), self._reach() if self.lies else None)

    def _reach(self) -> Table:
        heads = [f"{fleet} {share:.12g}" for fleet in ("closed", "open") for share in self.lies[0].closed]
        rows = [
            (
                bound.estimate,
                bound.mechanism,
                f"{bound.one_answer:.2f}",
                *(f"{moved:.4f}" for each in (bound.closed, bound.open) for moved in each.values()),
            )
            for bound in self.lies
        ]
        fleet = "many devices" if self.central.devices is None else f"{self.central.devices} devices"
        meaning = (
            f"how far a share of lying devices, of {fleet}, moves an estimated share or mean at most, before estimates "
            "are cut to their range; one answer moves a count of devices. A published mean or P(value | class) is an "
            "estimate divided by the share of its class: of a class of 10 % it moves some ten times further, and the "
            "model's card says how far one and three invented reports move its numbers"
        )
        return Table(("estimate", "mechanism", "one answer", *heads), rows, ("one answer", *heads), meaning)


CHANGE_SHOWS = (
    "no report says when a record changes: kept answers are drawn at fixed periods, whether or not it has changed. The "
    "next kept answer is about the changed record"
)


def link_in_words(found: Campaign) -> str:
    """Return how well the contents of two reports show that they are of one device, for a campaign with memory."""
    return (
        "their ids do not match, their contents may: who has one finds another one of the device, among two about the "
        f"same question, with probability {linking(found):.2f} at most, with more of its reports more surely (0.50 is "
        "blind). The question is the same in all periods"
    )


def _device_guarantee(
    found: Campaign, payload: bytes, devices: int | None, delta: float, liars: Sequence[float], *, shuffled: bool
) -> DeviceGuarantee:
    if (devices is not None and not 1 <= devices <= MOST_DEVICES) or not 0 < delta < 1:
        raise InputError("argument_invalid", "devices are 1 to 10¹⁵, and δ is above 0 and below 1")
    privacy = privacy_sheet(read_payload(payload)[0])
    return DeviceGuarantee(
        found,
        privacy,
        spending(found),
        _unseen(found, devices),
        _central(found, privacy, devices, delta, shuffled=shuffled),
        manipulation(found, liars, devices) if found.questions else (),
    )


def spending(found: Campaign, cost_micro: int | None = None) -> Spending:
    """Return the most that one device or node spends on a campaign under the default limits (``protocol.epsilon``).

    In a campaign of a series that is one answer. If ε is above the default limit of one period, all periods count as
    answered. ``cost_micro``: ε of one period, in millionths; None for the campaign's ε.
    """
    micro = found.epsilon_micro if cost_micro is None else cost_micro
    whole, length = periods(found), found.time_precision
    if not micro or not whole:
        return Spending(micro, 0, 0, whole, 0)
    if found.series is not None:
        return Spending(micro, micro, micro, whole, 1)
    if found.memory is not None:  # the first answer pays for all
        life = found.life_micro(whole)
        return Spending(life, life, life, whole, whole)
    begun = min(whole, -(-DAY_SECONDS // length))
    if micro > allowance.PERIOD_MICRO:
        return Spending(micro, begun * micro, whole * micro, whole, whole)
    day = min(begun, allowance.DAY_MICRO // micro)
    answered = min(whole, allowance.LIFETIME_MICRO // micro)
    for pace in allowance.paces(micro, length, [allowance.Limit(allowance.DAY_MICRO, DAY_SECONDS)]):
        answered = min(answered, pace.answers * ceil(whole * length / pace.seconds))
    return Spending(micro, day * micro, answered * micro, whole, answered)


def _central(found: Campaign, privacy: PrivacySheet, devices: int | None, delta: float, *, shuffled: bool) -> Central:
    local = float(privacy.total)
    obstacles = []
    if not found.questions:
        obstacles.append("the campaign has ended: there are no reports")
    if refusing(found.schema):
        obstacles.append("whether a device reports depends on its record (unlisted = refuse), which no shuffling hides")
    if not shuffled:
        obstacles.append(
            "whoever collects the files of single devices sees which reports are whose; state --shuffled if a gateway "
            "(hearsay merge) that its readers do not control mixes the reports before they are read"
        )
    if found.memory is not None:
        obstacles.append("reports of a device agree over the periods, so the mixing of one period does not hide them")
    if devices is None:
        obstacles.append("the number of devices in a period is not stated; give --devices")
    if obstacles or devices is None:
        return Central(tuple(obstacles), devices, delta, local)
    strata: dict[int, list[Question]] = {}
    for question in found.questions:
        strata.setdefault(question.stratum, []).append(question)
    laws = [patterns_of(stratum) for stratum in strata.values()]
    together = amplified(local, devices, delta, laws[0] if len(laws) == 1 else ())
    decomposition, clones = together.decomposed, together.general
    if len(laws) > 1:
        losses = (float(privacy_loss(tuple(stratum))) for stratum in strata.values())
        each = list(zip(losses, laws, strict=True))
        known = {law: amplified(law[0], devices, delta / len(laws), law[1]) for law in set(each)}
        decomposition = min(decomposition, sum(known[law].decomposed for law in each))
        clones = min(clones, sum(known[law].general for law in each))
    least = min(clones, decomposition)
    if least > _GAIN * local:
        few = f"devices are too few ({devices}) to hide one another at a local ε of {local:.4g} and δ = {delta:g}"
        return Central((few,), devices, delta, local)
    by_stratum = least < min(together.decomposed, together.general)
    return Central((), devices, delta, local, least, decomposition, clones, by_stratum, together)


def _unseen(found: Campaign, devices: int | None) -> tuple[str, ...]:
    if not found.questions:
        return ()
    unseen = [
        "lies that look like the answers of honest devices with other records: no test can tell these from the truth"
    ]
    layouts = {question.mechanism.layout for question in found.questions}
    names = sorted({question.mechanism.name for question in found.questions if question.mechanism.layout == SINGLE})
    if names:
        unseen.append(
            f"under {', '.join(names)}: 1 % of the devices that always give one answer; it is a possible answer"
        )
    if BITS in layouts:
        unseen.append("in rows of bits: liars who set one bit and draw all others by the mechanism's law")
        unseen += _hardly_seen(found, _REPORTS if devices is None else devices * found.answers)
    unseen.append(
        "in an open fleet: one machine that sends many reports; ids are free there, so β counts reports. In a "
        "closed fleet each device has one id per question and period"
    )
    if found.series is not None:
        unseen.append(
            "in an open fleet: devices that answer outside of their share, or more than once in the series. A closed "
            "fleet's ids leave out the devices outside of the share; second answers show where the fleet list is given"
        )
    return tuple(unseen)


def _hardly_seen(found: Campaign, reports: int) -> list[str]:
    best = power(found, reports, _FALSE_ALARMS)
    if best is None or best.found >= _ENOUGH_POWER:
        return []
    return [
        (
            f"in rows of bits: liars who set one bit only and send {100 * LYING_SHARE:g} % of {reports} reports, "
            f"in {1 - best.found:.0%} of such campaigns or more. Honest answers have one set bit with "
            f"probability {best.chance:.2g}; no test of set bits with {_FALSE_ALARMS:.0%} of false alarms does better"
        )
    ]


# Nodes ----------------------------------------------------------------------------------------------


class ShareMove(NamedTuple):
    """Mean ``records`` of an honest node, and ``moved``: share of lying nodes → largest change of a class's share."""

    records: float
    moved: dict[float, float]


@dataclass(frozen=True)
class NodeGuarantee(GuaranteeSheet):
    """All guarantees of a campaign for nodes whose sums are not masked.

    ``most_claimed``: the largest count that one summary can state for one value and class. ``tables``: number of tables
    of counts from which the share of a class is pooled. ``reach``: one entry for each mean number of records.
    """

    privacy: NodeSheet
    nodes: int | None
    most_claimed: int
    tables: int
    reach: tuple[ShareMove, ...]

    @property
    def facts(self) -> Facts:
        """The whole sheet, for people and programs."""
        found, spent = self.campaign, self.spending
        assert found.nodes is not None
        limits = (
            "if the owner's policy allows it; under the default policy a node refuses the campaign"
            if is_refused(found)
            else "under the default limits of a node's owner"
        )
        claimed = f"{self.most_claimed} records for each count by one node, whatever it has; the share of a class is "
        facts = [
            *self._first(f", for nodes of the list '{found.nodes.list_name}'", cost_text(self.privacy)),
            Fact("node", spent.to_json(), f"at most {format_micro(spent.day)} booked, {limits}", "ε per day"),
            said("ε in its life", life_text(spent)),
            said("covers", "each record of a node, against all who see summaries and models, the aggregator included"),
            said("noise", noise_text(self.privacy)),
            stated("pilots", [one._asdict() for one in found.pilots]),
            Fact(
                "most_claimed", self.most_claimed, f"{claimed}pooled from {number_text(self.tables, 'table')} of counts"
            ),
            stated("tables", self.tables),
            *self._pilots(),
            stated("reach", [row._asdict() for row in self.reach]),
        ]
        heads = tuple(f"{share:.12g} of the nodes lie" for share in self.reach[0].moved)
        rows = [(f"{row.records:g}", *(f"{moved:.4f}" for moved in row.moved.values())) for row in self.reach]
        of = "many nodes" if self.nodes is None else number_text(self.nodes, "node")
        meaning = (
            f"how far a share of lying nodes, of {of}, moves the share of a class at most, when sums are added as they "
            "come. The smaller max_records, the less"
        )
        columns = ("records of a node", *heads)
        return self._sheet(facts, "summaries", reach=Table(columns, rows, columns, meaning))


def node_guarantee(
    found: Campaign, *, nodes: int | None = None, records: float | None = None, liars: Sequence[float] = LIARS
) -> NodeGuarantee:
    """Compute the guarantee sheet of a campaign for nodes. The arguments are those of :func:`guarantee_sheet`.

    ``records`` None means the parts :data:`FULLNESS` of the largest allowed number. Shares of liars are rounded to
    whole nodes if the number of ``nodes`` is known.
    """
    assert found.nodes is not None
    if (nodes is not None and nodes < 1) or (records is not None and records <= 0):
        raise InputError("argument_invalid", "the numbers of nodes and of records are above 0")
    if not all(0 < share < 1 for share in liars):
        raise InputError("argument_invalid", "a share of lying nodes is between 0 and 1")
    claims, classes = node_claims(found), len(found.schema.label.classes)
    means = [records] if records is not None else [found.nodes.max_records * part for part in FULLNESS]
    return NodeGuarantee(
        found,
        node_sheet(found),
        spending(found, usual_cost(found)),
        UNSEEN_OF_NODES,
        nodes,
        max(table.most for table in claims),
        len(claims),
        tuple(
            ShareMove(mean, {one: moved_share(claims, classes, mean, one, nodes) for one in liars}) for mean in means
        ),
    )


# Masked sums ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskedGuarantee(GuaranteeSheet):
    """All guarantees of a masked campaign with ``parties`` parties (nodes with keys).

    ``deltas``: adjacency (how data sets differ) → δ of one message, for one unit that the campaign hides; ``least``:
    parties of the smallest set whose sum is released; ``colluding``: parties that may collude with the aggregator;
    ``most_claimed``: the largest change of one count by one lying party, in records.
    """

    privacy: NodeSheet
    deltas: dict[str, float]
    parties: int
    least: int
    colluding: int
    most_claimed: int

    @property
    def facts(self) -> Facts:
        """The whole sheet, for people and programs."""
        found, spent = self.campaign, self.spending
        assert found.nodes is not None
        terms, words = masked_terms_of(found), in_words(found)
        deltas = "; ".join(f"{delta:g} for {words[name]}" for name, delta in self.deltas.items())
        unit = "each record of a party" if terms.unit == RECORD else "all records of a party together"
        rests_on = f"the dealer {keyid(terms.dealer).hex()}, who keeps the keys, and on at most {self.colluding} of "
        smallest = f"{self.least} of {self.parties} parties; the dealer releases no sum of fewer"
        return self._sheet(
            [
                *self._first(f", masked, for nodes of '{found.nodes.list_name}'", cost_text(self.privacy, words)),
                stated("node", spent.to_json()),
                Fact("delta", self.deltas, deltas, "δ per period"),
                said("ε in its life", life_text(spent, ", if the owner's policy allows masked campaigns")),
                said("covers", f"{unit}, against all who see totals and models, the aggregator included"),
                Fact(
                    "dealer",
                    terms.dealer.hex(),
                    f"{rests_on}{self.parties} parties colluding or adding no noise",
                    "rests on",
                ),
                said("smallest set", smallest),
                Fact("noise", terms.noise, f"{terms.noise}; {noise_text(self.privacy, terms)}"),
                stated("unit", terms.unit),
                stated("parties", self.parties),
                stated("least_parties", self.least),
                stated("colluding_parties", self.colluding),
                Fact(
                    "most_claimed",
                    self.most_claimed,
                    f"{self.most_claimed} records more or less in each count, by one party, unnoticed",
                ),
                *self._pilots(),
            ],
            "messages",
        )


def masked_guarantee(found: Campaign, *, parties: int | None = None) -> MaskedGuarantee:
    """Compute the guarantee sheet of a masked campaign. ``parties``: in the key book; None for the most allowed.

    Raises InputError ``campaign_not_masked``; ``argument_invalid``: below 2 parties, or more than the campaign allows.
    """
    terms = masked_terms_of(found)
    number = terms.most_parties if parties is None else parties
    if not 2 <= number <= terms.most_parties:
        raise InputError("argument_invalid", f"this campaign has 2 to {terms.most_parties} parties")
    return MaskedGuarantee(
        found,
        node_sheet(found),
        spending(found, usual_cost(found)),
        UNSEEN_OF_PARTIES,
        {name: cost(found, name)[1] / PICO for name in (ADD_REMOVE, CHANGE)},
        number,
        least_parties(terms, number),
        terms.colluding_micro * number // MICRO,
        largest_claim(found, number),
    )


def guarantee_sheet(
    payload: bytes,
    *,
    devices: int | None = None,
    records: float | None = None,
    delta: float = DELTA,
    shuffled: bool = False,
    liars: Sequence[float] = LIARS,
) -> GuaranteeSheet:
    """Compute the guarantee sheet of a campaign for devices or nodes. Run by analysts, owners and auditors.

    ``devices``: number of devices, nodes or masked parties that answer in one period, liars included, at most
    :data:`MOST_DEVICES`; ``records``: mean number of an honest node; ``shuffled``: whether an anonymous shuffler mixes
    the devices' reports; ``liars``: shares of lying devices or nodes. Signatures are not checked. Raises InputError
    ``argument_invalid``: a number is out of its range, or is not about such a campaign; DocumentError: the campaign is
    not valid.
    """
    found = parse_campaign(payload)
    if found.nodes is None and records is not None:
        raise InputError("argument_invalid", "records is about campaigns for nodes, and this one is for devices")
    if found.nodes is not None and shuffled:
        raise InputError("argument_invalid", "shuffled is about reports of devices; nodes sign their summaries")
    if found.masked is not None:
        return masked_guarantee(found, parties=devices)
    if found.nodes is not None:
        return node_guarantee(found, nodes=devices, records=records, liars=liars)
    return _device_guarantee(found, payload, devices, delta, liars, shuffled=shuffled)


def life_text(spent: Spending, condition: str = "") -> str:
    """Return in words what is spent in a campaign's life, under a ``condition``."""
    periods = number_text(spent.periods, "period")
    return f"at most {format_micro(spent.life)} booked{condition}: {spent.answered} of {periods}"


def number_text(number: int, what: str) -> str:
    """Return a number of things, which are called ``what`` in the singular."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
