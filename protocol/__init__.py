"""What the device and the aggregator must agree on, and nothing else.

This package depends on the standard library, msgpack and PyNaCl. ``edge_sdk`` and ``aggregator``
depend on it and never on each other. Every module here is a pure function of its arguments:
bytes, integers, a seed and one reading of the clock go in; a value or a verdict comes out.

One report's way through it: record → ``schema`` (codes) → ``questions`` (one input) →
``mechanisms`` (one answer) → ``report`` (bytes) → ``batch`` (a file).
"""

SCALE = 1 << 16
"""S: a number scaled to [−1, 1] travels as an integer of [−S, S]."""

SPEC = "1.0"
"""Version of the formats that this package reads and writes, carried by every signed document."""
