"""``hearsay-edge``: the device from a shell.

In: arguments, and records as JSON. Out: one text or one JSON object, and an exit status. Standard library only, so
that the command starts fast.
"""
