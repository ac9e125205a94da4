"""Which features a campaign should ask about, from a pilot or from private answers alone.

In: probabilities of values given the class with the noise that they have, shares of a fleet that answered so far, and
private accuracies of candidate models. Out: the next step of a series of campaigns, each with its reason; or the
features of a schema that a pilot recommends. Run by the analyst.

- ``from_pilot``: the work of ``hearsay design``. It uses ``forward_selection`` (which features), ``codings`` (which
  groups and bins) and ``schema_text`` (the schema file that it writes).
- ``from_private_pilot``: the work of ``hearsay design --private-epsilon``, with differential privacy for the pilot.
- ``from_answers``: the work of ``hearsay refine``: it reads a series' statistics. It uses ``steps`` (the rules of the
  next step) and ``candidates`` (sets of features, and which of them is best).
"""
