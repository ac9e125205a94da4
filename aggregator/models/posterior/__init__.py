"""The post-processing ``posterior``: probabilities and moments as posterior means under noise of known variance.

In: statistics, or the estimated moments of one number. Out: probabilities of the classes and of the values given the
class (``tables``); means and variances of a number in every class (``moments``). Both compute every posterior mean
with ``noisy_gamma``.
"""
