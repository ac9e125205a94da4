"""Commands about reports: reading, storing, counting, exporting and removing them.

In: report files, a campaign, a store. Out: a store, estimates, files for archives and gateways, and text.
Each file is named after its command.
"""
