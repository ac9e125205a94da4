"""Signed documents: the workspace with its keys and history, campaigns, models, trust roots.

In: a schema and the parameters of a campaign, or statistics and a campaign's file. Out: signed files, recorded in the
workspace, and the folder that devices fetch them from. ``privacy`` computes what a signed campaign really spends.

Everywhere ``now`` is in seconds since 1970, and None, where it may be given, means the present time. ``workspace`` is
the workspace that signs, ``role`` the kind of a document: root, campaign, model, or nodes for a node list.
"""
