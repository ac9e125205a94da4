"""Baselines for the accuracy of private models: Naive Bayes on the plain records, and the most frequent class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.models.discrete import parameters_of
from aggregator.models.encoding import NO_NUMBER, EncodedFrame, label_codes, observe
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.scoring import Model
from protocol import SCALE
from protocol.documents.campaign import DISCRETE, Fit
from protocol.epsilon import MICRO
from protocol.schema import Schema


def fit_plain(frame: pd.DataFrame, schema: Schema) -> Model:
    """Naive Bayes without privacy, from add-one smoothed counts of the same codes that devices would report.

        P(C_j) = (N_j + 1) / (N + k),   P(F = a | C_j) = (N_{a,j} + 1) / (N_j + A)

    where k is the number of classes, A the number of values, N the number of rows, N_j the number of rows of class j,
    and N_{a,j} the number of rows of class j with value a. A row without a label counts as the label's substitute.

    Args:
        frame: records with labels.
        schema: schema of the records.

    Raises:
        InputError: ``label_missing``; ``columns_missing``, no feature has a column; ``duplicate_column``;
            ``digits_lost``; ``value_refused``, a value is not listed, and the schema refuses such values.
    """
    labels = label_codes(frame, schema.label, substitute=True)
    return plain_model(observe(frame, schema), labels, schema)


def plain_model(encoded: EncodedFrame, labels: NDArray[np.int64], schema: Schema) -> Model:
    """Naive Bayes without privacy from records that are encoded already, by the formulas of :func:`fit_plain`.

    Args:
        encoded: codes in reports, from :func:`aggregator.models.encoding.observe`.
        labels: shape (rows,) int64, class codes in reports.
        schema: schema of the records.
    """
    classes = len(schema.label.classes)
    codes = encoded.codes
    prior = np.bincount(labels, minlength=classes) + 1.0
    joints = []
    for index, feature in enumerate(schema.observed):
        cells = np.bincount(codes[:, index] * classes + labels, minlength=classes * feature.size)
        joint = cells.reshape(feature.size, classes) + 1.0
        joints.append(joint / joint.sum(axis=0))
    parameters = parameters_of(Tables(prior / prior.sum(), tuple(joints)))
    return Model(schema, parameters.log_prior, parameters.log_likelihood)


def fit_majority(frame: pd.DataFrame, schema: Schema) -> Model:
    """A model that always predicts the most frequent class and ignores the features.

    Args:
        frame: records with labels. A row without a label counts as the label's substitute.
        schema: schema of the records.

    Raises:
        InputError: ``label_missing``; ``duplicate_column``; ``digits_lost``; ``value_refused``, a label is not listed,
            and the schema refuses such labels.
    """
    classes = len(schema.label.classes)
    prior = np.bincount(label_codes(frame, schema.label, substitute=True), minlength=classes) + 1.0
    uninformative = [np.zeros((feature.size, classes)) for feature in schema.observed]
    return Model(schema, np.log(prior / prior.sum()), uninformative)


def fit_plain_gaussian(frame: pd.DataFrame, schema: Schema, floor: float) -> Model:
    """Naive Bayes without privacy, with a normal distribution per number and class.

    The probabilities of classes and categories are add-one smoothed counts (:func:`fit_plain`). A class without any
    value of a number gets mean 0 and variance 1.

    Args:
        frame: records with labels.
        schema: schema of the records.
        floor: smallest variance of a number scaled to [−1, 1]. Smaller variances become ``floor``.

    Raises:
        InputError: ``label_missing``; ``columns_missing``, no feature has a column; ``duplicate_column``;
            ``value_refused``, a value is not listed, and the schema refuses such values.
    """
    labels = label_codes(frame, schema.label, substitute=True)
    return plain_gaussian_model(observe(frame, schema), labels, schema, floor)


def fit_plain_family(frame: pd.DataFrame, schema: Schema, fit: Fit) -> Model:
    """Naive Bayes without privacy, of the same family as a private model.

    Args:
        frame: records with labels.
        schema: schema of the records.
        fit: family and variance floor of the private model. ``discrete`` gives the model of :func:`fit_plain`, any
            other family that of :func:`fit_plain_gaussian`.

    Raises:
        InputError: all reasons of :func:`fit_plain`.
    """
    if fit.family == DISCRETE:
        return fit_plain(frame, schema)
    return fit_plain_gaussian(frame, schema, fit.variance_floor_micro / MICRO)


def plain_gaussian_model(encoded: EncodedFrame, labels: NDArray[np.int64], schema: Schema, floor: float) -> Model:
    """Gaussian Naive Bayes without privacy from encoded records, as :func:`fit_plain_gaussian` makes it of a frame.

    Args:
        encoded: codes and numbers in reports, from :func:`aggregator.models.encoding.observe`.
        labels: shape (rows,) int64, class codes in reports.
        schema: schema of the records.
        floor: smallest variance of a number scaled to [−1, 1].
    """
    classes = len(schema.label.classes)
    terms: list[Any] = list(plain_model(encoded, labels, schema).terms)
    for index in schema.numeric:
        x = encoded.numbers[:, index] / SCALE
        present = encoded.numbers[:, index] != NO_NUMBER
        groups = [x[present & (labels == c)] for c in range(classes)]
        mean = np.array([group.mean() if len(group) else 0.0 for group in groups])
        variance = np.array([group.var() if len(group) else 1.0 for group in groups])
        terms[index] = (mean, np.maximum(variance, floor))
    prior = np.bincount(labels, minlength=classes) + 1.0
    return Model(schema, np.log(prior / prior.sum()), terms)
