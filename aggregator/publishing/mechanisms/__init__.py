"""Mechanisms of a campaign, their expected variances, and simulated answers, before any device answers.

In: a schema, a privacy budget ε and the analyst's choices. Out: a mechanism for each question, the expected variances
of the candidates, and the check before signing that the aggregator supports every mechanism.
"""
