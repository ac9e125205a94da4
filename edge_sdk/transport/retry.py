"""How long to wait for a server, and how often to try again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryPolicy(NamedTuple):
    """Limits of one fetch or one sending.

    Attributes:
        seconds: longest time from its beginning to its end, all tries and pauses included.
        idle: longest time without a byte, in seconds.
        attempts: most tries.
        first: length of the first pause in seconds, before chance; each further one is twice as long.
        longest: no pause is longer, in seconds. A server that asks for more is left alone.
    """

    seconds: float = 300.0
    idle: float = 30.0
    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, number: int, chance: bytes, asked: float) -> float | None:
        """Seconds to wait after a try: at random from half of min(first·2^number, longest) to all of it.

        The chance keeps a fleet that lost its server from coming back in step.

        Args:
            number: how many pauses there were already.
            chance: four random bytes.
            asked: the least that the server wants, in seconds; 0 if it does not say.

        Returns:
            None if there is to be no further try.
        """
        if number + 1 >= self.attempts or asked > self.longest:
            return None
        full = min(self.first * 2.0**number, self.longest)
        share = int.from_bytes(chance[:4], "big") / (1 << 32)
        return max(asked, full * (0.5 + 0.5 * share))


class Deadline:
    """The end of one fetch or sending, by a clock that does not jump."""

    def __init__(self, retry: RetryPolicy, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._idle = retry.idle
        self._end = monotonic() + retry.seconds

    def left(self) -> float:
        """Seconds that are left; none or less once it is over."""
        return self._end - self._monotonic()

    def wait(self) -> float:
        """How long the next byte may take, in seconds.

        Raises:
            TimeoutError: the time is over.
        """
        left = self.left()
        if left <= 0:
            raise TimeoutError
        return min(self._idle, left)
