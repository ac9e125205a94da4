"""The present period, although a device's wall clock may be wrong, jump or stop.

In: the clocks, and the last confirmed time in the state. Out: the present time, and the period that a campaign may
open. ``periods`` holds the rules and reads no clock.
"""
