"""The owner's policy: what campaigns may ask and spend on this device. No signature overrides it.

The policy is a local file, ``policy.toml`` in the state folder. Every line is optional:

    epsilon_per_period = "2.0"     # largest ε that a campaign may spend in one of its periods; default 4
    epsilon_per_day = "4.0"        # largest ε in any 24 hours, over all campaigns; default 4, or epsilon_per_period
    epsilon_per_window = "20"      # largest ε in any window_days, over all campaigns
    window_days = 30
    epsilon_lifetime = "50"        # largest ε that this device ever spends, whatever its clock says
    shortest_period = "1h"         # campaigns with shorter periods are refused; s, m, h, d
    smallest_batch = 100           # campaigns that would show estimates of fewer reports are refused
    features = ["odor", "width", "edible"]   # all that a campaign may ask about, including its label
    campaigns = ["mushrooms", "forest-*"]   # the only names that a campaign may have
    report_bytes = 100000          # campaigns whose answers of one period are longer are refused
    spool_reports = 100000         # most reports that wait to be sent; beyond it the oldest are dropped
    spool_bytes = 8000000
    spool_days = 365
    allow_refuse = true            # development only: accept campaigns with ``unlisted = "refuse"``
    node_adjacency = "change"      # of a node: the ε of which the limits speak; also "add-remove", "change-features"
    allow_masked = true            # accept masked campaigns: their protection rests on the dealer and on other nodes
    delta_per_period = "2e-5"      # largest δ that a masked campaign may spend in one of its periods
    delta_lifetime = "5e-4"        # largest δ that this node ever spends

What the file says holds for all that is accepted and answered from then on. Reports that wait already are sent; an
owner who opts out takes them back.

:mod:`edge_sdk.policy.policy_file` reads the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk.policy.entries import ENTRIES, MOST
from edge_sdk.storage.spool import Limits
from protocol.allowance import DAY_MICRO, LIFETIME_DELTA_PICO, LIFETIME_MICRO, PERIOD_DELTA_PICO, PERIOD_MICRO, Limit
from protocol.epsilon import format_micro, format_pico
from protocol.errors import InputError, PolicyError
from protocol.schema import refusing
from protocol.shown import quoted
from protocol.sums.adjacency import CHANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.evaluation import Evaluated
    from protocol.schema import Schema

DAY_SECONDS = 86_400
_FRAME_BYTES = 400
"""More than the bytes of a summary beside its numbers."""
LONGEST_WINDOW = MOST * DAY_SECONDS
"""Seconds of the longest window that a policy may have."""


class Spent(NamedTuple):
    """What a device has spent, in millionths of ε: in the last day, the last window, and in all."""

    day_micro: int
    window_micro: int
    lifetime_micro: int


class Policy(NamedTuple):
    """The owner's limits; ε in millionths.

    Attributes:
        period_micro: largest ε that a campaign may spend per period, all answers of the period together.
        lifetime_micro: largest ε in all, over all campaigns and for the life of the device; it does
            not depend on the clock.
        allow_refuse: whether a campaign may refuse unlisted values. In such a campaign the record decides whether
            there is a report, and ε does not cover that.
        day_micro: largest ε in any 24 hours, over all campaigns; None for no such limit. The default is 4, or
            ``epsilon_per_period`` if that is larger, since else it could not be spent.
        window_micro: largest ε in any ``window_seconds``; None for no such limit.
        window_seconds: length of the rolling window.
        shortest_period: campaigns with shorter periods, in seconds, are refused.
        smallest_batch: campaigns with a smaller ``min_batch_size`` are refused.
        report_bytes: campaigns with more bytes of answers per period are refused, since answers cost time and space.
        features: the only names that a campaign's schema may have for its features and its label; None for any.
        campaigns: the only names that a campaign may have, where ``*`` stands for any characters; None for any.
        node_adjacency: which ε of a node's summary is compared with the limits and counted as spent: for ``change``, a
            replaced record; for ``add-remove``, one record more or less; for ``change-features``, other features of a
            record with the same label. Devices do not use it.
        allow_masked: whether masked campaigns are accepted. In these a node's own noise does not protect its records:
            the protection also rests on the dealer of the keys, who could decrypt every message, and on the noise of
            other nodes.
        period_delta_pico: largest δ that a masked campaign may spend per period, in 10⁻¹²; for ``node_adjacency``.
        lifetime_delta_pico: largest δ in all, over all campaigns and for the life of the node, in 10⁻¹².
        spool: the most reports that may wait to be acknowledged; those of the newest period always may.
    """

    period_micro: int = PERIOD_MICRO
    lifetime_micro: int = LIFETIME_MICRO
    allow_refuse: bool = False
    day_micro: int | None = DAY_MICRO
    window_micro: int | None = None
    window_seconds: int = 30 * DAY_SECONDS
    shortest_period: int = 60
    smallest_batch: int = 1
    report_bytes: int = 100_000
    features: tuple[str, ...] | None = None
    campaigns: tuple[str, ...] | None = None
    node_adjacency: str = CHANGE
    allow_masked: bool = False
    period_delta_pico: int = PERIOD_DELTA_PICO
    lifetime_delta_pico: int = LIFETIME_DELTA_PICO
    spool: Limits = Limits(100_000, 8_000_000, 365 * DAY_SECONDS)

    @classmethod
    def of(cls, **entries: Any) -> Policy:
        """Make a policy. ``entries`` have the keys and values of ``policy.toml``; keys that are left out keep defaults.

        Raises:
            InputError: ``policy_invalid``: an unknown key, or a wrong value; the text names the key and its range.
        """
        unknown = set(entries) - set(ENTRIES)
        if unknown:
            keys = ", ".join(ENTRIES)
            raise InputError("policy_invalid", f"has an unknown key {quoted(min(unknown))}; the keys are {keys}")
        fields: dict[str, Any] = {}
        limits: dict[str, int] = {}
        for name, value in entries.items():
            field, parse = ENTRIES[name]
            (limits if field in Limits._fields else fields)[field] = parse(name, value)
        fields.setdefault("day_micro", max(DAY_MICRO, fields.get("period_micro", 0)))
        return cls(**fields, spool=cls().spool._replace(**limits))

    @property
    def limits(self) -> list[Limit]:
        """The owner's limits on ε in a time span: in 24 hours, and in the policy's window, if they are set."""
        both = ((self.day_micro, DAY_SECONDS), (self.window_micro, self.window_seconds))
        return [Limit(micro, seconds) for micro, seconds in both if micro is not None]

    @property
    def lifetime(self) -> tuple[int, int]:
        """The ε in millionths and the δ in 10⁻¹² that the owner allows for the device's life; no δ without masks."""
        return self.lifetime_micro, self.lifetime_delta_pico if self.allow_masked else 0

    @property
    def window_text(self) -> str:
        """The length of the window in words: ``1 day``, ``30 days``."""
        days = self.window_seconds // DAY_SECONDS
        return f"{days} day{'' if days == 1 else 's'}"

    @property
    def longest_window(self) -> int:
        """Length in seconds of the longest window over which ε is counted or shown; at least a day."""
        return max(DAY_SECONDS, self.window_seconds)

    def cost_micro(self, campaign: Campaign, epsilon_micro: int | None = None) -> int:
        """The ε of an answer of one period in millionths, as the limits and the ledger count it; 0 if it has ended.

        Args:
            campaign: a parsed campaign.
            epsilon_micro: of a node's summary, the ε that it states; None for the campaign's ε.

        Raises:
            PolicyError: ``adjacency_uncovered``: the campaign's noise does not hide what ``node_adjacency`` names.
        """
        if campaign.nodes is None:
            return campaign.epsilon_micro
        from protocol.nodes.terms import cost_micro

        return cost_micro(campaign, self.node_adjacency, epsilon_micro)

    def cost_delta(self, campaign: Campaign) -> int:
        """The δ of an answer of one period in 10⁻¹², for the neighbours that ``node_adjacency`` names.

        It is 0 unless the campaign is masked and its noise is ``diluted``.

        Args:
            campaign: a parsed campaign.
        """
        if campaign.masked is None:
            return 0
        from protocol.masked.costs import cost

        return cost(campaign, self.node_adjacency)[1]

    def check_adjacency(self, campaign: Campaign, booked: str | None, spent_micro: int) -> None:
        """Refuse a summary whose cost would be added to costs for another adjacency: their sum bounds nothing.

        Args:
            campaign: a parsed campaign; one for devices is not refused.
            booked: the adjacency whose ε the ledger counts; None if no summary was made yet.
            spent_micro: the ε that was spent in all, in millionths.

        Raises:
            PolicyError: ``adjacency_fixed``.
        """
        if campaign.nodes is not None and booked not in (None, self.node_adjacency):
            raise PolicyError(
                "adjacency_fixed",
                f"this node's ledger counts the ε of {booked} since its first summary, {format_micro(spent_micro)} so "
                f'far, and the policy names {self.node_adjacency}; set node_adjacency = "{booked}", or begin a new '
                "node in a state folder of its own",
            )

    def refusals(self, campaign: Campaign, evaluated: Sequence[Evaluated] = ()) -> Iterator[str]:
        """One sentence for each rule that the campaign breaks. Of an ended campaign only the name is judged.

        Args:
            campaign: a parsed campaign.
            evaluated: the models that the campaign evaluates. The rule on features holds for their features too.
        """
        name = campaign.header.name
        if self.campaigns is not None and not _matches(name, self.campaigns):
            yield "the owner does not take part in campaigns of this name (campaigns)"
        if not campaign.ended:
            yield from self._cost_refusals(campaign)
            yield from self._mask_refusals(campaign)
            yield from self._extent_refusals(campaign)
            yield from self._feature_refusals(campaign, evaluated)

    def _cost_refusals(self, campaign: Campaign) -> Iterator[str]:
        """Compare the ε of one period with the limits on ε. Of a node's campaign, the smallest ε that it allows."""
        least = None if campaign.nodes is None else campaign.nodes.least_epsilon_micro
        try:
            micro = self.cost_micro(campaign, least)
        except PolicyError as error:
            yield error.detail
        else:
            for refusal in self.limit_refusals(micro):
                yield f"the campaign spends {refusal}"

    def _mask_refusals(self, campaign: Campaign) -> Iterator[str]:
        """Refuse masked campaigns unless the owner accepts whom they rely on; compare δ with the owner's limit."""
        if campaign.masked is None:
            return
        if not self.allow_masked:
            yield (
                "the campaign is masked: its noise protects only together with that of other nodes, and the dealer of "
                "its keys could decrypt this node's message; whoever accepts that sets allow_masked = true"
            )
        delta = self.cost_delta(campaign)
        if delta > self.period_delta_pico:
            yield (
                f"the campaign spends δ = {format_pico(delta)} per period for {self.node_adjacency}; "
                f"the owner allows {format_pico(self.period_delta_pico)} (delta_per_period)"
            )

    def limit_refusals(self, micro: int) -> Iterator[str]:
        """The end of a sentence for each limit that one answer alone exceeds, whatever was spent before.

        ``micro`` is the cost of the answer in millionths of ε.
        """
        cost = format_micro(micro)
        for most, name in (
            (self.period_micro, "epsilon_per_period"),
            (self.day_micro, "epsilon_per_day"),
            (self.window_micro, "epsilon_per_window"),
        ):
            if most is not None and micro > most:
                yield f"ε = {cost} per period; the owner allows {format_micro(most)} ({name})"

    def _extent_refusals(self, campaign: Campaign) -> Iterator[str]:
        """Compare length of periods, size of reports, batch size and refusals of values with the owner's rules."""
        if campaign.time_precision < self.shortest_period:
            yield (
                f"a period lasts {campaign.time_precision} s; "
                f"the owner allows no shorter ones than {self.shortest_period} s (shortest_period)"
            )
        size = _answer_bytes(campaign)
        if size > self.report_bytes:
            yield (f"one period's answers have {size} bytes; the owner allows {self.report_bytes} (report_bytes)")
        if campaign.min_batch_size < self.smallest_batch:
            yield (
                f"the campaign waits for {campaign.min_batch_size} reports only; "
                f"the owner asks for {self.smallest_batch} (smallest_batch)"
            )
        if not self.allow_refuse and refusing(campaign.schema):
            yield (
                "the campaign refuses unlisted values, so whether there is a report would depend on the record; "
                "the owner allows that with allow_refuse = true, for development"
            )

    def _feature_refusals(self, campaign: Campaign, evaluated: Sequence[Evaluated]) -> Iterator[str]:
        """Compare the names that the campaign and the models read with the owner's list of features."""
        allowed = self.features
        if allowed is None:
            return
        asked = [name for name in _names_read(campaign.schema) if name not in allowed]
        if asked:
            yield f"the owner does not answer about {quoted(asked[0])} (features)"
        hidden = [(model, name) for model in evaluated for name in _names_read(model.schema) if name not in allowed]
        if hidden:
            model, name = hidden[0]
            which = "the model that it evaluates" if len(evaluated) == 1 else f"its model {quoted(model.header.name)}"
            yield f"{which} reads {quoted(name)}, about which the owner does not answer (features)"

    def check_campaign(self, campaign: Campaign, evaluated: Sequence[Evaluated] = ()) -> None:
        """Refuse a campaign that asks for more than the owner allows.

        Args:
            campaign: a parsed campaign.
            evaluated: the models that the campaign evaluates.

        Raises:
            PolicyError: ``policy_refused``, with the first rule that the campaign breaks; ``adjacency_uncovered``.
        """
        self.cost_micro(campaign)
        for refusal in self.refusals(campaign, evaluated):
            raise PolicyError("policy_refused", refusal)

    def check_budget(self, spent: Spent, micro: int) -> None:
        """Refuse an answer that would exceed one of the owner's limits on ε.

        Args:
            spent: the ε that the device has spent.
            micro: the cost of the answer, in millionths of ε.

        Raises:
            PolicyError: ``budget_exhausted``: the answer would exceed the limit for the device's life;
                ``budget_paused``: it would exceed the limit of a day or of the window, so it may be allowed later.
        """
        if spent.lifetime_micro + micro > self.lifetime_micro:
            raise PolicyError(
                "budget_exhausted",
                f"of the lifetime's ε = {format_micro(self.lifetime_micro)}, {format_micro(spent.lifetime_micro)} "
                f"is spent; this answer would need {format_micro(micro)}",
            )
        for most, used, what in (
            (self.day_micro, spent.day_micro, "24 hours"),
            (self.window_micro, spent.window_micro, self.window_text),
        ):
            if most is not None and used + micro > most:
                raise PolicyError(
                    "budget_paused",
                    f"of ε = {format_micro(most)} per {what}, {format_micro(used)} is spent; "
                    f"this answer would need {format_micro(micro)}; try again later",
                )

    def check_delta(self, spent_pico: int, delta_pico: int) -> None:
        """Refuse an answer that would exceed the owner's limit on δ for the life of the node.

        Args:
            spent_pico: the δ that was spent in all, in 10⁻¹².
            delta_pico: the δ of the answer, in 10⁻¹².

        Raises:
            PolicyError: ``budget_exhausted``.
        """
        if delta_pico and spent_pico + delta_pico > self.lifetime_delta_pico:
            raise PolicyError(
                "budget_exhausted",
                f"of the lifetime's δ = {format_pico(self.lifetime_delta_pico)} (delta_lifetime), "
                f"{format_pico(spent_pico)} is spent; this answer would need {format_pico(delta_pico)}",
            )


def _answer_bytes(campaign: Campaign) -> int:
    """Length of a device's reports of one period in bytes; of a node's summary or masked message, an upper bound."""
    if campaign.nodes is None:
        return campaign.report_bytes
    from protocol.nodes.terms import released_vectors

    numbers = sum(subject.size for subject in released_vectors(campaign))
    if campaign.masked is None:
        return 8 * numbers + _FRAME_BYTES
    from protocol.documents.masked_terms import MODULUS_BYTES, ciphertexts_needed

    return 2 * MODULUS_BYTES * ciphertexts_needed(numbers, campaign.masked.slot_bits) + _FRAME_BYTES


def _names_read(schema: Schema) -> list[str]:
    """Every key of a record that a schema reads, including the inputs of its projection and the label."""
    return [*(feature.name for feature in schema.features), schema.label.name]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name matches one of the patterns. ``*`` stands for any characters, every other character for itself."""
    return any(_matches_pieces(name, pattern.split("*")) for pattern in patterns)


def _matches_pieces(name: str, pieces: list[str]) -> bool:
    """Whether a name begins with the first piece, ends with the last, and has the others in between in their order."""
    first, *others = pieces
    if not others:
        return name == first
    last = others.pop()
    place, end = len(first), len(name) - len(last)
    if place > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for piece in others:
        found = name.find(piece, place, end)
        if found < 0:
            return False
        place = found + len(piece)
    return True
