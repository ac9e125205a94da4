"""Commands that prepare a campaign: tables of pilots, schemas, projections, and what to ask of how many devices."""
