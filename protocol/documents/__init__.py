"""Signed documents: envelopes, the trust root, campaigns, models, and a device's provisioning file.

In: bytes of a file. Out: values that were checked against docs/formats.md, sections 5 and 8. Nothing is read
before its signatures are verified; :mod:`protocol.document` has the readers of single fields.
"""
