"""``hearsay``: the aggregator from a shell.

In: a command line. Out: tables or one JSON object on standard output, notes on standard error, and an exit status.
``table`` lists the commands. ``documents`` and ``reports`` hold one file per command. All commands share ``options``
and ``output``.
"""
