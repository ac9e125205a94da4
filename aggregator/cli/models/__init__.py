"""Commands about finished models: ``hearsay predict``, ``hearsay diff`` and ``hearsay export-model``."""
