"""The rules that open periods on a device whose wall clock may jump. Pure functions of what the clocks show.

A device answers once per period. So an attacker who moves its clock forward makes it answer, and spend, more often. The
time since the last answer, by the uptime, can not be moved. While the wall clock agrees with the uptime, periods open
as they come. A leap of the wall clock beyond the uptime is accepted once per boot, because a device that was switched
off can not know for how long. A signed document confirms its date without counting as a leap. A clock that goes back
opens no period: until the newest answered period is over, calls return its reports. A leap does not confirm the
time that it jumps over, since else campaigns that did not answer after the leap could answer every period in between.

A device without a clock goes on with the earliest time that it can be (:func:`earliest`): it stands still while the
device is off, and passes while it runs, in every boot.

Source: docs/formats.md, section 5 (time floor); docs/decisions/0017, 0103.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol import canonical
from protocol.errors import DocumentError

SLACK_SECONDS = 60
DRIFT = 5000
"""A quartz clock may gain one second in this many seconds: 200 millionths."""


class Reading(NamedTuple):
    """The clocks, read at one moment.

    Attributes:
        wall: wall clock, in seconds since 1970.
        boot: name of the present boot.
        uptime: seconds since the boot; None if the application gave a wall clock of its own, which is then right by
            definition.
    """

    wall: int
    boot: str = ""
    uptime: int | None = None


class Anchor(NamedTuple):
    """The last confirmed time.

    Attributes:
        boot: name of the boot in which the time was confirmed.
        uptime: seconds from the boot to the confirmation.
        time: the confirmed time, in seconds since 1970.
        signed: whether a signed document confirmed the time; if not, the wall clock did.
        leapt: whether the one leap that is accepted in that boot has been used.
        base: the time that was confirmed at that moment without any leap. It replaces ``time`` if the clock now shows
            more than 60 seconds less than ``time``.
    """

    boot: str
    uptime: int
    time: int
    signed: bool
    leapt: bool
    base: int

    def to_bytes(self) -> bytes:
        """The anchor as the bytes that the state stores."""
        return canonical.pack(list(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Anchor | None:
        """Read ``raw``, the bytes of :meth:`to_bytes`; None if they are not six values of the right types."""
        try:
            values = canonical.unpack(raw)
        except DocumentError:
            return None
        kinds = (str, int, int, bool, bool, int)
        return cls(*values) if isinstance(values, list) and tuple(map(type, values)) == kinds else None


class Proof(NamedTuple):
    """A moment, and the earliest time that it can have been, by the dates of signed documents and the uptime since.

    Attributes:
        boot: name of the boot.
        uptime: seconds from the boot to the moment.
        time: earliest possible time, in seconds since 1970.
        floor: the time floor of the documents then. A lower floor now (of a new root) voids the proof.
    """

    boot: str
    uptime: int
    time: int
    floor: int

    def to_bytes(self) -> bytes:
        """The proof as the bytes that the state stores."""
        return canonical.pack(list(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Proof | None:
        """Read ``raw``, the bytes of :meth:`to_bytes`; None if they are not four values of the right types."""
        try:
            values = canonical.unpack(raw)
        except DocumentError:
            return None
        kinds = (str, int, int, int)
        return cls(*values) if isinstance(values, list) and tuple(map(type, values)) == kinds else None


def earliest(proof: Proof | None, floor: int, reading: Reading) -> int:
    """The earliest time that it can be now, in seconds since 1970. No clock that anybody can set has a part in it.

    In the boot of the proof, the uptime since has passed. A later boot began after the proof, so all of its uptime has
    passed. Of the time in which the device was off nothing is known. So this is never later than the true time, as far
    as the documents are not dated ahead and the uptime is right.

    Args:
        proof: the newest one; None if none is stored.
        floor: the time floor of signed documents, in seconds since 1970.
        reading: the clocks.
    """
    if proof is None or proof.floor > floor or reading.uptime is None:
        return floor
    same = proof.boot == reading.boot and reading.uptime >= proof.uptime
    return max(floor, proof.time + (reading.uptime - proof.uptime if same else reading.uptime))


class Present(NamedTuple):
    """The present time, in seconds since 1970.

    Attributes:
        now: the time by which dates are judged: the later of the wall clock and the time that documents prove.
        confirmed: no period after the period of this time opens, unless the boot's one leap is left.
        leap_left: whether one leap of the wall clock beyond ``confirmed`` is still accepted in this boot.
        base: the time that is confirmed without any leap; at most ``confirmed``.
        leap_end: if the clock was set back before the end of the last leap, the end of that leap. From then on,
            periods open as the clock shows. None in all other cases.
    """

    now: int
    confirmed: int
    leap_left: bool
    base: int
    leap_end: int | None = None

    def period_time(self, time_precision: int) -> tuple[int, bool]:
        """The time that decides a campaign's period, and whether an answer then uses the boot's one leap.

        Args:
            time_precision: length of the campaign's periods in seconds.
        """
        if self.now // time_precision <= self.confirmed // time_precision:
            return self.now, False
        return (self.now, True) if self.leap_left else (self.confirmed, False)

    @property
    def late(self) -> int:
        """Seconds by which the next period opens later than the clock shows; 0 while the boot's one leap is left."""
        return 0 if self.leap_left else max(0, self.now - self.confirmed)

    def opens_at(self, start: int) -> int:
        """When the clock will show that a later period, which begins at ``start``, can be answered.

        The clock must go on as it does now, without a restart and without a newer signed document.

        Args:
            start: the begin of the period, in seconds since 1970.
        """
        after_leap = self.leap_end is not None and start >= self.leap_end
        return start if after_leap else start + self.late


def present(anchor: Anchor | None, floor: int, reading: Reading) -> Present:
    """The present time, from the last confirmed time, the time floor and the clocks.

    Args:
        anchor: the last confirmed time; None if none is stored.
        floor: the earliest time that it can be (:func:`earliest`), in seconds since 1970.
        reading: the clocks.
    """
    now = max(reading.wall, floor)
    if reading.uptime is None:
        return Present(now, now, leap_left=True, base=now)
    if anchor is None:
        return Present(now, floor, leap_left=True, base=floor)
    elapsed = _elapsed(anchor, reading)
    if anchor.signed and elapsed is not None:
        now = max(now, anchor.time + elapsed)
    # After a leap the clock has no further minute: a leap and a minute in each boot would be two short periods.
    slack = 0 if anchor.leapt else SLACK_SECONDS
    passed = 0 if elapsed is None else elapsed + elapsed // DRIFT + min(elapsed, slack)
    set_back = now < anchor.time - SLACK_SECONDS
    line = anchor.base if set_back else anchor.time
    return Present(
        now,
        max(floor, line + passed),
        leap_left=elapsed is None or not anchor.leapt,
        base=max(floor, anchor.base + passed),
        leap_end=anchor.time if set_back else None,
    )


def _elapsed(anchor: Anchor, reading: Reading) -> int | None:
    """Seconds since the anchor; None if the device was restarted in between."""
    if reading.uptime is None or anchor.boot != reading.boot or reading.uptime < anchor.uptime:
        return None
    return reading.uptime - anchor.uptime


def after_answer(anchor: Anchor | None, floor: int, reading: Reading, time: int, *, leapt: bool) -> Anchor | None:
    """The new anchor after an answer; None if the old anchor stays.

    Args:
        anchor: the last confirmed time before the answer; None if none is stored.
        floor: the earliest time that it can be (:func:`earliest`), in seconds since 1970.
        reading: the clocks, as read for the answer.
        time: the time that decided the period, in seconds since 1970 (:meth:`Present.period_time`).
        leapt: whether the answer used the boot's one leap.
    """
    if reading.uptime is None:
        return None
    if not leapt and anchor is not None and _elapsed(anchor, reading) is not None:
        return None
    moment = present(anchor, floor, reading)
    known = time if leapt else moment.confirmed
    return Anchor(reading.boot, reading.uptime, known, signed=False, leapt=leapt, base=min(known, moment.base))


def after_document(anchor: Anchor | None, reading: Reading, issued_at: int) -> Anchor | None:
    """The new anchor after a signed document was accepted; None if the old anchor stays.

    The old anchor stays if it confirms the document's date already, or if there is no uptime.

    Args:
        anchor: the last confirmed time before; None if none is stored.
        reading: the clocks.
        issued_at: the document's date, in seconds since 1970.
    """
    if reading.uptime is None or (anchor is not None and issued_at <= present(anchor, 0, reading).confirmed):
        return None
    leapt = anchor is not None and anchor.leapt and _elapsed(anchor, reading) is not None
    return Anchor(reading.boot, reading.uptime, issued_at, signed=True, leapt=leapt, base=issued_at)
