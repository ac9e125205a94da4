"""Post-processings for sums over records with added noise: ``printed``, ``halves`` and ``floored``.

In: statistics. Out: probabilities of the classes and of the values given the class, and means and variances of a number
in every class. ``printed`` has the fractions of Marchioro et al. (2022), and ``halves`` the same with cells of at
least half a record; ``floored`` uses the same sums better.
"""
