"""Choosing: which features a campaign should ask about, from a pilot or from private answers alone.

In: probabilities of values given the class with the noise that they have, shares of a fleet that answered so far, and
private accuracies of candidate models. Out: the next step of a series of campaigns, each with its reason; or the
features of a schema that a pilot recommends. Run by the analyst; pure functions, no files.
"""
