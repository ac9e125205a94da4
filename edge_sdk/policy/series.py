"""Whether a device still takes part in a series, of which it answers one campaign, version and period at most.

The decision depends on the ledger, the secret and the campaign, never on a record. Source: docs/formats.md, sections 2
and 5; docs/decisions/0060.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import PolicyError
from protocol.shown import quoted

if TYPE_CHECKING:
    from typing import Protocol

    from protocol.documents.series import Series

    class Ledger(Protocol):
        """The part of :class:`edge_sdk.storage.ledger.Ledger` that the decision needs."""

        def answered_in(self, series: str) -> bool:
            """Whether a campaign of the series with this name was ever answered."""

        def series_after(self) -> int | None:
            """The time of the last reset, in seconds since 1970; None if the state was never reset."""


def refusal(series: Series | None, ledger: Ledger, secret: bytes | None) -> PolicyError | None:
    """Why a device answers no new period of a campaign of a series; None if it may answer one.

    Args:
        series: of the campaign; None if the campaign is of none, which gives None.
        ledger: of the device.
        secret: of the device; None after an opt-out, when nobody can tell whether it is in the campaign's share.

    Returns:
        an error with the reason ``series_answered``: the device has answered in the series; ``series_begun``: the
        device was reset when the series had begun, so it may have answered before; ``series_not_member``: the device is
        not in the campaign's share.
    """
    if series is None:
        return None
    name = quoted(series.name)
    if ledger.answered_in(series.name):
        return PolicyError(
            "series_answered", f"this device has answered in the series {name}, in which it answers once; all is done"
        )
    after = ledger.series_after()
    if after is not None and series.begins <= after:
        return PolicyError(
            "series_begun",
            f"this device was reset when the series {name} had begun; it may have answered before, so it answers only "
            "series that begin later",
        )
    if secret is not None and not series.has(secret):
        return PolicyError(
            "series_not_member",
            f"this device is not in the share of the series {name} that this campaign asks; nothing is to be done",
        )
    return None


def in_words(series: Series, refused: PolicyError | None, secret: bytes | None) -> list[str]:
    """Lines for the owner: how often the device answers in a series, and whether it takes part in this campaign.

    Args:
        series: of the campaign.
        refused: the result of :func:`refusal`.
        secret: of the device; None after an opt-out.
    """
    lines = [
        f"It is of the series {quoted(series.name)}: the device gives at most one answer in the whole series, whatever",
        "  campaigns, versions and periods the series has. Another series is another answer.",
    ]
    if refused is not None and refused.reason != "series_not_member":
        return [*lines, f"  {refused}."]
    # Three significant digits: a share is never shown as 0 %.
    share = f"  About {100 * series.part:.3g}% of all devices take part in this campaign, picked by chance and not by "
    device = "" if secret is None else "; this device does" if refused is None else "; this device does not"
    return [*lines, f"{share}the record{device}."]
