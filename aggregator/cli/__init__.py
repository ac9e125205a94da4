"""The command ``hearsay``: one file per group of commands; what they say goes through ``output``."""
