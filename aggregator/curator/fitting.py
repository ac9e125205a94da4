"""A curator's fit under a budget: check everything, pay, release, sign. Only the signed model leaves the curator.

For example: ``fit_records("work", read_table("patients.csv"), load_schema("ward.toml").schema, terms, budget)`` with
``terms = FitTerms("sums", 500_000, adjacency=budget.adjacency)``; then ``.signed.save("ward.hsm")`` of the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.cards.card import full_card
from aggregator.common.arrays import Floats
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.accounting import Cost, Remainder
from aggregator.curator.budget import BudgetFile, record_bytes
from aggregator.curator.methods.table import DEFAULT, method_of
from aggregator.curator.records import Records, read_records
from aggregator.curator.terms import AUTO, FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import OF_SUMS, Curator
from aggregator.models.encoding import NO_NUMBER
from aggregator.models.population import assumed, check_pilot
from aggregator.models.postprocess.methods import check_postprocess
from aggregator.models.scoring import Model, model_of
from aggregator.publishing.models import SignedModel, publish_model
from aggregator.publishing.signatures import seconds_of
from aggregator.publishing.workspace import Workspace, open_workspace
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, GAUSSIAN, PilotCost
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.documents.payload import quoted
from protocol.epsilon import MICRO, format_micro
from protocol.errors import InputError
from protocol.questions import ADD_REMOVE
from protocol.schema import Schema
from protocol.stream import Stream

TAG = b"hearsay/1/central"
"""Tag of the stream of a fit's randomness."""


class CentralFit(NamedTuple):
    """What a signed model is made from: noisy statistics, their cost, and the terms of the fit. All of it may leave."""

    statistics: Statistics
    cost: Cost
    terms: FitTerms

    @property
    def model(self) -> Model:
        """The model in memory, made by the post-processing of the terms."""
        return model_of(self.statistics, self.terms.postprocess)


class FittedModel(NamedTuple):
    """A signed model that was fitted to a curator's records, with what was paid and what is left of the budget.

    ``query`` is the running number of the payment in the budget file, ``chosen`` says how ``auto`` chose the family.
    ``doubts`` are sentences about the exact records, such as clipped numbers or classes with hardly a record. They have
    no noise, so they are for the curator alone.
    """

    signed: SignedModel
    cost: Cost
    left: Remainder
    query: int
    doubts: tuple[str, ...]
    chosen: str = ""


def cost_of_fit(schema: Schema, terms: FitTerms) -> Cost:
    """Return the cost of a fit, before any record is read. Run by the curator, who must record it durably.

    Raises InputError ``method_unknown``, ``postprocess_unknown``; ``delta_invalid``: a δ that the method and its noise
    do not use; and as :meth:`aggregator.curator.methods.base.Method.cost`.
    """
    check_postprocess(terms.postprocess)
    cost = method_of(terms.method).cost(schema, terms)
    if terms.delta and not cost.delta:
        raise InputError("delta_invalid", "this method and its noise are private with δ = 0; name no δ")
    return cost


def fit(records: Records, terms: FitTerms, seed: bytes) -> CentralFit:
    """Release noisy statistics of records. Neither pays nor signs: the caller must record :func:`cost_of_fit` first.

    ``terms`` were fixed before the records were seen; ``seed`` is 32 new secret random bytes, used for this fit alone.
    Raises InputError: the reasons of :func:`cost_of_fit`; ``seed_invalid``.
    """
    cost = cost_of_fit(records.schema, terms)
    statistics = method_of(terms.method).release(records, terms, Stream(seed, TAG))
    return CentralFit(statistics, cost, terms)


EFFECT = 0.5
"""d of the invented records: the distance of two classes in standard deviations."""
MOST_RECORDS = 2000
"""Most invented records to learn from. For more of them ε grows in their place: the noise of a share depends on n·ε."""
TESTED = 2000
FITS = 6
CLEARLY = 0.01
"""Accuracy by which the Gaussian family must be ahead, besides two standard errors."""
_LARGEST_MICRO = MICRO * MICRO - 1


class SettledTerms(NamedTuple):
    """Terms of a fit without ``auto``, and a sentence of public numbers on how the family was chosen, or none."""

    terms: FitTerms
    why: str


def settled(terms: FitTerms, schema: Schema, records: int | None) -> SettledTerms:
    """Replace each ``auto`` in the terms by a choice. Run before a curator's records are read or paid for.

    The post-processing becomes ``learned``. The family is ``discrete`` without numbers, ``gaussian`` for other methods
    than ``sums``, else the better one on invented records with the terms' noise, which costs nothing (decision 98).
    ``records``: about how many there are, if that is public.
    """
    if terms.postprocess == AUTO:
        terms = terms._replace(postprocess=OF_SUMS)
    if terms.family != AUTO:
        return SettledTerms(terms, "")
    if not schema.numeric:
        return SettledTerms(terms._replace(family=DISCRETE), "")
    if terms.method != DEFAULT:
        return SettledTerms(terms._replace(family=GAUSSIAN), "")
    if records is None:
        why = (
            "family gaussian, since nothing was said of the number of records: where they are few, or the classes "
            "many, discrete may be better by ten points; say --about N, if that is public"
        )
        return SettledTerms(terms._replace(family=GAUSSIAN), why)
    gaussian = _accuracies(terms._replace(family=GAUSSIAN), schema, records)
    discrete = _accuracies(terms._replace(family=DISCRETE), schema, records)
    ahead, error = float(np.mean(gaussian - discrete)), float(np.std(gaussian - discrete, ddof=1)) / sqrt(FITS)
    family = GAUSSIAN if ahead > max(CLEARLY, 2 * error) else DISCRETE
    why = (
        f"family auto: {family}; on invented records with this noise gaussian is right about {gaussian.mean():.1%} and "
        f"discrete about {discrete.mean():.1%}; no record of yours was looked at"
    )
    return SettledTerms(terms._replace(family=family), why)


def _accuracies(terms: FitTerms, schema: Schema, records: int) -> Floats:
    """Return the accuracies of :data:`FITS` fits to invented records, with the terms' noise: float64."""
    rows = max(1, min(records, MOST_RECORDS))
    rng = np.random.default_rng(0)
    people = assumed(schema, EFFECT, rng, rows + TESTED)
    order = rng.permutation(rows + TESTED)
    learned, tested = people.take(order[:rows]), people.take(order[rows:])
    scaled = min(_LARGEST_MICRO, terms.epsilon_micro * max(records, 1) // rows)
    invented = Records(schema, learned.labels, *learned.reported, {}, ())
    found = []
    for number in range(FITS):
        made = fit(invented, terms._replace(epsilon_micro=max(1, scaled)), bytes([number + 1] * 32))
        guess = model_of(made.statistics, terms.postprocess).scores_of(tested.scored).argmax(axis=1)
        found.append(float((guess == tested.truth).mean()))
    return np.array(found)


SEED_BYTES = 32
REHEARSED = 100
"""Least number of made-up records by which a fit is rehearsed."""
FEWEST = 2
"""Fewest records of a class of which something can be said. Made-up records have as many of every class, or more."""


def fit_records(
    workspace: Workspace | str | Path,
    table: pd.DataFrame,
    schema: Schema,
    terms: FitTerms,
    budget: BudgetFile,
    *,
    name: str,
    missing: Collection[str] = MISSING_TOKENS,
    strict: bool = False,
    days: int = 365,
    about: int | None = None,
    pilots: Sequence[PilotCost] = (),
    now: int | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> FittedModel:
    """``hearsay fit``: pay from a budget, fit a model to records with noise, and sign the model. Run by the curator.

    Everything that can be refused without the records is refused before anything is paid, by a rehearsal on made-up
    records. So is a fit that the records themselves make impossible: that a model appears tells something of them, but
    only to those who know that a fit was tried. Raises InputError: ``adjacency_differs``: terms and budget have
    different adjacencies; ``terms_invalid``: ``days``; the reasons of :func:`cost_of_fit`,
    :func:`aggregator.models.population.check_pilot` and :func:`aggregator.curator.records.read_records`. Raises
    PolicyError ``data_unknown``, ``budget_exceeded``. Raises InputError, DocumentError, StorageError: the model can not
    be signed (:func:`aggregator.publishing.models.publish_model`), or the budget file not be used.

    Args:
        workspace: the workspace that signs the model, or its folder.
        table: the records as text, from :func:`aggregator.common.tables.read_table`, with all columns: the budget's
            digest covers them all.
        schema: label and features with public bounds and values, decided without these records.
        terms: terms of the fit, with the budget's adjacency; ``auto`` as :func:`settled` says.
        budget: the open budget file, to which the records are assigned.
        name: of the model.
        missing: texts of a missing value.
        strict: refuse numbers outside the bounds, in place of clipping them.
        days: lifetime of the model.
        about: about how many records there are, if that is public; for the family ``auto`` under ``add-remove``, where
            their exact number is private.
        pilots: private results that the schema holds, such as bins, and what they cost; the card says so.
        now: seconds since 1970; None asks the clock.
        random_bytes: ``random_bytes(n)`` returns n random bytes, for the noise.
    """
    budget.check_adjacency(terms.adjacency)
    signer = workspace if isinstance(workspace, Workspace) else open_workspace(workspace)
    moment = int(time.time()) if now is None else now
    lifetime = seconds_of(days)
    known = about if terms.adjacency == ADD_REMOVE else len(table)
    terms, chosen = settled(terms, schema, known)
    cost = cost_of_fit(schema, terms)
    rehearsed = fit(made_up_records(schema), terms, bytes(SEED_BYTES)).statistics
    terms_of_model: dict[str, Any] = {"name": name, "lifetime_seconds": lifetime, "card": full_card}
    made_up = _with_payments(rehearsed, budget, pilots)
    publish_model(signer, made_up, None, moment, foretell=None, rehearse=True, **terms_of_model)
    records = read_records(check_pilot(table, schema, missing), schema, strict=strict)
    method_of(terms.method).check_records(records, terms)
    method = terms.method if terms.noise is None else f"{terms.method} with {terms.noise} noise"
    spent = f"ε = {format_micro(terms.epsilon_micro)} divided {terms.division}"
    asked = f"fit {name!r}: {method}, {terms.family}, {spent}"
    query = budget.spend(budget.digest(record_bytes(table)), asked, cost)
    released = _with_payments(fit(records, terms, random_bytes(SEED_BYTES)).statistics, budget, pilots)
    raw = publish_model(signer, released, None, moment, **terms_of_model)
    signed = SignedModel(raw, parse_model(read_envelope(raw, "model").payload), signer.standing("model", raw))
    return FittedModel(signed, cost, budget.remaining(), query, tuple(doubts_of(records)), chosen)


def _with_payments(statistics: Statistics, budget: BudgetFile, pilots: Sequence[PilotCost]) -> Statistics:
    """Return the statistics with entries for the model's card: the budget's name, and what private pilots cost."""
    paid: dict[str, Any] = {"budget": budget.state().name}
    if pilots:
        paid["pilots"] = [one.shown for one in pilots]
    sources = tuple(
        replace(source, entries={**source.entries, **paid}) if isinstance(source, Curator) else source
        for source in statistics.sources
    )
    return replace(statistics, sources=sources)


def made_up_records(schema: Schema) -> Records:
    """Return uniform records about nobody, always the same: :data:`REHEARSED`, or :data:`FEWEST` of every class."""
    rng = np.random.default_rng(0)
    observed, classes = schema.observed, len(schema.label.classes)
    rows = max(REHEARSED, FEWEST * classes)
    labels = np.arange(rows, dtype=np.int64) % classes
    codes = np.stack([rng.integers(0, each.size, rows) for each in observed], axis=1) if observed else None
    numbers = np.full((rows, len(observed)), NO_NUMBER, np.int64)
    for index in schema.numeric:
        numbers[:, index] = rng.integers(-SCALE, SCALE + 1, rows)
    empty = np.empty((rows, 0), np.int64)
    return Records(schema, labels, empty if codes is None else codes.astype(np.int64), numbers, {}, ())


def doubts_of(records: Records) -> Iterator[str]:
    """Yield sentences about the exact records that a curator should read before the model is given away."""
    for name, count in records.clipped.items():
        if count:
            yield f"numbers of {quoted(name)} outside the schema's bounds, counted as the nearer bound: {count}"
    for name in records.at_bounds:
        yield (
            f"the bounds of {quoted(name)} are the smallest and the largest number of these records: if they were "
            "taken from the records, the model publishes them without noise; take bounds from public knowledge"
        )
    schema = records.schema
    sizes = np.bincount(records.labels, minlength=len(schema.label.classes))
    for of_class, size in zip(schema.label.classes, sizes.tolist(), strict=True):
        if size < FEWEST:
            yield f"class {quoted(of_class)} has fewer than {FEWEST} records: what the model says of it is noise"
    for feature, column in zip(schema.observed, records.columns, strict=True):
        if len(column) and (column == column[0]).all():
            yield f"{quoted(feature.name)} is the same in all records: it costs ε and tells nothing"
