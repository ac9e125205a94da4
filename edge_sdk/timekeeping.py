"""Tell the present period, and the time by which the owner's limits count, although the wall clock may be wrong.

**Periods.** A device answers once per period, so an attacker who moves its clock forward makes it spend more often.
While the wall clock agrees with the uptime, periods open as they come. A *leap* of the wall clock beyond the uptime is
accepted once per boot, because a device that was switched off can not know for how long. A signed document confirms
its date without counting as a leap. Source: docs/formats.md, section 5 (time floor); decisions 17, 103.

**Limits.** A clock that was behind and is set right seems to say that much time has passed since the last answers. The
*limit time* does not believe that: it goes on with the uptime. Where the clock shows more, it follows in a *step*, over
which a line of the ledger keeps its age if it still counted just before the step. So if the clock is never ahead, and
each correction sets it right, two answers that do not count together in a limit of length w are at least w of true time
apart. Source: decision 55.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical
from protocol.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents

SLACK_SECONDS = 60
DRIFT = 5000
"""A quartz clock may gain one second in this many seconds: 200 millionths."""


class Reading(NamedTuple):
    """What the wall clock and the uptime show at one moment.

    Attributes:
        wall: wall clock, in seconds since 1970.
        boot: name of the present boot.
        uptime: seconds since the boot; None if the application gave its own wall clock, which is right by definition.
    """

    wall: int
    boot: str = ""
    uptime: int | None = None


def _fields(raw: bytes, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the values that ``raw`` holds; None if their types are not ``kinds``."""
    try:
        values = canonical.unpack(raw)
    except DocumentError:
        return None
    return values if isinstance(values, list) and tuple(map(type, values)) == kinds else None


class Anchor(NamedTuple):
    """The last time that was confirmed, by a signed document or by the clock at an answer.

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
        """Return the bytes that the state stores."""
        return canonical.pack(list(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Anchor | None:
        """Read the bytes of :meth:`to_bytes`; None for other bytes."""
        values = _fields(raw, (str, int, int, bool, bool, int))
        return None if values is None else cls(*values)


class Proof(NamedTuple):
    """The earliest time that it can have been at a moment, by the dates of signed documents and the uptime since.

    Attributes:
        boot: name of the boot in which the moment was.
        uptime: seconds from the boot to the moment.
        time: earliest possible time, in seconds since 1970.
        floor: the time floor (latest date of signed documents) at that moment. If a new root has a lower one, the proof
            is void.
    """

    boot: str
    uptime: int
    time: int
    floor: int

    def to_bytes(self) -> bytes:
        """Return the bytes that the state stores."""
        return canonical.pack(list(self))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Proof | None:
        """Read the bytes of :meth:`to_bytes`; None for other bytes."""
        values = _fields(raw, (str, int, int, int))
        return None if values is None else cls(*values)


def earliest(proof: Proof | None, floor: int, reading: Reading) -> int:
    """Return the earliest time that it can be now, in seconds since 1970. The wall clock has no influence on it.

    ``floor`` is the time floor: the latest date of signed documents. The uptime since the proof is added; a later boot
    began after it, so all of its uptime is. The time in which the device was off is left out. So the result is never
    later than the true time, if no document is dated ahead and the uptime is right.
    """
    if proof is None or proof.floor > floor or reading.uptime is None:
        return floor
    same = proof.boot == reading.boot and reading.uptime >= proof.uptime
    return max(floor, proof.time + (reading.uptime - proof.uptime if same else reading.uptime))


class Present(NamedTuple):
    """The present time, for dates and for periods, in seconds since 1970.

    Attributes:
        now: the time by which dates are judged: the later of the wall clock and the time that documents prove.
        confirmed: the last confirmed time and the uptime since. No period after the period of this time opens, unless
            the boot's one leap is left.
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
        """Return the time that decides a campaign's period, and whether an answer then uses the boot's one leap.

        ``time_precision`` is the length of the campaign's periods in seconds.
        """
        if self.now // time_precision <= self.confirmed // time_precision:
            return self.now, False
        return (self.now, True) if self.leap_left else (self.confirmed, False)

    @property
    def late(self) -> int:
        """Seconds by which the next period opens later than the clock shows; 0 while the boot's one leap is left."""
        return 0 if self.leap_left else max(0, self.now - self.confirmed)

    def opens_at(self, start: int) -> int:
        """Return what the clock will show when a later period, which begins at ``start``, can be answered.

        This holds if the clock goes on as now, without a restart or a newer signed document.
        """
        after_leap = self.leap_end is not None and start >= self.leap_end
        return start if after_leap else start + self.late


def present(anchor: Anchor | None, floor: int, reading: Reading) -> Present:
    """Return the present time, from the clocks and the last confirmed time ``anchor``; None if none is stored.

    ``floor`` is the earliest time that it can be (:func:`earliest`), in seconds since 1970.
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
    """Return the seconds since the anchor, by the uptime; None if the device was restarted since."""
    if reading.uptime is None or anchor.boot != reading.boot or reading.uptime < anchor.uptime:
        return None
    return reading.uptime - anchor.uptime


def after_answer(anchor: Anchor | None, floor: int, reading: Reading, time: int, *, leapt: bool) -> Anchor | None:
    """Return the new anchor (last confirmed time) after an answer; None if the old anchor stays.

    Args:
        anchor: the last confirmed time before the answer; None if none is stored.
        floor: the earliest time that it can be (:func:`earliest`), in seconds since 1970.
        time, leapt: the time that decided the period, and whether it used the boot's leap
            (:meth:`Present.period_time`).
    """
    if reading.uptime is None:
        return None
    if not leapt and anchor is not None and _elapsed(anchor, reading) is not None:
        return None
    moment = present(anchor, floor, reading)
    known = time if leapt else moment.confirmed
    return Anchor(reading.boot, reading.uptime, known, signed=False, leapt=leapt, base=min(known, moment.base))


def after_document(anchor: Anchor | None, reading: Reading, issued_at: int) -> Anchor | None:
    """Return the new anchor after a document of the date ``issued_at`` was accepted; None if the old anchor stays.

    The old anchor stays if it confirms the document's date already, or if there is no uptime.
    """
    if reading.uptime is None or (anchor is not None and issued_at <= present(anchor, 0, reading).confirmed):
        return None
    leapt = anchor is not None and anchor.leapt and _elapsed(anchor, reading) is not None
    return Anchor(reading.boot, reading.uptime, issued_at, signed=True, leapt=leapt, base=issued_at)


_NOTED_EVERY = 6 * 3_600
"""The limit time is stored again after this many seconds. What a boot runs after that counts as a step at the next
boot. """
_BACK_AFTER = 3_600
"""If the clock shows less than the limit time for this many seconds of one boot, the limit time goes back to it."""
_MAX_STEPS = 1_000


class Step(NamedTuple):
    """A difference between the clock and the limit time, by which the limit time was moved.

    Attributes:
        line: number of the last ledger line before the step.
        boot_line: number of the last ledger line before the boot in which the step was seen.
        before: limit time just before the step, in seconds since 1970.
        seconds: length of the step; negative if the limit time went back.
    """

    line: int
    boot_line: int
    before: int
    seconds: int

    @property
    def end(self) -> int:
        """Limit time just after the step, in seconds since 1970."""
        return self.before + self.seconds

    def keeps_age(self, line: int, date: int, seconds: int) -> bool:
        """Return whether a ledger line keeps its age over this forward step, as if no time had passed.

        It does if it was written in the step's boot, or still counted just before the step. ``date`` is the date of the
        line by the clock before the step, ``seconds`` the length of the limit's window.
        """
        return line > self.boot_line or self.before - date < seconds


class Track(NamedTuple):
    """The limit time (by which the owner's limits count) at a moment, and the steps before it.

    Attributes:
        boot: name of the boot.
        uptime: seconds from the boot to the moment.
        time: limit time, in seconds since 1970.
        boot_line: number of the last ledger line before this boot.
        behind_since: uptime at which the clock first showed less than the limit time; None if it does not.
        gained: seconds by which the limit time went ahead of the uptime in this boot, without a step.
        steps: the steps before the moment, oldest first.
    """

    boot: str
    uptime: int
    time: int
    boot_line: int
    behind_since: int | None = None
    gained: int = 0
    steps: tuple[Step, ...] = ()

    def to_bytes(self) -> bytes:
        """Return this limit time, with its steps, as the bytes that the state stores."""
        return canonical.pack([*self[:-1], [list(step) for step in self.steps]])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Track | None:
        """Read ``raw``, the bytes of :meth:`to_bytes`; None for other bytes."""
        try:
            *values, steps = canonical.unpack(raw)
            return cls._make([*values, tuple(Step(*step) for step in steps)])
        except (DocumentError, TypeError, ValueError):
            return None

    def is_news(self, stored: Track | None) -> bool:
        """Return whether this track must replace the stored one: it has other steps, or is six hours later."""
        return (
            stored is None
            or (self.boot, self.steps, self.behind_since) != (stored.boot, stored.steps, stored.behind_since)
            or not 0 <= self.uptime - stored.uptime < _NOTED_EVERY
        )

    def ahead_of(self, stored: Track | None) -> int:
        """Return the seconds by which the limit time gained on the uptime since the earlier track ``stored``.

        If ``stored`` is None, return the whole limit time.
        """
        if stored is None:
            return self.time
        same = stored.boot == self.boot and self.uptime >= stored.uptime
        return max(0, self.time - stored.time - (self.uptime - stored.uptime if same else self.uptime))

    def renumbered(self, numbers: Sequence[int]) -> Track:
        """Return the track for a new ledger, whose lines 2, 3 and so on are the old lines ``numbers`` (rising)."""

        def place(line: int) -> int:
            return 1 + bisect_right(numbers, line)

        steps = tuple(step._replace(line=place(step.line), boot_line=place(step.boot_line)) for step in self.steps)
        return self._replace(boot_line=place(self.boot_line), steps=steps)

    @property
    def moves(self) -> bool:
        """Whether there is a step, so that :meth:`date` may move the date of a ledger line."""
        return bool(self.steps)

    @property
    def reach(self) -> int:
        """Most seconds by which :meth:`date` moves the date of a ledger line forward: the sum of all forward steps."""
        return sum(max(0, step.seconds) for step in self.steps)

    def date(self, line: int, answered_at: int, seconds: int) -> int:
        """Return a ledger line's time for the owner's limits, moved by the steps over which the line keeps its age.

        Args:
            line: number of the line.
            answered_at: limit time of the answer, as it is stored in the line.
            seconds: length of the limit's window.
        """
        date = by_clock = answered_at
        for step in self.steps:
            if line > step.line:  # the line came after the step
                continue
            if step.seconds < 0:  # the limit time went back, and with it all lines before
                date = by_clock = date + step.seconds
            elif step.keeps_age(line, by_clock, seconds):
                date += step.seconds
        # A line that was moved is never later than the limit time.
        return date if date == answered_at else min(date, self.time)


def follow(track: Track | None, reading: Reading, now: int, line: int, longest: int) -> Track | None:
    """Return the track (limit time and its steps) at a reading of the clocks; None if ``reading`` has no uptime.

    Args:
        track: the stored track; None if none is stored.
        now: the later of the wall clock and the time that documents prove, in seconds since 1970.
        line: number of the newest ledger line.
        longest: length of the owner's longest window in seconds. Older steps are left out.
    """
    if reading.uptime is None:
        return None
    if track is None:
        return Track(reading.boot, reading.uptime, now, line)
    same = track.boot == reading.boot and reading.uptime >= track.uptime
    passed = reading.uptime - track.uptime if same else reading.uptime
    boot_line, gained = (track.boot_line, track.gained) if same else (line, 0)
    expected = track.time + passed
    # All gains of one boot share one minute and the drift of its uptime. Else small gains would add up without a step.
    slack = SLACK_SECONDS + reading.uptime // DRIFT - gained
    time, since = max(now, expected), None
    if now < expected - SLACK_SECONDS - passed // DRIFT:
        since = track.behind_since if same and track.behind_since is not None else reading.uptime
        if reading.uptime - since >= _BACK_AFTER:
            time, since = now, None
    steps = _pruned(track.steps, track, expected, longest)
    if time < expected or time - expected > slack:
        steps = (*steps, Step(line, boot_line, expected, time - expected))
    else:
        gained += time - expected
    return Track(reading.boot, reading.uptime, time, boot_line, since, gained, steps)


def _pruned(steps: tuple[Step, ...], track: Track, before: int, longest: int) -> tuple[Step, ...]:
    """Return the ``steps`` that still change the age of a line that counts, oldest first; of too many, join two.

    ``before``: the limit time now, or just before a step that is seen now. ``longest``: the longest window in seconds.
    """
    if steps and before - steps[-1].end >= longest:
        return ()
    back = max((place for place, step in enumerate(steps) if step.seconds < 0), default=0)
    if steps and steps[back].line <= track.boot_line:
        # Lines before this step were older than the longest window, by the clock at a later step. Since that step the
        # time of another such window has passed.
        later = steps[back + 1 :]
        if any(step.before - steps[back].end >= longest and before - step.before >= longest for step in later):
            return later
    if len(steps) > _MAX_STEPS:
        first, second, *others = steps
        seconds = max(0, first.seconds) + max(0, second.seconds)
        return (Step(second.line, min(first.boot_line, second.boot_line), first.before, seconds), *others)
    return steps


_KEY = "anchor"
_PROOF_KEY = "proof"
_TRACK_KEY = "track"
_CARRIED_KEY = "track_carried"
"""Key of the note that the stored track was copied at a reset, and that no clock was read since."""
_BEHIND_SECONDS = 3_600
"""A wall clock that is behind the time of signed documents by more seconds is known to be wrong."""


def stored_track(state: State) -> bytes | None:
    """Return the bytes of the track (limit time and its steps) that a state stores; None if it stores none."""
    return state.meta(_TRACK_KEY)


def carry_track(state: State, raw: bytes, numbers: Sequence[int]) -> None:
    """Store ``raw``, an old state's track, in a new state, unless it is no track. The caller opens a transaction.

    ``numbers`` are the old numbers, in rising order, of the ledger lines that are lines 2, 3 and so on of the new
    ledger.
    """
    track = Track.from_bytes(raw)
    if track is not None:
        state.write_meta(_TRACK_KEY, track.renumbered(numbers).to_bytes())
        state.write_meta(_CARRIED_KEY, b"1")


class Timekeeper:
    """Tells the present time from the clocks and the state. For methods that write, the caller opens a transaction."""

    def __init__(
        self,
        state: State,
        documents: Documents,
        clock: Callable[[], int],
        uptime: Callable[[], tuple[str, int]] | None,
    ) -> None:
        self._state = state
        self._documents = documents
        self._clock = clock
        self._uptime = uptime

    def wall(self) -> int:
        """Return the wall clock's time in whole seconds since 1970. Fractions of a second are cut off."""
        return int(self._clock())

    def read(self) -> Reading:
        """Read the wall clock and the uptime, once each."""
        if self._uptime is None:
            return Reading(self.wall())
        boot, seconds = self._uptime()
        return Reading(self.wall(), boot, int(seconds))

    def present(self, reading: Reading) -> Present:
        """Return the present time that follows from ``reading`` and from the last confirmed time in the state."""
        return present(self._anchor(), self.earliest(reading), reading)

    def earliest(self, reading: Reading) -> int:
        """Return the earliest time that it can be now, by signed documents and the uptime, in seconds since 1970."""
        return earliest(self._proof(), self._documents.time_floor(), reading)

    def note_earliest(self, reading: Reading) -> None:
        """Store the earliest time that it can be now, if the wall clock shows less, and a minute or more has passed.

        So a device without a clock goes on from that time after a restart. If the clock is right, nothing is written.
        """
        if reading.uptime is None:
            return
        proof, time, floor = self._proof(), self.earliest(reading), self._documents.time_floor()
        known = 0 if proof is None or proof.floor > floor else proof.time
        if reading.wall < time and time >= known + SLACK_SECONDS:
            self._state.write_meta(_PROOF_KEY, Proof(reading.boot, reading.uptime, time, floor).to_bytes())

    def now(self) -> int:
        """Return the later of the wall clock and the time that signed documents prove, in seconds since 1970."""
        return self.present(self.read()).now

    def note_answer(self, reading: Reading, time: int, *, leapt: bool) -> None:
        """Store the time that is confirmed by an answer. :func:`after_answer` computes it from these arguments."""
        self._keep(after_answer(self._anchor(), self.earliest(reading), reading, time, leapt=leapt))

    def track(self, reading: Reading, line: int, longest: int) -> Track | None:
        """Return the time by which limits are counted, with its steps; None for an application's clock."""
        now = self.present(reading).now
        return None if reading.uptime is None else follow(self._track(), reading, now, line, longest)

    def note_track(self, reading: Reading, track: Track | None, *, after_reset: bool) -> tuple[int, int]:
        """Store ``track``, unless it is None or need not replace the stored one (:meth:`Track.is_news`).

        After a reset (``after_reset``) the track is stored as well if the clock gained a second.

        Returns:
            The seconds by which the clock turns out to have been behind: what it gained on the uptime since the stored
            track. It is the whole present time at the first call after a reset, and if the clock is more than an hour
            behind the time that signed documents prove. Second, the present time, in seconds since 1970.
        """
        now = self.present(reading).now
        gained = 0
        if track is not None:
            stored = self._track()
            carried = self._state.meta(_CARRIED_KEY) is not None
            gained = track.time if carried else track.ahead_of(stored)
            if carried:
                self._state.remove_meta(_CARRIED_KEY)
            if track.is_news(stored) or (after_reset and gained):
                self._state.write_meta(_TRACK_KEY, track.to_bytes())
        return (now if now - reading.wall > _BEHIND_SECONDS else gained), now if track is None else track.time

    def note_document(self, issued_at: int) -> None:
        """Store the time that is confirmed by an accepted signed document of the date ``issued_at``."""
        reading, floor = self.read(), self._documents.time_floor()
        self._keep(after_document(self._anchor(), reading, issued_at))
        if reading.uptime is not None:
            proof = Proof(reading.boot, reading.uptime, max(self.earliest(reading), issued_at), floor)
            self._state.write_meta(_PROOF_KEY, proof.to_bytes())

    def _proof(self) -> Proof | None:
        raw = None if self._uptime is None else self._state.meta(_PROOF_KEY)
        return None if raw is None else Proof.from_bytes(raw)

    def _anchor(self) -> Anchor | None:
        raw = None if self._uptime is None else self._state.meta(_KEY)
        return None if raw is None else Anchor.from_bytes(raw)

    def _track(self) -> Track | None:
        raw = stored_track(self._state)
        return None if raw is None else Track.from_bytes(raw)

    def _keep(self, anchor: Anchor | None) -> None:
        if anchor is not None:
            self._state.write_meta(_KEY, anchor.to_bytes())
