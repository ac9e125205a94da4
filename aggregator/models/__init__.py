"""Naive Bayes models from statistics: post-processing, fit, and scoring of whole frames.

In: statistics (:mod:`aggregator.estimates`), and pandas frames of records. Out: model parameters, predictions,
accuracies, and projections fitted on a pilot.
"""
