"""The series of a campaign: a name under which a device answers at most once, and the share of devices that take part.

Source: docs/formats.md, section 2 (series) and 5 (map `series`); decision 60.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.digest import hmac_sha256, sha256
from protocol.document import MAX_TIME, read_field, read_integer, read_text
from protocol.errors import DocumentError

if TYPE_CHECKING:
    from protocol.document import Header

KEY = "series"
"""Key of the series in a campaign's payload. It must be in ``crit`` too: an older reader then refuses the campaign."""
WHOLE = 1 << 32
"""Upper end of the share of all devices."""
_PREFIX = b"hearsay/1/series"
_REASON = "invalid_campaign"


class Series(NamedTuple):
    """The series of a campaign, and the share of the devices that this campaign asks.

    A device answers at most once under one name: in one period of one version of one campaign of the series.

    Attributes:
        name: of the series. Two series with the same name are the same.
        begins: seconds since 1970. No campaign of the series is valid earlier. A device that was reset at this time or
            later does not answer: it may have answered before the reset.
        low, high: the share. A device takes part if low ≤ u < high, where u is its :func:`place`;
            0 ≤ low < high ≤ 2^32.
    """

    name: str
    begins: int
    low: int = 0
    high: int = WHOLE

    def to_dict(self) -> dict[str, Any]:
        """The attributes as the map that a campaign's payload contains."""
        return {"name": self.name, "begins": self.begins, "from": self.low, "to": self.high}

    def has(self, secret: bytes) -> bool:
        """Whether the device with the 32-byte ``secret`` takes part in this campaign. Its record is not considered."""
        return self.low <= place(secret, self.name) < self.high

    @property
    def part(self) -> float:
        """The expected part of all devices that takes part: (high − low)/2^32."""
        return (self.high - self.low) / WHOLE


def place(secret: bytes, name: str) -> int:
    """The place u of a device in a series: HMAC-SHA256(secret, `hearsay/1/series` ‖ SHA-256(name))[:4], big-endian.

    It is the same for all campaigns of the series, and independent of the ids that assign questions.

    Args:
        secret: the device's secret, 32 bytes.
        name: of the series; its UTF-8 bytes are hashed.

    Returns:
        an integer of 0 … 2^32 − 1.
    """
    return int.from_bytes(hmac_sha256(secret, _PREFIX + sha256(name.encode()).digest())[:4], "big")


def parse_series(body: dict[str, Any], header: Header, answers: int) -> Series | None:
    """Read the series of a campaign from its payload; None if it belongs to none.

    Args:
        body: the payload's fields.
        header: the payload's header.
        answers: number of answers of a device in one period; 0 if the campaign has ended.

    Raises:
        DocumentError: ``invalid_campaign``: the map is wrong; it is not in ``crit``, or only there; the campaign begins
            before its series, or has not one answer per period.
    """
    if (KEY in body) != (KEY in header.crit):
        raise DocumentError(_REASON, "'series' is a key that 'crit' does not name, or the other way round")
    if KEY not in body:
        return None
    entry = read_field(body, KEY, dict, _REASON)
    if set(entry) != {"name", "begins", "from", "to"}:
        raise DocumentError(_REASON, "'series' has other keys than name, begins, from and to")
    if answers != 1:
        raise DocumentError(
            _REASON, "a campaign of a series gives one answer per period; the end of a campaign is of no series"
        )
    begins = read_integer(entry, "begins", 0, MAX_TIME, _REASON)
    if begins > header.not_before:
        raise DocumentError(_REASON, "it is valid before its series begins")
    low = read_integer(entry, "from", 0, WHOLE - 1, _REASON)
    return Series(
        name=read_text(entry, "name", _REASON),
        begins=begins,
        low=low,
        high=read_integer(entry, "to", low + 1, WHOLE, _REASON),
    )
