"""The discrete fit: parameters of a discrete Naive Bayes model from the statistics of a campaign.

Source: docs/math.md, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.postprocess.methods import DEFAULT, check_postprocess


class Parameters(NamedTuple):
    """Logarithms of probabilities. A record's score is the sum of one logarithm per feature and the prior's.

    Attributes:
        log_prior: shape (k,) float64, log P(class).
        log_likelihood: per observed feature, shape (values, k) float64, log P(value | class).
    """

    log_prior: Floats
    log_likelihood: tuple[Floats, ...]


def fit(statistics: Statistics, postprocess: str = DEFAULT) -> Parameters:
    """Naive Bayes from statistics. Run by the aggregator; a pure function.

    Args:
        statistics: statistics of a discrete campaign.
        postprocess: name of the post-processing, a key of :data:`aggregator.models.postprocess.methods.POSTPROCESSES`.

    Raises:
        InputError: ``postprocess_unknown``; ``not_fittable``, the campaign lacks the question about a feature's
            values or, with ``paper``, the question about the class alone.
    """
    to_tables = check_postprocess(postprocess)
    return parameters_of(to_tables(statistics, range(len(statistics.schema.observed))))


def parameters_of(tables: Tables) -> Parameters:
    """Logarithms of all probabilities in ``tables``."""
    return Parameters(np.log(tables.prior), tuple(np.log(table) for table in tables.likelihood))
