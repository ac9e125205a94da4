"""The clocks of a device, together with the last confirmed time in its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.timekeeping.periods import (
    SLACK_SECONDS,
    Anchor,
    Proof,
    Reading,
    after_answer,
    after_document,
    earliest,
    present,
)
from edge_sdk.timekeeping.steps import Track, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.timekeeping.periods import Present

_KEY = "anchor"
_PROOF_KEY = "proof"
_TRACK_KEY = "track"
_CARRIED_KEY = "track_carried"
"""Key of the note that the track is of the state before a reset, and that no clock was read since."""
_BEHIND_SECONDS = 3_600
"""A wall clock that is behind the time of signed documents by more seconds is known to be wrong."""


def stored_track(state: State) -> bytes | None:
    """The bytes of the track that a state stores; None if it stores none."""
    return state.meta(_TRACK_KEY)


def carry_track(state: State, raw: bytes, numbers: Sequence[int]) -> None:
    """Store an old state's track in a new one. Called inside a transaction.

    Args:
        state: the new state.
        raw: the bytes of the old state's track. Bytes that are no track are not stored.
        numbers: numbers of the old ledger lines, rising, that are lines 2, 3 and so on of the new ledger.
    """
    track = Track.from_bytes(raw)
    if track is not None:
        state.write_meta(_TRACK_KEY, track.renumbered(numbers).to_bytes())
        state.write_meta(_CARRIED_KEY, b"1")


class Timekeeper:
    """Tells the present time from the clocks and the state. Methods that write are called inside a transaction."""

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
        """The wall clock in whole seconds since 1970. Fractions of an application's clock are cut off."""
        return int(self._clock())

    def read(self) -> Reading:
        """Read the wall clock and the uptime, once each."""
        if self._uptime is None:
            return Reading(self.wall())
        boot, seconds = self._uptime()
        return Reading(self.wall(), boot, int(seconds))

    def present(self, reading: Reading) -> Present:
        """The present time that follows from ``reading`` and from the last confirmed time in the state."""
        return present(self._anchor(), self.earliest(reading), reading)

    def earliest(self, reading: Reading) -> int:
        """The earliest time that it can be, by signed documents and the uptime, in seconds since 1970."""
        return earliest(self._proof(), self._documents.time_floor(), reading)

    def note_earliest(self, reading: Reading) -> None:
        """Store the earliest time that it can be, if the wall clock shows less and a minute or more has passed.

        So a device without a clock goes on from there after a restart. Others write nothing.
        """
        if reading.uptime is None:
            return
        proof, time, floor = self._proof(), self.earliest(reading), self._documents.time_floor()
        known = 0 if proof is None or proof.floor > floor else proof.time
        if reading.wall < time and time >= known + SLACK_SECONDS:
            self._write_proof(Proof(reading.boot, reading.uptime, time, floor))

    def now(self) -> int:
        """The wall clock, or the time that signed documents prove if that is later."""
        return self.present(self.read()).now

    def note_answer(self, reading: Reading, time: int, *, leapt: bool) -> None:
        """Store the confirmed time after an answer.

        Args:
            reading: the clocks, as read for the answer.
            time: the time that decided the period, in seconds since 1970.
            leapt: whether the answer used the one leap of the wall clock that is accepted per boot.
        """
        self._keep(after_answer(self._anchor(), self.earliest(reading), reading, time, leapt=leapt))

    def track(self, reading: Reading, line: int, longest: int) -> Track | None:
        """The time by which limits are counted, with its steps; None if the application gave a clock of its own.

        Args:
            reading: the clocks.
            line: number of the newest ledger line.
            longest: length of the owner's longest window in seconds.
        """
        now = self.present(reading).now
        return None if reading.uptime is None else follow(self._track(), reading, now, line, longest)

    def note_track(self, reading: Reading, track: Track | None, *, after_reset: bool) -> tuple[int, int]:
        """Store ``track`` if :meth:`Track.is_news` says that it must replace the stored one; None is not stored.

        Args:
            reading: the clocks, as read for the track.
            track: the result of :meth:`track`.
            after_reset: whether the state was reset. The track is then stored as well if the clock gained a second.

        Returns:
            Seconds by which the clock was behind so far, as is seen now: what it gained on the uptime since the
            stored track; the whole time at the first call after a reset, and if the clock is more than an hour behind
            the time that signed documents prove, since nobody knows how wrong it is; 0 for a clock that seems right.
            And the present time, in seconds since 1970.
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
        """Store the confirmed time after a signed document was accepted.

        Args:
            issued_at: the document's date, in seconds since 1970.
        """
        reading, floor = self.read(), self._documents.time_floor()
        self._keep(after_document(self._anchor(), reading, issued_at))
        if reading.uptime is not None:
            self._write_proof(Proof(reading.boot, reading.uptime, max(self.earliest(reading), issued_at), floor))

    def _proof(self) -> Proof | None:
        raw = None if self._uptime is None else self._state.meta(_PROOF_KEY)
        return None if raw is None else Proof.from_bytes(raw)

    def _write_proof(self, proof: Proof) -> None:
        self._state.write_meta(_PROOF_KEY, proof.to_bytes())

    def _anchor(self) -> Anchor | None:
        raw = None if self._uptime is None else self._state.meta(_KEY)
        return None if raw is None else Anchor.from_bytes(raw)

    def _track(self) -> Track | None:
        raw = stored_track(self._state)
        return None if raw is None else Track.from_bytes(raw)

    def _keep(self, anchor: Anchor | None) -> None:
        if anchor is not None:
            self._state.write_meta(_KEY, anchor.to_bytes())
