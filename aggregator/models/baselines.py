"""What private accuracy is compared with: Naive Bayes on the bare records, and the largest class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.models.discrete import parameters_of
from aggregator.models.encoding import label_codes, report_codes
from aggregator.models.postprocess import Tables
from aggregator.models.scoring import Model

if TYPE_CHECKING:
    import pandas as pd

    from protocol.schema import Schema


def fit_plain(frame: pd.DataFrame, schema: Schema) -> Model:
    """Naive Bayes without privacy: add-one smoothed counts of the very codes that reports would carry.

        P(C_j) = (N_j + 1) / (N + k),   P(F = a | C_j) = (N_{a,j} + 1) / (N_j + A)

    where N_j counts class j of k among N rows, and N_{a,j} value a of A with class j.

    Raises:
        InputError: ``label_missing``, ``columns_missing``, ``value_refused``.
    """
    classes = len(schema.label.classes)
    labels = label_codes(frame, schema.label, substitute=True)
    codes = report_codes(frame, schema)
    prior = np.bincount(labels, minlength=classes) + 1.0
    joints = []
    for index, feature in enumerate(schema.features):
        cells = np.bincount(codes[:, index] * classes + labels, minlength=classes * feature.size)
        joint = cells.reshape(feature.size, classes) + 1.0
        joints.append(joint / joint.sum(axis=0))
    parameters = parameters_of(Tables(prior / prior.sum(), tuple(joints)))
    return Model(schema, parameters.log_prior, parameters.log_likelihood)


def fit_majority(frame: pd.DataFrame, schema: Schema) -> Model:
    """A model that always names the most frequent class: its features say nothing.

    Raises:
        InputError: ``label_missing``, ``value_refused``.
    """
    classes = len(schema.label.classes)
    prior = np.bincount(label_codes(frame, schema.label, substitute=True), minlength=classes) + 1.0
    silent = [np.zeros((feature.size, classes)) for feature in schema.features]
    return Model(schema, np.log(prior / prior.sum()), silent)
