"""Commands about finished models: ``hearsay predict`` and ``hearsay export-model``."""
