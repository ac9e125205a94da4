"""Real-valued noise for smooth sensitivity, drawn exactly from a stream of random bytes, with a proven privacy cost.

A law (distribution), a privacy budget and a stream go in; the constants of the noise and a noisy number, rounded to a
public grid, come out. Bits of the noise are drawn only as far as the rounding needs them, so rounding is
post-processing. Nodes and curators use it; docs/smooth.md derives the bounds.
"""
