"""A simulation in Python: what ``hearsay simulate`` does between reading its options and printing.

tried = simulation.simulate_campaign("mushroom.csv", "class", epsilon=1, mechanism="oue", repeats=5, seed=1)
tried.result["accuracy"]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.notebooks import facts
from aggregator.schema_file import SchemaFile, load_schema
from aggregator.tables import check_label, read_table
from simulation.settings import Settings, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from protocol.schema import Schema
    from simulation.experiment import Trial


class Simulated(NamedTuple):
    """What a simulation came to.

    Attributes:
        result: the object that ``hearsay simulate --json`` prints.
        trials: what it is made of; the first has the signed model.
        notes, warnings: what the command says before and above it.
    """

    result: dict[str, Any]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        said = {f"warning {number}": text for number, text in enumerate(self.warnings, 1)}
        return facts("Simulation", {**self.result, **said})


def simulate_campaign(
    data: str | Path | pd.DataFrame,
    label: str,
    *,
    schema: SchemaFile | Schema | str | Path | None = None,
    test: str | Path | pd.DataFrame | None = None,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Simulated:
    """Try a campaign on records one has; arguments as ``hearsay simulate --help`` and :class:`Settings` say.

    Args:
        data: a CSV file, or a frame of text as :func:`aggregator.tables.read_table` returns it.
        label: the column to predict.
        schema: of the records; None drafts one from them.
        test: records to test on; None keeps a part of the data.
        progress: called with (repetitions done, repetitions).
        settings: the fields of :class:`Settings`; ``epsilon`` is needed.

    Raises:
        InputError: a setting, or how settings and records fit together; see ``docs/reasons.md``.
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    table, tested = _table(data, label), None if test is None else _table(test, label)
    asked = schema.schema if isinstance(schema, SchemaFile) else schema
    prepared = prepare(Settings(**settings), table, label, schema=asked, test=tested)
    result, trials = prepared.run(progress=progress)
    return Simulated(result, tuple(trials), prepared.notes, prepared.warnings)


def _table(data: str | Path | pd.DataFrame, label: str) -> pd.DataFrame:
    table = read_table(data) if isinstance(data, str | Path) else data
    check_label(table, label)
    return table
