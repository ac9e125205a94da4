"""The device side: answer questions about a record privately, keep the reports, use the model.

>>> from edge_sdk import Device                                          # doctest: +SKIP
>>> device = Device.open("/var/lib/hearsay", trust=root_bytes)           # doctest: +SKIP
>>> campaign = device.enrol(campaign_bytes)                              # doctest: +SKIP
>>> device.report(campaign.id, {"odor": "n", "cap": None, "label": "e"}) # doctest: +SKIP
>>> device.drain("today.hsr")                                            # doctest: +SKIP

Needs nothing besides the standard library, msgpack and PyNaCl; a test asserts that importing it
loads no numpy, pandas or click.
"""

from __future__ import annotations

from edge_sdk.device import Device
from edge_sdk.policy import Policy
from protocol.errors import DocumentError, HearsayError, InputError, PolicyError, StorageError

__all__ = ["Device", "DocumentError", "HearsayError", "InputError", "Policy", "PolicyError", "StorageError"]
