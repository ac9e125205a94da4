"""Fixture of the commands of nodes."""

from __future__ import annotations

import pytest
from support.publisher import NOW


@pytest.fixture
def system_time(monkeypatch):
    """The system's clock, which commands read, shows a time at which documents of the publisher are valid."""
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5)
