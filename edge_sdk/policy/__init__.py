"""The owner's limits: what campaigns may ask and spend on this device, and how often it answers in a series.

In: the file ``policy.toml``, or a policy that the application gives. Out: refusals of campaigns and of answers.
"""
