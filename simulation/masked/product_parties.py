"""Real parties of the vertical form in memory: they count, encrypt, and the aggregator opens every product."""
