"""Real-valued noise, drawn exactly from a stream of random bytes, and its calibration to smooth sensitivity.

In: the name of a noise, a privacy budget and a stream. Out: the constants of the noise with a proven privacy cost
(``calibrating``), and the noisy statistic, rounded to a public grid (``releasing``). The noise is a real number whose
bits are drawn only as far as the rounding needs them. So rounding is post-processing of the exact distribution and
costs no privacy.
"""
