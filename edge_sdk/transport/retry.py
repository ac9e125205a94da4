"""Limits of waiting for a server: deadlines, pauses and numbers of tries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryPolicy(NamedTuple):
    """Limits of one fetch or one sending.

    Attributes:
        seconds: longest time of all tries and pauses together.
        idle: longest time without a byte, in seconds.
        attempts: most tries.
        first: length of the first pause in seconds, before randomisation; each further pause is twice as long.
        longest: longest pause in seconds. If a server asks for a longer one, there is no further try.
    """

    seconds: float = 300.0
    idle: float = 30.0
    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, number: int, chance: bytes, asked: float) -> float | None:
        """The pause after a try: with m = min(first·2^number, longest), a random time from m/2 to m.

        Random pauses prevent that all devices of a fleet return at the same moment after their server failed.

        Args:
            number: number of earlier pauses.
            chance: four random bytes.
            asked: shortest pause that the server asks for, in seconds; 0 if it asks for none.

        Returns:
            The pause in seconds, at least ``asked``; None if there is no further try.
        """
        if number + 1 >= self.attempts or asked > self.longest:
            return None
        full = min(self.first * 2.0**number, self.longest)
        share = int.from_bytes(chance[:4], "big") / (1 << 32)
        return max(asked, full * (0.5 + 0.5 * share))


class Deadline:
    """The end of the time for one fetch or sending, which begins when the object is made."""

    def __init__(self, retry: RetryPolicy, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._idle = retry.idle
        self._end = monotonic() + retry.seconds

    def left(self) -> float:
        """Seconds that are left; 0 or negative after the end."""
        return self._end - self._monotonic()

    def wait(self) -> float:
        """Longest time to wait for the next byte, in seconds: the policy's ``idle``, or the time left if less.

        Raises:
            TimeoutError: no time is left.
        """
        left = self.left()
        if left <= 0:
            raise TimeoutError
        return min(self._idle, left)
