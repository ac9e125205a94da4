"""Commands about reports: how they come in, what is kept, and what they tell.

In: report files, a campaign, a store. Out: a store, estimates, files for archives and gateways, and text.
A file has the name of its command.
"""
