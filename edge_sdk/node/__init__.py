"""A node: a device that holds many people's records and sends one signed summary of noisy sums per period.

In: records as mappings, from an iterator, a CSV file or SQLite; the campaign and the policy of the node's state. Out:
the bytes of one signed summary per campaign and period, paid in the ledger and stored until sent, like a device's
reports.

In a masked campaign a node is a *party*: its sums leave it encrypted, so that only the total of many nodes is seen. The
noise of one party is not enough to protect its records: the protection rests on the noise of other parties, and on the
dealer, who holds all keys. ``encryption`` keeps the node's own keys from the dealer's key books, and makes messages.

If there is no aggregator, ``exchanging`` unites verified summaries of other nodes and adds them.
"""
