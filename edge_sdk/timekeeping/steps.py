"""The time by which the owner's limits per day and per window are counted, although the wall clock may be wrong.

A clock that was behind and is set right seems to say that much time has passed since the last answers. This *limit
time* does not believe that. It never goes back when the clock does, and it goes on with the uptime. Where the clock
shows more, the limit time follows in a *step*, which is noted. A line of the ledger keeps its age over a step, as if no
time had passed, if the line still counted by the clock just before the step.

Let w be the length of a limit, and let the clock never be ahead of the true time. Two answers that do not count
together are then at least w of true time apart, if each correction of the clock sets it right. For the first
correction after a line comes w or more after the line by the clock, and all of that time has passed; or it is a step
over which the line keeps its age. Within one boot a line keeps its age over every step, so there the ages are those of
the uptime, whatever the clock shows. Source: docs/decisions/0055.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.timekeeping.periods import DRIFT, SLACK_SECONDS
from protocol import canonical
from protocol.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_sdk.timekeeping.periods import Reading

_NOTED_EVERY = 6 * 3_600
"""A track is stored again after this many seconds. What a boot runs longer counts as a step at the next boot."""
_BACK_AFTER = 3_600
"""The limit time goes back to a clock that has shown less for this many seconds of one boot."""
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


class Track(NamedTuple):
    """The limit time at a moment, and the steps before it.

    Attributes:
        boot: name of the boot.
        uptime: seconds since the boot.
        time: limit time, in seconds since 1970.
        boot_line: number of the last ledger line before this boot.
        behind_since: uptime at which the clock first showed less than the limit time; None if it does not.
        gained: seconds by which the limit time went ahead of the uptime in this boot, without a step.
        steps: oldest first.
    """

    boot: str
    uptime: int
    time: int
    boot_line: int
    behind_since: int | None = None
    gained: int = 0
    steps: tuple[Step, ...] = ()

    def to_bytes(self) -> bytes:
        """The track as the bytes that the state stores."""
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
        """Whether this track must replace the track ``stored`` (None: no track).

        It must if it is of another boot, has another step or ``behind_since``, is six hours or more later, or is
        earlier.
        """
        return (
            stored is None
            or (self.boot, self.steps, self.behind_since) != (stored.boot, stored.steps, stored.behind_since)
            or not 0 <= self.uptime - stored.uptime < _NOTED_EVERY
        )

    def ahead_of(self, stored: Track | None) -> int:
        """Seconds by which the limit time went further than the uptime since the track ``stored``: steps and less.

        Without a track before (None), nothing is known of the time before: the result is the whole limit time.
        """
        if stored is None:
            return self.time
        same = stored.boot == self.boot and self.uptime >= stored.uptime
        return max(0, self.time - stored.time - (self.uptime - stored.uptime if same else self.uptime))

    def renumbered(self, numbers: Sequence[int]) -> Track:
        """The track for a ledger that keeps the lines ``numbers``, rising, as its lines 2, 3 and so on."""

        def place(line: int) -> int:
            return 1 + bisect_right(numbers, line)

        steps = tuple(step._replace(line=place(step.line), boot_line=place(step.boot_line)) for step in self.steps)
        return self._replace(boot_line=place(self.boot_line), steps=steps)

    @property
    def moves(self) -> bool:
        """Whether there is a step, so that the date of a line may be moved."""
        return bool(self.steps)

    @property
    def reach(self) -> int:
        """Most seconds by which :meth:`date` moves the date of a ledger line forward: the sum of all forward steps."""
        return sum(max(0, step.seconds) for step in self.steps)

    def date(self, line: int, answered_at: int, seconds: int) -> int:
        """The limit time of a line, moved by the steps over which the line keeps its age.

        Args:
            line: number of the line.
            answered_at: limit time of the answer, as the line has it.
            seconds: length of the limit's window.
        """
        date = clock = answered_at
        for step in self.steps:
            if line > step.line:
                continue
            if step.seconds < 0:
                date = clock = date + step.seconds
            elif line > step.boot_line or step.before - clock < seconds:
                date += step.seconds
        return date if date == answered_at else min(date, self.time)


def follow(track: Track | None, reading: Reading, now: int, line: int, longest: int) -> Track | None:
    """The track at a reading of the clocks; None if the application gave a clock of its own, which has no steps.

    Args:
        track: the stored track; None if none is stored.
        reading: the clocks.
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
    """Leave out the steps over which no line that still counts keeps its age; join two if there are too many.

    Args:
        steps: oldest first.
        track: of which ``boot_line`` tells the steps of this boot.
        before: the limit time now, or just before a step that is seen now, in seconds since 1970.
        longest: length of the longest window in seconds.
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
