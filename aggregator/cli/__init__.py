"""``hearsay``: the aggregator from a shell.

In: a command line. Out: tables or one JSON object on standard output, notes on standard error, and an exit status.
``table`` lists the commands, each of which has a file of its own.
"""
