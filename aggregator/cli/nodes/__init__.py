"""``hearsay nodes``: node lists and campaigns for nodes; and what files of nodes say, for ``show`` and ``verify``."""
