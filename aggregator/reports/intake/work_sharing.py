"""Divide a large piece of work among the threads of a pool.

A thread offers items of its work to the pool, and does itself the items that no other thread has begun. So a thread
never waits for an item that still stands in the queue, and a pool whose threads all offer items can not block itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkSharingPool:
    """Offers items of work to a pool. Threads of the pool itself may use it.

    Args:
        pool: of threads.
        offered: items of one call of :meth:`each` that wait or run at a time, which bounds memory.
    """

    def __init__(self, pool: Executor, offered: int) -> None:
        self._pool = pool
        self._most = offered

    def begin(self, function: Callable[[Item], Result], item: Item) -> Callable[[], Result]:
        """Offer the call ``function(item)`` to the pool.

        Returns:
            A function that returns the call's result. If no thread has begun the call, it makes the call itself.
        """
        future = self._pool.submit(function, item)
        return lambda: function(item) if future.cancel() else future.result()

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` of every item, in order. When the iteration ends, also by an error, no call runs."""
        waiting: deque[tuple[Future[Result], Item]] = deque()
        try:
            for item in items:
                waiting.append((self._pool.submit(function, item), item))
                if len(waiting) >= self._most:
                    yield _first(function, waiting)
            while waiting:
                yield _first(function, waiting)
        finally:
            # Wait only for calls that have begun. A pool may report a cancelled future to wait() much later.
            wait([future for future, _ in waiting if not future.cancel()])


def _first(function: Callable[[Item], Result], waiting: deque[tuple[Future[Result], Item]]) -> Result:
    """Return the first item's result. While another thread works on it, do the items after it."""
    for place, (future, item) in enumerate(waiting):
        if waiting[0][0].done():
            break
        if future.cancel():
            done: Future[Result] = Future()
            waiting[place] = (done, item)
            done.set_result(function(item))
    return waiting.popleft()[0].result()
