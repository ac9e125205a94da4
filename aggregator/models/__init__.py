"""Naive Bayes from statistics: post-processing by name, the fit, and scoring of whole frames."""
