"""A trial of a signed campaign before any device has it.

In: a campaign's file and records that the analyst holds. Out: a report file with one made-up device per answer, which
every command takes as it takes the reports of real devices.
"""
