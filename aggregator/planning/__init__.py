"""Plan a campaign before it is signed: what to ask, of how many devices, and what accuracy to expect.

In: a schema, an ε, a number of devices, a pilot's records or the private answers of earlier campaigns. Out: expected
accuracies and standard errors, and the features, groups of values and bins that a campaign should ask about.
"""
