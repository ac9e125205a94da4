"""Commands about signed documents: trust roots, keys, campaigns and models.

In: schemas, keys, document files. Out: signed documents in a workspace, the folder that devices fetch from, and text.
Each file is named after its command.
"""
