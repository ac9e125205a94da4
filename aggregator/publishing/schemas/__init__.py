"""Files of a schema: drafts from a pilot, the doubts about them, reading and writing, and files of projections.

In: a frame of pilot records, or a TOML file. Out: :class:`protocol.schema.Schema`, and the file's text.
"""
