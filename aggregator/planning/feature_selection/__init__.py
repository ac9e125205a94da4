"""Find which features a campaign should ask about, from a pilot or from private answers alone. Run by the analyst.

``from_pilot`` is the work of ``hearsay design``, ``from_private_pilot`` that of ``design --private-epsilon``,
``from_answers`` that of ``hearsay refine``.
"""
