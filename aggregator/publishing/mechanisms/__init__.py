"""Mechanisms of a campaign, their expected variances, and simulated answers, before any device answers."""
