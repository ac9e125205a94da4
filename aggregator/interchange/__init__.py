"""Models in the forms of other programs: JSON, and a fitted scikit-learn estimator. Run by the analyst.

In: a :class:`aggregator.models.scoring.Model`. Out: an object of the other program that predicts the same classes.
"""
