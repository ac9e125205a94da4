"""What private accuracy is compared with: Naive Bayes on the bare records, and the largest class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator.models.discrete import parameters_of
from aggregator.models.encoding import NO_NUMBER, label_codes, observe
from aggregator.models.postprocess import Tables
from aggregator.models.scoring import Model
from protocol import SCALE

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
    codes = observe(frame, schema).codes
    prior = np.bincount(labels, minlength=classes) + 1.0
    joints = []
    for index, feature in enumerate(schema.observed):
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
    silent = [np.zeros((feature.size, classes)) for feature in schema.observed]
    return Model(schema, np.log(prior / prior.sum()), silent)


def fit_plain_gaussian(frame: pd.DataFrame, schema: Schema, floor: float) -> Model:
    """Naive Bayes without privacy, with a normal distribution per number and class.

    Args:
        frame: records with their label.
        schema: theirs.
        floor: smallest variance of x = u/S.

    Raises:
        InputError: ``label_missing``, ``columns_missing``, ``value_refused``.
    """
    classes = len(schema.label.classes)
    labels = label_codes(frame, schema.label, substitute=True)
    sight = observe(frame, schema)
    tables = fit_plain(frame, schema).terms
    terms: list[Any] = list(tables)
    for index in schema.numeric:
        x = sight.numbers[:, index] / SCALE
        there = sight.numbers[:, index] != NO_NUMBER
        groups = [x[there & (labels == c)] for c in range(classes)]
        mean = np.array([group.mean() if len(group) else 0.0 for group in groups])
        variance = np.array([group.var() if len(group) else 1.0 for group in groups])
        terms[index] = (mean, np.maximum(variance, floor))
    prior = np.bincount(labels, minlength=classes) + 1.0
    return Model(schema, np.log(prior / prior.sum()), terms)
