"""The device side: answer questions about a record privately, keep the reports, use the model.

>>> from edge_sdk import Device                                          # doctest: +SKIP
>>> device = Device.open("/var/lib/hearsay", trust=root_bytes)           # doctest: +SKIP
>>> campaign = device.enrol(campaign_bytes)                              # doctest: +SKIP
>>> device.report(campaign.id, {"odor": "n", "cap": None, "label": "e"}) # doctest: +SKIP
>>> device.drain("today.hsr")                                            # doctest: +SKIP

What an application gets back: :class:`Campaign`, what is asked and at which ε, from ``enrol`` and ``campaigns``;
:class:`Classifier`, an installed model, from ``install`` and ``model``; :class:`Status`, what was spent and what
waits, from ``status``.

Needs nothing besides the standard library, msgpack and PyNaCl; a test asserts that importing it
loads no numpy, pandas or click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_sdk.device import Device
from edge_sdk.policy import Policy
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError, HearsayError, InputError, PolicyError, StorageError

if TYPE_CHECKING:
    from edge_sdk.classifier import Classifier
    from edge_sdk.status import Status

__all__ = [
    "Campaign",
    "Classifier",
    "Device",
    "DocumentError",
    "HearsayError",
    "InputError",
    "Policy",
    "PolicyError",
    "Status",
    "StorageError",
]
_LATER = {"Classifier": "edge_sdk.classifier", "Status": "edge_sdk.status"}
"""Names whose modules not every device needs: they are loaded when they are asked for."""


def __getattr__(name: str) -> Any:
    """A name of ``__all__`` that was not asked for before."""
    if name not in _LATER:
        raise AttributeError(f"module 'edge_sdk' has no attribute '{name}'")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found
