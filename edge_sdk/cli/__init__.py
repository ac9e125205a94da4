"""The command line of a device, ``hearsay-edge``.

In: arguments, and records as JSON. Out: one text or one JSON object, and an exit status. Besides what
``edge_sdk`` needs, only the standard library is imported, so that the command starts fast.
"""
