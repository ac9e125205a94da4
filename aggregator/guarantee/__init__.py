"""Guarantees of a campaign, and alarms about its reports.

In: a campaign, numbers of devices, counts of reports. Out: the privacy of shuffled reports, bounds of what lying
devices can do, the guarantee sheet, and p-values of counts that honest devices do not explain.
"""
