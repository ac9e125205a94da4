"""Find which features a campaign should ask about, from a pilot or from private answers alone. Run by the analyst.

``from_pilot`` is the work of ``hearsay design``, with ``forward_selection`` (which features), ``codings`` (which groups
and bins) and ``schema_text``; ``from_private_pilot`` that of ``design --private-epsilon``; ``from_answers`` that of
``hearsay refine``, with ``steps`` (rules of the next step) and ``candidates`` (sets of features, and the best).
"""
