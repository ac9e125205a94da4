"""The rules that the device and the aggregator share: formats, coding of records, mechanisms, trust.

It depends on the standard library, msgpack and PyNaCl. No function reads a clock, opens a file, uses a network or draws
random bytes: these are arguments. A report is made in four steps: record → ``schema`` (value codes) → ``questions``
(the input of a question) → ``mechanisms`` (the noisy answer) → ``batches.report`` (bytes).
"""

SCALE = 1 << 16
"""S = 65536: a number of [−1, 1] is sent as an integer of [−S, S]."""

VERSION = "0.1.0"
"""Version of this software."""

SPEC = "1.0"
"""Version of the formats that this package reads and writes. Every signed document states this version."""
