"""Real-valued noise for smooth sensitivity, drawn exactly from a stream of random bytes, with a proven privacy cost.

In: a law, a privacy budget and a stream. Out: the constants of the noise, proven in rational arithmetic,
and a noisy number, rounded to a public grid. The noise is a real number whose bits
are drawn only as far as the rounding needs them. So rounding is post-processing of the exact distribution and costs no
privacy. Used by nodes and by a curator; docs/smooth.md derives the bounds.
"""
