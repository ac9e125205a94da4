"""The family and the post-processing of a curator's fit, chosen without a look at the records.

A Gaussian model releases two numbers per class and feature, and needs little of shape; a discrete one releases a table
of bins, and has the smaller noise per parameter where the classes are many or the records few. Which is more accurate
depends on n·ε, the classes and the features above all, and all of these are public. So both families are fitted to
invented records (:func:`aggregator.models.population.assumed`), with the noise of the terms, and classify other
invented records. No record of the curator takes part, so the choice costs nothing.

Source: docs/decisions/0098.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.curator.fitting import fit, model_of
from aggregator.curator.methods.table import DEFAULT
from aggregator.curator.records import Records
from aggregator.curator.terms import AUTO, FitTerms
from aggregator.models.population import assumed
from aggregator.models.postprocess import DEFAULT as POSTERIOR
from protocol.documents.campaign import DISCRETE, GAUSSIAN
from protocol.epsilon import MICRO
from protocol.schema import Schema

FLOORED = "floored"
EFFECT = 0.5
"""d of the invented records: the distance of two classes in standard deviations."""
MOST_RECORDS = 2000
"""Most invented records to learn from. For more of them ε grows in their place: the noise of a share depends on n·ε."""
TESTED = 2000
FITS = 6
CLEARLY = 0.01
"""Accuracy by which the Gaussian family must be ahead, besides two standard errors."""
_LARGEST_MICRO = MICRO * MICRO - 1


class Settled(NamedTuple):
    """Terms without ``auto``.

    Attributes:
        terms: the terms.
        why: how the family was chosen, as a sentence with public numbers only; empty if it was named.
    """

    terms: FitTerms
    why: str


def settled(terms: FitTerms, schema: Schema, records: int | None) -> Settled:
    """Choose what the terms leave to ``auto``. Run before a curator's records are read or paid for.

    The post-processing is ``floored`` for the sums of the default method, ``posterior`` for others. The family is
    chosen by invented records for the default method; other methods are for normal numbers.

    Args:
        terms: the terms; their family and post-processing may be ``auto``.
        schema: label and features.
        records: n, about how many records there are, if that is public; None if it is not.
    """
    if terms.postprocess == AUTO:
        terms = terms._replace(postprocess=FLOORED if terms.method == DEFAULT else POSTERIOR)
    if terms.family != AUTO:
        return Settled(terms, "")
    if not schema.numeric:
        return Settled(terms._replace(family=DISCRETE), "")
    if terms.method != DEFAULT:
        return Settled(terms._replace(family=GAUSSIAN), "")
    if records is None:
        why = (
            "family gaussian, since nothing was said of the number of records: where they are few, or the classes "
            "many, discrete may be better by ten points; say --about N, if that is public"
        )
        return Settled(terms._replace(family=GAUSSIAN), why)
    gaussian = _accuracies(terms._replace(family=GAUSSIAN), schema, records)
    discrete = _accuracies(terms._replace(family=DISCRETE), schema, records)
    ahead, error = float(np.mean(gaussian - discrete)), float(np.std(gaussian - discrete, ddof=1)) / sqrt(FITS)
    family = GAUSSIAN if ahead > max(CLEARLY, 2 * error) else DISCRETE
    why = (
        f"family auto: {family}; on invented records with this noise gaussian is right about {gaussian.mean():.1%} and "
        f"discrete about {discrete.mean():.1%}; no record of yours was looked at"
    )
    return Settled(terms._replace(family=family), why)


def _accuracies(terms: FitTerms, schema: Schema, records: int) -> Floats:
    """Accuracies of :data:`FITS` fits to invented records with the noise of the terms: float64."""
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
