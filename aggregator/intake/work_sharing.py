"""Threads that share work: who has much of it offers it to the others, and does himself what nobody has begun.

So whoever offers never waits for threads that are busy with the same: a pool whose threads all offer work goes on.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkSharingPool:
    """Offers the parts of a large piece of work to a pool.

    Args:
        pool: of threads; those that offer may be among them.
        offered: how many parts of one piece are begun or waiting at a time, which bounds the memory.
    """

    def __init__(self, pool: Executor, offered: int) -> None:
        self._pool = pool
        self._most = offered

    def begin(self, function: Callable[[Item], Result], item: Item) -> Callable[[], Result]:
        """Offer one thing; what is returned waits for its result, or does it."""
        future = self._pool.submit(function, item)
        return lambda: function(item) if future.cancel() else future.result()

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """``function`` of every item, in their order. When it ends, also by an error, nothing of it goes on."""
        waiting: deque[tuple[Future[Result], Item]] = deque()
        try:
            for item in items:
                waiting.append((self._pool.submit(function, item), item))
                if len(waiting) >= self._most:
                    yield _first(function, waiting)
            while waiting:
                yield _first(function, waiting)
        finally:
            wait(
                [future for future, _ in waiting if not future.cancel()]
            )  # a cancelled one may not be told so for long


def _first(function: Callable[[Item], Result], waiting: deque[tuple[Future[Result], Item]]) -> Result:
    """The result of the first item; while others work on it, the next ones are done here."""
    for place, (future, item) in enumerate(waiting):
        if waiting[0][0].done():
            break
        if future.cancel():
            done: Future[Result] = Future()
            waiting[place] = (done, item)
            done.set_result(function(item))
    return waiting.popleft()[0].result()
