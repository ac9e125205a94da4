"""The device side: answer questions about records privately, store the reports, classify with signed models.

>>> from edge_sdk import Device                                          # doctest: +SKIP
>>> Device.provision("/var/lib/hearsay", root_bytes).close()  # at installation # doctest: +SKIP
>>> device = Device.open("/var/lib/hearsay")                             # doctest: +SKIP
>>> campaign = device.enrol(campaign_bytes)                              # doctest: +SKIP
>>> device.report(campaign.id, {"odor": "n", "cap": None, "label": "e"}) # doctest: +SKIP
>>> device.drain("2026-11-22.hsr")  # a new name each time               # doctest: +SKIP

``enrol`` returns a :class:`Campaign`: the questions and their ε. ``install`` and ``model`` return a
:class:`Classifier`: an installed model. ``status`` returns a :class:`Status`: the ε that was spent, and the reports
that wait to be sent. :class:`Node` is a device that holds many people's records and sends sums of them.

The package needs only the standard library, msgpack and PyNaCl. A test asserts that its import loads no numpy, pandas
or click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_sdk.device import Device
from edge_sdk.policy import Policy
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError, HearsayError, InputError, PolicyError, StorageError

if TYPE_CHECKING:
    from edge_sdk.classifier import Classifier
    from edge_sdk.node.node import Node
    from edge_sdk.status import Status

__all__ = [
    "Campaign",
    "Classifier",
    "Device",
    "DocumentError",
    "HearsayError",
    "InputError",
    "Node",
    "Policy",
    "PolicyError",
    "Status",
    "StorageError",
]
_LATER = {"Classifier": "edge_sdk.classifier", "Node": "edge_sdk.node.node", "Status": "edge_sdk.status"}
"""Name of a class that not every device needs → its module, which is loaded at the first use of the name."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'edge_sdk' has no attribute '{name}'")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found
