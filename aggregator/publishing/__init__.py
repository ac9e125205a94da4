"""What is signed: workspace, keys, trust roots, schemas, campaigns, models, and the folder that devices fetch.

In: a schema file and parameters, or statistics. Out: signed files, each recorded in the publisher's workspace.
"""
