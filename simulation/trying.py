"""``hearsay simulate`` as a Python function.

tried = simulation.simulate_campaign("mushroom.csv", "class", epsilon=1, mechanism="oue", repeats=5, seed=1)
tried.result["accuracy"]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from aggregator.common.notebooks import facts
from aggregator.common.tables import MISSING_TOKENS, read_table
from aggregator.publishing.ask_table import Ask, ask_of
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from protocol.errors import InputError
from protocol.schema import Schema
from simulation.experiment import Trial
from simulation.preparing import prepare
from simulation.settings import Settings


class Simulated(NamedTuple):
    """The results of a simulation.

    Attributes:
        result: the summary; the object that ``hearsay simulate --json`` prints.
        trials: all trials. The first one has its signed model, unless a curator fits.
        notes, warnings: the texts that the command prints before the summary.
    """

    result: dict[str, Any]
    trials: tuple[Trial, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        warnings = {f"warning {number}": text for number, text in enumerate(self.warnings, 1)}
        return facts("Simulation", {**self.result, **warnings})


def simulate_campaign(
    data: str | Path | pd.DataFrame,
    label: str | None = None,
    *,
    schema: SchemaFile | Schema | str | Path | None = None,
    ask: str | Sequence[str] | Ask | None = None,
    test: str | Path | pd.DataFrame | None = None,
    missing: Collection[str] = MISSING_TOKENS,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Simulated:
    """Simulate a campaign on the analyst's own records, as ``hearsay simulate`` does.

    Args:
        data: a CSV file, or a table of text from :func:`aggregator.common.tables.read_table`.
        label: name of the column to predict; None takes that of the schema.
        schema: of the records: a schema, or the path of a schema file; None drafts a schema from the records.
        ask: the features to ask about, as :func:`aggregator.operations.campaigns.plan_campaign` takes them.
        test: records to test on, in the forms of ``data``; None takes a part of the data.
        missing: texts that stand for a missing value.
        progress: called with (repetitions done, repetitions).
        settings: the fields of :class:`Settings`; ``epsilon`` is required.

    Raises:
        InputError: ``label_missing``: neither a label nor a schema; an unreadable file, a wrong setting, or settings
            that do not fit the records; see ``docs/reference/reasons.md``.
        TypeError: ``epsilon`` is missing, or a keyword is no field of :class:`Settings`.
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    table, tested = _table(data), None if test is None else _table(test)
    described, table_of_file = (schema.schema, schema.ask) if isinstance(schema, SchemaFile) else (schema, {})
    asked = ask_of(ask, table_of_file)
    if label is None:
        if described is None:
            raise InputError("label_missing", "name the column to predict, or give a schema, which says it")
        label = described.label.name
    prepared = prepare(Settings(**settings), table, label, schema=described, ask=asked, test=tested, missing=missing)
    result, trials = prepared.run(progress=progress)
    return Simulated(result, tuple(trials), prepared.notes, prepared.warnings)


def _table(data: str | Path | pd.DataFrame) -> pd.DataFrame:
    return read_table(data) if isinstance(data, str | Path) else data
