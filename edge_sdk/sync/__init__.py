"""One restartable run for a device that is online at times: fetch documents, send batches, acknowledge them.

In: a device and a transport. Out: an :class:`Outcome` that lists the results and every refusal.
"""

from edge_sdk.sync.outcome import Outcome, Refusal, Taken
from edge_sdk.sync.run import sync

__all__ = ["Outcome", "Refusal", "Taken", "sync"]
