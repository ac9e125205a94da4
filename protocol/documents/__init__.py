"""Signed documents: envelopes, the trust root, campaigns and models; also the provisioning file of a device.

The bytes of a file go in; values checked against docs/formats.md, sections 5 and 8, come out. Callers must verify the
signatures before they parse a payload. :mod:`protocol.documents.payload` has the readers of single fields.
"""
