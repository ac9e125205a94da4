"""What a campaign's maker learned privately from records of a pilot, and what that cost the people in them.

A projection, bins or a choice of features may come from records that a curator holds. Their cost was paid by the
people in these records, not by the devices that answer. The entries are statements for readers; no device checks them.

Source: docs/formats.md, section 5 (map `pilots`); decision 71.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.document import read_field, read_integer, read_text
from protocol.epsilon import MICRO, format_micro
from protocol.errors import DocumentError
from protocol.shown import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "pilots"
MOST = 64
_REASON = "invalid_campaign"


class PilotCost(NamedTuple):
    """One private result of a pilot that is part of a campaign.

    Attributes:
        what: the result, in words.
        epsilon_micro: ε of the people in the records, in millionths.
        delta: δ, as decimal text.
        adjacency: name of what is hidden (:data:`protocol.sums.adjacency.ADJACENCIES`).
        budget: name of the budget that paid.
    """

    what: str
    epsilon_micro: int
    delta: str
    adjacency: str
    budget: str

    @property
    def shown(self) -> str:
        """The cost in words: ``projection: dca, 1 component, at ε = 1, δ = 0 (change), paid from 'ward 7'``."""
        cost = f"ε = {format_micro(self.epsilon_micro)}, δ = {self.delta}"
        return f"{self.what}, at {cost} ({self.adjacency}), paid from {quoted(self.budget)}"


def pilot_fields(pilots: Sequence[PilotCost]) -> dict[str, Any]:
    """The field of a campaign's payload; none if the campaign used no private pilot."""
    return {KEY: [one._asdict() for one in pilots]} if pilots else {}


def parse_pilots(body: dict[str, Any]) -> tuple[PilotCost, ...]:
    """Read the field of a campaign's payload; empty if there is none.

    Raises:
        DocumentError: ``invalid_campaign``: no list of 1 to :data:`MOST` maps; a map has other keys, a text that does
            not print, or an ε that is not from 1 to below 10¹² millionths.
    """
    if KEY not in body:
        return ()
    entries = read_field(body, KEY, list, _REASON)
    if not 1 <= len(entries) <= MOST:
        raise DocumentError(_REASON, f"'{KEY}' has not 1 to {MOST} entries")
    return tuple(map(_parsed, entries))


def _parsed(entry: object) -> PilotCost:
    if not isinstance(entry, dict) or set(entry) != set(PilotCost._fields):
        raise DocumentError(_REASON, f"an entry of '{KEY}' has other keys than {', '.join(PilotCost._fields)}")
    return PilotCost(
        what=read_text(entry, "what", _REASON),
        epsilon_micro=read_integer(entry, "epsilon_micro", 1, MICRO * MICRO - 1, _REASON),
        delta=read_text(entry, "delta", _REASON),
        adjacency=read_text(entry, "adjacency", _REASON),
        budget=read_text(entry, "budget", _REASON),
    )
