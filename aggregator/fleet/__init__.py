"""Closed fleets: whose devices may answer. ``roster`` holds their secrets, ``ids`` the report ids that follow."""
