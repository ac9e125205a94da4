"""The interface of all methods: records, public bounds, terms and randomness in; statistics and cost out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import ClassVar

from aggregator.curator.accounting import Cost
from aggregator.curator.records import Records
from aggregator.curator.terms import FitTerms, check_terms, terms_id
from aggregator.estimates.source import Origin
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import Curator, NoisySum, of_sums
from protocol.errors import InputError
from protocol.noise.sums import summed_subjects
from protocol.questions import ADD_REMOVE
from protocol.schema import Schema
from protocol.stream import Stream

PURPOSE = "a model from a curator's records"


class Method(ABC):
    """One way to release statistics with differential privacy; ``adjacencies``: kinds for which its ε is right."""

    name: ClassVar[str]
    adjacencies: ClassVar[tuple[str, ...]]

    def check(self, schema: Schema, terms: FitTerms) -> None:
        """Raise an error if the method does not cover the terms. It reads no record.

        Raises InputError: ``adjacency_uncovered``, ``noise_unknown``; ``no_numbers``, a normal family needs a number;
        the reasons of :func:`aggregator.curator.terms.check_terms`.
        """
        check_terms(terms)
        if terms.adjacency not in self.adjacencies:
            raise InputError(
                "adjacency_uncovered",
                f"'{self.name}' covers {', '.join(self.adjacencies)} and not '{terms.adjacency}'; 'sums' covers all",
            )
        self.check_noise(terms)
        summed_subjects(schema, terms.family)

    def check_noise(self, terms: FitTerms) -> None:
        """Raise ``noise_unknown`` if the terms name a noise: most methods have one kind only."""
        if terms.noise is not None:
            raise InputError("noise_unknown", f"'{self.name}' has discrete Laplace noise; name no noise")

    @abstractmethod
    def cost(self, schema: Schema, terms: FitTerms) -> Cost:
        """Return the cost of a fit, which depends on no record. Raises :meth:`check`'s errors, ``epsilon_invalid``."""

    def check_records(self, records: Records, terms: FitTerms) -> None:  # noqa: B027 - most methods take all records
        """Raise an error for records of which the method can release nothing. Run before a fit is paid."""

    @abstractmethod
    def release(self, records: Records, terms: FitTerms, stream: Stream) -> Statistics:
        """Return the statistics with noise, all that leaves the curator. Run after the cost was recorded.

        ``stream`` comes from a seed that is used once and kept secret. Raises the errors of :meth:`cost` and
        :meth:`check_records`.
        """


def statistics_of(sums: Sequence[NoisySum], count: int, schema: Schema, terms: FitTerms, cost: Cost) -> Statistics:
    """Return the statistics of noisy sums, one per released vector; a ``count`` from noisy counts may be below 1."""
    origin = Origin(terms_id(terms, schema), terms.method, PURPOSE)
    # ρ is shown with nine places, rounded up.
    rho = "none" if cost.rho is None else f"{ceil(cost.rho * 10**9) / 10**9:.9f}"
    entries = {"trust": "central", **terms.to_dict(), "rho": rho}
    curator = Curator(origin, count, tuple(one.released for one in sums), entries)
    return of_sums(sums, schema, terms.fit, curator, is_counted=terms.adjacency != ADD_REMOVE)
