"""A node: a device that holds many people's records and sends one signed summary of noisy sums per period.

In: records from an iterator, a CSV file or SQLite. Out: one signed summary per campaign and period, paid in the ledger.
In a masked campaign the node is a *party*: its sums leave it encrypted, and only the total of many nodes is seen.
"""
