"""A campaign in words, for the owner who decides whether the device takes part.

In: a verified campaign, the owner's policy, what was spent. Out: lines of text.
"""
