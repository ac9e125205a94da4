"""Simulations: devices or nodes and an aggregator in one process, all with the production code.

This package depends on ``edge_sdk``, ``aggregator`` and ``protocol``. No package depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.preparing import simulate_campaign
    from simulation.rehearsing.rehearse import rehearsed

__all__ = ["rehearsed", "simulate_campaign"]


def __getattr__(name: str) -> Any:
    """Import and return a public function of this package at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from simulation.preparing import simulate_campaign
    from simulation.rehearsing import rehearse

    return {"rehearsed": rehearse.rehearsed, "simulate_campaign": simulate_campaign}[name]
