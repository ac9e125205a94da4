"""Find which features a campaign should ask about, from a pilot or from private answers alone. Run by the analyst.

From a pilot's records come the features, groups of values and bins that a campaign should ask about. From the
statistics and measured accuracies of a series of campaigns comes the next step of the series, with its reason.

- ``from_pilot``: the work of ``hearsay design``. It uses ``forward_selection`` (which features), ``codings`` (which
  groups and bins) and ``schema_text`` (the schema file that it writes).
- ``from_private_pilot``: the work of ``hearsay design --private-epsilon``, with differential privacy for the pilot.
- ``from_answers``: the work of ``hearsay refine``: it reads a series' statistics. It uses ``steps`` (the rules of the
  next step) and ``candidates`` (sets of features, and which of them is best).
"""
