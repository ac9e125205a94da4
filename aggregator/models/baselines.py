"""Baselines for the accuracy of private models: Naive Bayes on the plain records, and the most frequent class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from aggregator.common.arrays import Floats, Integers
from aggregator.models.encoding import NO_NUMBER, EncodedFrame, label_codes, observe
from aggregator.models.scoring import Model
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, Fit
from protocol.epsilon import MICRO
from protocol.schema import Schema


def fit_plain(frame: pd.DataFrame, schema: Schema) -> Model:
    """Return Naive Bayes without privacy, from add-one smoothed counts of the same codes that devices would report.

        P(C_j) = (N_j + 1) / (N + k),   P(F = a | C_j) = (N_{a,j} + 1) / (N_j + A)

    k: number of classes; A: number of values; N: number of rows, N_j of class j, N_{a,j} of class j with value a. A row
    without a label counts as the label's substitute. Raises InputError: ``label_missing``; and the errors of
    :func:`aggregator.models.encoding.observe`.
    """
    labels = label_codes(frame, schema.label, substitute=True)
    return plain_model(observe(frame, schema), labels, schema)


def plain_model(encoded: EncodedFrame, labels: Integers, schema: Schema) -> Model:
    """Return the model of :func:`fit_plain` from encoded records and ``labels``, (rows,) int64 class codes."""
    classes = len(schema.label.classes)
    tables = []
    for index, feature in enumerate(schema.observed):
        cells = np.bincount(encoded.codes[:, index] * classes + labels, minlength=classes * feature.size)
        joint = cells.reshape(feature.size, classes) + 1.0
        tables.append(np.log(joint / joint.sum(axis=0)))
    return Model(schema, _log_prior(labels, schema), tables)


def _log_prior(labels: Integers, schema: Schema) -> Floats:
    prior = np.bincount(labels, minlength=len(schema.label.classes)) + 1.0
    return np.asarray(np.log(prior / prior.sum()), np.float64)


def fit_majority(frame: pd.DataFrame, schema: Schema) -> Model:
    """Return a model that always predicts the most frequent class; rows without a label count as its substitute."""
    labels = label_codes(frame, schema.label, substitute=True)
    uninformative = [np.zeros((feature.size, len(schema.label.classes))) for feature in schema.observed]
    return Model(schema, _log_prior(labels, schema), uninformative)


def fit_plain_family(frame: pd.DataFrame, schema: Schema, fit: Fit) -> Model:
    """Return Naive Bayes without privacy in the family, and with the variance floor, of ``fit``."""
    if fit.family == DISCRETE:
        return fit_plain(frame, schema)
    return fit_plain_gaussian(frame, schema, fit.variance_floor_micro / MICRO)


def fit_plain_gaussian(frame: pd.DataFrame, schema: Schema, floor: float) -> Model:
    """Return Naive Bayes without privacy: normal distributions for numbers, else the tables of :func:`fit_plain`.

    A number that no record of a class has gets mean 0 and variance 1. ``floor``: smallest variance of a number scaled
    to [−1, 1]. Raises the errors of :func:`fit_plain`.
    """
    labels = label_codes(frame, schema.label, substitute=True)
    return plain_gaussian_model(observe(frame, schema), labels, schema, floor)


def plain_gaussian_model(encoded: EncodedFrame, labels: Integers, schema: Schema, floor: float) -> Model:
    """Return the model of :func:`fit_plain_gaussian` from encoded records; arguments as of :func:`plain_model`."""
    model = plain_model(encoded, labels, schema)
    terms: list[Any] = list(model.terms)
    for index in schema.numeric:
        x = encoded.numbers[:, index] / SCALE
        present = encoded.numbers[:, index] != NO_NUMBER
        groups = [x[present & (labels == c)] for c in range(len(schema.label.classes))]
        mean = np.array([group.mean() if len(group) else 0.0 for group in groups])
        variance = np.array([group.var() if len(group) else 1.0 for group in groups])
        terms[index] = (mean, np.maximum(variance, floor))
    return Model(schema, model.log_prior, terms)
