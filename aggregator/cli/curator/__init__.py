"""Commands of a curator, who holds records in the clear: ``budget`` and ``fit``."""
