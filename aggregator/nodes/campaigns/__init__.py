"""What a publisher signs for nodes, each of which holds many records: node lists, and campaigns that ask for sums.

In: public keys of nodes, schemas, an ε. Out: signed node lists (``.hsl``) and campaigns (``.hsc``), recorded in the
workspace; and the privacy sheet of such a campaign.
"""
