"""What runs where reports are gathered: intake, statistics, models, publishing and the ``hearsay`` command.

One report file's way through it: ``intake.decode`` (columns) → ``intake.store`` (Parquet) →
``intake.tally`` (integer counts) → ``statistics`` (unbiased estimates) → ``models`` → ``publishing``.

The two names most programs need are here; they load numpy, pandas and pyarrow when first used, so
that a command which needs none of them starts at once.

    store = aggregator.open_store("mushrooms.store")
    store.estimates()                                  # a DataFrame
    aggregator.Model.load("mushrooms.hsm", "trust.hst").predict(frame)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregator.intake.store import open_store
    from aggregator.models.scoring import Model

__all__ = ["Model", "open_store"]

_HOMES = {"open_store": "aggregator.intake.store", "Model": "aggregator.models.scoring"}


def __getattr__(name: str) -> Any:
    """Load ``open_store`` or ``Model`` when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names alone, so that a prompt offers no more than that."""
    return sorted(__all__)
