"""Fixtures: a provisioned device whose clock is set by the test."""

from __future__ import annotations

import pytest
from support.publisher import NOW

from edge_sdk import Device


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def device(tmp_path, publisher, clock):
    with Device.provision(tmp_path / "state", trust=publisher.root(), clock=clock) as opened:
        yield opened
