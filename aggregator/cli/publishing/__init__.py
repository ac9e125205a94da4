"""Commands about signed documents: trust roots, keys, campaigns and models."""
