"""Statistics of nodes' sums, the common form that models are made from.

In: summaries, added or combined by a robust rule, or the decrypted sums of periods.
"""
