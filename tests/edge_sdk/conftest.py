"""A provisioned device with a hand-turned clock."""

from __future__ import annotations

import os

import pytest
from support.publisher import NOW, Publisher

import edge_sdk.storage.database
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
def publisher():
    return Publisher()


@pytest.fixture
def device(tmp_path, publisher, clock):
    with Device.open(tmp_path / "state", trust=publisher.root(), clock=clock) as opened:
        yield opened


@pytest.fixture
def unflushed(monkeypatch):
    """No waiting for the disk, which takes nine tenths of the time and finds nothing here."""
    plain = edge_sdk.storage.database._execute

    def execute(connection, statement, values=()):
        return plain(connection, statement.replace("= EXTRA", "= OFF"), values)

    monkeypatch.setattr(edge_sdk.storage.database, "_execute", execute)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
