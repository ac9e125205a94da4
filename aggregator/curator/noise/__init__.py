"""Kinds of real-valued noise for smooth sensitivity, by name, with their privacy cost, and releases with them.

In: the name of a noise, a privacy budget and a stream. Out: the constants of the noise with a proven privacy cost
(``calibrating``), and the noisy statistic, rounded to a public grid (``releasing``). ``protocol.noise`` has the exact
arithmetic and Student's t, which nodes use too.
"""
