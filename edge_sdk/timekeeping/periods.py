"""Which period it is, for a device whose wall clock may jump.

A device answers once per period, so whoever moves its clock forward makes it answer, and spend, more
often. How long the device has run since its last answer can not be moved: while the wall clock keeps
step with that, periods open as they come. A leap beyond it is believed once per boot, since a device
that was switched off can not know for how long. What confirms a time without being counted is a signed
document. Going back never opens a period: the newest answered one stands for all before it. A leap does not
make sure of the time that it jumps over: campaigns that did not answer at its end would get every period there.

Source: docs/formats.md, section 5 (time floor); docs/decisions/0017. Pure functions; nothing here reads
a clock or a disk.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol import canonical
from protocol.errors import DocumentError

_SLACK_SECONDS = 60
_DRIFT = 5000
"""A quartz may gain one second in so many: 200 millionths."""


class Reading(NamedTuple):
    """One look at the clocks.

    Attributes:
        wall: seconds since 1970.
        boot: name of the present boot.
        uptime: seconds since the boot; None if the application brought a wall clock of its own and
            vouches for all of its steps.
    """

    wall: int
    boot: str = ""
    uptime: int | None = None


class Anchor(NamedTuple):
    """The last time that the device was sure of.

    Attributes:
        boot: in which boot that was.
        uptime: seconds since that boot.
        time: seconds since 1970.
        signed: a document said so; else the wall clock did.
        leapt: this boot's one leap of the wall clock has been used.
        base: the time that the device was sure of then without any leap; holds where the clock is before ``time``.
    """

    boot: str
    uptime: int
    time: int
    signed: bool
    leapt: bool
    base: int

    def to_bytes(self) -> bytes:
        """For the state file."""
        return canonical.pack(list(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Anchor | None:
        """The inverse; None if these are not an anchor's bytes."""
        try:
            values = canonical.unpack(raw)
        except DocumentError:
            return None
        kinds = (str, int, int, bool, bool, int)
        return cls(*values) if isinstance(values, list) and tuple(map(type, values)) == kinds else None


class Present(NamedTuple):
    """What time it is.

    Attributes:
        now: seconds since 1970 by which dates are judged: the later of wall clock and what documents say.
        confirmed: no period after this time's opens, unless the boot's one leap is left.
        leap_left: whether a leap beyond ``confirmed`` is still believed.
        base: the time that is sure without any leap; ``confirmed``, or earlier.
    """

    now: int
    confirmed: int
    leap_left: bool
    base: int

    def period_time(self, time_precision: int) -> tuple[int, bool]:
        """The time that counts for a campaign's period, and whether this takes the boot's one leap."""
        if self.now // time_precision <= self.confirmed // time_precision:
            return self.now, False
        return (self.now, True) if self.leap_left else (self.confirmed, False)


def present(anchor: Anchor | None, floor: int, reading: Reading) -> Present:
    """What time it is, from the last sure time, the time floor and one look at the clocks."""
    now = max(reading.wall, floor)
    if reading.uptime is None:
        return Present(now, now, leap_left=True, base=now)
    if anchor is None:
        return Present(now, floor, leap_left=True, base=floor)
    elapsed = _elapsed(anchor, reading)
    if anchor.signed and elapsed is not None:
        now = max(now, anchor.time + elapsed)
    passed = 0 if elapsed is None else elapsed + elapsed // _DRIFT + min(elapsed, _SLACK_SECONDS)
    line = anchor.time if now >= anchor.time - _SLACK_SECONDS else anchor.base
    return Present(
        now,
        max(floor, line + passed),
        leap_left=elapsed is None or not anchor.leapt,
        base=max(floor, anchor.base + passed),
    )


def _elapsed(anchor: Anchor, reading: Reading) -> int | None:
    """Seconds since the anchor; None if the device was off in between."""
    if reading.uptime is None or anchor.boot != reading.boot or reading.uptime < anchor.uptime:
        return None
    return reading.uptime - anchor.uptime


def after_answer(anchor: Anchor | None, floor: int, reading: Reading, time: int, *, leapt: bool) -> Anchor | None:
    """The anchor once a period was answered at ``time``; None if the old one stays."""
    if reading.uptime is None:
        return None
    if not leapt and anchor is not None and _elapsed(anchor, reading) is not None:
        return None
    moment = present(anchor, floor, reading)
    known = time if leapt else max(time, moment.confirmed)
    return Anchor(reading.boot, reading.uptime, known, signed=False, leapt=leapt, base=min(known, moment.base))


def after_document(anchor: Anchor | None, reading: Reading, issued_at: int) -> Anchor | None:
    """The anchor once a signed document of this date was accepted; None if the old one stays."""
    if reading.uptime is None or (anchor is not None and issued_at <= present(anchor, 0, reading).confirmed):
        return None
    leapt = anchor is not None and anchor.leapt and _elapsed(anchor, reading) is not None
    return Anchor(reading.boot, reading.uptime, issued_at, signed=True, leapt=leapt, base=issued_at)
