"""Fixture of a workspace, in which most of these tests publish."""

from __future__ import annotations

import pytest
from support.publisher import NOW

from aggregator.publishing.workspace import create_workspace


@pytest.fixture
def work(tmp_path):
    return create_workspace(tmp_path / "work", name="workspace", now=NOW)
