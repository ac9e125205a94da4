"""Fixtures of the tests of simulations."""

from __future__ import annotations

import pytest

from aggregator.models import foresight


@pytest.fixture
def two_fleets(monkeypatch):
    """Foresee a model's accuracy from 2 simulated fleets, not 100.

    Foresight takes five sixths of the time of a vector trial. Its result is a line on the model's card. It has a random
    generator of its own, so the accuracies of a simulation are the same to the last bit.
    """
    monkeypatch.setattr(foresight, "FLEETS", 2)
