"""Post-processing: the named step from unbiased estimates to probabilities, one module per kind.

In: statistics and the indices of observed features. Out: P(class) and P(value | class), all positive; for numbers, mean
and variance in every class. Start with ``methods``, which lists all post-processings by name.
"""
