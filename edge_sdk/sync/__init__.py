"""One restartable run for a device that is online now and then: fetch, send, acknowledge.

In: a device and a transport. Out: an :class:`Outcome` that lists what was done, and every refusal.
"""

from edge_sdk.sync.run import Outcome, Refusal, Taken, sync

__all__ = ["Outcome", "Refusal", "Taken", "sync"]
