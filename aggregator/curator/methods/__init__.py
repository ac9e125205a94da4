"""The methods of a curator's fit, one file each, with one interface (``base``).

In: records with public bounds, and the terms of the fit. Out: statistics whose numbers carry noise, and the cost.
"""
