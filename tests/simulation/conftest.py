"""Fixture of a file of records."""

from __future__ import annotations

import pytest
from support.two_features import people


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "a.csv"
    people().to_csv(path, index=False)
    return path
