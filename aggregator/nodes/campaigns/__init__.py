"""What a publisher signs for nodes, each of which holds many records: node lists, and campaigns that ask for sums."""
