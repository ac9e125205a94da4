"""One fit of a curator, from records to statistics and a model in memory.

    records = read_records(frame, schema)
    found = fit(records, FitTerms("sums", 1_000_000), seed)
    found.model.accuracy(test)

The caller records the cost before it calls :func:`fit` (``cost_of_fit`` looks at no record), draws a fresh seed from
the operating system for every fit, and never keeps it.
"""

from __future__ import annotations

from typing import NamedTuple

from aggregator.curator.accounting import Cost
from aggregator.curator.methods.table import method_of
from aggregator.curator.records import Records
from aggregator.curator.terms import FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.models.discrete import fit as fit_discrete
from aggregator.models.gaussian import NormalParameters
from aggregator.models.gaussian import fit as fit_gaussian
from aggregator.models.postprocess import check_postprocess
from aggregator.models.scoring import Model
from protocol.documents.campaign import DISCRETE
from protocol.documents.model import TRUNCATED_GAUSSIAN
from protocol.errors import InputError
from protocol.schema import Schema
from protocol.stream import Stream

TAG = b"hearsay/1/central"
"""Tag of the stream of a fit's randomness."""


class CentralFit(NamedTuple):
    """Everything that leaves the curator after one fit.

    Attributes:
        statistics: noisy statistics.
        cost: what the fit cost.
        terms: the terms of the fit.
    """

    statistics: Statistics
    cost: Cost
    terms: FitTerms

    @property
    def model(self) -> Model:
        """The model in memory, made by the post-processing of the terms."""
        return model_of(self.statistics, self.terms.postprocess)


def cost_of_fit(schema: Schema, terms: FitTerms) -> Cost:
    """The cost of a fit, before any record is read. Run by the curator, who records it durably.

    Raises:
        InputError: ``method_unknown``, ``postprocess_unknown``; ``delta_invalid``, the terms have a δ that the method
            and its noise do not use; the reasons of :meth:`aggregator.curator.methods.base.Method.cost`.
    """
    check_postprocess(terms.postprocess)
    cost = method_of(terms.method).cost(schema, terms)
    if terms.delta and not cost.delta:
        raise InputError("delta_invalid", "this method and its noise are private with δ = 0; name no δ")
    return cost


def fit(records: Records, terms: FitTerms, seed: bytes) -> CentralFit:
    """Release noisy statistics of records. Run by the curator, after the cost was recorded.

    Args:
        records: from :func:`aggregator.curator.records.read_records`.
        terms: terms that were fixed before the records were seen.
        seed: 32 secret bytes from the operating system, used for this fit alone.

    Raises:
        InputError: the reasons of :func:`cost_of_fit`; ``seed_invalid``.
    """
    cost = cost_of_fit(records.schema, terms)
    statistics = method_of(terms.method).release(records, terms, Stream(seed, TAG))
    return CentralFit(statistics, cost, terms)


def model_of(statistics: Statistics, postprocess: str) -> Model:
    """A model in memory from statistics of any family and source.

    Raises:
        InputError: ``postprocess_unknown``, ``not_fittable``.
    """
    if statistics.fit.family == DISCRETE:
        discrete = fit_discrete(statistics, postprocess)
        return Model(statistics.schema, discrete.log_prior, discrete.log_likelihood)
    gaussian = fit_gaussian(statistics, postprocess)
    terms = [(one.mean, one.variance) if isinstance(one, NormalParameters) else one for one in gaussian.terms]
    is_truncated = statistics.fit.family == TRUNCATED_GAUSSIAN
    return Model(statistics.schema, gaussian.log_prior, terms, is_truncated=is_truncated)
