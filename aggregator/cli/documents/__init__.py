"""Commands about signed documents: trust roots, campaigns and models; the way to them, and what they say.

In: schemas, keys, document files. Out: signed documents in a workspace, the folder that devices fetch from, and text.
A file has the name of its command.
"""
