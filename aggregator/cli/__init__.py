"""``hearsay``: the aggregator from a shell.

In: a command line. Out: tables or one JSON object on standard output, notes on standard error, and an exit status.
``table`` lists the commands. The folders have names of halls and hold one file per command. All commands share
``options`` and ``output``.
"""
