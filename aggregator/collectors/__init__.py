"""Two collectors: shares of devices' answers in, checked many at a time; the noisy total of all accepted ones out.

Start reading in :mod:`aggregator.collectors.verification`.
"""
