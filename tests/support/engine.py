"""An engine for remote work (:class:`aggregator.reports.intake.remote.Executor`): threads in place of a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed


class Engine:
    """Threads that return results in the order in which they end, each value shared by reference.

    With ``lost`` it raises that error after the first result.
    """

    threads = threads_each = 3

    def __init__(self, lost=None, *, is_private=True):
        self.lost, self.is_private = lost, is_private

    def run(self, function, calls):
        with ThreadPoolExecutor(self.threads) as pool:
            for future in as_completed([pool.submit(function, *call) for call in calls]):
                yield future.result()
                if self.lost is not None:
                    raise self.lost

    def share(self, value):
        return value
