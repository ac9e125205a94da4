"""What commands do on a store of nodes' summaries, in place of what they do on a store of reports.

In: options of ``ingest``, ``status``, ``export`` and ``quarantine ls``, and such a store. Out: text.
"""
