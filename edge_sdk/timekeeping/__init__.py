"""Which period it is, although a device's wall clock may be wrong, leap or stand still.

In: clocks, and the last sure time that the state remembers. Out: the present, and the period that a campaign may
open. ``periods`` holds the rules and reads no clock; ``dates`` writes times for people.
"""
