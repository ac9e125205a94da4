"""The fit: parameters of a discrete Naive Bayes model from the statistics of a campaign.

Source: docs/math.md, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.models.postprocess import POSTPROCESSES, Tables, check_postprocess, table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]


class Parameters(NamedTuple):
    """Logarithms that scoring adds up.

    Attributes:
        log_prior: shape (k,), log P(class).
        log_likelihood: per feature, shape (values, k): log P(value | class).
    """

    log_prior: Floats
    log_likelihood: tuple[Floats, ...]


def fit(statistics: Statistics, postprocess: str = "simplex") -> Parameters:
    """Naive Bayes from statistics. Run by the aggregator; a pure function.

    Args:
        statistics: of a discrete campaign.
        postprocess: how estimates become probabilities: a name in
            :data:`aggregator.models.postprocess.POSTPROCESSES`.

    Raises:
        InputError: ``postprocess_unknown``; ``not_fittable``, the campaign does not ask for all it needs.
    """
    check_postprocess(postprocess)
    named = POSTPROCESSES[postprocess]
    features = range(len(statistics.schema.observed))
    tables = Tables(named.prior(statistics), tuple(table_of(named, statistics, index) for index in features))
    return parameters_of(tables)


def parameters_of(tables: Tables) -> Parameters:
    """The logarithms of positive probabilities."""
    return Parameters(np.log(tables.prior), tuple(np.log(table) for table in tables.likelihood))
