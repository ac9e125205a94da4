"""A store or a model as one self-contained HTML page. In: stores, a model, evaluations, a trust root. Out: HTML text.

In: stores, a model, evaluations, a trust root. Out: HTML text.
"""
