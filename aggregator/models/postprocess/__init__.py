"""Post-processing: the named step from unbiased estimates to probabilities, one module per kind.

Start with ``methods``, which lists all post-processings by name.
"""
