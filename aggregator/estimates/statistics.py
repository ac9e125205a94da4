"""The common form of all statistics: unbiased estimates with variances, the same for every kind of source.

Models, planning and publishing read only :class:`Statistics`. Source: docs/math.md, section 1; decision 52.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.common.notebooks import facts, table
from aggregator.estimates.cells import (
    COLUMNS,
    PARAMETER_COLUMNS,
    cell_names,
    cells_of,
    parameter_names,
    parameter_rows,
    question_name,
    rows,
)
from aggregator.estimates.conditional import Conditional, Published, conditionals
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.source import Source, campaign_of
from protocol.documents.campaign import Campaign, Fit
from protocol.errors import InputError
from protocol.questions import Subject
from protocol.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from aggregator.estimates.homogeneity import Homogeneity


JOINED_ID = b"hearsay joined statistics v1"


@dataclass(frozen=True, eq=False)
class Statistics:
    """All estimates about the label and features of one schema, with the sources of the counts.

    ``fit`` is how a model is made from the estimates. ``questions``: one estimate per question, for one source in the
    order of the campaign's questions. ``sources``: one, or several joined ones (``aggregator.estimates.joining``).
    ``homogeneity``: the test whether joined sources are samples of one population; None for one source.
    """

    schema: Schema
    fit: Fit
    questions: tuple[QuestionEstimate, ...]
    sources: tuple[Source, ...]
    homogeneity: Homogeneity | None = None

    def __repr__(self) -> str:
        label = self.schema.label.name
        return f"Statistics(label {label!r}, {len(self.questions)} questions, {self.reports} reports)"

    @property
    def source(self) -> Source:
        """The only source. Joined statistics have several sources, and raise InputError ``several_sources``."""
        if len(self.sources) != 1:
            raise InputError(
                "several_sources", f"these statistics join {len(self.sources)} campaigns; name one campaign's alone"
            )
        return self.sources[0]

    @property
    def campaign(self) -> Campaign:
        """The campaign of the only source; ``several_sources`` or ``no_campaign`` (``InputError``) if there is none."""
        return campaign_of(self.source)

    @property
    def reports(self) -> int:
        """Number of reports or records behind the estimates, over all sources."""
        return sum(source.reports for source in self.sources)

    @property
    def stated_reports(self) -> int:
        """:attr:`reports` as shown to people and programs. A noisy number of records stays as it is, also below 1."""
        return sum(source.stated_reports for source in self.sources)

    @property
    def statistics_id(self) -> bytes:
        """32 bytes: the id of a single source, or a digest of the sorted ids of several sources."""
        if len(self.sources) == 1:
            return self.sources[0].statistics_id
        return sha256(JOINED_ID + b"".join(sorted(source.statistics_id for source in self.sources))).digest()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Reason → number of records and byte ranges of report files that were not counted, over all sources."""
        found: dict[str, int] = {}
        for source in self.sources:
            for reason, count in source.rejected.items():
                found[reason] = found.get(reason, 0) + count
        return found

    @property
    def populations(self) -> dict[str, Any]:
        """Texts: who the intervals are about (``devices``, ``population``), and what is assumed (``assumes``).

        Joined statistics take the first two from the first source, and list what all sources assume.
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
        """Raise ``batch_too_small`` (``PolicyError``) if a source has fewer reports than may be published."""
        for source in self.sources:
            source.check_publishable()

    def frame(self, published: Published | None = None) -> pd.DataFrame:
        """Return the estimates as a table, a row per number of each question, then the pooled class shares (``prior``).

        ``estimate`` is n times a share or mean, with n the number of answers. ``question`` and ``cell`` name it in
        words; ``kind``, ``feature``, ``power``, ``value`` and ``class`` name it for programs (in an outcome question,
        ``value`` is the predicted class). ``sd``, ``low``, ``high`` are about the population, ``devices_sd``,
        ``devices_low``, ``devices_high`` about the devices that answered; NaN without answers, and where no interval
        may be stated, as under a robust rule. ``parameter`` is the ratio of estimates that a model uses
        (:mod:`aggregator.estimates.conditional`), with the ends of its intervals, ``parameter_low`` to
        ``devices_parameter_high``. ``published`` is the value that a model publishes
        (:func:`aggregator.models.published.published`); NaN without the argument.
        """
        import pandas as pd

        found = {one.place: one for one in conditionals(self.questions, self.schema)}
        tables = []
        for place, question in enumerate(self.questions):
            own = question.devices_interval
            numbers = {"sd": _stated(question, question.sd), "low": question.low, "high": question.high}
            numbers |= {"devices_sd": _stated(question, question.devices_sd)}
            numbers |= {"devices_low": own.low, "devices_high": own.high}
            # Tables show NaN as a blank; the sum leaves no −0.
            numbers = {name: np.where(np.isfinite(one), one + 0.0, np.nan) for name, one in numbers.items()}
            columns = self._named(question.subject, question.stated_n, question.estimate + 0.0) | numbers
            tables.append(pd.DataFrame(columns | _parameters(found.get(place), published, len(question.estimate))))
        if None in found:
            prior = found[None]
            blank = dict.fromkeys(("sd", "low", "high", "devices_sd", "devices_low", "devices_high"), np.nan)
            columns = self._named(prior.subject, prior.n, prior.n * np.nan_to_num(prior.raw)) | blank
            tables.append(pd.DataFrame(columns | _parameters(prior, published, len(prior.raw))))
        return pd.concat(tables, ignore_index=True)

    def _named(self, subject: Subject, n: int, estimate: Floats) -> dict[str, Any]:
        """Return the first columns of :meth:`frame`, up to ``estimate``, for the numbers of one question."""
        import pandas as pd

        cells = cells_of(subject, self.schema)
        return {
            "question": question_name(subject, self.schema),
            "cell": cell_names(subject, self.schema),
            "kind": subject.kind,
            "feature": [cell.feature for cell in cells],
            "power": pd.array([subject.power] * len(cells), dtype="Int64"),
            "value": [cell.value for cell in cells],
            "class": [cell.of_class for cell in cells],
            "n": n,
            "estimate": estimate,
        }

    def _repr_html_(self) -> str:
        names = ", ".join(source.origin.name for source in self.sources)
        about: dict[str, object] = {"campaign": names, "reports": self.stated_reports}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        for source in self.sources:
            if source.batch < source.origin.min_batch_size:
                return facts("Estimates", {**about, "smallest batch": f"{source.origin.min_batch_size}, not reached"})
        about |= {"assumed": self.populations["assumes"]}
        shown = facts("Estimates", about) + table(COLUMNS, rows(self.questions, self.schema))
        parameters = parameter_rows(conditionals(self.questions, self.schema), None, self.schema)
        return shown + (table(PARAMETER_COLUMNS, parameters) if parameters else "")

    def to_json(self, published: Published | None = None) -> dict[str, Any]:
        """Return the output of ``hearsay estimate --json``.

        Estimates without answers are 0; variances, ends of intervals and published values that there are not are null.
        Statistics of one source hold ``counts`` in every question; joined ones hold the list ``sources``.
        """
        parameters = [self._parameter_json(one, published) for one in conditionals(self.questions, self.schema)]
        if len(self.sources) == 1:
            counts = [{"counts": self.source.counts(place)} for place in range(len(self.questions))]
            found = zip(self.questions, counts, strict=True)
            questions = [self._question_json(*one) for one in found]
            return {**self.source.to_json(), "questions": questions, "parameters": parameters}
        return {
            "reports": self.stated_reports,
            "rejected": dict(self.rejected),
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations,
            "sources": [source.to_json() for source in self.sources],
            "questions": [self._question_json(found, {}) for found in self.questions],
            "parameters": parameters,
        }

    def _subject_json(self, subject: Subject) -> dict[str, Any]:
        kind, feature, _, power, of_class = subject[:5]
        return {
            "kind": kind,
            "feature": None if feature is None else self.schema.observed[feature].name,
            "power": power,
            "class": None if of_class is None else self.schema.label.classes[of_class],
            "model": subject.model,
        }

    def _parameter_json(self, found: Conditional, published: Published | None) -> dict[str, Any]:
        columns = _parameters(found, published, len(found.raw))
        return {
            **self._subject_json(found.subject),
            "cells": parameter_names(found.subject, self.schema),
            "n": found.n,
            "raw": _finite(columns.pop("parameter")),
            **{name.replace("parameter_", ""): _finite(column) for name, column in columns.items()},
        }

    def _question_json(self, found: QuestionEstimate, counts: dict[str, list[int]]) -> dict[str, Any]:
        return {
            **self._subject_json(found.subject),
            "cells": cell_names(found.subject, self.schema),
            "n": found.stated_n,
            **counts,
            "estimates": _finite(found.estimate),
            "variances": _finite(_stated(found, found.variance)),
            "low": _finite(found.low),
            "high": _finite(found.high),
            "devices_variances": _finite(_stated(found, found.devices_variance)),
            "devices_low": _finite(found.devices_interval.low),
            "devices_high": _finite(found.devices_interval.high),
        }


def _parameters(found: Conditional | None, published: Published | None, size: int) -> dict[str, Floats]:
    """Return the columns of :meth:`Statistics.frame` about a model's parameters: shape (size,), NaN where not known."""
    nothing = np.full(size, np.nan)
    columns = {"parameter": nothing, "published": nothing} if found is None else {"parameter": found.raw}
    if found is not None:
        value = None if published is None else published.get(found.subject)
        columns["published"] = nothing if value is None else value
    for prefix in ("", "devices_"):
        ends = None if found is None else found.devices if prefix else found.population
        columns[f"{prefix}parameter_low"] = nothing if ends is None else np.where(ends.determined, ends.low, np.nan)
        columns[f"{prefix}parameter_high"] = nothing if ends is None else np.where(ends.determined, ends.high, np.nan)
    return columns


def _stated(found: QuestionEstimate, deviations: Floats) -> Floats:
    """Return ``deviations`` (standard deviations or variances), or NaN for each if no interval may be stated."""
    return deviations if found.has_interval else np.full_like(deviations, np.nan)


def _finite(values: Floats) -> list[float | None]:
    """Return values as a list with None (null in JSON) for every value that is not finite, and 0 for −0."""
    return [value + 0.0 if isfinite(value) else None for value in values.tolist()]
