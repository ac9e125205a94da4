"""Forecast what to expect of a campaign before it is signed, and what it would need to reach a target.

Expected standard errors are in closed form; expected accuracies come from simulated counts that pass through the same
estimates, fits and scores as those of real reports. Run by the analyst; no device takes part.
"""
