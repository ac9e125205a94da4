"""Commands about reports: reading, storing, counting, exporting and removing them."""
