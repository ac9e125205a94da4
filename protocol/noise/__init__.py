"""Real-valued noise for smooth sensitivity, drawn exactly from a stream of random bytes, with a proven privacy cost.

A law (distribution), a privacy budget and a stream go in. The constants of the noise, proven in rational arithmetic,
and a noisy number, rounded to a public grid, come out (:mod:`protocol.noise.law`). The noise is a real number whose
bits are drawn only as far as the rounding needs them. So rounding is post-processing of the exact distribution and
costs no privacy. Nodes and curators use it; docs/smooth.md derives the bounds.
"""
