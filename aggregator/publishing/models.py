"""Making a model file: fit statistics, add a card that says how the model was made, sign.

Source: docs/formats.md, section 5 (model); docs/math.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.estimates.source import Origin, joined_card, newest_origin
from aggregator.estimates.statistics import Statistics
from aggregator.models.fitting import NORMAL_FAMILIES, NormalParameters, fit
from aggregator.models.foresight import Foresight, foresee
from aggregator.models.published import interval_card
from aggregator.models.scoring import Model as Classifier
from aggregator.publishing.naming import SignedDocument
from aggregator.publishing.signatures import header_for
from aggregator.publishing.workspace import Workspace
from protocol import VERSION
from protocol.documents.asked import groupings
from protocol.documents.campaign import EVALUATION
from protocol.documents.envelope import read_envelope
from protocol.documents.model import (
    TRUNCATED_GAUSSIAN,
    DiscreteModel,
    GaussianModel,
    Model,
    Normal,
    build_payload,
)
from protocol.documents.payload import DAY_SECONDS, quoted
from protocol.errors import InputError
from protocol.schema import Schema

DEFAULT_LIFETIME_SECONDS = 365 * DAY_SECONDS


@dataclass(frozen=True, repr=False)
class SignedModel(SignedDocument):
    """A signed model with its file. ``model`` classifies, ``expected`` says how often it is right."""

    document: Model

    @property
    def model(self) -> Classifier:
        """The model as an object that classifies frames of records."""
        return Classifier.of(self.document)

    @property
    def expected(self) -> Foresight:
        """How often the model is expected to be right, by its card, with a warning if it may not beat guessing."""
        return Foresight.of_card(self.document.card)

    def _size(self) -> str:
        found = f"expected accuracy {self.expected.shown}; largest class {self.expected.largest_shown}"
        warning = "" if self.expected.warning is None else "; see expected.warning"
        return f"{len(self.raw)} bytes; {found}{warning}"

    def _repr_html_(self) -> str:
        return self.model._repr_html_()


def publish_model(
    workspace: Workspace,
    statistics: Statistics,
    campaign_bytes: bytes | Sequence[bytes] | None,
    now: int,
    *,
    postprocess: str | None = None,
    name: str | None = None,
    lifetime_seconds: int = DEFAULT_LIFETIME_SECONDS,
    foretell: Callable[[Statistics, str], Foresight] | None = foresee,
    card: Callable[[Statistics, str], dict[str, Any]] | None = None,
    rehearse: bool = False,
) -> bytes:
    """Fit a model, sign and record it as the next version of its name, and return its file. Run by operator or curator.

    Raises PolicyError ``batch_too_small``: fewer reports than the campaign's smallest batch. Raises InputError:
    ``postprocess_unknown``; ``not_fittable``: the campaign evaluates a model, asks about no feature, or lacks a
    question that the method needs; ``other_campaign``: the files are of other campaigns. Raises the errors of
    :meth:`Workspace.publish` and :meth:`Workspace.check_signed`.

    Args:
        statistics: statistics of one source, or of several joined ones (``aggregator.estimates.joining``).
        campaign_bytes: files of the sources' campaigns, which this workspace must have signed. None for statistics such
            as a curator's: nothing then says that this workspace asked for them.
        postprocess: how estimates become probabilities; by default as the statistics' ``fit`` says.
        name: name of the model; by default that of the campaign that was issued last.
        foretell: function of statistics and post-processing that returns how often the model is expected to be right,
            for its card; None leaves it out. It takes most of the time.
        card: function of the same two that returns the other facts of its card; None for :func:`model_card`.
        rehearse: record nothing. A curator so finds with made-up statistics what would refuse the model before ε is
            spent.
    """
    if campaign_bytes is not None:
        _check_asked(workspace, statistics, [campaign_bytes] if isinstance(campaign_bytes, bytes) else campaign_bytes)
    statistics.check_publishable()
    if statistics.fit.family == EVALUATION:
        raise InputError("not_fittable", "the campaign evaluates a model and makes none; see hearsay evaluate")
    check_parted(statistics.schema)
    if not statistics.schema.observed:
        raise InputError("not_fittable", "the campaign asks about no feature, so there is nothing to predict from")
    origin = newest_origin(statistics.sources)
    named, process = origin.name if name is None else name, postprocess or statistics.fit.postprocess
    facts = (card or model_card)(statistics, process)
    if foretell is not None:
        facts |= foretell(statistics, process).to_card()

    def payload_for(version: int, before: bytes | None) -> bytes:
        common = {
            "header": header_for(named, version, now, lifetime_seconds),
            "campaign": origin.id,
            "schema": statistics.schema._replace(groups=()),
            "statistics_id": statistics.statistics_id,
            "previous": before,
            "card": facts,
        }
        return build_payload(fitted_model(statistics, process, common))

    return workspace.publish("model", named, now, payload_for, rehearse=rehearse)


def _check_asked(workspace: Workspace, statistics: Statistics, files: Sequence[bytes]) -> None:
    for file in files:
        workspace.check_signed(file)
    for source in statistics.sources:
        if source.list_bytes is not None:
            workspace.check_signed(source.list_bytes, "nodes")
        if source.counts_bytes is not None:
            workspace.check_signed(source.counts_bytes, "counts")
    asked = {source.campaign.id for source in statistics.sources if source.campaign is not None}
    if {sha256(read_envelope(file, "campaign").payload).digest() for file in files} != asked:
        raise InputError("other_campaign", "the statistics are of another campaign than the file; give that one's file")


def fitted_model(statistics: Statistics, postprocess: str, common: dict[str, Any]) -> Model:
    """Fit a model of the campaign's family, and return it unsigned. Run by :func:`publish_model`.

    A group's probability is divided equally among its values. ``common``: the fields of all models: header, campaign,
    schema, statistics_id, previous, card. Raises InputError ``postprocess_unknown``, ``not_fittable``.
    """
    groups = groupings(statistics.schema)
    log_prior, parameters = fit(statistics, postprocess)
    if statistics.fit.family in NORMAL_FAMILIES:
        terms = tuple(
            Normal(tuple(term.mean.tolist()), tuple(term.variance.tolist()))
            if isinstance(term, NormalParameters)
            else _rows(expanded(term, group))
            for term, group in zip(parameters, groups, strict=True)
        )
        is_truncated = statistics.fit.family == TRUNCATED_GAUSSIAN
        return GaussianModel(log_prior=tuple(log_prior.tolist()), terms=terms, is_truncated=is_truncated, **common)
    tables = tuple(_rows(expanded(np.asarray(table), group)) for table, group in zip(parameters, groups, strict=True))
    return DiscreteModel(log_prior=tuple(log_prior.tolist()), log_likelihood=tables, **common)


def check_parted(schema: Schema) -> None:
    """Raise ``not_fittable`` if a feature is in two of the observed ones: a model would count it twice."""
    members = [index for part in schema.parts for index in part]
    twice = [index for index in members if members.count(index) > 1] if schema.asked_as else []
    if twice:
        raise InputError(
            "not_fittable",
            f"{quoted(schema.ungrouped[twice[0]].name)} was asked about in several ways, alone or joined, and a model "
            "would count it twice; name one way for each feature (publish: --features; a series: the table [ask])",
        )


def _named(origin: Origin) -> str:
    return f"{origin.name}@{origin.version} {origin.id.hex()}"


def expanded(table: NDArray[np.float64], groups: Sequence[int] | None) -> NDArray[np.float64]:
    """Return a table of all codes of a feature, (codes, k) float64, from a table of its groups, (groups, k).

        P(code | class) = P(group of the code | class) / number of codes in the group

    Both tables are logarithms. Equal parts add the same number to the scores of all classes. ``groups``: the group of
    every code; None for a feature without groups, whose table is returned unchanged.
    """
    if groups is None:
        return table
    index = np.array(groups)
    return np.asarray(table[index] - np.log(np.bincount(index))[index, None], np.float64)


def _rows(table: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, table.tolist()))


def model_card(statistics: Statistics, postprocess: str) -> dict[str, Any]:
    """Return facts about how a model was made, by name, without floats; of joined statistics also ``campaigns``."""
    origin = newest_origin(statistics.sources)
    sources = statistics.sources
    several: dict[str, Any] = {}
    if len(sources) > 1:
        several["campaigns"] = [_named(source.origin) for source in sources if source.campaign is not None]
    if statistics.homogeneity is not None:
        several["homogeneity"] = statistics.homogeneity.verdict
    return {
        **(joined_card(sources) if several else sources[0].card()),
        **several,
        **interval_card(statistics),
        "campaign_name": origin.name,
        "postprocess": postprocess,
        "purpose": origin.purpose,
        "reports": int(statistics.reports),
        "software": f"hearsay {VERSION}",
    }
