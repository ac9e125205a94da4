"""Series of campaigns: the share of devices that each asks, the begin of the series, and shares that overlap.

In a series a device answers once in all. Source: docs/formats.md, section 2 (series); decision 60.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from aggregator.publishing.workspace import latest_of_each
from protocol.documents.campaign import WHOLE, Campaign, Series, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import is_seen, is_text, quoted
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace


_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20}|/[0-9]{1,20})?")
_EXAMPLE = "a share is two parts of the devices, from and to, with a colon: 0:0.25, or 1/3:2/3"


class SeriesShare(NamedTuple):
    """A campaign's series, and its devices: those with pseudo-random places from ``low`` to ``high`` − 1 of 2^32."""

    name: str
    low: int = 0
    high: int = WHOLE

    def since(self, begins: int) -> Series:
        """Return the series as a campaign states it, with its begin in seconds since 1970."""
        return Series(self.name, begins, self.low, self.high)


def series_share(name: str | None, share: str | None) -> SeriesShare | None:
    """Return the series and share of a campaign from texts, or None if both texts are None.

    ``share``: ``FROM:TO``, each a decimal or a fraction of 0 to 1; None for all devices. Both ends are multiplied by
    2^32 and rounded down. So ``0:1/3`` and ``1/3:1`` have no device in common, and leave none out.

    Raises InputError ``series_invalid``: no name that a document can state, a share without a series, or an empty
    share.
    """
    if name is None and share is None:
        return None
    if name is None:
        raise InputError("series_invalid", "a share is a share of a series; name the series too")
    check_series_name(name)
    ends = ["0", "1"] if share is None else share.split(":")
    if len(ends) != 2 or not all(_NUMBER.fullmatch(end) for end in ends):
        raise InputError("series_invalid", _EXAMPLE)
    low, high = (_place(end) for end in ends)
    if not 0 <= low < high <= WHOLE:
        raise InputError("series_invalid", f"the share ends before it begins, is empty or more than all; {_EXAMPLE}")
    return SeriesShare(name, low, high)


def check_series_name(name: str) -> None:
    """Raise InputError ``series_invalid`` for a name that a campaign can not state."""
    if not is_text(name) or not is_seen(name):
        raise InputError("series_invalid", "a series has a name of 1 to 1024 bytes, of characters that can be seen")


def _place(text: str) -> int:
    try:
        return int(Fraction(text) * WHOLE)
    except ZeroDivisionError:
        return WHOLE + 1


def shown_share(series: Series) -> str:
    """Return a campaign's share of devices for people: its ends, rounded to six digits, and its size in per cent."""
    return f"{series.low / WHOLE:.6g}:{series.high / WHOLE:.6g}, about {100 * series.part:.3g} % of the devices"


def series_facts(series: Series | None) -> dict[str, object]:
    """Return what a command prints of a campaign's series, for people and programs; empty without a series."""
    if series is None:
        return {}
    return {"series": series.name, "share": shown_share(series), "share_from": series.low, "share_to": series.high}


def begin_of(workspace: Workspace, series: SeriesShare | None, now: int) -> int:
    """Return when a series began, in seconds since 1970, as its first campaign says; ``now`` without one."""
    if series is None:
        return now
    items = [item for item in workspace.history() if item.role == "campaign"]
    found = [parse_campaign(read_envelope(workspace.copy(item), "campaign").payload).series for item in items]
    return min((one.begins for one in found if one is not None and one.name == series.name), default=now)


def overlap_warning(workspace: Workspace, campaign: Campaign, now: int) -> str:
    """Return a warning if other running campaigns of its series ask some devices of a signed campaign; else empty."""
    names = [quoted(other.header.name) for other in _overlapping(workspace, campaign, now)]
    if not names:
        return ""
    return (
        f"the share overlaps with that of {', '.join(names)}: a device of both answers only the one that its program "
        "reports to first"
    )


def _overlapping(workspace: Workspace, campaign: Campaign, now: int) -> Iterator[Campaign]:
    mine = campaign.series
    if mine is None:
        return
    for item in latest_of_each(workspace.history()):
        if item.role == "campaign" and item.name != campaign.header.name:
            other = parse_campaign(read_envelope(workspace.copy(item), "campaign").payload)
            theirs = other.series
            if theirs is None or theirs.name != mine.name or now >= other.header.expires:
                continue
            if max(mine.low, theirs.low) < min(mine.high, theirs.high):
                yield other
