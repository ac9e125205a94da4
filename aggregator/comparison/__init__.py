"""What changed between two models, and which changes are more than noise. Run by the analyst.

In: two models on one schema and, where reports are at hand, the statistics that each was made from. Out: one row per
parameter.
"""
