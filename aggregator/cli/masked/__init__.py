"""Commands of masked sums: the dealer's, and those with which an aggregator asks for a sum and decrypts it."""
