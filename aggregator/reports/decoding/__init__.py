"""From bytes to checked columns: the good records of a report file, and a reason for every other record."""
