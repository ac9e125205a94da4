"""What the aggregator signs: a workspace with its keys, campaigns, models, and what a signed file really spends."""
