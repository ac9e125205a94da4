"""The common form of all statistics: unbiased estimates with variances, the same for every kind of source.

:mod:`aggregator.estimates.reports` makes statistics from tallies of reports. Other kinds of counts have a module of
their own next to it. Models, planning and publishing read only the form.

Source: docs/math.md, section 1; docs/decisions/0052. Estimates may be negative. A second, named step turns estimates
into probabilities (``aggregator.models``).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.estimates.cells import cell_names, cells_of, question_name
from aggregator.estimates.showing import COLUMNS, rows
from aggregator.notebooks import facts, table
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.source import Source
    from protocol.documents.campaign import Campaign, Fit
    from protocol.schema import Schema

    Floats = NDArray[np.float64]

JOINED_ID = b"hearsay joined statistics v1"


@dataclass(frozen=True, eq=False)
class Statistics:
    """All estimates about one schema.

    Attributes:
        schema: label and features of the questions.
        fit: how a model is made from the estimates.
        questions: one estimate per question, for one source in the order of the campaign's questions.
        sources: one source, or several joined sources (``aggregator.estimates.joining``).
    """

    schema: Schema
    fit: Fit
    questions: tuple[QuestionEstimate, ...]
    sources: tuple[Source, ...]

    def __repr__(self) -> str:
        label = self.schema.label.name
        return f"Statistics(label {label!r}, {len(self.questions)} questions, {self.reports} reports)"

    @property
    def source(self) -> Source:
        """The only source. Joined statistics have several, and raise.

        Raises:
            InputError: ``several_sources``: the statistics are joined.
        """
        if len(self.sources) != 1:
            raise InputError(
                "several_sources", f"these statistics join {len(self.sources)} campaigns; name one campaign's alone"
            )
        return self.sources[0]

    @property
    def campaign(self) -> Campaign:
        """The campaign of the only source. Joined statistics have several, and raise.

        Raises:
            InputError: ``several_sources``: the statistics are joined.
        """
        return self.source.campaign

    @property
    def reports(self) -> int:
        """Number of reports or records behind the estimates, over all sources."""
        return sum(source.reports for source in self.sources)

    @property
    def statistics_id(self) -> bytes:
        """32 bytes: the id of a single source, or a digest of the sorted ids of several sources."""
        if len(self.sources) == 1:
            return self.sources[0].statistics_id
        return sha256(JOINED_ID + b"".join(sorted(source.statistics_id for source in self.sources))).digest()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Number of records and byte ranges that were not counted, by reason, over all sources."""
        found: dict[str, int] = {}
        for source in self.sources:
            for reason, count in source.rejected.items():
                found[reason] = found.get(reason, 0) + count
        return found

    @property
    def populations(self) -> dict[str, Any]:
        """What the two intervals are about, as texts for programs: ``devices``, ``population`` and ``assumes``.

        Joined statistics take the first two texts from the first source, and list the assumptions of all sources.
        """
        found = [source.populations() for source in self.sources]
        if len(found) == 1:
            return found[0]
        assumed = dict.fromkeys(str(one["assumes"]) for one in found)
        return {
            "devices": found[0]["devices"],
            "population": found[0]["population"],
            "assumes": "; ".join(["the sources are samples of one population", *assumed]),
        }

    def check_publishable(self) -> None:
        """Refuse estimates if any source has fewer reports than its campaign's minimum batch size.

        Raises:
            PolicyError: ``batch_too_small``: a source has fewer reports.
        """
        for source in self.sources:
            source.check_publishable()

    def frame(self) -> pd.DataFrame:
        """The estimates as a table: one row per question and cell. Estimates are n times a share or mean.

        ``question`` and ``cell`` name the estimate in words; ``kind``, ``feature``, ``power``, ``value`` and ``class``
        name it for programs (``value`` is an outcome's predicted class). ``sd``, ``low`` and ``high`` are about the
        population; ``devices_sd``, ``devices_low`` and ``devices_high`` are about these devices
        (:class:`QuestionEstimate`). These six are NaN if the question has no answers; the estimate is then 0.
        """
        import pandas as pd

        tables = []
        for found in self.questions:
            of_devices = found.devices_interval
            numbers = {"sd": found.sd, "low": found.low, "high": found.high}
            numbers |= {"devices_sd": found.devices_sd, "devices_low": of_devices.low, "devices_high": of_devices.high}
            cells = cells_of(found.subject, self.schema)
            columns = {
                "question": question_name(found.subject, self.schema),
                "cell": cell_names(found.subject, self.schema),
                "kind": found.subject.kind,
                "feature": [cell.feature for cell in cells],
                "power": pd.array([found.subject.power] * len(cells), dtype="Int64"),
                "value": [cell.value for cell in cells],
                "class": [cell.of_class for cell in cells],
                "n": found.n,
                "estimate": found.estimate,
            }
            tables.append(pd.DataFrame(columns | {name: _known(column) for name, column in numbers.items()}))
        return pd.concat(tables, ignore_index=True)

    def _repr_html_(self) -> str:
        names = ", ".join(source.campaign.header.name for source in self.sources)
        about: dict[str, object] = {"campaign": names, "reports": self.reports}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        for source in self.sources:
            if source.reports < source.campaign.min_batch_size:
                return facts("Estimates", {**about, "smallest batch": f"{source.campaign.min_batch_size}, not reached"})
        about |= {"assumed": self.populations["assumes"]}
        return facts("Estimates", about) + table(COLUMNS, rows(self.questions, self.schema))

    def to_json(self) -> dict[str, Any]:
        """Output of ``hearsay estimate --json``, for one source or several.

        For a question without answers the estimates are 0, and variances and interval ends are null.

        Statistics of one source hold ``counts`` in every question. Joined statistics hold the list ``sources``.
        """
        if len(self.sources) == 1:
            counts = [{"counts": self.source.counts(place)} for place in range(len(self.questions))]
            found = zip(self.questions, counts, strict=True)
            return {**self.source.to_json(), "questions": [self._question_json(*one) for one in found]}
        return {
            "reports": self.reports,
            "rejected": dict(self.rejected),
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations,
            "sources": [source.to_json() for source in self.sources],
            "questions": [self._question_json(found, {}) for found in self.questions],
        }

    def _question_json(self, found: QuestionEstimate, counts: dict[str, list[int]]) -> dict[str, Any]:
        kind, feature, _, power, of_class = found.subject
        return {
            "kind": kind,
            "feature": None if feature is None else self.schema.observed[feature].name,
            "power": power,
            "class": None if of_class is None else self.schema.label.classes[of_class],
            "cells": cell_names(found.subject, self.schema),
            "n": found.n,
            **counts,
            "estimates": _finite(found.estimate),
            "variances": _finite(found.variance),
            "low": _finite(found.low),
            "high": _finite(found.high),
            "devices_variances": _finite(found.devices_variance),
            "devices_low": _finite(found.devices_interval.low),
            "devices_high": _finite(found.devices_interval.high),
        }


def _known(values: Floats) -> Floats:
    """The values with NaN, which tables show as a blank, for every infinite value. Float64 of one shape."""
    return np.where(np.isfinite(values), values, np.nan)


def _finite(values: Floats) -> list[float | None]:
    """Float64 values, shape (K,), as a list with None (null in JSON) for every value that is not finite."""
    return [value if isfinite(value) else None for value in values.tolist()]
