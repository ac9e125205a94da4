"""What to expect of a campaign before any data is seen."""
