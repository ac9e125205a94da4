"""Forecast what to expect of a campaign before it is signed, and what it would need to reach a target.

In: a schema, ε, a number of devices, and a pilot's records or an assumed effect. Out: expected standard errors in
closed form, and expected accuracies of alternative campaigns, from simulated counts that pass through the same
estimates, fits and scores as the counts of real reports. Run by the analyst; no device takes part.
"""
